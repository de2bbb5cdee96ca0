"""Who answers: the model that a target names, or for ``default`` the first who can be asked from here."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from canary_replay import embedded
from canary_replay.errors import UsageError

DEFAULT = "default"
CHOSEN_MODEL = "CANARY_MODEL"
# The first whose key is set answers. Cheap models, and dated names where the provider gives them: a name without a date is
# moved to another model some day, and the baseline would drift with it.
PROVIDERS = {
    "OPENAI_API_KEY": "openai/gpt-5.4-mini-2026-03-17",
    "ANTHROPIC_API_KEY": "anthropic/claude-haiku-4-5-20251001",
    "GEMINI_API_KEY": "gemini/gemini-3.5-flash-lite",
    "MISTRAL_API_KEY": "mistral/mistral-small-2603",
    "GROQ_API_KEY": "groq/openai/gpt-oss-20b",
}
OLLAMA_ADDRESS = "OLLAMA_API_BASE"
OLLAMA_HOME = "http://127.0.0.1:11434"
OLLAMA_PATIENCE_S = 2.0
OLLAMA_LIST_MAX_BYTES = 4_000_000


@dataclass(frozen=True, kw_only=True)
class Answerer:
    """Whoever answers the requests of a target.

    :ivar litellm_model: the model's name for LiteLLM.
    :ivar shown: the name for people and for the record: who really answered.
    :ivar because: why it was chosen, when the target only said ``default``; empty when it named the model.
    :ivar api_base: where it is asked; None for the provider's own address, and for the embedded model until it is served.
    :ivar embedded: what to give to ``embedded.serving``; None for anyone who answers already.
    """

    litellm_model: str
    shown: str
    because: str = ""
    api_base: str | None = None
    embedded: str | None = None


def resolve(model: str, environ: Mapping[str, str]) -> Answerer:
    """Who answers to a target's ``model``. Only ``default`` may look around: it asks whether Ollama runs here.

    :param model: a LiteLLM name, ``embedded/<name>`` or ``default``: the first of CANARY_MODEL, a provider whose key is set,
        a running Ollama with a model, the embedded model.
    :raises UsageError: when a name or an address cannot be one.
    """
    if chosen := from_settings(model, environ):
        return chosen
    if found := from_ollama(environ):
        return found
    return named(embedded.PREFIX + embedded.DEFAULT, because="no provider's key is set and no Ollama runs here")


def from_settings(model: str, environ: Mapping[str, str]) -> Answerer | None:
    """Who answers as far as the target and the environment say; None when they leave it open."""
    if model != DEFAULT:
        return named(model)
    if chosen := environ.get(CHOSEN_MODEL):
        if chosen == DEFAULT:
            raise UsageError(f"{CHOSEN_MODEL} is {DEFAULT!r}, which it is asked for; name a model in it, or unset it")
        return named(chosen, because=f"{CHOSEN_MODEL} is set")
    for key, cheap in PROVIDERS.items():
        if environ.get(key):
            return named(cheap, because=f"{key} is set")
    return None


def named(model: str, *, because: str = "") -> Answerer:
    """The answerer of a model's name that is not ``default``."""
    if not model.startswith(embedded.PREFIX):
        return Answerer(litellm_model=model, shown=model, because=because)
    alias = model.removeprefix(embedded.PREFIX)
    if not alias:
        raise UsageError(f"{model!r} names no model; the one that needs no key is {embedded.PREFIX + embedded.DEFAULT!r}")
    return Answerer(litellm_model=f"openai/{alias}", shown=model, because=because, embedded=alias)


def from_ollama(environ: Mapping[str, str]) -> Answerer | None:
    """The first chat model of the Ollama that runs here (or at OLLAMA_API_BASE); None when there is none."""
    base = environ.get(OLLAMA_ADDRESS) or OLLAMA_HOME
    for model in _installed(_address(base)):
        name = f"ollama_chat/{model}"
        return Answerer(litellm_model=name, shown=name, because=f"Ollama runs at {base}", api_base=base.rstrip("/"))
    return None


def _address(base: str) -> SplitResult:
    try:
        address = urlsplit(base)
        well_formed = address.scheme in {"http", "https"} and address.hostname and (address.port or True)
    except ValueError:
        well_formed = False
    if not well_formed:
        raise UsageError(f"{OLLAMA_ADDRESS} is {base!r}, which is no address; give one like {OLLAMA_HOME!r}")
    return address


def _installed(address: SplitResult) -> list[str]:
    """The names of the chat models that an Ollama has; none when nothing like an Ollama answers soon."""
    import http.client

    kind = http.client.HTTPSConnection if address.scheme == "https" else http.client.HTTPConnection
    connection = kind(address.hostname or "", address.port, timeout=OLLAMA_PATIENCE_S)
    try:
        connection.request("GET", address.path.rstrip("/") + "/api/tags")
        response = connection.getresponse()
        body = response.read(OLLAMA_LIST_MAX_BYTES)
    except (OSError, http.client.HTTPException):
        return []
    finally:
        connection.close()
    return _chat_models(body) if response.status == http.client.OK else []


def _chat_models(body: bytes) -> list[str]:
    """The names in an answer to ``/api/tags``, without the models that only make embeddings."""
    try:
        models = json.loads(body)["models"]
        return [model["name"] for model in models if not _only_embeds(model)]
    except (ValueError, LookupError, TypeError, AttributeError):
        return []  # something else listens there


def _only_embeds(model: Mapping[str, Mapping[str, str]]) -> bool:
    """Whether a model cannot chat: Ollama names the families of sentence encoders after BERT."""
    return "bert" in str((model.get("details") or {}).get("family", ""))
