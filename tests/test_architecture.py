"""The map in docs/architecture.md is the code: every module, its one idea, and names that say something."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "canary_replay"
ROW = re.compile(r"^\| `([\w.]+)` \| (.+) \|$", re.MULTILINE)
SAY_NOTHING = {"utils", "util", "core", "base", "models", "helpers", "common", "misc", "manager"}


def module_name(file: Path) -> str:
    """The name of a module below the package (``probes.text``); of the package itself its own."""
    parts = file.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__") or PACKAGE.name


MODULES = {module_name(file): file for file in sorted(PACKAGE.rglob("*.py"))}


def drawn() -> dict[str, str]:
    """The rows of the map: module, idea."""
    return dict(ROW.findall((ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")))


def idea_of(file: Path) -> str:
    """The first line of a module's docstring; empty when it has none."""
    return (ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or "").partition("\n")[0]


IDEAS = {module: idea_of(file) for module, file in MODULES.items()}  # once: the parser fails after a test that went too deep


@pytest.mark.parametrize("module", MODULES)
def test_idea(module: str) -> None:
    """The first line of a module's docstring is its line in docs/architecture.md."""
    idea = IDEAS[module]

    assert idea, f"{module} has no docstring; its first line says the module's one idea"
    assert drawn().get(module) == idea, f"docs/architecture.md must have this row in its layer:\n| `{module}` | {idea} |"


def test_no_module_is_gone() -> None:
    """The map shows no module that does not exist."""
    assert sorted(drawn().keys() - MODULES.keys()) == []


def test_each_module_once() -> None:
    """A module stands in one layer."""
    names = [name for name, _ in ROW.findall((ROOT / "docs" / "architecture.md").read_text(encoding="utf-8"))]

    assert sorted(names) == sorted(set(names))


@pytest.mark.parametrize("module", MODULES)
def test_name(module: str) -> None:
    """A module's name says what is in it."""
    assert not SAY_NOTHING & set(module.split("."))


@pytest.mark.parametrize("module", MODULES)
def test_ideas_differ(module: str) -> None:
    """No two modules have the same idea."""
    idea = IDEAS[module]

    assert [other for other, its in IDEAS.items() if its == idea] == [module]
