"""Which cases, checks and targets a person asked for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from canary_replay.errors import UsageError, nearest, unknown
from canary_replay.project import CaseRef, LoadedSuite, Project, select
from canary_replay.suite import Expect


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


def concerned(project: Project, selection: Selection) -> list[LoadedSuite]:
    """The suites that a selection is about; a suite that has nothing of what was named is left out.

    A scope that no case of any suite is in leaves out none: there is nothing to judge, and the verdict says so.

    :raises UsageError: no suite has a case, check, category or target of a name; the message gives the nearest.
    """
    suites = list(project.suites)
    known = {ref.id for suite in suites for ref in suite.refs}
    for case in selection.cases:
        if case not in known:
            near = nearest(case, known)
            raise UsageError(
                f"there is no case {case!r}" + (f"; did you mean {near!r}?" if near else f" in {project.root.name!r}")
            )
    suites = [suite for suite in suites if not selection.cases or any(ref.id in selection.cases for ref in suite.refs)]
    suites = _with_any("target", selection.targets, [(suite, suite.targets.keys()) for suite in suites])
    suites = _with_any("check", selection.probes, [(suite, _checks(suite)) for suite in suites])
    suites = _with_any("category", selection.categories, [(suite, _categories(suite)) for suite in suites])
    if not selection.tags:
        return suites
    return [suite for suite in suites if selected(suite, selection)] or suites


def _with_any(kind: str, wanted: tuple[str, ...], offered: list[tuple[LoadedSuite, Iterable[str]]]) -> list[LoadedSuite]:
    """The suites that offer at least one of the names; every name must be offered by some suite."""
    offers = [(suite, frozenset(names)) for suite, names in offered]
    known = frozenset[str]().union(*(names for _suite, names in offers))
    for name in wanted:
        if name not in known:
            raise UsageError(unknown(kind, name, known))
    return [suite for suite, names in offers if not wanted or names & set(wanted)]


def _checks(suite: LoadedSuite) -> Iterable[str]:
    expected = (f"expect.{field.alias or name}" for name, field in Expect.model_fields.items())
    return [*(bound.name for bound in suite.probes), *(expected if _expects(suite) else ())]


def _categories(suite: LoadedSuite) -> Iterable[str]:
    return [*(bound.category for bound in suite.probes), *(("expectation",) if _expects(suite) else ())]


def _expects(suite: LoadedSuite) -> bool:
    return any(ref.judged for ref in suite.refs)


def selected(suite: LoadedSuite, selection: Selection) -> list[CaseRef]:
    """The cases of a suite that a person asked for, sorted by id; ids that other suites have are passed over."""
    if selection.all_cases:
        return suite.refs
    known = {ref.id for ref in suite.refs} if selection.cases else set()
    return select(suite, cases=[case for case in selection.cases if case in known], tags=selection.tags)
