"""For people who write probes: Hypothesis strategies of cases, responses and streams, and the laws that every probe keeps."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import msgspec
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

import canary_replay.decoders
import canary_replay.probes  # noqa: F401 - both register what the laws need
from canary_replay.decoding import decode
from canary_replay.errors import UsageError
from canary_replay.interaction import HttpRequest, HttpResponse, Interaction, Timing
from canary_replay.outcome import Outcome
from canary_replay.probing import BoundProbe, Probe, bind, known_probes
from canary_replay.response import ErrorInfo, Response, ToolCall, Usage
from canary_replay.scoring import WrongAnswerError, score
from canary_replay.suite import Case, Expect

_TEMPTING = (
    "",
    " \n\t",
    "42",
    "Paris is the capital of France.",
    '{"status": "ok", "summary": "done", "n": 1e400}',
    '```json\n{"status": "ok"}\n```',
    "[" * 3000,
    "NaN",
    "I\u2019m sorry, but I can\u2019t help with that.",
    "\u042f \u043d\u0435 \u043c\u043e\u0433\u0443 \u0440\u0430\u0441\u043a\u0440\u044b\u0442\u044c \u044d\u0442\u043e.",
    "N\u00e3o posso ajudar com isso.",
    "\u65e5\u672c\u8a9e\u306e\u7b54\u3048 \U0001f363",
    "stra\u00dfe \u0130stanbul e\u0301",
    "\x1b[31m<script>\x00\u202e",
)


# Longer in another case, more than one code unit, more than one character, no character at all, a line end that is none.
_ODD = ("\u0130", "\u00df", "\U0001f363", "e\u0301", "\ud800", "\u2028")
_LONGEST_PIECE = 60  # characters of a text that a probe looks for
_CORNERS = 40  # of these texts that are tried one by one
_PLAIN = Case.model_validate({"id": "plain", "user": "?"})


class LawBrokenError(AssertionError):
    """A probe broke a law; the message says which, and shows the smallest case and response that were found."""


# --- what probes are asked about --------------------------------------------------------------------------------------


def texts(*, like: tuple[str, ...] = ()) -> st.SearchStrategy[str]:
    """Any text, lone surrogates included, and texts that tempt probes into mistakes.

    :param like: pieces that shall turn up in many of them.
    """
    wild = st.text(st.characters(), max_size=40)
    tempting = st.sampled_from(_TEMPTING)
    odd = st.sampled_from(_ODD)
    pieces = st.one_of(st.sampled_from(like), odd, wild) if like else st.one_of(odd, wild)
    return st.one_of(st.lists(pieces, max_size=4).map("".join), tempting, st.tuples(tempting, pieces).map("".join))


def tool_calls(*, like: tuple[str, ...] = ()) -> st.SearchStrategy[ToolCall]:
    """A tool call with arguments that are a JSON object, other JSON, or no JSON at all.

    :param like: names and values that shall turn up in many of them.
    """
    words = st.sampled_from((*like, "lookup_order", "order_id", "EXAMPLE-42"))
    leaves = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), words)
    values = st.recursive(
        leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3), max_leaves=6
    )
    arguments = st.one_of(st.dictionaries(words, values, max_size=4).map(json.dumps), values.map(json.dumps), texts())
    return st.builds(ToolCall, name=st.one_of(words, texts()), arguments=arguments, id=st.none() | st.just("call_1"))


def responses(*, like: tuple[str, ...] = ()) -> st.SearchStrategy[Response]:
    """Any response: text, tool calls, refusals, errors, with and without usage and timing.

    :param like: texts that shall turn up in many of them.
    """
    milliseconds = st.none() | st.floats(min_value=0, max_value=1e6)
    counts = st.none() | st.integers(min_value=0, max_value=10**9)
    return st.builds(
        Response,
        text=texts(like=like),
        reasoning=st.just("") | texts(),
        tool_calls=st.lists(tool_calls(like=like), max_size=3).map(tuple),
        stop_reason=st.sampled_from((None, "stop", "end_turn", "tool_calls", "length", "content_filter", "refusal")),
        refusal=st.none() | st.none() | texts(),
        usage=st.none() | st.builds(Usage, input_tokens=counts, output_tokens=counts),
        model=st.none() | st.just("a-model"),
        cost=st.none() | st.floats(min_value=0, max_value=10),
        streamed=st.booleans(),
        ttft_ms=milliseconds,
        total_ms=milliseconds,
        error=st.sampled_from((None, None, None, ErrorInfo(message="slow down", status=429), ErrorInfo(message="broke off"))),
    )


def cases() -> st.SearchStrategy[Case]:
    """Any case: prompt or messages, tags, variables, expectations that are valid."""
    tags = st.sampled_from(("orders", "json", "refusal", "\u65e5\u672c", "a-b"))
    plain = st.text(st.characters(codec="utf-8"), max_size=20)
    asked = st.one_of(
        plain.map(lambda user: {"user": user}),
        plain.map(lambda text: {"messages": ({"role": "user", "content": text},)}),
    )
    return st.builds(
        lambda asked, **others: Case(**asked, **others),
        asked,
        id=st.text(st.characters(codec="utf-8"), min_size=1, max_size=10),
        tags=st.lists(tags, max_size=3).map(tuple),
        group=st.none() | tags,
        variables=st.dictionaries(st.sampled_from(("order", "n")), plain | st.integers() | st.booleans(), max_size=2),
        expect=_expectations(),
    )


def _expectations() -> st.SearchStrategy[Expect]:
    words = st.lists(st.text(st.characters(codec="utf-8"), min_size=1, max_size=8), min_size=1, max_size=3)
    optional: dict[str, st.SearchStrategy[Any]] = {
        "json": st.booleans(),
        "required": words,
        "json_schema": st.sampled_from(({}, {"type": "object"}, {"properties": {"n": {"type": "integer"}}})),
        "tool": st.just("lookup_order"),
        "arguments": st.dictionaries(st.just("order_id"), st.text(st.characters(codec="utf-8"), max_size=5) | st.integers()),
        "forbid_tool": st.booleans() | words,
        "refusal": st.booleans(),
        "contains": words,
        "must_not_contain": words,
        "equals": st.text(st.characters(codec="utf-8"), max_size=10),
        "regex": st.sampled_from((r"\d+", "(a+)+$")),
        "not_regex": st.sampled_from(("(?i)secret", r"\p{Greek}")),
        "error": st.booleans() | st.just(429),
    }
    return st.fixed_dictionaries({}, optional=optional).map(Expect.model_validate)


# --- streams ----------------------------------------------------------------------------------------------------------


def streams() -> st.SearchStrategy[Interaction]:
    """A streamed answer as OpenAI or Anthropic sends it, text or tool call, cut anywhere, inside a character too."""
    words = st.lists(st.text(st.characters(codec="utf-8"), min_size=1, max_size=8), min_size=1, max_size=5)
    bodies = st.one_of(
        words.map(_openai_text), words.map(_openai_call), words.map(_anthropic_text), words.map(_anthropic_call)
    )  # fmt: skip
    return bodies.flatmap(lambda sent: st.builds(_cut, st.just(sent), st.lists(st.integers(0, len(sent[1])), max_size=12)))


_Sent = tuple[str, bytes]  # where the request went, and the body that came back


def _openai_text(words: list[str]) -> _Sent:
    return _openai([{"content": word} for word in words], "stop")


def _openai_call(words: list[str]) -> _Sent:
    arguments = json.dumps({"order_id": "".join(words)}, ensure_ascii=False)
    begins = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "lookup_order", "arguments": ""}}
    pieces = [{"index": 0, "function": {"arguments": piece}} for piece in _pieces(arguments, len(words))]
    return _openai([{"tool_calls": [piece]} for piece in (begins, *pieces)], "tool_calls")


def _openai(deltas: list[dict[str, Any]], finish: str) -> _Sent:
    choices: list[dict[str, Any]] = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    choices.append({"index": 0, "delta": {}, "finish_reason": finish})
    events = [{"id": "x", "object": "chat.completion.chunk", "model": "a-model", "choices": [choice]} for choice in choices]
    body = "".join(f"data: {json.dumps(event, ensure_ascii=False)}\n\n" for event in events) + "data: [DONE]\n\n"
    return "http://127.0.0.1/v1/chat/completions", body.encode()


def _anthropic_text(words: list[str]) -> _Sent:
    deltas = [{"type": "text_delta", "text": word} for word in words]
    return _anthropic({"type": "text", "text": ""}, deltas, "end_turn")


def _anthropic_call(words: list[str]) -> _Sent:
    arguments = json.dumps({"order_id": "".join(words)}, ensure_ascii=False)
    deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in _pieces(arguments, len(words))]
    return _anthropic({"type": "tool_use", "id": "toolu_1", "name": "lookup_order", "input": {}}, deltas, "tool_use")


def _anthropic(block: dict[str, Any], deltas: list[dict[str, Any]], stop: str) -> _Sent:
    message = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "a-model",
        "content": [],
        "usage": {"input_tokens": 3},
    }
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": block},
        *({"type": "content_block_delta", "index": 0, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": stop}, "usage": {"output_tokens": 5}},
        {"type": "message_stop"},
    ]
    body = "".join(f"event: {event['type']}\ndata: {json.dumps(event, ensure_ascii=False)}\n\n" for event in events)
    return "http://127.0.0.1/v1/messages", body.encode()


def _pieces(text: str, count: int) -> list[str]:
    size = max(1, -(-len(text) // count))
    return [text[start : start + size] for start in range(0, len(text), size)]


def _cut(sent: _Sent, places: list[int]) -> Interaction:
    uri, body = sent
    bounds = sorted({0, *places, len(body)})
    chunks = tuple((10.0 * (number + 1), end - start) for number, (start, end) in enumerate(pairwise(bounds)))
    return Interaction(
        request=HttpRequest(method="POST", uri=uri, body=b'{"stream":true}'),
        response=HttpResponse(
            status=200,
            reason="OK",
            headers={"content-type": ["text/event-stream"]},
            body=body,
            timing=Timing(headers_ms=5.0, chunks=chunks, end_ms=10.0 * len(chunks) + 1),
        ),
    )


# --- the laws ---------------------------------------------------------------------------------------------------------


def check_probe(bound_or_name: BoundProbe | str, parameters: dict[str, Any] | None = None, *, examples: int = 200) -> None:
    """Run the laws on a probe: a configured one, or a registered one by its name.

    - total: it raises on no case and no response;
    - bounded: it returns a `Score`, a bool or a number from 0 to 1;
    - pure: it changes none of its arguments;
    - repeatable: the same arguments, and equal ones, give the same score and the same words;
    - no memory: what it was asked before changes nothing;
    - passed means score >= threshold, and a raised threshold never turns a fail into a pass;
    - cuts do not matter: where a stream was cut into chunks changes nothing.

    The examples are the same on every run. Without ``parameters``, each of the ``examples`` of their JSON Schema is tried
    (``model_config = ConfigDict(json_schema_extra={"examples": [{...}]})``).

    :raises LawBrokenError: a law is broken.
    :raises UsageError: there is no such probe, or no parameters to try it with.
    """
    for bound in _configured(bound_or_name, parameters):
        _check_corners(bound)
        _check_arguments(bound, examples)
        _check_streams(bound, max(examples // 4, 1))


def _configured(bound_or_name: BoundProbe | str, parameters: dict[str, Any] | None) -> list[BoundProbe]:
    if isinstance(bound_or_name, BoundProbe):
        if parameters is not None:
            raise UsageError(f"the probe {bound_or_name.name!r} is configured already; give parameters with a name only")
        return [bound_or_name]
    given = [parameters] if parameters is not None else _examples(known_probes.get(bound_or_name))
    return [bind(bound_or_name, one, name=bound_or_name) for one in given]


def _examples(found: Probe) -> list[dict[str, Any]]:
    if found.parameters is None:
        return [{}]
    examples = found.parameters.model_json_schema(by_alias=True).get("examples")
    if examples:
        return list(examples)
    if any(field.is_required() for field in found.parameters.model_fields.values()):
        model = found.parameters.__name__
        raise UsageError(f"the probe {found.name!r} needs parameters to be tried with; give some, or add examples to {model}")
    return [{}]


def _check_corners(bound: BoundProbe) -> None:
    """Every tempting text, and each text that the probe looks for between odd characters, shortest first; no luck is needed."""
    looked_for = _looked_for(bound)[:_CORNERS]
    corners = {*_TEMPTING, *_ODD, *looked_for}
    corners.update(text for piece in looked_for for odd in _ODD for text in (odd + piece, piece + odd))
    other = Response(tool_calls=(ToolCall(name="lookup_order", arguments="{"),))
    for text in sorted(corners, key=lambda text: (len(text), text)):
        _laws(bound, (_PLAIN, Response(text=text)), (_PLAIN, other), thresholds=(0.5, 1.0))


def _laws(
    bound: BoundProbe, one: tuple[Case, Response], other: tuple[Case, Response], *, thresholds: tuple[float, float]
) -> None:
    _unchanged(bound, *one)  # first, while nobody has touched them
    said = _sane(bound, *one)
    _repeatable(bound, said, *one)
    _no_memory(bound, said, one, other)
    _threshold(bound, said, *one, thresholds=thresholds)


def _check_arguments(bound: BoundProbe, examples: int) -> None:
    like = _looked_for(bound)
    asked = st.tuples(cases(), responses(like=like))
    thresholds = st.floats(0, 1)

    def laws(one: tuple[Case, Response], other: tuple[Case, Response], low: float, high: float) -> None:
        _laws(bound, one, other, thresholds=(min(low, high), max(low, high)))

    _run(laws, examples, one=asked, other=asked, low=thresholds, high=thresholds)


def _check_streams(bound: BoundProbe, examples: int) -> None:
    def laws(case: Case, stream: Interaction) -> None:
        one, other = (decode([_at_once(stream, whole=whole)]).response for whole in (True, False))
        if _ask(bound, case, one) != _ask(bound, case, other):
            raise _broken(bound, "cuts do not matter", "where the stream was cut changed what it said", case, other)

    _run(laws, examples, case=cases(), stream=streams())


def _run(laws: Callable[..., None], examples: int, **strategies: st.SearchStrategy[Any]) -> None:
    """Let Hypothesis look for a counterexample; the smallest is raised, even where the probe is too fickle to show it twice."""
    found: list[LawBrokenError] = []

    def noted(**arguments: Any) -> None:  # noqa: ANN401 - whatever the strategies draw
        try:
            laws(**arguments)
        except LawBrokenError as broken:
            found.append(broken)
            raise

    same_every_time = settings(
        max_examples=examples,
        derandomize=True,
        database=None,
        deadline=None,
        report_multiple_bugs=False,
        phases=(Phase.explicit, Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    try:
        same_every_time(given(**strategies)(noted))()
    except BaseException as problem:
        if not found:
            raise
        raise found[-1] from (problem if problem is not found[-1] else None)


def _ask(bound: BoundProbe, case: Case, response: Response) -> Outcome:
    return score(bound, case, response, trial=0, response_digest="", decoder="", case_digest="not compared")


def _sane(bound: BoundProbe, case: Case, response: Response) -> Outcome:
    said = _ask(bound, case, response)
    if said.outcome == "crashed":
        law = "bounded" if said.traceback.startswith(_WRONG_ANSWER) else "total"
        raise _broken(bound, law, said.reason, case, response, traceback=said.traceback)
    return said


_WRONG_ANSWER = f"{WrongAnswerError.__module__}.{WrongAnswerError.__qualname__}"


def _unchanged(bound: BoundProbe, case: Case, response: Response) -> None:
    before, fresh_case, fresh_response = _dumped(bound, case, response), _fresh_case(case), _fresh_response(response)
    _ask(bound, fresh_case, fresh_response)
    if _dumped(bound, fresh_case, fresh_response) != before:
        raise _broken(bound, "pure", "it changed one of its arguments", case, response)


def _repeatable(bound: BoundProbe, said: Outcome, case: Case, response: Response) -> None:
    if (again := _ask(bound, case, response)) != said:
        raise _broken(bound, "repeatable", f"it said {_words(said)} and then {_words(again)}", case, response)
    equal = msgspec.structs.replace(bound, parameters=_fresh_parameters(bound.parameters))
    if (again := _ask(equal, _fresh_case(case), _fresh_response(response))) != said:
        raise _broken(bound, "repeatable", f"it said {_words(said)}, and {_words(again)} of equal arguments", case, response)


def _no_memory(bound: BoundProbe, said: Outcome, one: tuple[Case, Response], other: tuple[Case, Response]) -> None:
    _ask(bound, *other)
    if (again := _ask(bound, *one)) != said:
        raise _broken(bound, "no memory", f"it said {_words(said)}, and {_words(again)} after another answer", *one)


def _threshold(bound: BoundProbe, said: Outcome, case: Case, response: Response, *, thresholds: tuple[float, float]) -> None:
    passed = []
    for threshold in thresholds:
        under = _ask(msgspec.structs.replace(bound, threshold=threshold), case, response)
        passed.append(under.outcome == "passed")
        if (under.outcome == "passed") != (said.score is not None and said.score >= threshold):
            raise _broken(bound, "passed", f"score {said.score} with threshold {threshold} is {under.outcome}", case, response)
    if passed == [False, True]:
        raise _broken(bound, "threshold", f"it fails at {thresholds[0]} and passes at {thresholds[1]}", case, response)


def _at_once(stream: Interaction, *, whole: bool) -> Interaction:
    """The stream with every chunk at the same moment, in one chunk or as it was cut: only the cuts differ."""
    timing = stream.response.timing or Timing()
    sizes = [len(stream.response.body)] if whole else [size for _, size in timing.chunks]
    moved = msgspec.structs.replace(timing, chunks=tuple((20.0, size) for size in sizes), end_ms=30.0)
    return msgspec.structs.replace(stream, response=msgspec.structs.replace(stream.response, timing=moved))


def _broken(bound: BoundProbe, law: str, problem: str, case: Case, response: Response, *, traceback: str = "") -> LawBrokenError:
    lines = [
        f"the probe {bound.name!r} breaks the law {law!r}: {problem}",
        f"  case: {_shown(case)}",
        f"  response: {_shown(response)}",
    ]
    if bound.parameters is not None:
        lines.append(f"  parameters: {bound.parameters!r}")
    return LawBrokenError("\n".join([*lines, *traceback.splitlines()]))


def _shown(value: Case | Response) -> str:
    """A case or a response as one would write it, without what is as usual."""
    if isinstance(value, Case):
        written = value.model_dump(exclude_defaults=True)
    else:
        usual = msgspec.structs.asdict(Response())
        written = {name: given for name, given in msgspec.structs.asdict(value).items() if given != usual[name]}
    return f"{type(value).__name__}({', '.join(f'{name}={given!r}' for name, given in written.items())})"


def _words(said: Outcome) -> str:
    return f"{said.outcome} {said.score} {said.reason!r}"


def _dumped(bound: BoundProbe, case: Case, response: Response) -> tuple[Any, ...]:
    parameters = None if bound.parameters is None else bound.parameters.model_dump()
    return case.model_dump(), msgspec.structs.asdict(response), parameters


def _fresh_case(case: Case) -> Case:
    return Case.model_validate(case.model_dump(by_alias=True, exclude_unset=True))


def _fresh_response(response: Response) -> Response:
    calls = tuple(msgspec.structs.replace(call) for call in response.tool_calls)
    return msgspec.structs.replace(response, text=_copy(response.text), reasoning=_copy(response.reasoning), tool_calls=calls)


def _fresh_parameters(parameters: BaseModel | None) -> BaseModel | None:
    return (
        None if parameters is None else type(parameters).model_validate(parameters.model_dump(by_alias=True, exclude_unset=True))
    )


def _copy(text: str) -> str:
    """An equal text that is another object, for probes that remember by identity."""
    return "".join([text[:1], text[1:]])


def _looked_for(bound: BoundProbe) -> tuple[str, ...]:
    """The texts in a probe's parameters and in its code, so that responses hold what it looks for."""
    pending: list[Any] = [] if bound.parameters is None else [bound.parameters.model_dump()]
    code = getattr(inspect.unwrap(bound.probe.function), "__code__", None)
    pending += [] if code is None else [constant for constant in code.co_consts if constant != bound.probe.function.__doc__]
    found: set[str] = set()
    while pending:
        value = pending.pop()
        if isinstance(value, str):
            found.add(value[:_LONGEST_PIECE])
        elif isinstance(value, dict):
            pending += [*value.keys(), *value.values()]
        elif isinstance(value, list | tuple | frozenset):
            pending += value
    return tuple(sorted(found))
