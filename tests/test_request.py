"""Tests of requests: what the key sees, and which fields two requests differ in; of what lies below them."""

from __future__ import annotations

import hashlib
import random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from canary_replay.digest import canonical, digest
from canary_replay.errors import DamagedFileError, UsageError, unknown
from canary_replay.registry import Registry
from canary_replay.request import Change, Request, changes, likeness, request_key
from tests.strategies import json_values, requests, tables

REQUEST = Request(
    model="openai/gpt",
    messages=({"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hello?"}),
    tools=({"type": "function", "function": {"name": "look_up"}},),
    parameters={"temperature": 0, "seed": 7, "stream": True, "stop": None},
)


def asked(**parameters: Any) -> Request:  # noqa: ANN401 - any JSON
    """A request with these parameters."""
    return Request(model="m", messages=(), parameters=parameters)


def reordered(value: Any, shuffle: random.Random) -> Any:  # noqa: ANN401 - any JSON
    """The same JSON with the keys of every object in another order."""
    if isinstance(value, dict):
        items = list(value.items())
        shuffle.shuffle(items)
        return {name: reordered(one, shuffle) for name, one in items}
    return [reordered(one, shuffle) for one in value] if isinstance(value, list) else value


# ------------------------------------------------------------------------------------------------ the key
@given(requests, st.randoms(use_true_random=False))
def test_the_order_of_keys_does_not_matter(request_: Request, shuffle: random.Random) -> None:
    """Two files that say the same in another order ask the same."""
    other = Request(**reordered(msgspec.to_builtins(request_), shuffle))

    assert request_key(other) == request_key(request_)
    assert changes(request_, other) == ()


@pytest.mark.parametrize(
    "change",
    [
        {"model": "openai/gpt-2"},
        {"messages": REQUEST.messages[::-1]},
        {"messages": REQUEST.messages[:1]},
        {"messages": (*REQUEST.messages[:1], {"role": "user", "content": "Hello? "})},
        {"tools": ()},
        {"tools": ({"type": "function", "function": {"name": "look_up", "strict": True}},)},
        {"parameters": {"temperature": 0.1, "seed": 7, "stream": True, "stop": None}},
        {"parameters": {"temperature": 0, "seed": 8, "stream": True, "stop": None}},
        {"parameters": {"temperature": 0, "seed": 7, "stream": True}},
        {"parameters": {}},
    ],
)
def test_the_key_sees_every_field(change: dict[str, Any]) -> None:
    """Whatever may change an answer changes the key, and is told as a change."""
    other = msgspec.structs.replace(REQUEST, **change)

    assert request_key(other) != request_key(REQUEST)
    assert changes(REQUEST, other)


@pytest.mark.parametrize(
    "one, other", [(1, True), (0, False), (1, 1.0), (0.0, -0.0), (None, "null"), ("1", 1), ([], {}), ("", None)]
)
def test_values_that_only_look_alike(one: object, other: object) -> None:
    """``true`` is not 1, and 1 is not 1.0: a provider may take them for different things, so they are different requests."""
    assert request_key(asked(x=one)) != request_key(asked(x=other))
    assert [change.field for change in changes(asked(x=one), asked(x=other))] == ["parameters.x"]


def test_a_null_is_not_the_absence_of_a_field() -> None:
    """A parameter that is sent as null is another request than one that is not sent."""
    assert request_key(asked(stop=None)) != request_key(asked())
    assert changes(asked(stop=None), asked()) == (Change("parameters.stop", "null", None),)


def test_the_key_is_written_down() -> None:
    """Anybody can compute a key: SHA-256 over the length and the compact JSON, keys sorted, without what is empty."""
    data = '{"model":"m","messages":[{"content":"é","role":"user"}],"parameters":{"a":null,"temperature":0.5}}'.encode()
    expected = hashlib.sha256(f"{len(data)}:".encode() + data).hexdigest()[:32]

    request_ = Request(model="m", messages=({"role": "user", "content": "é"},), parameters={"temperature": 0.5, "a": None})
    found = request_key(request_)

    assert found == expected


# ------------------------------------------------------------------------------------------------ changes
@given(requests, requests)
def test_no_change_means_the_same_key(one: Request, other: Request) -> None:
    """Two requests differ in some field if and only if their keys differ."""
    assert (changes(one, other) == ()) == (request_key(one) == request_key(other))


@given(tables, st.data())
def test_one_edit_is_found_where_it_was_made(parameters: dict[str, Any], data: st.DataObject) -> None:
    """Setting one parameter to another value changes that field, or fields below it, and no other."""
    then = asked(**parameters)
    value = data.draw(json_values)
    now = asked(**parameters | {"edited": value})

    found = changes(then, now)

    before = parameters.get("edited", "nothing")
    same = "edited" in parameters and canonical(before) == canonical(value)
    assert (found == ()) == same == (request_key(then) == request_key(now))
    assert all(change.field.startswith("parameters.edited") for change in found)


@given(requests, requests)
def test_changes_are_symmetrical(one: Request, other: Request) -> None:
    """The same fields in the same order from either side, with the two values swapped; neither is nearer than the other."""
    there, back = changes(one, other), changes(other, one)

    assert [(change.field, repr(change.then), repr(change.now)) for change in there] == [
        (change.field, repr(change.now), repr(change.then)) for change in back
    ]
    assert likeness(one, other) == likeness(other, one) <= likeness(one, one) == 0


def test_changes_are_named_by_their_path() -> None:
    """Every field that differs, down to the place in a message, in a fixed order; what one side lacks is absent."""
    now = Request(
        model="openai/gpt",
        messages=(
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "Hello?"}]},
            {"role": "x"},
        ),
        tools=(),
        parameters={"temperature": 0.5, "seed": 7, "stream": None, "top_p": 1},
    )

    assert changes(REQUEST, now) == (
        Change("messages[0].content", "Be kind.", "Be brief."),
        Change("messages[1].content", "Hello?", [{"type": "text", "text": "Hello?"}]),
        Change("messages[2]", None, {"role": "x"}),
        Change("parameters.stop", "null", None),
        Change("parameters.stream", then=True, now="null"),
        Change("parameters.temperature", 0, 0.5),
        Change("parameters.top_p", None, 1),
        Change("tools[0]", {"type": "function", "function": {"name": "look_up"}}, None),
    )


# ------------------------------------------------------------------------------------------------ digests
@given(st.lists(st.binary(max_size=4), max_size=4), st.lists(st.binary(max_size=4), max_size=4))
def test_parts_never_run_together(one: list[bytes], other: list[bytes]) -> None:
    """``ab`` and ``c`` are not ``a`` and ``bc``."""
    assert (digest(*one) == digest(*other)) == (one == other)


@given(json_values)
def test_a_digest_names_content(value: object) -> None:
    """32 hexadecimal digits, and the same for the same bytes."""
    found = digest(canonical(value))

    assert len(found) == 32
    assert int(found, 16) >= 0
    assert found == digest(canonical(value))


# ------------------------------------------------------------------------------------------------ registries and messages
def test_a_name_is_taken_once() -> None:
    """Two extensions of one name would make reports ambiguous."""
    probes: Registry[int] = Registry("probe", entry_points="canary_replay.tests.nothing")
    probes.add("polite", 1)

    with pytest.raises(UsageError, match=r"^there are two probes named 'polite'; rename one of them$"):
        probes.add("polite", 2)

    assert probes.get("polite") == 1
    assert (list(probes), len(probes), "polite" in probes, "rude" in probes) == (["polite"], 1, True, False)


def test_a_file_can_be_loaded_again() -> None:
    """A name that was discarded can be taken again; one that never was there may be discarded too."""
    probes: Registry[int] = Registry("probe", entry_points="canary_replay.tests.nothing")
    probes.add("polite", 1)

    probes.discard({"polite", "rude"})
    probes.add("polite", 2)

    assert probes.get("polite") == 2


@pytest.mark.parametrize(
    "known, says",
    [
        (["polite", "json"], "there is no probe 'polit'; did you mean 'polite'? known: json, polite"),
        (["json"], "there is no probe 'polit'; known: json"),
        ([], "there is no probe 'polit'; known: none"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest(known: list[str], says: str) -> None:
    """The message names the nearest, then all, sorted."""
    probes: Registry[str] = Registry("probe", entry_points="canary_replay.tests.nothing")
    for name in known:
        probes.add(name, name)

    with pytest.raises(UsageError) as raised:
        probes.get("polit")

    assert str(raised.value) == unknown("probe", "polit", known) == says


def test_a_damaged_file_is_told_in_one_line() -> None:
    """Where there is no place, the file alone is named; line ends in the problem become spaces."""
    assert str(DamagedFileError("x.json", "line 3", "is\n damaged")) == "x.json: line 3: is damaged"
    assert str(DamagedFileError("x.json", "", "is empty")) == "x.json: is empty"
