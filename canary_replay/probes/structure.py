"""Probes of answers that a program reads: one JSON value, its keys, its JSON Schema."""

from __future__ import annotations

import json as standard_json
import re
from collections.abc import Callable
from datetime import datetime, time
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import msgspec
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, field_validator

from canary_replay.digest import canonical
from canary_replay.outcome import Score
from canary_replay.probing import probe
from canary_replay.response import Response
from canary_replay.suite import Case

if TYPE_CHECKING:
    from jsonschema.protocols import Validator

_FENCE = re.compile(r"(?P<fence>`{3,}|~{3,})[ \t]*(?:json|JSON)?[ \t]*\r?\n(?P<inside>.*)(?P=fence)", re.DOTALL)
_PROBLEMS_SHOWN = 3


class JsonParameters(BaseModel):
    """Parameters of ``json``.

    :ivar keys: keys that the value, an object, must have at its top level.
    :ivar fenced: whether the value may stand in a Markdown code fence that is the whole answer.
    """

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        defer_build=True,
        json_schema_extra={"examples": [{}, {"keys": ["status", "summary"], "fenced": True}]},
    )

    keys: Annotated[tuple[Annotated[str, StringConstraints(min_length=1)], ...], Field(min_length=1)] | None = None
    fenced: bool = False

    @field_validator("keys", mode="before")
    @classmethod
    def _one_is_a_list_of_one(cls, value: Any) -> Any:  # noqa: ANN401 - whatever the file holds
        return [value] if isinstance(value, str) else value


class JsonSchemaParameters(BaseModel):
    """Parameters of ``json_schema``.

    :ivar schema_: a JSON Schema (written ``schema``); its ``$schema`` says which draft, 2020-12 by default. ``format`` is
        checked, ``$ref`` is followed inside the schema only, and ``pattern`` is matched by RE2 where RE2 can read it.
    :ivar fenced: whether the value may stand in a Markdown code fence that is the whole answer.
    """

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        defer_build=True,
        populate_by_name=True,
        json_schema_extra={"examples": [{"schema": {"type": "object", "required": ["status"]}}]},
    )

    schema_: Annotated[dict[str, Any], Field(alias="schema")]
    fenced: bool = False

    @field_validator("schema_")
    @classmethod
    def _is_a_schema(cls, value: dict[str, Any]) -> dict[str, Any]:
        compiled(canonical(value))
        return value

    @cached_property
    def validator(self) -> Validator:
        """The compiled schema."""
        return compiled(canonical(self.schema_))


@probe("json", category="format", parameters=JsonParameters, reads_case=False)
def json(_case: Case, response: Response, parameters: JsonParameters) -> Score:
    """The whole answer is one JSON value, with the required keys.

    Why it matters: a program reads it, and "Here is your JSON:" or a Markdown fence breaks that program.
    The score is 0 when it is not JSON, and otherwise the share of the required keys that are there.

    Passes: ``{"status": "ok", "summary": "done"}`` with ``keys = ["status", "summary"]``.
    Fails: the same in a code fence (unless ``fenced = true``); ``{"status": "ok"}`` (score 0.5).
    """
    try:
        value = json_answer(response.text, fenced=parameters.fenced)
    except ValueError as problem:
        return Score(0.0, str(problem))
    if not parameters.keys:
        return Score(1.0)
    if not isinstance(value, dict):
        return Score(0.0, f"the answer is {_kind(value)}, not an object with the keys {_keys(parameters.keys)}")
    missing = [key for key in parameters.keys if key not in value]
    if not missing:
        return Score(1.0)
    return Score(1 - len(missing) / len(parameters.keys), f"the object lacks {_keys(missing)}")


@probe("json_schema", category="format", parameters=JsonSchemaParameters, reads_case=False)
def json_schema(_case: Case, response: Response, parameters: JsonSchemaParameters) -> Score:
    """The whole answer is one JSON value that the schema allows.

    Why it matters: a field that is gone, renamed or of another type breaks the program that reads it, however well it is worded.

    Passes: ``{"age": 30}`` with ``schema = { properties = { age = { type = "integer" } } }``.
    Fails: ``{"age": "thirty"}`` with the same.
    """
    try:
        value = json_answer(response.text, fenced=parameters.fenced)
    except ValueError as problem:
        return Score(0.0, str(problem))
    try:
        problems = sorted(parameters.validator.iter_errors(value), key=lambda error: (error.json_path, error.message))
    except RecursionError:
        return Score(0.0, "the answer is nested too deeply to be checked")
    if not problems:
        return Score(1.0)
    shown = "; ".join(f"{error.json_path}: {error.message:.200}" for error in problems[:_PROBLEMS_SHOWN])
    more = f"; and {len(problems) - _PROBLEMS_SHOWN} more" if len(problems) > _PROBLEMS_SHOWN else ""
    return Score(0.0, f"{shown}{more}")


def json_answer(text: str, *, fenced: bool) -> Any:  # noqa: ANN401 - any JSON
    """The JSON value that is the whole answer.

    :param fenced: whether a Markdown code fence around all of it is allowed.
    :raises ValueError: it is something else; the message is a whole sentence.
    """
    inside = text.strip()
    if not inside:
        raise ValueError("the answer is empty, not JSON")
    if (fence := _FENCE.fullmatch(inside)) is not None:
        if not fenced:
            raise ValueError("the answer is in a Markdown code fence, which breaks a JSON reader; fenced = true allows it")
        inside = fence["inside"]
    try:
        return json_value(inside)
    except ValueError as problem:
        raise ValueError(f"the answer is not JSON: {problem}") from None


def json_value(text: str) -> Any:  # noqa: ANN401 - any JSON
    """The one JSON value that a text is.

    :raises ValueError: it is not JSON (NaN and Infinity are not), or is nested too deeply to be read.
    """
    try:
        return msgspec.json.decode(text)
    except (ValueError, RecursionError):
        return _by_the_standard_library(text)


def _by_the_standard_library(text: str) -> Any:  # noqa: ANN401 - any JSON
    """Slower, but it names line and column, and reads what msgspec refuses: escapes of lone surrogates, numbers over 1e308."""
    try:
        return standard_json.loads(text, parse_constant=_no_constant)
    except RecursionError:
        raise ValueError("it is nested too deeply to be read") from None


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON value")


@lru_cache(maxsize=1024)
def compiled(schema: bytes) -> Validator:
    """The validator of a schema given as canonical JSON.

    :raises ValueError: it is no schema of its draft, or refers to something outside itself.
    """
    import jsonschema  # 80 ms that a suite without schemas never pays
    from jsonschema_specifications import REGISTRY  # type: ignore[import-untyped] # it ships no types

    given = msgspec.json.decode(schema)
    draft = jsonschema.validators.validator_for(given, default=None)
    if draft is None and "$schema" in given:
        raise ValueError(f"the schema says $schema = {given['$schema']!r}, which is no JSON Schema draft that is known here")
    draft = draft or jsonschema.Draft202012Validator
    try:
        draft.check_schema(given, format_checker=jsonschema.FormatChecker(formats=()))
    except jsonschema.SchemaError as problem:
        raise ValueError(f"the schema is not valid at {problem.json_path}: {problem.message}") from None
    checker = jsonschema.validators.extend(draft, {"pattern": _pattern})
    # An explicit registry: without one, jsonschema would fetch a remote $ref over the network.
    validator: Validator = checker(given, registry=REGISTRY, format_checker=_formats())
    _check_references(given, draft)
    return validator


def _check_references(schema: dict[str, Any], draft: Any) -> None:  # noqa: ANN401 - jsonschema's validator classes are untyped
    """Look up every ``$ref`` once, so that a wrong one is found when the suite is loaded.

    :raises ValueError: one of them leads nowhere.
    """
    from jsonschema_specifications import REGISTRY
    from referencing.jsonschema import specification_with

    default = specification_with(draft.META_SCHEMA.get("$id") or draft.META_SCHEMA["id"])
    resource = default.create_resource(schema)
    pending = [(resource, REGISTRY.resolver_with_root(resource))]
    while pending:
        resource, resolver = pending.pop()
        if isinstance(resource.contents, dict):
            for keyword in ("$ref", "$dynamicRef", "$recursiveRef"):
                if isinstance(reference := resource.contents.get(keyword), str):
                    _look_up(resolver, reference)
        pending += [(inner, resolver.in_subresource(inner)) for inner in resource.subresources()]


def _look_up(resolver: Any, reference: str) -> None:  # noqa: ANN401 - generic there
    from referencing.exceptions import Unresolvable

    try:
        resolver.lookup(reference)
    except Unresolvable:
        raise ValueError(
            f"the schema refers to {reference!r}, which is not inside it; put that under $defs, nothing is downloaded"
        ) from None


def _pattern(_validator: Any, pattern: str, instance: Any, _schema: Any) -> Any:  # noqa: ANN401 - jsonschema's signature
    """The keyword ``pattern`` by RE2, so that an answer cannot hang it; by Python's ``re`` where RE2 cannot read it."""
    import jsonschema

    if isinstance(instance, str) and not _found(pattern)(instance):
        yield jsonschema.ValidationError(f"{instance!r:.100} does not match {pattern!r}")


@lru_cache(maxsize=1024)
def _found(pattern: str) -> Callable[[str], bool]:
    from canary_replay.probes.patterns import searcher

    try:
        search = searcher(pattern, "re2")
    except ValueError:
        search = searcher(pattern, "python")
    return lambda text: search(text) is not None


@lru_cache(maxsize=1)
def _formats() -> Any:  # noqa: ANN401 - untyped there
    """The formats of jsonschema itself, and common ones that it leaves to other packages and would let pass unseen."""
    import jsonschema

    formats = jsonschema.FormatChecker()
    for name, holds in (("date-time", _is_date_time), ("time", _is_time), ("uri", _is_uri), ("hostname", _is_hostname)):
        formats.checks(name, raises=ValueError)(holds)
    return formats


_DATE_TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)", re.ASCII)
_TIME = re.compile(r"\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)", re.ASCII)
_FRACTION = re.compile(r"\.\d+")
_HOST_LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?")
_NOT_IN_A_URI = re.compile(r"[^\x21-\x7e]|[<>\"{}|\\^`]")


def _is_date_time(value: object) -> bool:
    if not isinstance(value, str):
        return True
    return bool(_DATE_TIME.fullmatch(value) and datetime.fromisoformat(_FRACTION.sub("", value).upper()))


def _is_time(value: object) -> bool:
    if not isinstance(value, str):
        return True
    return bool(_TIME.fullmatch(value)) and time.fromisoformat(_FRACTION.sub("", value).upper()) is not None


def _is_uri(value: object) -> bool:
    return not isinstance(value, str) or (bool(urlsplit(value).scheme) and not _NOT_IN_A_URI.search(value))


def _is_hostname(value: object) -> bool:
    return not isinstance(value, str) or (len(value) <= 253 and all(map(_HOST_LABEL.fullmatch, value.split("."))))


def _keys(names: list[str] | tuple[str, ...]) -> str:
    return ", ".join(repr(name) for name in names)


def _kind(value: object) -> str:
    """What a JSON value is, with its article."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, int | float):
        return "a number"
    return "a string" if isinstance(value, str) else "an array" if isinstance(value, list) else "an object"
