"""Look for keys in what is about to be committed: file, line and kind, never the value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from canary_replay.errors import UsageError
from canary_replay.redact import Redactor, secrets_from

PLACES = ("cassettes", "suites", "probes", ".canary")


def scan(root: Path, paths: Sequence[Path] = (), *, environ: Mapping[str, str]) -> Iterator[str]:
    """One line for each thing that looks like a key, ``file:line: kind``.

    :param paths: files or folders; by default everything of the project that a recording could reach.
    :raises UsageError: a path does not exist.
    """
    redactor = Redactor(secrets_from(environ))
    for path in _files(root, paths):
        data = path.read_bytes()
        for leak in redactor.leaks(data):
            line = data.count(b"\n", 0, leak.start) + 1
            yield f"{_shown(root, path)}:{line}: {leak.kind}"


def _files(root: Path, paths: Sequence[Path]) -> Iterator[Path]:
    for place in paths or [root / name for name in PLACES if (root / name).exists()]:
        if not place.exists():
            raise UsageError(f"{place} does not exist")
        yield from sorted(one for one in place.rglob("*") if one.is_file()) if place.is_dir() else [place]


def _shown(root: Path, path: Path) -> str:
    try:
        return path.resolve().relative_to(root.resolve()).as_posix()
    except ValueError:
        return str(path)
