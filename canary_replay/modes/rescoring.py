"""Score the stored responses of a suite's cases with today's rules: one case after another, memory flat."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from canary_replay import cassette as cassettes
from canary_replay.comparing import compare
from canary_replay.errors import DamagedFileError
from canary_replay.ledger import Scorecard, scorecard_path
from canary_replay.modes.selecting import EVERYTHING, Selection
from canary_replay.outcome import AcceptedOutcome, Outcome
from canary_replay.probing import BoundProbe
from canary_replay.project import CaseRef, LoadedSuite, ResolvedTarget, expected_of, request_for
from canary_replay.recording import Recording
from canary_replay.reporting import CaseResult, Problem
from canary_replay.request import Request, changes, likeness, request_key
from canary_replay.scoring import score_recording
from canary_replay.suite import Case

_SEARCHED = 2000  # cassettes looked at for the nearest recorded request


class Scorer:
    """Scores cases of one suite; one of these lives in each process."""

    def __init__(self, suite: LoadedSuite, selection: Selection, targets: Sequence[str]) -> None:
        self.suite = suite
        self.selection = selection
        self.targets = [suite.targets[name] for name in targets]
        self.probes = [bound for bound in suite.probes if selection.wants(bound.name, bound.category)]
        self.rule = suite.suite.pass_
        self.trials = suite.suite.trials
        self._folders = {  # text, not paths: building a path costs as much as scoring with a probe
            name: self._shown(cassettes.cassette_folder(suite.root, suite.name, name)) for name in targets
        }
        self._gone: list[AcceptedOutcome] = []
        self._nearest: _Nearest | None = None

    def results(self, refs: Iterable[CaseRef], *, after: str | None, to_the_end: bool) -> Iterator[CaseResult]:
        """The results of these cases, for each target in turn; accepted outcomes of cases that are gone come where they sort.

        :param after: the last case of the slice before; None for the first slice.
        :param to_the_end: this is the last slice.
        """
        path = scorecard_path(self.suite.root, self.suite.name, self.suite.reference)
        accepted = Scorecard(path, shown=self._shown(path), after=after)
        for ref, case in self.suite.cases(refs):
            then = accepted.of(ref.id, skipped=self._gone.append)
            yield from self._flush_gone()
            checks = [*self.probes, *self._expected(ref, case)]
            for target in self.targets:
                yield self._case(ref, case, target, checks, then if target.name == self.suite.reference else None)
        if to_the_end:
            accepted.rest(skipped=self._gone.append)
            yield from self._flush_gone()

    def _expected(self, ref: CaseRef, case: Case) -> list[BoundProbe]:
        return [bound for bound in expected_of(ref, case) if self.selection.wants(bound.name, "expectation")]

    def _flush_gone(self) -> Iterator[CaseResult]:
        """Cases that have accepted outcomes but are no longer asked; told only when the whole suite is replayed."""
        gone, self._gone = self._gone, []
        if not gone or self.selection != EVERYTHING:
            return
        for case in dict.fromkeys(one.case for one in gone):
            then = [one for one in gone if one.case == case]
            comparisons = tuple(compare(then, [], rule=self.rule))
            yield CaseResult(suite=self.suite.name, target=self.suite.reference, case=case, comparisons=comparisons)

    def _case(
        self,
        ref: CaseRef,
        case: Case,
        target: ResolvedTarget,
        checks: Sequence[BoundProbe],
        then: Sequence[AcceptedOutcome] | None,
    ) -> CaseResult:
        """One case of one target; ``then`` is None for a candidate, which has no scorecard."""
        recordings, problem = self._stored(ref, case, target)
        outcomes: list[Outcome] = []
        for recording in recordings:
            outcomes += score_recording(checks, case, recording)
        selected = {outcome.probe for outcome in outcomes} | {bound.name for bound in checks}
        if then is not None and self.selection != EVERYTHING:
            then = [one for one in then if one.probe in selected]
        before: Sequence[AcceptedOutcome] = () if then is None or not recordings else then
        return CaseResult(
            suite=self.suite.name,
            target=target.name,
            case=ref.id,
            origin=ref.origin,
            trials=len(recordings),
            noisy=_noisy(recordings),
            comparisons=tuple(compare(before, outcomes, rule=self.rule)),
            problem=problem,
        )

    def _stored(self, ref: CaseRef, case: Case, target: ResolvedTarget) -> tuple[tuple[Recording, ...], Problem | None]:
        """The recordings to score, and what is wrong with them; a stale or damaged cassette gives none."""
        shown = f"{self._folders[target.name]}/{cassettes.file_name(ref.id)}.json"
        request = request_for(case, target, self.suite)
        key = request_key(request)
        try:
            stored = cassettes.read(f"{self.suite.root}/{shown}", shown=shown)
            if stored is not None:
                cassettes.same_identity(stored, suite=self.suite.name, target=target.name, case=ref.id, shown=shown)
        except DamagedFileError as error:
            return (), Problem(kind="damaged", text=str(error))
        if stored is None:
            return (), Problem(kind="missing", text=self._missing(shown, target, key, request))
        if stored.key != key:
            return (), self._stale(shown, stored.request, request)
        kept = tuple(recording for recording in stored.recordings if recording.trial < self.trials)
        if len(kept) < self.trials:
            text = f"{shown} holds {len(kept)} of {self.trials} trials; record the others with: nox -s record"
            return kept, Problem(kind="incomplete", text=text)
        return kept, None

    def _stale(self, shown: str, then: Request, now: Request) -> Problem:
        from canary_replay.redact import Redactor, secrets_from  # only what is stale is shown

        table = self.suite.suite.redact
        hidden = Redactor(secrets_from(os.environ), emails=table.emails, patterns=table.patterns).neutral(now)
        found = changes(then, hidden)
        fields = ", ".join(change.field for change in found[:3]) or "a part that is redacted"
        more = f" and {len(found) - 3} more" if len(found) > 3 else ""
        text = f"{shown} is stale: {fields}{more} changed since it was recorded; record it again with: nox -s record"
        return Problem(kind="stale", text=text, changes=found)

    def _missing(self, shown: str, target: ResolvedTarget, key: str, request: Request) -> str:
        if self._nearest is None:
            self._nearest = _Nearest(self.suite.root)
        near = self._nearest.to(cassettes.target_folder(self.suite.root, self.suite.name, target.name), key, request)
        return f"{shown} does not exist; record it with: nox -s record{near}"

    def _shown(self, path: Path) -> str:
        return path.relative_to(self.suite.root).as_posix()


class _Nearest:
    """Finds the recorded request that is nearest to one that was never recorded; reads cassettes only when asked."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._known: dict[Path, list[tuple[str, str, Request]]] = {}

    def to(self, folder: Path, key: str, request: Request) -> str:
        """A remark for an error message: the nearest recorded case and the fields that differ; empty when there is none."""
        best = max(self._recorded(folder), key=lambda one: (one[1] == key, likeness(one[2], request)), default=None)
        if best is None:
            return ""
        case, its_key, its_request = best
        if its_key == key:
            return f"; the same request is recorded as case {case!r}: was it renamed?"
        fields = [change.field for change in changes(its_request, request)]
        return f"; the nearest recorded request is case {case!r}, which differs in {', '.join(fields[:3])}"

    def _recorded(self, folder: Path) -> list[tuple[str, str, Request]]:
        if folder not in self._known:
            found = []
            for path in sorted((folder / "cases").glob("*.json"))[:_SEARCHED]:
                try:
                    stored = cassettes.read(path)
                except DamagedFileError:
                    continue  # it is told where its own case is replayed
                if stored is not None:
                    found.append((stored.case, stored.key, stored.request))
            self._known[folder] = found
        return self._known[folder]


def _noisy(recordings: Sequence[Recording]) -> bool | None:
    """Whether trials answered differently; None when there are no two to compare."""
    if len(recordings) < 2:
        return None
    answers = {_answer(recording) for recording in recordings}
    return len(answers) > 1


def _answer(recording: Recording) -> Any:  # noqa: ANN401 - any hashable form of what was answered
    response = recording.response
    if response is None:
        return recording.digest
    calls = tuple((call.name, call.arguments) for call in response.tool_calls)
    return (response.text, calls, response.stop_reason, response.refusal)
