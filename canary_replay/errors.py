"""Every exception that is raised on purpose, and how a name that is not known is reported."""

from __future__ import annotations

from collections.abc import Iterable


class CanaryError(Exception):
    """The root of every exception that canary-replay raises on purpose."""


class UsageError(CanaryError):
    """The user's mistake: one line that says what happened, where, and what to do (exit code 2)."""


class DamagedFileError(UsageError):
    """A file of ours that cannot be read: damaged, truncated, empty, not UTF-8, or of a future version.

    :param path: the file, as the user would name it.
    :param place: where in the file (``line 3``, ``$.metadata.canary.key``); empty when it is the whole file.
    :param problem: what is wrong with it and what to do, one line.
    """

    def __init__(self, path: object, place: str, problem: str) -> None:
        where = f"{path}: {place}: " if place else f"{path}: "
        super().__init__(where + " ".join(problem.split()))
        self._given = (str(path), place, problem)

    def __reduce__(self) -> tuple[type[DamagedFileError], tuple[str, str, str]]:
        """Travel whole from a worker process to the one that reports it."""
        return type(self), self._given


class ProviderError(CanaryError):
    """A provider could not be asked or did not answer usably (exit code 5)."""


def unknown(kind: str, name: str, known: Iterable[str]) -> str:
    """The message for a name that does not exist: the nearest known one first, then all of them.

    :param kind: what the name should have named, with no article (``probe``, ``target``).
    :returns: for example ``there is no probe 'polit'; did you mean 'polite'? known: json, polite``.
    """
    names = sorted(known)
    message = f"there is no {kind} {name!r}"
    if near := nearest(name, names):
        message += f"; did you mean {near!r}?"
    else:
        message += ";"
    return f"{message} known: {', '.join(names) if names else 'none'}"


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that looks most like ``name``, or None when nothing is near."""
    import difflib  # only ever needed on the way to an error

    found = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return found[0] if found else None
