"""What is asked and expected: suites, targets, cases and their expectations, as people write them in ``suites/*.toml``."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, field_validator, model_validator

Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,79}$")]
Tag = Annotated[str, StringConstraints(pattern=r"^[^\s()]+$")]
Gate = Literal["hard", "statistical", "advisory"]


def _one_is_a_list_of_one(value: Any) -> Any:  # noqa: ANN401 - whatever the file holds
    return [value] if isinstance(value, str) else value


Texts = Annotated[tuple[str, ...], BeforeValidator(_one_is_a_list_of_one, json_schema_input_type=str | tuple[str, ...])]
BoolOrTexts = Annotated[
    bool | tuple[str, ...], BeforeValidator(_one_is_a_list_of_one, json_schema_input_type=bool | str | tuple[str, ...])
]


def _two_spellings(schema: dict[str, Any]) -> None:
    """Tell editors of both names of a case's prompt."""
    schema["properties"]["user"] = {**schema["properties"]["input"], "title": "User"}


class Table(BaseModel):
    """A table of a suite file: read-only, and a key that it does not know is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class File(Table):
    """A text that stands in a file of its own; the path is relative to the suite file."""

    file: str


class Expect(Table):
    """What a case expects of its answer; each key is scored as a probe of its own, named ``expect.<key>``.

    :ivar json_: the answer is one JSON value (written ``json``).
    :ivar required: keys that the JSON object must have.
    :ivar json_schema: a JSON Schema that the answer must satisfy.
    :ivar tool: the tool that must be called; ``arguments`` are the arguments it must get (further ones are allowed).
    :ivar forbid_tool: ``true``: no tool may be called; a name or a list: these may not.
    :ivar refusal: ``true``: the answer must refuse; ``false``: it must not.
    :ivar contains: texts that must be in the answer; ``must_not_contain``: texts that must not.
    :ivar equals: the answer, but for leading and trailing white space.
    :ivar regex: RE2 patterns that must be found; ``not_regex``: that must not.
    :ivar error: the answer is an error: ``true`` for any, a number for that HTTP status.
    """

    json_: bool | None = Field(default=None, alias="json")
    required: Texts | None = None
    json_schema: dict[str, Any] | None = None
    tool: str | None = None
    arguments: dict[str, Any] | None = None
    forbid_tool: BoolOrTexts | None = None
    refusal: bool | None = None
    contains: Texts | None = None
    must_not_contain: Texts | None = None
    equals: str | None = None
    regex: Texts | None = None
    not_regex: Texts | None = None
    error: bool | int | None = None


class Case(Table):
    """One prompt: who asks what, with which tags, and what the answer must be.

    :ivar id: any text; unique in its suite.
    :ivar tags: what scopes select by; ``group`` counts as one more.
    :ivar user: the prompt (``input`` is accepted too); or ``messages`` for several turns, OpenAI-shaped.
    :ivar system: a system prompt instead of the target's.
    :ivar variables: values for ``{name}`` in the prompts.
    :ivar parameters: laid over the target's, for this case alone (``stream = true``, ``response_format``).
    :ivar tools: instead of the target's; ``[]`` for none.
    :ivar required: a failure of this case rejects even where it is already known.
    """

    model_config = ConfigDict(
        extra="forbid", frozen=True, defer_build=True, populate_by_name=True, json_schema_extra=_two_spellings
    )

    id: Annotated[str, StringConstraints(min_length=1, max_length=500)]
    tags: tuple[Tag, ...] = ()
    group: Tag | None = None
    user: str | None = Field(default=None, alias="input")
    messages: tuple[dict[str, Any], ...] = ()
    system: str | File | None = None
    variables: dict[str, str | int | float | bool] = {}
    parameters: dict[str, Any] = {}
    tools: tuple[dict[str, Any], ...] | File | None = None
    expect: Expect = Expect.model_construct()  # not Expect(): that would build its validator at import
    required: Annotated[bool, Field(strict=True)] = False

    @field_validator("messages")
    @classmethod
    def _have_roles(cls, messages: tuple[dict[str, Any], ...]) -> tuple[dict[str, Any], ...]:
        for number, message in enumerate(messages, 1):
            if not isinstance(message.get("role"), str):
                raise ValueError(f"message {number} has no 'role' ('user', 'assistant', 'tool')")  # noqa: TRY004 - pydantic's way
        return messages

    @model_validator(mode="after")
    def _asks_something(self) -> Case:
        if (self.user is None) == (not self.messages):
            raise ValueError("a case has either 'user' (the prompt) or 'messages', not both and not neither")
        return self

    @property
    def all_tags(self) -> frozenset[str]:
        """The tags that scopes see: ``tags`` and ``group``."""
        return frozenset(self.tags) if self.group is None else frozenset((*self.tags, self.group))


class CasesFrom(Table):
    """Cases in a file of their own, JSONL (one object a line) or CSV; the path is relative to the suite file.

    :ivar tags: given to every case of the file, besides its own.
    """

    file: str
    tags: tuple[Tag, ...] = ()


class Target(Table):
    """Who answers: a model with its system prompt, tools and parameters.

    :ivar model: any LiteLLM name (``openai/gpt-5-mini``), ``embedded/<name>`` for the model that runs on this machine,
        or ``default`` for the first of: ``CANARY_MODEL``, a provider whose key is set, a running Ollama, the embedded model.
    :ivar provider: ``path.py:Class`` or the name of an installed provider, instead of LiteLLM.
    :ivar extends: another target; what is given here replaces what that one says, ``parameters`` key by key.
    :ivar against: makes this target a candidate, compared with the named one.
    :ivar api_base: where the provider answers; never part of the key.
    :ivar headers, metadata: markers sent along, so that evaluation calls stay out of production statistics; never in the key.
    """

    model: str | None = None
    provider: str | None = None
    extends: str | None = None
    against: str | None = None
    system: str | File | None = None
    tools: tuple[dict[str, Any], ...] | File | None = None
    parameters: dict[str, Any] = {}
    api_base: str | None = None
    headers: dict[str, str] = {}
    metadata: dict[str, str] = {}


class ProbeTable(BaseModel):
    """One configured probe, in ``[[probes_inline]]`` or a probe file; what is not listed here are the probe's own parameters.

    :ivar name: its identity in every report and in the scorecard.
    :ivar use: the registered probe that it configures.
    :ivar scope: the cases it applies to, as an expression over tags (``orders and not refusal``); all by default.
    :ivar threshold: the least score that passes.
    :ivar gate: ``hard`` rejects when a pass becomes a fail; ``statistical`` asks for review; ``advisory`` only tells.
    :ivar required: a failure rejects even where it is already known.
    """

    model_config = ConfigDict(extra="allow", frozen=True, defer_build=True)

    name: Name
    use: Name
    scope: str = ""
    threshold: Annotated[float, Field(ge=0, le=1)] = 1.0
    category: Name | None = None
    gate: Gate = "hard"
    required: bool = False

    @property
    def parameters(self) -> dict[str, Any]:
        """The keys that belong to the probe itself."""
        return dict(self.model_extra or {})


class RecordTable(Table):
    """How to ask: ``[record]`` of a suite. Nothing here is part of a key.

    :ivar concurrency: calls at a time.
    :ivar requests_per_minute: a rate limit; 0 for none.
    :ivar timeout: seconds that one call may take, endless streams included.
    :ivar retries: how often a 429, a 5xx or a refused connection is asked again, with growing pauses.
    :ivar max_body_bytes: a response longer than this is cut, kept as cut, and counted as an error.
    """

    concurrency: Annotated[int, Field(ge=1, le=256)] = 4
    requests_per_minute: Annotated[float, Field(ge=0)] = 0
    timeout: Annotated[float, Field(gt=0)] = 120.0
    retries: Annotated[int, Field(ge=0, le=20)] = 3
    max_body_bytes: Annotated[int, Field(ge=1)] = 32_000_000


class RedactTable(Table):
    """What else to mask before anything reaches the disk: ``[redact]`` of a suite.

    :ivar emails: mask e-mail addresses.
    :ivar patterns: further RE2 patterns to mask (user ids, ticket numbers).
    """

    emails: bool = False
    patterns: tuple[str, ...] = ()


class PolicyTable(Table):
    """The gates of a suite: ``[policy]``.

    :ivar required_cases_pass: a failing case or probe that is ``required`` rejects, known or not.
    """

    required_cases_pass: bool = True


class Suite(Table):
    """A suite file.

    :ivar trials: recordings of each case; each has its own seed.
    :ivar reference: the target whose cassettes are the baseline; the first one by default.
    :ivar pass_: how many trials of a case must pass (written ``pass``): ``all``, ``majority`` or a rate.
    :ivar keep_wire: whose interactions a cassette keeps: ``all`` trials', the ``first``'s, or ``none``.
    :ivar probes: probe files, TOML or Python, relative to the project.
    """

    name: Name
    trials: Annotated[int, Field(ge=1, le=1000)] = 1
    reference: str | None = None
    pass_: Literal["all", "majority"] | Annotated[float, Field(gt=0, le=1)] = Field(default="all", alias="pass")
    keep_wire: Literal["all", "first", "none"] = "all"
    probes: tuple[str, ...] = ()
    targets: dict[Name, Target]
    cases: tuple[Case, ...] = ()
    cases_from: tuple[CasesFrom, ...] = ()
    probes_inline: tuple[ProbeTable, ...] = ()
    record: RecordTable = RecordTable.model_construct()
    redact: RedactTable = RedactTable.model_construct()
    policy: PolicyTable = PolicyTable.model_construct()
