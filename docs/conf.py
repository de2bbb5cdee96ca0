"""Sphinx's configuration, and the reference pages of probes and suite files, which are written from the code itself."""

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

import canary_replay.probes
import canary_replay.suite
from canary_replay.probing import Probe, known_probes
from canary_replay.suite import Case, CasesFrom, Expect, PolicyTable, ProbeTable, RecordTable, RedactTable, Suite, Target

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

REFERENCE = Path(__file__).parent / "reference"
SUITE_TABLES: dict[str, type[BaseModel]] = {
    "The file itself": Suite,
    "[targets.<name>]": Target,
    "[[cases]]": Case,
    "expect, in a case": Expect,
    "[[cases_from]]": CasesFrom,
    "[[probes_inline]]": ProbeTable,
    "[record]": RecordTable,
    "[redact]": RedactTable,
    "[policy]": PolicyTable,
}
WORDS = {"object": "table", "number": "number", "integer": "whole number", "boolean": "true or false"}
IVAR = re.compile(r"^:ivar ([^:]+):\s*(.*)$")


def setup(app: Sphinx) -> None:
    """Write the generated pages before Sphinx looks for pages."""
    app.connect("builder-inited", lambda _app: write_pages())


def write_pages() -> None:
    """The page of the suite file, and those of the probes; pages of probes that are gone are removed."""
    write(REFERENCE / "suite-keys.rst", suite_page())
    write_probe_pages(REFERENCE / "probes")


def write(page: Path, text: str) -> None:
    """Write a page unless it says so already, or Sphinx would read it again."""
    page.parent.mkdir(parents=True, exist_ok=True)
    if not page.exists() or page.read_text(encoding="utf-8") != text:
        page.write_text(text, encoding="utf-8")


def suite_page() -> str:
    """The tables of a suite file, each with its keys."""
    lines = [*heading("Keys of a suite file", "="), cleandoc(canary_replay.suite.__doc__ or ""), ""]
    lines += ["A key that a table does not know is an error. Paths of files are relative to the suite file.", ""]
    for name, model in SUITE_TABLES.items():
        about = cleandoc(model.__doc__ or "").partition("\n\n")[0]
        lines += [*heading(name, "-"), about, "", *parameter_lines(model)]
    return "\n".join(lines) + "\n"


def write_probe_pages(folder: Path) -> None:
    """One page for each registered probe, and their index by category."""
    probes = sorted((known_probes.get(name) for name in known_probes), key=lambda probe: (probe.category, probe.name))
    pages = {f"{probe.name}.rst": page_of(probe) for probe in probes} | {"index.rst": index_of(probes)}
    for old in set(folder.glob("*.rst")) - {folder / name for name in pages}:
        old.unlink()
    for name, text in pages.items():
        write(folder / name, text)


def index_of(probes: list[Probe]) -> str:
    """The list of the probes, category by category."""
    lines = [
        *heading("Probes", "="),
        "Every built-in probe, by category. A suite uses one by its name; its parameters stand beside that.",
        "",
    ]
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
    """A line for each parameter: name, type, default, meaning."""
    by_name = model.model_config.get("populate_by_name", False)
    meanings = ivars(model.__doc__ or "")
    schema = model.model_json_schema(by_alias=True)
    for field, info in model.model_fields.items():
        shown = info.alias if info.alias and (field.endswith("_") or not by_name) else field
        meaning = info.description or meanings.get(field)
        kind = type_of(schema["properties"][info.alias or field])
        yield f"- ``{shown}`` ({kind}, {default_of(info)})" + (f": {meaning}" if meaning else "")
    yield ""


def default_of(info: FieldInfo) -> str:
    """What holds when a suite does not give the parameter."""
    if info.is_required():
        return "required"
    default = info.get_default(call_default_factory=True, validated_data={})
    return "optional" if default in (None, (), {}) or isinstance(default, BaseModel) else f"default ``{json.dumps(default)}``"


def type_of(schema: dict[str, Any]) -> str:
    """A JSON type in a word or two."""
    if options := schema.get("anyOf"):
        return " or ".join(type_of(option) for option in options if option.get("type") != "null")
    if "$ref" in schema or "additionalProperties" in schema:
        return "table"
    if "enum" in schema:
        return " or ".join(f"``{json.dumps(value)}``" for value in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {type_of(schema.get('items', {}))}"
    return WORDS.get(schema.get("type", ""), str(schema.get("type", "any value")))


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
