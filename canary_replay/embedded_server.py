"""The embedded model's own process: llama.cpp's HTTP server on a free port of 127.0.0.1, until nobody holds it any more.

It is started by path (``python -P embedded_server.py``) and imports nothing of this package. Standard input brings one
line of JSON, the settings; standard output gives one line, the address, when the model answers. The process ends when
standard input closes or its parent is gone, and by SIGTERM.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import xllamacpp

HOST = "127.0.0.1"
LOOK_FOR_PARENT_S = 1.0
ERRORS_AND_WARNINGS = 2


def main() -> None:
    """Serve the model that the first line of standard input describes, until the parent lets go."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides when this ends
    say = private_output()
    parent = os.getppid()
    settings = json.loads(sys.stdin.buffer.readline())
    released = threading.Event()
    # A daemon: closing standard input while it is read would block the end of the process.
    threading.Thread(target=wait_for_end_of_input, args=(released,), daemon=True).start()
    server = serve(settings)
    say.write(f"{server.listening_address}\n".encode())
    say.flush()
    while not released.wait(LOOK_FOR_PARENT_S) and os.getppid() == parent:
        pass
    os._exit(0)  # an orderly end would wait for an answer that is still being made, and nobody reads it any more


def private_output() -> Any:  # noqa: ANN401 - a binary file; typeshed has no shorter name for it
    """Standard output for the address alone; whatever else would be printed there goes to standard error."""
    mine = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return mine


def wait_for_end_of_input(released: threading.Event) -> None:
    """Set the event when the parent has closed its end, or died: the system closes it then."""
    while os.read(0, 4096):
        pass
    released.set()


def serve(settings: dict[str, Any]) -> xllamacpp.Server:
    """Load the model and listen; returns when it can answer."""
    import xllamacpp

    return xllamacpp.Server(parameters_of(settings))


def parameters_of(settings: dict[str, Any]) -> xllamacpp.CommonParams:
    """The engine's parameters, so that the same request gets the same answer on any day."""
    import xllamacpp

    parameters = xllamacpp.CommonParams()
    parameters.model.path = settings["file"]
    parameters.model_alias = {settings["alias"]}
    parameters.hostnames = [HOST]
    parameters.port = 0
    parameters.offline = True
    parameters.ui = False
    parameters.cors_origins = f"http://{HOST}"  # by default any web page may ask
    parameters.verbosity = ERRORS_AND_WARNINGS
    parameters.n_ctx = settings["context"] * settings["parallel"]  # the slots share it
    parameters.n_parallel = settings["parallel"]
    parameters.fit_params = False  # it would shorten the context on a machine with little memory
    parameters.n_gpu_layers = 0
    # Two threads wait for each other by spinning: on a busy machine 1 to 5 tokens a second instead of 40.
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = 1
    # A prefix from the cache is computed in other batches: the same request then gets another answer at temperature 0.
    parameters.cache_prompt = False
    parameters.cache_ram_mib = 0
    parameters.cache_idle_slots = False
    parameters.sampling.seed = settings["seed"]
    parameters.sse_ping_interval = -1  # comments in the stream that depend on how busy the machine is
    parameters.use_jinja = True
    if settings["template"]:
        parameters.chat_template = settings["template"]
    if settings["kv_type"]:
        cache_type = getattr(xllamacpp.ggml_type, "GGML_TYPE_" + settings["kv_type"].upper())
        parameters.cache_type_k = parameters.cache_type_v = cache_type
    return parameters


if __name__ == "__main__":
    main()
