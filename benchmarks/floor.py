"""The floor: one plain loop over the same files (cases, cassettes, scorecard), five checks, a result file; no product code."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import msgspec

ORDER = re.compile(r"A-\d{5}", re.ASCII).search
REFUSAL = re.compile(
    r"(?i)\b(?:i['’]?m sorry,? but|i (?:can(?:not|['’]t)|won['’]t|am unable|will not)|as an ai\b|"
    r"unable to (?:assist|help|comply)|cannot (?:assist|help|provide|comply))"
).search
KEYS = {"order_id", "city", "total", "items", "summary"}


class Expect(msgspec.Struct):
    """What the case file expects."""

    contains: str


class Case(msgspec.Struct):
    """A line of the case file."""

    id: str
    tags: list[str]
    input: str
    expect: Expect


class Answer(msgspec.Struct):
    """The stored answer's text, as lines."""

    text: list[str]


class Stored(msgspec.Struct):
    """One recording."""

    response: Answer
    digest: str


class Canary(msgspec.Struct):
    """Our part of the metadata."""

    recordings: list[Stored]


class Metadata(msgspec.Struct):
    """The metadata of a cassette."""

    canary: Canary


class Cassette(msgspec.Struct):
    """A cassette; its interactions are skipped."""

    metadata: Metadata


class Accepted(msgspec.Struct):
    """A line of the scorecard."""

    case: str
    probe: str
    outcome: str


def keys_present(text: str) -> bool:
    """Whether the text is a JSON object with the five keys."""
    try:
        value = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return False
    return type(value) is dict and value.keys() >= KEYS


def main(folder: Path, result: Path) -> None:
    """Read everything once, check, compare, write one line a case."""
    read_case = msgspec.json.Decoder(Case).decode
    read_cassette = msgspec.json.Decoder(Cassette).decode
    read_accepted = msgspec.json.Decoder(Accepted).decode
    cassettes = folder / "cassettes" / "load" / "current"
    changed = failed = 0
    with (
        open(folder / "suites" / "cases.jsonl", "rb") as cases,
        open(cassettes / "scorecard.jsonl", "rb") as scorecard,
        open(result, "wb") as out,
    ):
        waiting = next(scorecard, b"")
        for line in cases:
            case = read_case(line)
            with open(f"{cassettes}/cases/{case.id}.json", "rb") as file:
                stored = read_cassette(file.read())
            then: dict[str, str] = {}
            while waiting and (accepted := read_accepted(waiting)).case == case.id:
                then[accepted.probe] = accepted.outcome
                waiting = next(scorecard, b"")
            for recording in stored.metadata.canary.recordings:
                text = "\n".join(recording.response.text)
                now = {
                    "expect.contains": case.expect.contains in text,
                    "order-number": ORDER(text) is not None,
                    "length": len(text) <= 1600,
                    "no-refusal": REFUSAL(text) is None,
                }
                if "json" in case.tags:
                    now["json-keys"] = keys_present(text)
                failed += not all(now.values())
                changed += sum(then.get(probe) != ("passed" if ok else "failed") for probe, ok in now.items())
                out.write(msgspec.json.encode({"case": case.id, "outcomes": now}) + b"\n")
    print(f"{changed} changed, {failed} failed")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
