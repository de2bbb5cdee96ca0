"""Probe files: tables in TOML, and Python files loaded by path, like a conftest."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from types import ModuleType

from canary_replay.digest import digest
from canary_replay.errors import CanaryError, UsageError
from canary_replay.probing import forget_source, known_probes

_loaded: dict[Path, set[str]] = {}  # which names each Python file registered, so that loading it again replaces them


def load_python(path: Path, *, shown: str) -> tuple[str, ...]:
    """Load a Python file; the names of the probes that it registered.

    A file that was loaded before is loaded anew and replaces its own probes, in this process too.

    :raises UsageError: the file cannot be imported; the message names file, line and exception.
    """
    name = f"canary_replay_probes_{digest(str(path).encode())[:12]}"
    forget(path)
    before = set(known_probes)
    module = ModuleType(name)
    module.__file__ = str(path)
    sys.modules[name] = module
    forget_source(name)
    try:
        code = compile(path.read_bytes(), shown, "exec", dont_inherit=True)
        exec(code, module.__dict__)  # noqa: S102 - it is the project's own code, as a conftest is
    except CanaryError as error:
        raise UsageError(f"{shown}: {error}") from None
    except SyntaxError as error:
        raise UsageError(f"{shown}:{error.lineno}: is not Python: {error.msg}") from None
    except Exception as error:  # noqa: BLE001 - whatever a person's file raises is her mistake, not our bug
        raise UsageError(f"{shown}:{_line_in(error, shown)}: could not be loaded: {type(error).__name__}: {error}") from None
    finally:
        _loaded[path] = set(known_probes) - before
    return tuple(sorted(_loaded[path]))


def forget(path: Path) -> None:
    """Take back the names that a Python file registered."""
    known_probes.discard(_loaded.pop(path, set()))


def forget_all() -> None:
    """Take back the names of every Python file: another project may use them for other probes."""
    for path in list(_loaded):
        forget(path)


def _line_in(error: BaseException, shown: str) -> int:
    """The line of the file that the exception passed through last; 1 when it never did."""
    lines = [line for frame, line in traceback.walk_tb(error.__traceback__) if frame.f_code.co_filename == shown]
    return lines[-1] if lines else 1
