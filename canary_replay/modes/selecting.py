"""Which cases, checks and targets a person asked for."""

from __future__ import annotations

from typing import NamedTuple

from canary_replay.project import CaseRef, LoadedSuite, select


class Selection(NamedTuple):
    """Which cases and checks a person asked for; everything by default.

    :ivar cases: case ids; ``tags``: a scope expression; both narrow.
    :ivar probes: names of checks, expectations included; ``categories``: their categories.
    :ivar targets: names of targets.
    """

    cases: tuple[str, ...] = ()
    tags: str = ""
    probes: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()

    @property
    def all_cases(self) -> bool:
        """Whether no case is left out."""
        return not self.cases and not self.tags

    def wants(self, probe: str, category: str) -> bool:
        """Whether a check is asked for."""
        return (not self.probes or probe in self.probes) and (not self.categories or category in self.categories)


EVERYTHING = Selection()


def selected(suite: LoadedSuite, selection: Selection) -> list[CaseRef]:
    """The cases that a person asked for, sorted by id."""
    return suite.refs if selection.all_cases else select(suite, cases=selection.cases, tags=selection.tags)
