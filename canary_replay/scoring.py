"""The loop over the probes: what each of them says of a recorded answer, and what happens when one of them raises."""

from __future__ import annotations

import math
import re
import traceback
from collections.abc import Sequence
from pathlib import PureWindowsPath
from typing import NamedTuple

from canary_replay.digest import digest, digest_of
from canary_replay.outcome import Outcome, OutcomeKind, Score, Span
from canary_replay.probing import BoundProbe
from canary_replay.recording import Recording
from canary_replay.response import ErrorInfo, Response
from canary_replay.suite import Case

_JUDGES_ERRORS = frozenset({"error"})  # every other probe would be asked about an answer that never came
_FRAMES_KEPT = 8  # at either end of a deep traceback: enough to see who called and what broke
_LONGEST_MESSAGE = 2000  # characters of an exception's message; some quote the whole answer
_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]{4,}\b")
_ABSOLUTE_PATH = re.compile(r"(?<![\w.:/\\])(?:[A-Za-z]:)?[\\/](?:[^\s'\"\\/:<>|]+[\\/])+(?=[^\s'\"\\/:<>|])")


class WrongAnswerError(TypeError):
    """A probe returned something that is no score; the outcome is ``crashed``."""


class _Said(NamedTuple):
    """What a probe said, checked: a value from 0 to 1 or None, a reason that UTF-8 can hold, spans inside the text.

    Where the probe crashed, ``traceback`` is not empty.
    """

    value: float | None
    reason: str = ""
    evidence: tuple[Span, ...] = ()
    traceback: str = ""


def score_recording(
    probes: Sequence[BoundProbe],
    case: Case,
    recording: Recording,
    *,
    case_digest: str | None = None,
) -> list[Outcome]:
    """What every probe in scope says of one trial, in the order of ``probes``; one out of scope leaves no outcome at all.

    :param case_digest: `digest_of_case`, where the caller has it already; otherwise it is computed when a probe needs it.
    """
    tags = case.all_tags
    outcomes = []
    for bound in probes:
        if not bound.applies(tags):
            continue
        if case_digest is None and bound.probe.reads_case:
            case_digest = digest_of_case(case)
        said = _undecodable(recording) if recording.response is None else _ask(bound, case, recording.response)
        outcomes.append(
            _outcome(
                bound,
                said,
                case=case.id,
                trial=recording.trial,
                response_digest=recording.digest,
                rule=rule_digest(bound, case, case_digest),
                decoder=recording.decoder,
            )
        )
    return outcomes


def score(
    bound: BoundProbe,
    case: Case,
    response: Response,
    *,
    trial: int,
    response_digest: str,
    decoder: str,
    case_digest: str | None = None,
) -> Outcome:
    """What one probe says of one answer; whether the case is in the probe's scope is not asked here.

    ``crashed`` when the probe raises or returns anything but a `Score`, a bool or a number from 0 to 1; ``unscored`` when it
    cannot judge, or when the answer is an error and the probe does not judge errors; else passed means score >= threshold.
    """
    return _outcome(
        bound,
        _ask(bound, case, response),
        case=case.id,
        trial=trial,
        response_digest=response_digest,
        rule=rule_digest(bound, case, case_digest),
        decoder=decoder,
    )


def _ask(bound: BoundProbe, case: Case, response: Response) -> _Said:
    if response.error is not None and bound.probe.name not in _JUDGES_ERRORS:
        return _Said(None, _error_in_words(response.error))
    try:
        return checked(bound.call(case, response), response)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - other people's code: whatever it raises is a result, not our end
        return _crash(error)


def _outcome(bound: BoundProbe, said: _Said, *, case: str, trial: int, response_digest: str, rule: str, decoder: str) -> Outcome:
    kind: OutcomeKind
    if said.traceback:
        kind = "crashed"
    elif said.value is None:
        kind = "unscored"
    else:
        kind = "passed" if said.value >= bound.threshold else "failed"
    return Outcome(
        case=case,
        trial=trial,
        probe=bound.name,
        outcome=kind,
        score=said.value,
        response=response_digest,
        rule=rule,
        decoder=decoder,
        reason=said.reason,
        evidence=said.evidence,
        traceback=said.traceback,
    )


def rule_digest(bound: BoundProbe, case: Case, case_digest: str | None = None) -> str:
    """The digest of everything on our side that can change this outcome: the rule, and what of the case the probe reads."""
    if not bound.probe.reads_case:
        return bound.rule
    return digest(bound.rule.encode(), (case_digest or digest_of_case(case)).encode())


def digest_of_case(case: Case) -> str:
    """The digest of what a probe may read of a case: expectations, variables and tags (the prompt is in the recording's key)."""
    expect = case.expect.model_dump(mode="json", by_alias=True, exclude_none=True)
    return digest_of([expect, case.variables, sorted(case.all_tags)])


def checked(answer: object, response: Response) -> _Said:
    """A probe's answer as (value, reason, evidence).

    :raises WrongAnswerError: it is no `Score`, bool or number, the number is not from 0 to 1, or a span is outside the text.
    """
    if isinstance(answer, Score):
        value = None if answer.value is None else _number(answer.value)
        return _Said(value, _writable(answer.reason), _spans(answer.evidence, len(response.text)))
    return _Said(_number(answer), "", ())


def _number(value: object) -> float:
    if not isinstance(value, bool | int | float):
        raise WrongAnswerError(f"a probe returns a Score, a bool or a number from 0 to 1, not {type(value).__name__}")
    if math.isnan(value) or not 0 <= value <= 1:
        raise WrongAnswerError(f"a score is a number from 0 to 1, not {value!r}")
    return float(value) + 0.0  # -0.0 becomes 0.0: one zero, one way to write it


def _writable(reason: object) -> str:
    if not isinstance(reason, str):
        raise WrongAnswerError(f"the reason of a score is text, not {type(reason).__name__}")
    return reason if reason.isascii() else reason.encode("utf-8", "backslashreplace").decode()


def _spans(evidence: object, length: int) -> tuple[Span, ...]:
    if evidence == ():
        return ()
    if not isinstance(evidence, list | tuple):
        raise WrongAnswerError(f"the evidence of a score is a tuple of spans, not {type(evidence).__name__}")
    for span in evidence:
        if not isinstance(span, Span):
            raise WrongAnswerError(f"the evidence of a score is a tuple of spans; it holds a {type(span).__name__}")
        if not 0 <= span.start <= span.end <= length:
            raise WrongAnswerError(f"the span {span.start} to {span.end} is not inside the answer's {length} characters")
    return tuple(evidence)


def _error_in_words(error: ErrorInfo) -> str:
    status = f"HTTP {error.status}: " if error.status is not None else ""
    return _writable(f"the answer is an error: {status}{_shortened(' '.join(error.message.split()), 300)}")


def _undecodable(recording: Recording) -> _Said:
    if recording.decoder:
        reason = f"the decoder {recording.decoder!r} that this answer needs did not read it"
    elif recording.interactions:
        request = recording.interactions[-1].request
        reason = f"no decoder reads the answer to {request.method} {request.uri}; install one that does, or write it"
    else:
        reason = "no decoder reads this answer, and its bytes were not kept; install one and record the case again"
    return _Said(None, _writable(reason))


def _crash(error: BaseException) -> _Said:
    """The reason and the traceback of a crash, the same on every machine: no directories, no addresses, bounded in length."""
    last = "".join(traceback.format_exception_only(error)).strip()
    message = _writable(_shortened(_without_machine(last), _LONGEST_MESSAGE))
    if isinstance(error, WrongAnswerError):
        return _Said(None, _writable(str(error)), traceback=message)
    lines = _frames(error)
    if len(lines) > 2 * _FRAMES_KEPT:
        left_out = len(lines) - 2 * _FRAMES_KEPT
        lines = [*lines[:_FRAMES_KEPT], f"  ... {left_out} more frames", *lines[-_FRAMES_KEPT:]]
    reason = f"the probe raised {_shortened(' '.join(message.split()), 200)}"
    return _Said(None, reason, traceback="\n".join([*lines, message]))


def _frames(error: BaseException) -> list[str]:
    ours = (__name__, "canary_replay.probing")
    return [
        f"  {PureWindowsPath(frame.f_code.co_filename).name}, line {line}, in {frame.f_code.co_name}"
        for frame, line in traceback.walk_tb(error.__traceback__)
        if frame.f_globals.get("__name__") not in ours
    ]


def _without_machine(text: str) -> str:
    """A message without what differs between machines: directories of absolute paths, and addresses of objects."""
    return _ABSOLUTE_PATH.sub("", _ADDRESS.sub("0x...", text))


def _shortened(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[:longest]}... ({len(text)} characters)"
