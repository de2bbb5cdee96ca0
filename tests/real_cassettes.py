"""Real recorded traffic as `Interaction`s: the cassettes of public projects in every dialect that was met, read as plain data.

The recordings lie outside the project (``../shared/data/real-cassettes``); where they are absent, tests skip. Run as a script,
``python -m tests.real_cassettes`` compares what the decoders read with what the providers' own clients read.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import lzma
import shutil
import tarfile
import tempfile
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

import yaml

import canary_replay.decoders  # noqa: F401 - importing registers them
from canary_replay.decoding import known_decoders
from canary_replay.interaction import Headers, HttpRequest, HttpResponse, Interaction
from canary_replay.response import Response, ToolCall

PLACE = Path(__file__).resolve().parents[2] / "shared" / "data" / "real-cassettes"
_GZIP = b"\x1f\x8b"


def available() -> bool:
    """Whether the recordings are on this machine."""
    return (PLACE / "cassettes.tar.xz").exists()


def rows(name: str) -> list[dict[str, Any]]:
    """The lines of one of the collection's tables (``expected``, ``expected_errors``, ``manifest``)."""
    with lzma.open(PLACE / f"{name}.jsonl.xz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def unpacked() -> Path:
    """The folder of the cassettes, unpacked once into the temporary folder of this machine."""
    archive = PLACE / "cassettes.tar.xz"
    stat = archive.stat()
    name = hashlib.sha256(f"{archive} {stat.st_size} {stat.st_mtime_ns}".encode()).hexdigest()[:16]
    place = Path(tempfile.gettempdir()) / f"canary-replay-real-cassettes-{name}"
    if not place.exists():
        aside = Path(tempfile.mkdtemp(prefix=f"{place.name}-"))
        with tarfile.open(archive) as packed:
            packed.extractall(aside, filter="data")
        try:
            aside.rename(place)
        except OSError:  # another process was faster
            shutil.rmtree(aside)
    return place / "all"


def interactions(path: Path) -> list[Interaction]:
    """Every interaction of a cassette, in its own order.

    :raises ValueError: it is in none of the dialects.
    """
    return [Interaction(request=_request(request), response=_response(response)) for request, response in _pairs(_read(path))]


class _PlainLoader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """YAML as plain data: a Python tag is never obeyed, only the text or list below it is read."""


def _plain(loader: Any, _tag: str, node: yaml.Node) -> object:  # noqa: ANN401 - the compiled loader and the other share no type
    """What stands below a Python tag. ``!!python/object/apply:multidict._multidict.istr`` wraps a header's name in a list."""
    if isinstance(node, yaml.ScalarNode):
        return loader.construct_scalar(node)
    if isinstance(node, yaml.MappingNode):
        table = loader.construct_mapping(node, deep=True)
        return _only(table.get("args", table))
    return _only(loader.construct_sequence(node, deep=True))


def _only(value: object) -> object:
    return value[0] if isinstance(value, list) and len(value) == 1 else value


_PlainLoader.add_multi_constructor("tag:yaml.org,2002:python/", _plain)
# A date in a parsed body is the text that the provider sent.
_PlainLoader.add_constructor("tag:yaml.org,2002:timestamp", _PlainLoader.construct_yaml_str)


def _read(path: Path) -> Any:  # noqa: ANN401 - any JSON or YAML
    data = path.read_bytes()
    if data.startswith(_GZIP):
        data = gzip.decompress(data)
    if path.suffix == ".json":
        return json.loads(data)
    return yaml.load(data, Loader=_PlainLoader)  # noqa: S506 - a safe loader with safe additions


def _pairs(cassette: Any) -> list[tuple[dict[str, Any], dict[str, Any]]]:  # noqa: ANN401 - any JSON or YAML
    if isinstance(cassette, dict):
        if isinstance(cassette.get("requests"), list):  # langchain: two lists, zipped by position
            return list(zip(cassette["requests"], cassette["responses"], strict=True))
        if "request" in cassette:  # one pair in a file
            return [(cassette["request"], cassette["response"])]
        listed = cassette.get("interactions", cassette.get("http_interactions"))  # VCR.py; Ruby and R
        if isinstance(listed, list):
            return [(pair["request"], pair["response"]) for pair in listed]
    raise ValueError("it is in no known dialect of cassettes")


def _request(request: dict[str, Any]) -> HttpRequest:
    return HttpRequest(
        method=request["method"],
        uri=request.get("uri") or request["url"],
        headers=_headers(request.get("headers")),
        body=_body(request),
    )


def _response(response: dict[str, Any]) -> HttpResponse:
    status = response.get("status", response.get("status_code"))
    if isinstance(status, dict):
        status = status.get("code", status.get("status_code"))
    body = _body(response)
    if body.startswith(_GZIP):  # the header may say gzip of a body that was unpacked long ago, so the first bytes decide
        body = zlib.decompressobj(wbits=31).decompress(body)
    return HttpResponse(status=int(status), headers=_headers(response.get("headers")), body=body)


def _headers(headers: dict[Any, Any] | None) -> Headers:
    return {
        _text(name): [_text(value) for value in (values if isinstance(values, list) else [values])]
        for name, values in (headers or {}).items()
    }


def _text(value: object) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)


def _body(message: dict[str, Any]) -> bytes:
    if "parsed_body" in message:
        return json.dumps(message["parsed_body"]).encode()
    body = message.get("body", message.get("content"))
    if isinstance(body, dict):
        if "base64_string" in body:
            return base64.b64decode(body["base64_string"])
        if "string" not in body:
            return json.dumps(body).encode()
        body = body["string"]
    if body is None:
        return b""
    return body if isinstance(body, bytes) else str(body).encode("utf-8", "surrogatepass")


# What the providers' own clients read, and how what we read compares.

WIRES = ("openai-chat", "anthropic-messages")
FIELDS = ("text", "tool_calls", "finish_reason", "usage", "model", "reasoning_text", "streaming")
Row = dict[str, Any]
Place = tuple[str, int]


def place(row: Row) -> Place:
    """Where an interaction stands: its file and its position in it."""
    return row["file"], row["index"]


def is_first_tier(row: Row) -> bool:
    """Whether the provider's own client read this row, so that a difference is our mistake."""
    return row["source"] != "independent-only" and bool(row["own_sdk"])


def load(table: list[Row]) -> dict[Place, Interaction]:
    """The interactions of these rows; each file is read once."""
    root = unpacked()
    read = {file: interactions(root / file) for file in sorted({row["file"] for row in table})}
    return {place(row): read[row["file"]][row["index"]] for row in table}


def differences(row: Row, response: Response) -> dict[str, tuple[Any, Any]]:
    """The fields of an expected row in which a response differs: ``{field: (expected, got)}``."""
    usage = response.usage
    got = {
        "text": response.text,
        "tool_calls": [(call.name, _parsed(call)) for call in response.tool_calls],
        "finish_reason": response.stop_reason,
        "usage": None if usage is None else {"input": usage.input_tokens, "output": usage.output_tokens},
        "model": response.model,
        "reasoning_text": response.reasoning,
        "streaming": response.streamed,
    }
    wanted = row | {"tool_calls": [(call["name"], call["arguments"]) for call in row["tool_calls"]]}
    compared = [field for field in FIELDS if field not in row.get("differs_on", ())]
    return {field: (wanted[field], got[field]) for field in compared if wanted[field] != got[field]}


def _parsed(call: ToolCall) -> Any:  # noqa: ANN401 - any JSON
    try:
        return call.parsed()
    except ValueError:  # a custom tool takes any text
        return call.arguments


def explained(field: str, wanted: Any, got: Any) -> str | None:  # noqa: ANN401 - a field of any type
    """Why a client that is not the provider's own reads a field otherwise than we do; None when nothing explains it."""
    if field == "tool_calls" and any(not name for name, _ in wanted):
        return "the client keeps calls with no name: kinds that do not apply, filled with empty strings"
    if field == "usage" and wanted is None:
        return "the client does not look for usage in x_groq"
    if field == "reasoning_text" and not wanted and got:
        return "the client does not look for reasoning in content parts or in reasoning_details"
    return None


def compare() -> dict[tuple[str, str, str, str], Counter[str]]:
    """For each tier, wire, streaming and tools: how many rows there are, how many are equal, how many differ in which field."""
    table = [row for row in rows("expected") if row["wire"] in WIRES]
    recorded = load(table)
    found: dict[tuple[str, str, str, str], Counter[str]] = {}
    for row in table:
        differing = differences(row, known_decoders.get(row["wire"]).decode(recorded[place(row)]))
        tools = "tools" if row["tool_calls"] else "no tools"
        group = ("1" if is_first_tier(row) else "2", row["wire"], "stream" if row["streaming"] else "plain", tools)
        counts = found.setdefault(group, Counter())
        counts.update(["rows", *([] if differing else ["equal"])])
        counts.update(f"{field}: {explained(field, *pair) or 'NOT EXPLAINED'}" for field, pair in differing.items())
    return found


def main() -> None:
    """Print the comparison as a table."""
    print(f"{'tier':5}{'wire':20}{'sent as':8}{'tools':10}{'rows':>6}{'equal':>7}  differing")  # noqa: T201 - a script
    for group, counts in sorted(compare().items()):
        tier, wire, sent, tools = group
        head = f"{tier:5}{wire:20}{sent:8}{tools:10}{counts.pop('rows'):6}{counts.pop('equal', 0):7}"
        print(head, *(f"\n      {count} x {why}" for why, count in sorted(counts.items())))  # noqa: T201 - a script


if __name__ == "__main__":
    main()
