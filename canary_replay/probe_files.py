"""Python files of probes, loaded by path like a conftest: each suite sees the probes of the files it names, and no others."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from canary_replay.digest import digest
from canary_replay.errors import CanaryError, UsageError
from canary_replay.probing import Probe, forget_source, known_probes


class _ProbeFile(NamedTuple):
    """A file that was loaded: the digest of its text, and what it registered."""

    text: str
    probes: dict[str, Probe]


_loaded: dict[Path, _ProbeFile] = {}


def load_python(path: Path, *, shown: str) -> tuple[str, ...]:
    """Register the probes of a Python file; their names, sorted.

    A file is run once for as long as it stays the same. When it has changed, it is run anew and its probes replace the old ones.

    :raises UsageError: the file cannot be run, or one of its names is taken; the message names file, line and exception.
    """
    try:
        source = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{shown}: cannot be read: {error.strerror}") from None
    text = digest(source)
    known = _loaded.get(path)
    if known is not None:
        _forget(known)
    if known is None or known.text != text:
        _loaded.pop(path, None)
        _loaded[path] = known = _ProbeFile(text, _run(source, path, shown))
    else:
        _register(known.probes, shown)
    return tuple(sorted(known.probes))


def forget_all() -> None:
    """Take back the names of every Python file: another suite may use them for other probes."""
    for file in _loaded.values():
        _forget(file)


def _forget(file: _ProbeFile) -> None:
    """Take back the names that are this file's now; another file may have taken them since."""
    known_probes.discard(
        {name for name, probe in file.probes.items() if name in known_probes and known_probes.get(name) is probe}
    )


def _register(probes: dict[str, Probe], shown: str) -> None:
    for name, probe in probes.items():
        try:
            known_probes.add(name, probe)
        except UsageError as error:
            raise UsageError(f"{shown}: {error}") from None


def _run(source: bytes, path: Path, shown: str) -> dict[str, Probe]:
    """Run a file as a module of its own, known to `sys.modules` as pydantic and pickle need it; what it registered."""
    module = ModuleType(f"canary_replay_probes_{digest(str(path).encode())[:12]}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module
    forget_source(module.__name__)
    before = set(known_probes)
    try:
        exec(compile(source, shown, "exec", dont_inherit=True), module.__dict__)  # noqa: S102 - the project's own code
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a person's file raises is that person's mistake
        known_probes.discard(set(known_probes) - before)
        del sys.modules[module.__name__]
        raise UsageError(_problem(error, shown)) from None
    return {name: known_probes.get(name) for name in known_probes if name not in before}


def _problem(error: BaseException, shown: str) -> str:
    if isinstance(error, SyntaxError) and error.filename == shown:
        return f"{shown}:{error.lineno or 1}: is not Python: {error.msg}"
    lines = [line for frame, line in traceback.walk_tb(error.__traceback__) if frame.f_code.co_filename == shown]
    where = f"{shown}:{lines[-1] if lines else 1}"
    if isinstance(error, CanaryError):
        return f"{where}: {error}"
    words = " ".join(str(error).split())
    return f"{where}: cannot be loaded: {type(error).__name__}" + (f": {words}" if words else "")
