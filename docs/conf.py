"""Sphinx's configuration, and the reference pages of the probes, which are written from the probes themselves."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from importlib.metadata import version as installed_version
from inspect import cleandoc
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from sphinx.application import Sphinx

import canary_replay.probes  # noqa: F401 - importing registers the built-in probes
from canary_replay.probing import Probe, known_probes

project = "canary-replay"
author = "The canary-replay authors"
version = release = installed_version("canary-replay")

extensions = ["myst_parser", "sphinx.ext.autodoc"]
exclude_patterns = ["_build"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
autodoc_typehints = "description"
nitpicky = True

html_theme = "furo"
html_title = "canary-replay"

PROBE_PAGES = Path(__file__).parent / "reference" / "probes"
IVAR = re.compile(r"^:ivar ([^:]+):\s*(.*)$")


def setup(app: Sphinx) -> None:
    """Write the probe pages before Sphinx looks for pages."""
    app.connect("builder-inited", lambda _app: write_probe_pages(PROBE_PAGES))


def write_probe_pages(folder: Path) -> None:
    """One page for each registered probe, and their index by category; pages of probes that are gone are removed."""
    probes = sorted((known_probes.get(name) for name in known_probes), key=lambda probe: (probe.category, probe.name))
    pages = {f"{probe.name}.rst": page_of(probe) for probe in probes} | {"index.rst": index_of(probes)}
    folder.mkdir(parents=True, exist_ok=True)
    for old in set(folder.glob("*.rst")) - {folder / name for name in pages}:
        old.unlink()
    for name, text in pages.items():
        if not (folder / name).exists() or (folder / name).read_text(encoding="utf-8") != text:  # or Sphinx rereads all
            (folder / name).write_text(text, encoding="utf-8")


def index_of(probes: list[Probe]) -> str:
    """The list of the probes, category by category."""
    lines = [*heading("Probes", "="), "Every built-in probe, by category. A suite uses one by its name.", ""]
    for category in dict.fromkeys(probe.category for probe in probes):
        lines += [*heading(category.capitalize(), "-"), ".. toctree::", "   :maxdepth: 1", ""]
        lines += [f"   {probe.name}" for probe in probes if probe.category == category] + [""]
    return "\n".join(lines) + "\n"


def page_of(probe: Probe) -> str:
    """A probe's own documentation, then its parameters."""
    lines = [*heading(probe.name, "="), f"Category: {probe.category} · version {probe.version}", "", paragraphs(probe.doc), ""]
    if probe.parameters is not None:
        lines += [*heading("Parameters", "-"), *parameter_lines(probe.parameters)]
    return "\n".join(lines) + "\n"


def paragraphs(doc: str) -> str:
    """A probe's docstring, its examples set apart."""
    return re.sub(r"\n+(?=(?:Passes|Fails):)", "\n\n", cleandoc(doc))


def parameter_lines(model: type[BaseModel]) -> Iterator[str]:
    """A definition for each parameter: name, type, default, meaning."""
    meanings = ivars(model.__doc__ or "")
    schema = model.model_json_schema(by_alias=True)
    for field, info in model.model_fields.items():
        shown = info.alias or field
        meaning = info.description or meanings.get(field, "")
        yield f"``{shown}`` ({type_of(schema['properties'][shown])}, {default_of(info)})"
        yield f"   {meaning or 'Described above.'}"
        yield ""


def default_of(info: FieldInfo) -> str:
    """What holds when a suite does not give the parameter."""
    if info.is_required():
        return "required"
    default = info.get_default(call_default_factory=True, validated_data={})
    return "optional" if default is None else f"default ``{json.dumps(default)}``"


def type_of(schema: dict[str, Any]) -> str:
    """A JSON type in a word or two."""
    if options := schema.get("anyOf"):
        return " or ".join(type_of(option) for option in options if option.get("type") != "null")
    if "enum" in schema:
        return " or ".join(f"``{json.dumps(value)}``" for value in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {type_of(schema.get('items', {}))}"
    return str(schema.get("type", "any value"))


def ivars(doc: str) -> dict[str, str]:
    """The ``:ivar name: meaning`` lines of a class docstring, with the lines that continue them."""
    found: dict[str, str] = {}
    names: list[str] = []
    for line in cleandoc(doc).splitlines():
        if match := IVAR.match(line):
            names = [name.strip() for name in match[1].split(",")]
            found |= dict.fromkeys(names, match[2])
        elif names and line.startswith(" "):
            found |= {name: f"{found[name]} {line.strip()}" for name in names}
        else:
            names = []
    return found


def heading(text: str, line: str) -> list[str]:
    """A heading of reStructuredText."""
    return [text, line * len(text), ""]
