"""Who answers to a target's model."""

from __future__ import annotations

import importlib.util
import json
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from canary_replay.answering import PROVIDERS, Answerer, from_settings, resolve
from canary_replay.errors import UsageError


@contextmanager
def listening(status: int, body: bytes) -> Iterator[tuple[str, list[str]]]:
    """A server on this machine that gives every GET the same answer; its address, and the paths it was asked for."""
    asked: list[str] = []

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", asked
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def nobody() -> Iterator[str]:
    """An address of this machine where nobody listens, for as long as the test runs."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"


def tags(*models: dict[str, object]) -> bytes:
    """Ollama's answer to ``/api/tags``."""
    return json.dumps({"models": models}).encode()


class TestNamed:
    """A target that names its model."""

    @pytest.mark.parametrize("model", ["openai/gpt-5-mini-2025-08-07", "ollama_chat/llama3.2", "gpt-4o", "defaults"])
    def test_as_it_is(self, model: str) -> None:
        """A name goes to LiteLLM as it stands, whatever keys are set."""
        answerer = resolve(model, {"ANTHROPIC_API_KEY": "k", "CANARY_MODEL": "mistral/other"})

        assert answerer == Answerer(litellm_model=model, shown=model)

    def test_embedded(self) -> None:
        """An embedded model speaks OpenAI's dialect and is to be served first."""
        answerer = resolve("embedded/qwen", {})

        assert answerer == Answerer(litellm_model="openai/qwen", shown="embedded/qwen", embedded="qwen")

    def test_embedded_without_a_name(self) -> None:
        """``embedded/`` alone says which model there is."""
        with pytest.raises(UsageError, match=r"'embedded/' names no model.*embedded/smollm2-135m-instruct"):
            resolve("embedded/", {})


class TestDefault:
    """A target that leaves it open."""

    def test_chosen(self) -> None:
        """CANARY_MODEL goes before every key."""
        answerer = resolve("default", {"CANARY_MODEL": "groq/x", "OPENAI_API_KEY": "k"})

        assert answerer == Answerer(litellm_model="groq/x", shown="groq/x", because="CANARY_MODEL is set")

    def test_chosen_embedded(self) -> None:
        """CANARY_MODEL may name an embedded model."""
        assert resolve("default", {"CANARY_MODEL": "embedded/mine"}).embedded == "mine"

    def test_chosen_in_a_circle(self) -> None:
        """CANARY_MODEL cannot leave it open again."""
        with pytest.raises(UsageError, match="CANARY_MODEL is 'default'"):
            resolve("default", {"CANARY_MODEL": "default"})

    @pytest.mark.parametrize("key", PROVIDERS)
    def test_key(self, key: str) -> None:
        """A provider whose key is set answers, without a look around."""
        answerer = resolve("default", {key: "k", "OLLAMA_API_BASE": "not looked at"})

        assert answerer == Answerer(litellm_model=PROVIDERS[key], shown=PROVIDERS[key], because=f"{key} is set")

    def test_two_keys(self) -> None:
        """Of several keys the first in the documented order counts, not in the environment's."""
        assert resolve("default", dict.fromkeys(reversed(PROVIDERS), "k")).because == "OPENAI_API_KEY is set"

    def test_empty_key(self) -> None:
        """A key that is set to nothing is not set."""
        assert from_settings("default", {"OPENAI_API_KEY": "", "CANARY_MODEL": ""}) is None

    def test_nobody(self, nobody: str) -> None:
        """Without a key and without Ollama the embedded model answers."""
        answerer = resolve("default", {"OLLAMA_API_BASE": nobody})

        assert answerer.shown == "embedded/smollm2-135m-instruct"
        assert answerer.embedded == "smollm2-135m-instruct"
        assert answerer.because == "no provider's key is set and no Ollama runs here"


class TestOllama:
    """An Ollama that may run on this machine."""

    def test_first_model(self) -> None:
        """The first model that can chat answers, at the address where it was found."""
        body = tags(
            {"name": "nomic-embed-text:latest", "details": {"family": "nomic-bert"}},
            {"name": "llama3.2:1b", "details": {"family": "llama"}},
            {"name": "qwen3:4b", "details": None},
        )

        with listening(200, body) as (base, asked):
            answerer = resolve("default", {"OLLAMA_API_BASE": base + "/"})

        name = "ollama_chat/llama3.2:1b"
        assert answerer == Answerer(litellm_model=name, shown=name, because=f"Ollama runs at {base}/", api_base=base)
        assert asked == ["/api/tags"]

    @pytest.mark.parametrize(
        "status, body",
        [
            (200, tags()),
            (200, tags({"name": "all-minilm", "details": {"family": "bert"}})),
            (200, b"<html>hello</html>"),
            (200, b'{"models": null}'),
            (200, b'{"models": ["x"]}'),
            (200, b"[]"),
            (200, b"\xff\xfe"),
            (404, tags({"name": "llama3.2"})),
        ],
    )
    def test_nothing_to_ask(self, status: int, body: bytes) -> None:
        """An Ollama without a chat model, and anything else that listens there, is passed over."""
        with listening(status, body) as (base, _):
            answerer = resolve("default", {"OLLAMA_API_BASE": base})

        assert answerer.embedded == "smollm2-135m-instruct"

    @pytest.mark.parametrize("base", ["127.0.0.1:11434", "http://", "http://127.0.0.1:port", "ftp://127.0.0.1", "http://[::1"])
    def test_no_address(self, base: str) -> None:
        """An OLLAMA_API_BASE that is no address is said, with one that is."""
        with pytest.raises(UsageError, match=r"OLLAMA_API_BASE is '.*', which is no address; give one like 'http://127"):
            resolve("default", {"OLLAMA_API_BASE": base})


@pytest.mark.parametrize("model", PROVIDERS.values())
def test_providers_are_known(model: str) -> None:
    """LiteLLM knows each provider's default as a chat model, with a price."""
    found = importlib.util.find_spec("litellm")
    if found is None or not found.submodule_search_locations:
        pytest.skip("LiteLLM is not installed; its list of models lies in its package")
    prices = Path(found.submodule_search_locations[0]) / "model_prices_and_context_window_backup.json"

    known = json.loads(prices.read_text(encoding="utf-8"))

    entry = known.get(model) or known[model.partition("/")[2]]
    assert entry["mode"] == "chat"
    assert entry["litellm_provider"] == model.partition("/")[0]
    assert entry["output_cost_per_token"] > 0


def test_table_in_the_docs() -> None:
    """The table in docs/how-to/embedded-model.md names every key with its model, in the order of the code."""
    page = (Path(__file__).parents[1] / "docs" / "how-to" / "embedded-model.md").read_text(encoding="utf-8")

    rows = re.findall(r"^\| `(\w+_API_KEY)` \| `([^`]+)` \|$", page, re.MULTILINE)

    assert rows == list(PROVIDERS.items())
