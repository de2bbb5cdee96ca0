"""Ask providers for what is missing, keep every answer in a run at once, and make complete new cases the baseline."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial
from typing import NamedTuple

import msgspec

from canary_replay import __version__, ledger, runs
from canary_replay import cassette as cassettes
from canary_replay.answering import Answerer, resolve
from canary_replay.cassette import Cassette
from canary_replay.embedded import serving
from canary_replay.errors import CanaryError, UsageError
from canary_replay.modes.selecting import EVERYTHING, Selection, concerned, selected
from canary_replay.outcome import accepted
from canary_replay.project import CaseRef, LoadedSuite, Project, ResolvedTarget, expected_of, request_for
from canary_replay.provider import Call, Provider, ask_trial, load_provider
from canary_replay.recording import Recording
from canary_replay.redact import Redactor, identifiers_from, secrets_from
from canary_replay.request import Request, request_key
from canary_replay.scoring import score_recording
from canary_replay.suite import Case


class SecretError(CanaryError):
    """Something that looks like a key would have reached the disk."""


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A trial that could not be recorded: who was asked what, and what the provider said."""

    suite: str
    target: str
    case: str
    trial: int
    message: str


class RecordReport(msgspec.Struct, kw_only=True):
    """What ``record`` did.

    :ivar run: the run's id; empty when nothing had to be asked.
    :ivar present: recordings that were there already, in cassettes or in earlier runs.
    :ivar recorded: recordings made now; ``resumed``: of those present, the ones that earlier runs had left unfinished.
    :ivar written: cassettes written, as paths from the project.
    :ivar accepted_failures: checks that fail in the new baseline and are known failures from now on, ``suite/target/case check``.
    :ivar awaiting: approved cases whose request changed, ``suite/target/case``: their new answers wait in the run.
    :ivar cost: US dollars of the answers of this run, as far as they are known; ``cost_unknown`` counts the others.
    """

    run: str = ""
    present: int = 0
    recorded: int = 0
    resumed: int = 0
    undecoded: int = 0
    client_drift: int = 0
    written: list[str] = msgspec.field(default_factory=list)
    approved: list[str] = msgspec.field(default_factory=list)
    accepted_failures: list[str] = msgspec.field(default_factory=list)
    awaiting: list[str] = msgspec.field(default_factory=list)
    failures: list[Failure] = msgspec.field(default_factory=list)
    cost: float = 0.0
    cost_unknown: int = 0
    interrupted: bool = False


class Progress:
    """What a person sees while recordings are made; this one shows nothing."""

    def start(self, total: int, answered_by: Sequence[str]) -> None:
        """So many recordings will be asked for, of these models."""

    def step(self, recording: Recording, *, cost: float) -> None:
        """One recording is on disk; ``cost`` is the sum so far, in US dollars."""

    def end(self) -> None:
        """No more will come."""


class _Planned(NamedTuple):
    """One case of one target, and which of its trials are there."""

    suite: LoadedSuite
    target: ResolvedTarget
    ref: CaseRef
    case: Case
    request: Request
    key: str
    stored: Cassette | None
    approved: bool
    found: dict[int, runs.Place]
    missing: tuple[int, ...]

    @property
    def name(self) -> str:
        return f"{self.suite.name}/{self.target.name}/{self.ref.id}"

    @property
    def current(self) -> bool:
        """Whether the cassette answers today's request, every trial of it."""
        if self.stored is None or self.stored.key != self.key:
            return False
        return {recording.trial for recording in self.stored.recordings} >= set(range(self.suite.suite.trials))


def record_project(
    project: Project,
    *,
    selection: Selection = EVERYTHING,
    environ: Mapping[str, str] = os.environ,
    progress: Progress | None = None,
) -> RecordReport:
    """Record what is missing.

    Every recording goes to a run first, synced to disk one by one, so that a broken run loses nothing: the next call asks
    only for what is still missing. A complete case that was never approved becomes the baseline; an approved one is never
    overwritten, its new answers wait in the run.

    :raises UsageError: a suite, a target or the environment is wrong, or another ``record`` is at work; nothing was asked then.
    """
    with runs.only_one(project.root):
        return _record(project, selection, environ, progress or Progress())


def _record(project: Project, selection: Selection, environ: Mapping[str, str], progress: Progress) -> RecordReport:
    report = RecordReport()
    plans = list(_plan(project, selection))
    for suite, target in {(id(plan.suite), plan.target.name): (plan.suite, plan.target) for plan in plans}.values():
        _one_answerer(suite, target, plans, environ)
    report.present = sum(plan.suite.suite.trials - len(plan.missing) for plan in plans)
    report.resumed = sum(len(plan.found) for plan in plans if not plan.current)
    asked = [plan for plan in plans if plan.missing]
    if asked:
        _ask_all(project, asked, environ, progress, report)
    _settle(project, plans, environ, report)
    return report


async def record_project_async(
    project: Project,
    *,
    selection: Selection = EVERYTHING,
    environ: Mapping[str, str] = os.environ,
    progress: Progress | None = None,
) -> RecordReport:
    """`record_project` for callers with an event loop: the calls run in threads of their own, the loop stays free."""
    return await asyncio.to_thread(record_project, project, selection=selection, environ=environ, progress=progress)


# ------------------------------------------------------------------------------------------------ what is missing
def _plan(project: Project, selection: Selection) -> Iterator[_Planned]:
    kept = _kept_in_runs(project)
    for suite in concerned(project, selection):
        for target in suite.targets.values():
            if selection.targets and target.name not in selection.targets:
                continue
            approved = _approved_cases(project, suite, target)
            for ref, case in suite.cases(selected(suite, selection)):
                expected_of(ref, case)  # a wrong expectation is told before anything is asked
                yield _plan_case((suite, target, ref, case), project=project, kept=kept, approved=approved)


def _plan_case(
    asked: tuple[LoadedSuite, ResolvedTarget, CaseRef, Case],
    *,
    project: Project,
    kept: Mapping[tuple[str, str, str, str], dict[int, tuple[bool, runs.Place]]],
    approved: frozenset[str],
) -> _Planned:
    suite, target, ref, case = asked
    path = cassettes.cassette_path(project.root, suite.name, target.name, ref.id)
    shown = path.relative_to(project.root).as_posix()
    stored = cassettes.read(path, shown=shown)
    if stored is not None:
        cassettes.same_identity(stored, suite=suite.name, target=target.name, case=ref.id, shown=shown)
    request = request_for(case, target, suite)
    key = request_key(request)
    wanted = set(range(suite.suite.trials))
    there = {recording.trial for recording in stored.recordings} if stored is not None and stored.key == key else set()
    in_runs = kept.get((suite.name, target.name, ref.id, key), {})
    takes_errors = case.expect.error not in (None, False)
    found = {trial: place for trial, (failed, place) in in_runs.items() if takes_errors or not failed}
    found = {trial: place for trial, place in found.items() if trial in wanted - there}
    missing = tuple(sorted(wanted - there - found.keys()))
    return _Planned(suite, target, ref, case, request, key, stored, ref.id in approved, found, missing)


def _kept_in_runs(project: Project) -> dict[tuple[str, str, str, str], dict[int, tuple[bool, runs.Place]]]:
    """The latest recording of each trial in the runs of earlier ``record``s, by (suite, target, case, key)."""
    kept: dict[tuple[str, str, str, str], dict[int, tuple[bool, runs.Place]]] = {}
    for head, place in runs.heads(project.root, command="record"):
        trials = kept.setdefault((head.suite, head.target, head.case, head.key), {})
        if not head.failed or head.trial not in trials:
            trials[head.trial] = (head.failed, place)
    return kept


def _approved_cases(project: Project, suite: LoadedSuite, target: ResolvedTarget) -> frozenset[str]:
    """The cases that stand in the target's ledger: approved stays approved, also when another target became the reference."""
    path = ledger.ledger_path(project.root, suite.name, target.name)
    shown = path.relative_to(project.root).as_posix()
    return frozenset(approval.case for approval in ledger.approvals(path, shown=shown))


def _one_answerer(suite: LoadedSuite, target: ResolvedTarget, plans: Sequence[_Planned], environ: Mapping[str, str]) -> None:
    """Refuse to mix who answers to ``default`` within one target: trials of two models are no baseline of either."""
    mine = [plan for plan in plans if plan.suite is suite and plan.target.name == target.name]
    if target.model != "default" or not any(plan.missing for plan in mine):
        return
    now = resolve(target.model, environ).shown
    before = {
        recording.by["model"]
        for plan in mine
        if plan.stored is not None and plan.stored.key == plan.key
        for recording in plan.stored.recordings
        if "model" in recording.by
    } | {runs.read_at(place).by.get("model", now) for plan in mine for place in list(plan.found.values())[:1]}
    if other := sorted(before - {now}):
        raise UsageError(
            f"{suite.path}: targets.{target.name}: its model is 'default', which was answered by {other[0]!r} so far and means "
            f"{now!r} now; set CANARY_MODEL={other[0]} to go on, or name the model in the suite"
        )


# ------------------------------------------------------------------------------------------------ asking
class _Asker:
    """Asks the trials of one target, a few at a time, and hands each recording over as it comes."""

    def __init__(
        self,
        plans: Sequence[_Planned],
        *,
        provider: Provider,
        answerer: Answerer,
        call: Call,
        by: dict[str, str],
        redactor: Redactor,
        keep: Callable[[Recording], None],
    ) -> None:
        self._plans = plans
        self._keep = keep
        self._provider = provider
        self._answerer = answerer
        self._call = call
        self._by = by
        self._redactor = redactor
        self._table = plans[0].suite.suite.record
        self._pace = _Pace(self._table.requests_per_minute)

    def recordings(self) -> Iterator[Recording]:
        """Every recording, in the order they end; each was kept by the thread that asked for it.

        The embedded model answers one at a time, as it has one processor. Whoever stops early still waits for the calls under
        way: their answers are paid for, and kept.
        """
        at_a_time = 1 if self._answerer.embedded else self._table.concurrency
        jobs = ((plan, trial) for plan in self._plans for trial in plan.missing)
        pool = ThreadPoolExecutor(at_a_time, thread_name_prefix="canary-record")
        waiting: set[Future[Recording]] = set()
        try:
            for plan, trial in jobs:
                waiting.add(pool.submit(self._ask, plan, trial))
                if len(waiting) >= at_a_time:
                    done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                    yield from (future.result() for future in done)
            while waiting:
                done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in done)
        finally:
            pool.shutdown(wait=True, cancel_futures=True)

    def _ask(self, plan: _Planned, trial: int) -> Recording:
        self._pace.wait()
        parameters = dict(plan.request.parameters)
        if isinstance(seed := parameters.get("seed"), int) and not isinstance(seed, bool):
            parameters["seed"] = seed + trial
        asked = msgspec.structs.replace(plan.request, parameters=parameters)
        recording = ask_trial(
            self._provider,
            msgspec.structs.replace(self._call, request=asked),
            suite=plan.suite.name,
            target=plan.target.name,
            case=plan.ref.id,
            trial=trial,
            key=plan.key,
            request=plan.request,
            retries=self._table.retries,
            redactor=self._redactor,
            by=self._by,
        )
        if self._answerer.embedded and recording.response is not None:  # a model on this machine is known to cost nothing
            recording = msgspec.structs.replace(recording, response=msgspec.structs.replace(recording.response, cost=0.0))
        self._keep(recording)
        return recording


class _Pace:
    """A rate limit that threads share: calls start at even distances."""

    def __init__(self, per_minute: float) -> None:
        self._gap = 60 / per_minute if per_minute else 0.0
        self._next = 0.0
        self._lock = threading.Lock()

    def wait(self) -> None:
        """Return when the next call may start."""
        if not self._gap:
            return
        with self._lock:
            start = max(self._next, time.monotonic())
            self._next = start + self._gap
        time.sleep(max(0.0, start - time.monotonic()))


def _ask_all(
    project: Project, plans: Sequence[_Planned], environ: Mapping[str, str], progress: Progress, report: RecordReport
) -> None:
    secrets = secrets_from(environ)
    groups: dict[tuple[str, str], list[_Planned]] = {}
    for plan in plans:
        groups.setdefault((plan.suite.name, plan.target.name), []).append(plan)
    with ExitStack() as stack:
        answerers = {name: resolve(group[0].target.model, environ) for name, group in groups.items()}
        servers = {
            name: stack.enter_context(serving(name, environ=environ))
            for name in dict.fromkeys(answerer.embedded for answerer in answerers.values())
            if name is not None
        }
        writer = runs.RunWriter(project.root, "record", guard=guard_of(secrets), by={"canary_replay": __version__})
        stack.callback(writer.close)
        report.run = writer.id
        progress.start(sum(len(plan.missing) for plan in plans), sorted({answerer.shown for answerer in answerers.values()}))
        stack.callback(progress.end)
        for name, group in groups.items():
            answerer, target, table = answerers[name], group[0].target, group[0].suite.suite
            server = servers[answerer.embedded] if answerer.embedded else None
            call = Call(
                request=group[0].request,
                model_override=answerer.litellm_model if answerer.litellm_model != target.model else None,
                api_base=f"{server.base_url}/v1" if server else target.api_base or answerer.api_base,
                api_key="embedded" if server else None,
                stored_host="http://embedded.invalid" if server else None,
                headers=target.headers,
                metadata=target.metadata,
                timeout=table.record.timeout,
                max_body_bytes=table.record.max_body_bytes,
            )
            redactor = Redactor(
                secrets,
                emails=table.redact.emails,
                patterns=table.redact.patterns,
                identifiers=identifiers_from(environ),
            )
            by = {"model": answerer.shown} | (server.identity if server else {})
            provider = load_provider(target.provider, project.root)
            asker = _Asker(
                group, provider=provider, answerer=answerer, call=call, by=by, redactor=redactor, keep=partial(_keep, writer)
            )
            takes_errors = {plan.ref.id for plan in group if plan.case.expect.error not in (None, False)}
            for recording in asker.recordings():
                _count(recording, report, takes_errors)
                progress.step(recording, cost=report.cost)


def _keep(writer: runs.RunWriter, recording: Recording) -> None:
    """Put a recording on disk; without its interactions where they would carry a key there."""
    try:
        writer.append(recording)
    except SecretError:
        writer.append(msgspec.structs.replace(recording, interactions=(), wire="left out: it held something like a key"))


def _count(recording: Recording, report: RecordReport, takes_errors: set[str]) -> None:
    response = recording.response
    if response is not None and response.error is not None and recording.case not in takes_errors:
        failure = Failure(
            suite=recording.suite,
            target=recording.target,
            case=recording.case,
            trial=recording.trial,
            message=(f"HTTP {response.error.status}: " if response.error.status else "") + response.error.message,
        )
        report.failures.append(failure)
        return
    report.recorded += 1
    report.undecoded += response is None
    report.client_drift += bool(recording.client_drift)
    if response is None or response.cost is None:
        report.cost_unknown += 1
    else:
        report.cost += response.cost


def guard_of(secrets: Sequence[str]) -> Callable[[bytes], None]:
    """A check of bytes before they are written.

    :raises SecretError: they hold a known key, or something of a key's shape.
    """
    scanner = Redactor(secrets)

    def check(data: bytes) -> None:
        if found := scanner.leaks(data):
            raise SecretError(f"something like a key would have reached the disk ({found[0].kind}); it was not written")

    return check


# ---------------------------------------------------------------------------------- making complete cases the baseline
def _settle(project: Project, plans: Iterable[_Planned], environ: Mapping[str, str], report: RecordReport) -> None:
    """Write the cassettes of complete cases, then approve the reference's new ones: scorecard first, ledger last.

    A crash in between is mended by the next ``record``: a cassette without a ledger line counts as never approved.
    """
    again = _kept_in_runs(project)
    fresh: dict[tuple[str, str], list[tuple[_Planned, Sequence[Recording]]]] = {}
    for before in plans:
        plan = before
        if plan.missing:
            approved = frozenset([plan.ref.id]) if plan.approved else frozenset[str]()
            asked = (plan.suite, plan.target, plan.ref, plan.case)
            plan = _plan_case(asked, project=project, kept=again, approved=approved)
        if plan.missing:
            continue
        if plan.approved:
            if not plan.current:
                report.awaiting.append(plan.name)
            continue
        recordings = _complete(project, plan)
        if not plan.current:
            report.written.append(_write(project, plan, recordings, environ))
        if plan.target.name == plan.suite.reference:
            fresh.setdefault((plan.suite.name, plan.target.name), []).append((plan, recordings))
    for cases in fresh.values():
        _approve(project, cases, environ, report)


def _complete(project: Project, plan: _Planned) -> Sequence[Recording]:
    """All trials of a case, from its cassette and from runs, in order."""
    trials: dict[int, Recording] = {}
    if plan.stored is not None and plan.stored.key == plan.key:
        path = cassettes.cassette_path(project.root, plan.suite.name, plan.target.name, plan.ref.id)
        whole = cassettes.read_whole(path, shown=path.relative_to(project.root).as_posix())
        trials = {recording.trial: recording for recording in (whole.recordings if whole else ())}
    trials |= {trial: runs.read_at(place) for trial, place in plan.found.items()}
    return [trials[trial] for trial in range(plan.suite.suite.trials)]


def _write(project: Project, plan: _Planned, recordings: Sequence[Recording], environ: Mapping[str, str]) -> str:
    path = cassettes.cassette_path(project.root, plan.suite.name, plan.target.name, plan.ref.id)
    cassettes.write(path, recordings, keep_wire=plan.suite.suite.keep_wire, guard=guard_of(secrets_from(environ)))
    return path.relative_to(project.root).as_posix()


def _approve(
    project: Project, cases: Sequence[tuple[_Planned, Sequence[Recording]]], environ: Mapping[str, str], report: RecordReport
) -> None:
    suite, target = cases[0][0].suite, cases[0][0].target
    path = ledger.scorecard_path(project.root, suite.name, target.name)
    new = {plan.ref.id for plan, _recordings in cases}
    shown = path.relative_to(project.root).as_posix()
    lines = [line for line in ledger.read_scorecard(path, shown=shown) if line.case not in new]
    for plan, recordings in cases:
        checks = (*suite.probes, *expected_of(plan.ref, plan.case))
        outcomes = [one for recording in recordings for one in score_recording(checks, plan.case, recording)]
        lines += [accepted(outcome) for outcome in outcomes]
        failing = dict.fromkeys(outcome.probe for outcome in outcomes if outcome.outcome != "passed")
        report.accepted_failures += [f"{plan.name} {probe}" for probe in failing]
    ledger.write_scorecard(path, lines)
    at, who = datetime.now(UTC).isoformat(timespec="seconds"), who_am_i(environ)
    ledger.append(
        ledger.ledger_path(project.root, suite.name, target.name),
        (
            ledger.Approval(
                case=plan.ref.id,
                action="first",
                at=at,
                who=who,
                reason="first recording",
                new=cassettes.digest_of_recordings(plan.key, recordings),
                key=plan.key,
                run=report.run,
            )
            for plan, recordings in cases
        ),
    )
    report.approved += [plan.name for plan, _recordings in cases]


def who_am_i(environ: Mapping[str, str]) -> str:
    """The name that the ledger writes: ``CANARY_USER``, else git's user name, else ``unknown``; never an e-mail address."""
    if name := environ.get("CANARY_USER"):
        return name
    import subprocess  # only an approval needs it

    try:
        found = subprocess.run(["git", "config", "user.name"], capture_output=True, text=True, check=False, timeout=10)  # noqa: S607 - whichever git the person uses
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    return found.stdout.strip() or "unknown"
