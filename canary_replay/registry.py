"""Names to extensions: each name is taken once, and an unknown one is answered with the nearest."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

from canary_replay.errors import UsageError, unknown

T = TypeVar("T")


class Registry(Generic[T]):
    """The known extensions of one kind.

    :param kind: what the entries are, as an error message calls them (``probe``).
    :param entry_points: the entry point group under which installed packages offer more of them.
    """

    def __init__(self, kind: str, *, entry_points: str) -> None:
        self.kind = kind
        self.entry_points = entry_points
        self._entries: dict[str, T] = {}
        self._installed_loaded = False

    def add(self, name: str, entry: T) -> None:
        """Take ``name`` for ``entry``.

        :raises UsageError: the name is taken; two extensions of one name would make reports ambiguous.
        """
        if name in self._entries:
            raise UsageError(f"there are two {self.kind}s named {name!r}; rename one of them")
        self._entries[name] = entry

    def get(self, name: str) -> T:
        """The entry called ``name``; installed packages are asked only when the built-ins lack it.

        :raises UsageError: nothing has that name.
        """
        if name not in self._entries:
            self.load_installed()
        try:
            return self._entries[name]
        except KeyError:
            raise UsageError(unknown(self.kind, name, self._entries)) from None

    def load_installed(self) -> None:
        """Import what installed packages offer under the entry point group; importing registers it."""
        if self._installed_loaded:
            return
        self._installed_loaded = True
        from importlib.metadata import entry_points  # 15 ms that a run with built-ins never pays

        for point in entry_points(group=self.entry_points):
            point.load()

    def discard(self, names: set[str]) -> None:
        """Forget these names, so that the file that defined them can be loaded again."""
        for name in names:
            self._entries.pop(name, None)

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, name: object) -> bool:
        return name in self._entries
