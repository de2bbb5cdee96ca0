"""Small projects in a folder of the test's own, and how to run a command on them, in this process or in one of its own."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple

from canary_replay import cli

ROOT = Path(__file__).resolve().parent.parent
ASKS = '''
"""Asks over HTTP with httpx: what LiteLLM does, without the seconds that importing LiteLLM takes."""
import os

import httpx

from canary_replay.provider import Answer


class Asks:
    def dropped(self, request):
        return ()

    def ask(self, call):
        body = {"model": call.request.model.partition("/")[2], "messages": list(call.request.messages), **call.request.parameters}
        key = os.environ.get("OPENAI_API_KEY", "none")
        httpx.post(f"{call.api_base}/v1/chat/completions", json=body, headers={"authorization": f"Bearer {key}"}, timeout=30)
        return Answer()
'''
ECHO = '''
"""Answers with the question, without HTTP."""
from canary_replay import Response
from canary_replay.provider import Answer


class Echo:
    def dropped(self, request):
        return ()

    def ask(self, call):
        asked = call.request.messages[-1]["content"]
        return Answer(response=Response(text=asked, stop_reason="stop", model="echo-1"), cost=0.0, by={"echo": "1"})
'''
TARGET = """
[targets.current]
model = "openai/gpt-plain"
provider = "echo.py:Echo"
system = "You sell tea."
"""
GREET = """
[[cases]]
id = "greet"
user = "Hello, world"
expect = { contains = "Hello" }
"""
PRICE = """
[[cases]]
id = "price"
tags = ["money"]
user = "Green tea costs 4 euros."
expect = { refusal = false }
"""
EUROS = """
[[probes_inline]]
name = "euros"
use = "regex"
scope = "money"
pattern = '\\d euros'
"""


class Ran(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str


def project(folder: Path, *parts: str, name: str = "shop", trials: int = 1) -> Path:
    """A project with one suite of these parts and both providers; a second call replaces the suite of that name."""
    (folder / "suites").mkdir(parents=True, exist_ok=True)
    text = f'name = "{name}"\ntrials = {trials}\n' + "".join(parts)
    (folder / "suites" / f"{name}.toml").write_text(text, encoding="utf-8")
    (folder / "asks.py").write_text(ASKS, encoding="utf-8")
    (folder / "echo.py").write_text(ECHO, encoding="utf-8")
    return folder


def asking(base: str, *, model: str = "openai/gpt-plain", name: str = "current", more: str = "") -> str:
    """A target that asks a loopback server over HTTP."""
    table = f'model = "{model}"\nprovider = "asks.py:Asks"\napi_base = "{base}"\nsystem = "You sell tea."\n{more}'
    return f"\n[targets.{name}]\n{table}\n"


def run(root: Path, *arguments: str) -> Ran:
    """Run a command on a project in this process."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    with redirect_stdout(out), redirect_stderr(err):
        try:
            code = cli.run([*arguments, "--project", str(root)])
        except SystemExit as left:  # argparse leaves by itself
            code = left.code if isinstance(left.code, int) else 1
    return Ran(code, *(stream.buffer.getvalue().decode() for stream in (out, err)))


def environment(**changes: str) -> dict[str, str]:
    """The environment of a command in a process of its own; the package is found whatever the folder it runs in."""
    return {**os.environ, "PYTHONPATH": str(ROOT), **changes}


def start(*arguments: str, cwd: Path, env: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
    """Start a command in a process of its own, which Ctrl-C reaches even where this one was started in the background."""
    hears = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    command = [sys.executable, "-c", f"{hears}; from canary_replay.cli import main; main()", *arguments]
    return subprocess.Popen(command, cwd=cwd, env=env or environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def run_apart(*arguments: str, cwd: Path, before: tuple[str, ...] = (), env: Mapping[str, str] | None = None) -> Ran:
    """Run a command in a process of its own, to its end.

    :param before: what goes before Python (``unshare -n``), or its options (``-X importtime``) behind Python.
    """
    python = [*before, sys.executable] if before and not before[0].startswith("-") else [sys.executable, *before]
    command = [*python, "-m", "canary_replay", *arguments]
    done = subprocess.run(command, cwd=cwd, env=env or environment(), capture_output=True, check=False, timeout=100)
    return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())


def tree(root: Path) -> dict[str, bytes]:
    """Every file of a project and what it holds; without the byte code that importing leaves."""
    found = (path for path in sorted(root.rglob("*")) if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in found}
