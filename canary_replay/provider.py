"""Asks a provider for one trial and gives its recording, whatever the provider does; alone in importing LiteLLM."""

from __future__ import annotations

import email.utils
import importlib.util
import os
import random
import re
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Any, Protocol, runtime_checkable
from urllib.parse import urlsplit, urlunsplit

import msgspec

from canary_replay import __version__, capture
from canary_replay import decoders as _decoders  # noqa: F401 - importing registers them
from canary_replay.capture import FailedExchange, Limits
from canary_replay.decoders.failures import broken_off, http_failure
from canary_replay.decoders.loose_json import mended
from canary_replay.decoding import UndecodableError, decode
from canary_replay.digest import digest_of
from canary_replay.errors import ProviderError, UsageError, nearest, unknown
from canary_replay.interaction import Interaction, header
from canary_replay.recording import Recording, bytes_digest
from canary_replay.redact import Redactor
from canary_replay.request import Request
from canary_replay.response import ErrorInfo, Response, ToolCall, Usage

ENTRY_POINTS = "canary_replay.providers"
_ASK_AGAIN = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 520, 522, 524, 529})
_FIRST_PAUSE = 0.5  # seconds; doubled after each attempt
_LONGEST_PAUSE = 60.0


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One question to a provider.

    :ivar request: what is asked; ``parameters.seed`` is this trial's own.
    :ivar model_override: the name to give to LiteLLM instead of ``request.model`` (``openai/<alias>`` for the embedded model).
    :ivar api_base: where the provider answers; LiteLLM's default when None.
    :ivar api_key: the key; from the environment when None.
    :ivar stored_host: what stands in stored URLs instead of the scheme, host and port that were really asked.
    :ivar headers: extra headers, which reach the provider.
    :ivar metadata: marks for LiteLLM's own callbacks and for a LiteLLM proxy; other providers do not see them.
    :ivar timeout: seconds that one attempt may take, and that the provider may be silent.
    :ivar max_body_bytes: where a response is cut.
    """

    request: Request
    model_override: str | None = None
    api_base: str | None = None
    api_key: str | None = None
    stored_host: str | None = None
    headers: dict[str, str] = {}
    metadata: dict[str, Any] = {}
    timeout: float = 120.0
    max_body_bytes: int = 64 * 1024 * 1024

    @property
    def model(self) -> str:
        """The name that LiteLLM gets."""
        return self.model_override or self.request.model


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What a provider gave back besides the bytes that the capture saw.

    :ivar response: the answer, from a provider that sends no HTTP; where there are bytes they are decoded instead.
    :ivar client: what the client library made of the bytes; only compared with our own reading.
    :ivar cost: US dollars; None when unknown.
    :ivar dropped: names of parameters that were asked for and not sent.
    :ivar by: versions of what answered (``{"litellm": "1.110.2"}``).
    """

    response: Response | None = None
    client: Response | None = None
    cost: float | None = None
    dropped: tuple[str, ...] = ()
    by: dict[str, str] = {}


@runtime_checkable
class Provider(Protocol):
    """Who can be asked; used from several threads at once."""

    def dropped(self, request: Request) -> tuple[str, ...]:
        """The names of parameters that this provider's model rejects, and that will therefore not be sent."""
        ...

    def ask(self, call: Call) -> Answer:
        """Ask once, without retries.

        :raises UsageError: it cannot be asked like this: an unknown model, a missing key.
        :raises Exception: the provider failed; what the capture saw says how.
        """
        ...


# ------------------------------------------------------------------------------------------------ which provider
def load_provider(spec: str | None, root: Path) -> Provider:
    """The provider of a target.

    :param spec: None for LiteLLM, ``path.py:Class`` from the project, or the name of an installed one.
    :param root: the project's folder.
    :raises UsageError: there is no such provider, or it lacks a method.
    """
    if spec is None or spec == "litellm":
        return LiteLLM()
    made = (_class_in_file(spec, root) if ".py:" in spec else _installed_class(spec))()
    if not isinstance(made, Provider):
        raise UsageError(f"provider {spec!r} must have the methods 'dropped(request)' and 'ask(call)'")
    return made


def _class_in_file(spec: str, root: Path) -> Callable[[], Any]:
    file, _, name = spec.rpartition(":")
    path = root / file
    if not path.is_file():
        raise UsageError(f"provider {spec!r}: {file} does not exist in the project")
    found = importlib.util.spec_from_file_location(f"canary_replay_project_{path.stem}", path)
    if found is None or found.loader is None:
        raise UsageError(f"provider {spec!r}: {file} cannot be imported; it must be a Python file")
    module = importlib.util.module_from_spec(found)
    sys.modules[found.name] = module  # so that classes of the file can be pickled and inspected
    found.loader.exec_module(module)
    if not isinstance(made := getattr(module, name, None), type):
        classes = [one for one, value in vars(module).items() if isinstance(value, type) and value.__module__ == module.__name__]
        raise UsageError(f"{file}: {unknown('class', name, classes)}")
    return made


def _installed_class(name: str) -> Callable[[], Any]:
    points: dict[str, EntryPoint] = {point.name: point for point in entry_points(group=ENTRY_POINTS)}
    if name not in points:
        raise UsageError(f"{unknown('provider', name, [*points, 'litellm'])}; the project's own: 'path.py:Class'")
    return points[name].load()  # type: ignore[no-any-return]


# ------------------------------------------------------------------------------------------------ one trial
def ask_trial(
    provider: Provider,
    call: Call,
    *,
    suite: str,
    target: str,
    case: str,
    trial: int,
    key: str,
    request: Request,
    retries: int = 3,
    redactor: Redactor,
    by: Mapping[str, str] | None = None,
    limits: Limits | None = None,
    patience: float = 600.0,
    sleep: Callable[[float], None] = time.sleep,
) -> Recording:
    """Ask for one trial and give its recording, masked and decoded. Synchronous: run it in a thread.

    Errors of the provider (an HTTP error, a broken connection, an endless or garbled answer) are facts: they end up in
    ``response.error``, never as an exception.

    :param key: the key of ``request``, taken before redaction.
    :param request: what the case asks, with the base seed; ``call.request`` carries the trial's own.
    :param retries: how often a failed attempt (429, 5xx, a broken connection) is repeated; every attempt is kept.
    :param by: what to add to ``Recording.by``.
    :param limits: where responses are cut; by default the call's own timeout and size.
    :param patience: seconds after which no further attempt is begun.
    :param sleep: how to wait between attempts.
    :raises UsageError: the provider cannot be asked like this.
    :raises ProviderError: the capture was bypassed.
    """
    started = datetime.now(UTC).isoformat(timespec="seconds")
    limits = limits or Limits(seconds=call.timeout, max_bytes=call.max_body_bytes)
    redactor = redactor.knowing(_keys_of(call))
    attempts = _attempts(provider, call, retries=retries, limits=limits, patience=patience, sleep=sleep)
    last = attempts[-1]
    interactions = tuple(
        _stored(interaction, redactor, call.stored_host, retried=attempt is not last)
        for attempt in attempts
        for interaction in attempt.interactions
    )
    reading = _read(interactions, last)
    answer = last.answer or Answer(dropped=provider.dropped(msgspec.structs.replace(call.request, model=call.model)))
    response = reading.response
    if response is not None:
        response = msgspec.structs.replace(
            redactor.answer(response), cost=answer.cost if response.cost is None else response.cost
        )
    cut = reading.response is not None and bool(interactions) and redactor.holds_secret(reading.response)
    seed = call.request.parameters.get("seed")
    return Recording(
        suite=suite,
        target=target,
        case=case,
        trial=trial,
        key=key,
        request=redactor.neutral(request),
        dropped=answer.dropped,
        seed=seed if isinstance(seed, int) and "seed" not in answer.dropped else None,
        response=response,
        decoder=reading.decoder,
        digest=bytes_digest(interactions) if interactions else _digest_without_wire(response),
        recorded_at=started,
        by={"canary_replay": __version__, **answer.by, **(by or {})},
        client_drift=client_drift(reading.response, answer.client, failed=last.error is not None),
        wire=_why_no_wire(interactions, cut=cut),
        interactions=() if cut else interactions,
    )


def _keys_of(call: Call) -> Iterator[str]:
    """The keys that a call carries itself: its own, and what stands in headers whose names say that they carry one."""
    yield call.api_key or ""
    for name, value in call.headers.items():
        if re.search(r"auth|key|token|secret|cookie|password", name, re.IGNORECASE):
            yield value
            yield from value.split()


class _Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt at a trial: what went over the wire, and what came of it."""

    exchanges: tuple[Interaction | FailedExchange, ...]
    answer: Answer | None
    error: Exception | None

    @property
    def interactions(self) -> tuple[Interaction, ...]:
        """The exchanges that got a response."""
        return tuple(exchange for exchange in self.exchanges if isinstance(exchange, Interaction))


def _attempts(
    provider: Provider, call: Call, *, retries: int, limits: Limits, patience: float, sleep: Callable[[float], None]
) -> list[_Attempt]:
    """Every attempt until one is not worth repeating."""
    end = time.monotonic() + patience
    made: list[_Attempt] = []
    while True:
        attempt = _attempt(provider, call, limits)
        made.append(attempt)
        if len(made) > retries or not worth_repeating(attempt.exchanges):
            return made
        pause = pause_before(len(made), attempt.exchanges)
        if time.monotonic() + pause > end:
            return made
        sleep(pause)


def _attempt(provider: Provider, call: Call, limits: Limits) -> _Attempt:
    answer, error = None, None
    with capture.recording(limits, own_thread=True) as recorder:
        try:
            answer = provider.ask(call)
        except (UsageError, ProviderError):
            raise
        except Exception as failure:  # noqa: BLE001 - a client library's or another person's provider; it is kept as a fact
            error = failure
    return _Attempt(exchanges=recorder.exchanges, answer=answer, error=error)


def worth_repeating(exchanges: Sequence[Interaction | FailedExchange]) -> bool:
    """Whether an attempt ended in a way that may be over soon: 429, 5xx, no connection, a connection that broke."""
    if not exchanges:
        return False
    last = exchanges[-1]
    if isinstance(last, FailedExchange):
        return True
    timing = last.response.timing
    return last.response.status in _ASK_AGAIN or (timing is not None and timing.end.startswith("error:"))


def pause_before(
    attempt: int, exchanges: Sequence[Interaction | FailedExchange], *, jitter: Callable[[], float] = random.random
) -> float:
    """Seconds to wait before an attempt is repeated: what the provider asks for, else doubling, half of it by chance.

    :param attempt: how many attempts were made.
    :param exchanges: those of the last attempt.
    :param jitter: a number from 0 to 1 by chance, so that parallel calls do not come back all at once.
    """
    last = exchanges[-1] if exchanges else None
    if isinstance(last, Interaction) and (asked := _asked_for(last)) is not None:
        return asked
    longest = min(_LONGEST_PAUSE, _FIRST_PAUSE * float(2 ** (attempt - 1)))
    return longest * (0.5 + jitter() / 2)


def _asked_for(interaction: Interaction) -> float | None:
    """The seconds that a response asks to wait: ``retry-after-ms``, else ``retry-after`` in seconds or as a date."""
    headers = interaction.response.headers
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        text = header(headers, name)
        if text is None:
            continue
        try:
            seconds = float(text) / unit
        except ValueError:
            seconds = _until(text)
        if 0 <= seconds < float("inf"):
            return seconds
    return None


def _until(date: str) -> float:
    try:
        return max(0.0, email.utils.parsedate_to_datetime(date).timestamp() - time.time())
    except (ValueError, TypeError):
        return -1.0


def _stored(interaction: Interaction, redactor: Redactor, host: str | None, *, retried: bool) -> Interaction:
    """An exchange as it is kept: masked, marked when it was repeated, its host replaced where the host means nothing."""
    masked = redactor.interaction(interaction)
    request, response = masked.request, masked.response
    if host is not None:
        stands_for, asked = urlsplit(host), urlsplit(request.uri)
        uri = urlunsplit((stands_for.scheme, stands_for.netloc, asked.path, asked.query, ""))
        request = msgspec.structs.replace(request, uri=uri)
    if retried and response.timing is not None:
        response = msgspec.structs.replace(response, timing=msgspec.structs.replace(response.timing, retried=True))
    return Interaction(request=request, response=response)


class _Reading(msgspec.Struct, frozen=True):
    """What an attempt means, and which decoder says so."""

    response: Response | None
    decoder: str = ""


def _read(interactions: Sequence[Interaction], last: _Attempt) -> _Reading:
    """The response of a trial, by our own decoders; where the last attempt ended without bytes, what happened instead.

    :param interactions: those of all attempts, masked.
    """
    if not last.exchanges:
        return _Reading(_without_wire(last))
    if isinstance(died := last.exchanges[-1], FailedExchange) and last.error is not None:
        return _Reading(_failed(died.error))
    try:
        decoded = decode(interactions)
    except UndecodableError:
        return _Reading(_undecoded(interactions[-1]) if interactions else None)
    return _Reading(decoded.response, decoded.decoder)


def _without_wire(last: _Attempt) -> Response:
    if last.error is not None:
        return _failed(f"{type(last.error).__name__}:{last.error}")
    if last.answer is None or last.answer.response is None:
        problem = "the provider gave neither a response nor an HTTP exchange"
        raise ProviderError(f"{problem}; one that speaks no HTTP returns Answer(response=...)")
    return _writable(last.answer.response)


def _writable(response: Response) -> Response:
    """A custom provider's response with every text as UTF-8 can hold it; our own decoders see to it for theirs."""
    return msgspec.convert(_mended(msgspec.to_builtins(response)), Response)


def _mended(value: Any) -> Any:  # noqa: ANN401 - any JSON
    if isinstance(value, str):
        return mended(value)
    if isinstance(value, dict):
        return {key: _mended(one) for key, one in value.items()}
    return [_mended(one) for one in value] if isinstance(value, list | tuple) else value


def _failed(error: str) -> Response:
    kind, _, message = error.partition(":")
    return Response(error=ErrorInfo(message=mended(" ".join(message.split())) or kind, type=mended(kind)))


def _undecoded(interaction: Interaction) -> Response | None:
    """What can be said of a response that no decoder reads: that it is an error, if it is one."""
    response = interaction.response
    if not 200 <= response.status < 300:
        return Response(error=http_failure(interaction))
    if response.timing is not None and response.timing.end != "eof":
        return Response(error=broken_off(response.timing.end))
    return None


def _digest_without_wire(response: Response | None) -> str:
    return digest_of(msgspec.structs.replace(response, cost=None, ttft_ms=None, total_ms=None)) if response is not None else ""


def _why_no_wire(interactions: Sequence[Interaction], *, cut: bool) -> str:
    if cut:
        return "left out: a secret was cut over events"
    return "" if interactions else "there was no HTTP response"


# ------------------------------------------------------------------------------------------------ client drift
_STOP_WORDS = {
    "stop": {"stop", "end_turn", "stop_sequence", "eos", "complete", "completed", "tool_calls", "tool_use", "function_call"},
    "length": {"length", "max_tokens", "max_output_tokens", "model_length", "model_context_window_exceeded"},
    "content_filter": {
        "content_filter",
        "content_filtered",
        "refusal",
        "safety",
        "recitation",
        "blocklist",
        "prohibited_content",
        "spii",
        "guardrail_intervened",
    },
}


def client_drift(ours: Response | None, clients: Response | None, *, failed: bool = False) -> tuple[str, ...]:
    """The fields in which a client library read the same bytes differently.

    Its words for the stop reason are OpenAI's, whatever the provider's are; so words are compared by what they mean, and a stop
    for tool calls is a stop.

    :param clients: None when there is nothing to compare.
    :param failed: the client raised an error instead.
    """
    if ours is None:
        return ()
    if (ours.error is not None) != failed:
        return ("error",)
    if clients is None or failed:
        return ()
    found = {
        "text": ours.text != clients.text,
        "tool_calls": [_call(call) for call in ours.tool_calls] != [_call(call) for call in clients.tool_calls],
        "stop_reason": _stop(ours.stop_reason) != _stop(clients.stop_reason),
        "usage": _tokens(ours.usage) != _tokens(clients.usage) and ours.usage is not None,
    }
    return tuple(name for name, differs in found.items() if differs)


def _call(call: ToolCall) -> tuple[str, Any]:
    try:
        return call.name, call.parsed()
    except ValueError:
        return call.name, call.arguments


def _stop(word: str | None) -> str | None:
    if word is None:
        return None
    return next((meaning for meaning, words in _STOP_WORDS.items() if word.lower() in words), word)


def _tokens(usage: Usage | None) -> tuple[int | None, int | None]:
    return (None, None) if usage is None else (usage.input_tokens, usage.output_tokens)


# ------------------------------------------------------------------------------------------------ LiteLLM
_QUIET = {
    "LITELLM_OFFLINE_MODE": "true",  # no price list and no tokenizer from the network
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_RUST": "0",  # no native HTTP client, which no Python code can see
}
_litellm_lock = threading.Lock()
_priced: dict[str, bool] = {}  # whether LiteLLM knew a model before we told it about the model


@cache
def import_litellm() -> Any:  # noqa: ANN401 - used without types
    """LiteLLM, silent, off the network, and with every exchange in Python, where the capture sees it.

    :raises UsageError: it is not installed.
    :raises ProviderError: this version answers chat completions through its native client.
    """
    os.environ.update(_QUIET)
    try:
        import litellm
    except ImportError as error:
        raise UsageError(f"LiteLLM cannot be imported ({error}); install it with: pip install 'canary-replay[live]'") from None
    _silence(litellm)
    _check_python_answers()
    return litellm


def _silence(litellm: Any) -> None:  # noqa: ANN401 - used without types
    import logging

    litellm.suppress_debug_info = True
    litellm.disable_streaming_logging = True
    litellm.turn_off_message_logging = True
    for name in ("LiteLLM", "LiteLLM Proxy", "LiteLLM Router"):
        logging.getLogger(name).setLevel(logging.CRITICAL)


def _check_python_answers() -> None:
    try:
        from litellm.rust_bridge.catalog import Route, RouteContext, rollout
        from litellm.rust_bridge.configuration import Rollout
    except ImportError:  # before there was a native client
        return
    if rollout(RouteContext(Route.CHAT_COMPLETIONS)) is not Rollout.PYTHON_ONLY:
        raise ProviderError(
            f"LiteLLM {installed_version('litellm')} may answer chat completions through its native client, which cannot be "
            "recorded; install the version that canary-replay[live] names"
        )


class LiteLLM:
    """Any model that LiteLLM has a name for."""

    def dropped(self, request: Request) -> tuple[str, ...]:
        """The parameters that LiteLLM says the model rejects, by name or by value."""
        return self._dropped(request.model, request)

    def ask(self, call: Call) -> Answer:
        """Ask through ``litellm.completion``.

        :raises UsageError: LiteLLM does not know the model or lacks a key, and so sent nothing.
        :raises ProviderError: LiteLLM answered and the capture saw no exchange.
        """
        litellm = import_litellm()
        dropped = self._dropped(call.model, call.request)
        priced = _prepare(litellm, call.model)
        try:
            answered = litellm.completion(**_arguments(call, dropped))
            streamed = bool(call.request.parameters.get("stream"))
            client, usage = _client_stream(answered) if streamed else _client_plain(answered)
        except Exception as error:
            if capture.seen():
                raise
            raise UsageError(_why_not_sent(litellm, call.model, error)) from error
        by = {"litellm": installed_version("litellm")}
        if not capture.seen():
            raise ProviderError(f"LiteLLM {by['litellm']} answered for {call.model!r} past the capture; nothing was recorded")
        cost = _cost(litellm, call.model, usage) if priced else None
        return Answer(client=_comparable(client, usage, call.model), cost=cost, dropped=dropped, by=by)

    def _dropped(self, model: str, request: Request) -> tuple[str, ...]:
        litellm = import_litellm()
        asked = {**request.parameters, **({"tools": list(request.tools)} if request.tools else {})}
        try:
            _prepare(litellm, model)
            name, kind, *_ = litellm.get_llm_provider(model)
        except litellm.exceptions.BadRequestError as error:
            raise UsageError(_why_not_sent(litellm, model, error)) from error
        with capture.playing(()):  # LiteLLM asks an Ollama server what a model can do; only the question itself may go out
            return tuple(sorted(rejected(asked, lambda some: _accepts(litellm, name, kind, some))))


def _prepare(litellm: Any, model: str) -> bool:  # noqa: ANN401 - used without types
    """Make LiteLLM know a model, so that it does not ask the server about it; whether its price is known."""
    with _litellm_lock:
        if model not in _priced:
            name, kind, *_ = litellm.get_llm_provider(model)
            _priced[model] = model in litellm.model_cost or name in litellm.model_cost
            if not _priced[model]:
                facts = {"litellm_provider": kind, "mode": "chat", "input_cost_per_token": 0, "output_cost_per_token": 0}
                facts |= {"supports_function_calling": True, "supports_response_schema": True}
                with capture.playing(()):  # registering asks an Ollama server about the model that it is being told about
                    litellm.register_model({model: facts, name: facts})
        return _priced[model]


def rejected(parameters: Mapping[str, Any], accepts: Callable[[Mapping[str, Any]], bool]) -> set[str]:
    """The names to leave out so that the rest is accepted: those rejected alone, then those rejected in company."""
    if accepts(parameters):
        return set()
    out = {name for name, value in parameters.items() if not accepts({name: value})}
    kept = {name: value for name, value in parameters.items() if name not in out}
    while kept and not accepts(kept):
        culprit = next((one for one in kept if accepts({name: value for name, value in kept.items() if name != one})), None)
        if culprit is None:
            break  # more than one at once: leave it to the provider to say so
        out.add(culprit)
        del kept[culprit]
    return out


def _accepts(litellm: Any, model: str, kind: str, parameters: Mapping[str, Any]) -> bool:  # noqa: ANN401 - used without types
    try:
        litellm.utils.get_optional_params(model=model, custom_llm_provider=kind, drop_params=False, **parameters)
    except litellm.exceptions.UnsupportedParamsError:
        return False
    return True


def _arguments(call: Call, dropped: Iterable[str]) -> dict[str, Any]:
    """What ``litellm.completion`` gets: every parameter spelt out, no retries and nothing dropped behind our back."""
    request = call.request
    arguments: dict[str, Any] = {name: value for name, value in request.parameters.items() if name not in set(dropped)}
    arguments |= {
        "model": call.model,
        "messages": [dict(message) for message in request.messages],
        "timeout": call.timeout,
        "num_retries": 0,
        "max_retries": 0,
        "drop_params": False,
    }
    if request.tools and "tools" not in set(dropped):
        arguments["tools"] = list(request.tools)
    if arguments.get("stream"):
        arguments["stream_options"] = {**(arguments.get("stream_options") or {}), "include_usage": True}
    given = {
        "api_base": call.api_base,
        "api_key": call.api_key,
        "extra_headers": dict(call.headers),
        "metadata": dict(call.metadata),
    }
    if call.metadata and call.model.startswith("litellm_proxy/"):
        given["extra_body"] = {"metadata": dict(call.metadata)}
    return arguments | {name: value for name, value in given.items() if value}


def _why_not_sent(litellm: Any, model: str, error: Exception) -> str:  # noqa: ANN401 - used without types
    """One line that says why LiteLLM sent nothing, and what to do."""
    try:
        missing = litellm.validate_environment(model).get("missing_keys") or []
    except Exception:  # noqa: BLE001 - this is only a hint, from a library that raises anything
        missing = []
    message = " ".join(str(error).partition("Traceback (most recent call last)")[0].split())
    if missing and re.search(r"credential|api.?key", message, re.IGNORECASE):
        return f"model {model!r} needs a key; LiteLLM looks for {', '.join(missing)} in the environment"
    if "LLM Provider NOT provided" in message:
        known = [getattr(provider, "value", str(provider)) for provider in litellm.provider_list]
        near = nearest(model.partition("/")[0], known) or "openai"
        return f"LiteLLM does not know the provider of model {model!r}; write 'provider/model', for example '{near}/...'"
    return f"model {model!r} cannot be asked: {message[:300]}"


def _cost(litellm: Any, model: str, usage: Any) -> float | None:  # noqa: ANN401 - used without types
    if usage is None:
        return None
    try:
        answered = litellm.ModelResponse(model=model, usage=usage)
        return float(litellm.completion_cost(completion_response=answered, model=model))
    except Exception:  # noqa: BLE001 - a price that LiteLLM cannot work out is unknown, whatever it raises
        return None


# ------------------------------------------------------------------------------------------------ LiteLLM's own reading
def _client_plain(answered: Any) -> tuple[Response, Any]:  # noqa: ANN401 - used without types
    choice = answered.choices[0] if answered.choices else None
    message = choice.message if choice else None
    calls = tuple(
        ToolCall(name=call.function.name or "", arguments=call.function.arguments or "")
        for call in (getattr(message, "tool_calls", None) or ())
    )
    text = getattr(message, "content", None) or ""
    stop = choice.finish_reason if choice else None
    return Response(text=text, tool_calls=calls, stop_reason=stop), getattr(answered, "usage", None)


def _client_stream(chunks: Any) -> tuple[Response, Any]:  # noqa: ANN401 - used without types
    text: list[str] = []
    calls: dict[int, list[str]] = {}
    stop, usage = None, None
    for chunk in chunks:
        usage = getattr(chunk, "usage", None) or usage
        for choice in chunk.choices[:1]:
            text.append(choice.delta.content or "")
            stop = choice.finish_reason or stop
            for call in choice.delta.tool_calls or ():
                known = calls.setdefault(call.index or 0, ["", ""])
                known[0] += call.function.name or ""
                known[1] += call.function.arguments or ""
    made = tuple(ToolCall(name=name, arguments=arguments) for _, (name, arguments) in sorted(calls.items()))
    return Response(text="".join(text), tool_calls=made, stop_reason=stop, streamed=True), usage


def _comparable(client: Response, usage: Any, model: str) -> Response:  # noqa: ANN401 - used without types
    """LiteLLM's reading with its counts as the provider counts: Anthropic's input does not include what was cached."""
    if usage is None:
        return client
    cached = 0
    if model.startswith(("anthropic/", "bedrock/")):
        cached = sum(getattr(usage, name, None) or 0 for name in ("cache_read_input_tokens", "cache_creation_input_tokens"))
    counts = Usage(input_tokens=usage.prompt_tokens - cached, output_tokens=usage.completion_tokens)
    return msgspec.structs.replace(client, usage=counts)
