"""What an installed package holds: ours alone, complete, and with its command."""

from __future__ import annotations

import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel, built from this checkout without a network."""
    pytest.importorskip("hatchling", reason="hatchling builds the wheel; it is in the dependency group 'tests'")
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (file,) = folder.glob("*.whl")
    return zipfile.ZipFile(file)


def test_holds_the_package_alone(wheel: zipfile.ZipFile) -> None:
    """Beside its metadata the wheel holds canary_replay and nothing else."""
    tops = {name.partition("/")[0] for name in wheel.namelist()}

    assert {top for top in tops if not top.endswith(".dist-info")} == {"canary_replay"}


def test_holds_the_whole_package(wheel: zipfile.ZipFile) -> None:
    """Every module is in the wheel, and the mark that the package is typed."""
    package = ROOT / "canary_replay"
    expected = {file.relative_to(ROOT).as_posix() for file in package.rglob("*.py")} | {"canary_replay/py.typed"}

    assert expected <= set(wheel.namelist())


def test_holds_nothing_that_was_built(wheel: zipfile.ZipFile) -> None:
    """No cache and no left-over of an editor is in the wheel."""
    assert [name for name in wheel.namelist() if "__pycache__" in name or name.endswith((".pyc", "~", ".orig", ".tmp"))] == []


def test_installs_the_command(wheel: zipfile.ZipFile) -> None:
    """The command canary-replay is an entry point of the wheel."""
    (entry_points,) = (name for name in wheel.namelist() if name.endswith(".dist-info/entry_points.txt"))

    assert "canary-replay = canary_replay.cli:main" in wheel.read(entry_points).decode()


def test_carries_the_licence(wheel: zipfile.ZipFile) -> None:
    """The licence travels with the package."""
    (licence,) = (name for name in wheel.namelist() if name.endswith("/LICENSE"))

    assert wheel.read(licence) == (ROOT / "LICENSE").read_bytes()


def test_replay_needs_no_client() -> None:
    """Nobody who only replays has to install a network client."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

    required = {requirement.partition(">")[0].partition("=")[0].strip() for requirement in project["dependencies"]}

    assert required == {"google-re2", "jsonschema", "msgspec", "pydantic", "tomli"}
