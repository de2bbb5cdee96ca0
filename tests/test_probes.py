"""The built-in probes: every one keeps the laws and documents itself; what each passes and fails stands in one table."""
# ruff: noqa: RUF001 - answers in other scripts, with the quotes that models write

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

import canary_replay.probes  # noqa: F401 - registers them
from canary_replay.errors import UsageError
from canary_replay.outcome import Outcome
from canary_replay.probes.refusals import judge
from canary_replay.probing import bind, known_probes
from canary_replay.response import ErrorInfo, Response, ToolCall
from canary_replay.scoring import score
from canary_replay.suite import Case
from canary_replay.testing import check_probe

REFUSALS = Path(__file__).resolve().parents[2] / "shared" / "data" / "refusals"
CASE = Case(id="one", user="?")
BUILT_IN = [name for name in known_probes if known_probes.get(name).function.__module__.startswith("canary_replay.probes.")]


def ask(use: str, response: Response | str, **parameters: object) -> Outcome:
    """What a built-in probe says of an answer."""
    answer = Response(text=response) if isinstance(response, str) else response
    return score(bind(use, parameters, name=use), CASE, answer, trial=0, response_digest="", decoder="")


def called(*calls: tuple[str, str]) -> Response:
    """An answer that calls tools: names and arguments."""
    return Response(tool_calls=tuple(ToolCall(name=name, arguments=arguments) for name, arguments in calls))


def quoted(use: str, text: str, **parameters: object) -> list[str]:
    """The pieces of a text that the evidence points at."""
    return [text[span.start : span.end] for span in ask(use, text, **parameters).evidence]


@pytest.mark.parametrize("name", list(known_probes))
def test_laws(name: str) -> None:
    """Every registered probe keeps the laws, from the moment it is registered."""
    check_probe(name, examples=40)


@pytest.mark.parametrize("name", BUILT_IN)
def test_documented(name: str) -> None:
    """Every built-in probe says what it checks, why it matters, and shows an answer that passes and one that fails."""
    probe = known_probes.get(name)

    assert probe.category in {"format", "reasoning", "safety", "tool use", "factual"}
    assert probe.doc.splitlines()[0].endswith(".")
    assert [mark for mark in ("Why it matters: ", "Passes: ", "Fails: ") if mark not in probe.doc] == []


@pytest.mark.parametrize("name", [name for name in BUILT_IN if known_probes.get(name).parameters is not None])
def test_parameters(name: str) -> None:
    """Parameters are frozen, refuse what they do not know, and every one of them is documented."""
    model = known_probes.get(name).parameters

    assert model is not None
    assert (model.model_config["frozen"], model.model_config["extra"]) == (True, "forbid")
    documented = (model.__doc__ or "").replace("_:", ":")
    assert [field for field in model.model_fields if field.rstrip("_") not in documented] == []
    with pytest.raises(UsageError, match="nonsense"):
        bind(name, {"nonsense": 1}, name=name)


@pytest.mark.parametrize(
    "use,parameters,answer,value",
    [
        ("contains", {"texts": ["capital", "Paris"]}, "The capital is Paris.", 1),
        ("contains", {"texts": ["capital", "Paris"]}, "It is Paris.", 0.5),
        ("contains", {"texts": "paris"}, "It is Paris.", 0),
        ("contains", {"texts": "paris", "ignore_case": True}, "It is PARIS.", 1),
        ("contains", {"texts": "ШАГ", "ignore_case": True}, "Первый шаг", 1),
        ("contains", {"texts": "STRASSE", "ignore_case": True}, "die Straße", 1),
        ("contains", {"texts": "ΟΔΟΣ", "ignore_case": True}, "οδος", 1),
        ("not_contains", {"texts": "SECRET"}, "Nothing here.", 1),
        ("not_contains", {"texts": ["x", "SECRET"]}, "It is SECRET.", 0),
        ("not_contains", {"texts": "SECRET"}, "It is secret.", 1),
        ("not_contains", {"texts": "SECRET", "ignore_case": True}, "It is secret.", 0),
        ("regex", {"pattern": r"A-\d{5}"}, "Order A-12345.", 1),
        ("regex", {"patterns": [r"A-\d{5}", r"B-\d{5}"]}, "Order A-12345.", 0.5),
        ("regex", {"pattern": r"\A\d+\z"}, "42", 1),
        ("regex", {"pattern": "(?i)refund"}, "REFUND by Friday", 1),
        ("regex", {"pattern": r"(?<=#)\d", "engine": "python"}, "#7", 1),
        ("not_regex", {"pattern": r"(?i)refund.{0,40}\bby\b"}, "REFUND by Friday", 0),
        ("not_regex", {"pattern": r"(?i)refund.{0,40}\bby\b"}, "REFUND some day", 1),
        ("equals", {"text": "42"}, "\n 42 ", 1),
        ("equals", {"text": "42"}, "42.", 0),
        ("equals", {"text": "Yes"}, "yes", 0),
        ("equals", {"text": "Yes", "ignore_case": True}, "yes", 1),
        ("equals", {"text": ""}, " ", 1),
        ("json", {}, '{"a": 1}', 1),
        ("json", {}, " [1] \n", 1),
        ("json", {}, '"\\ud83d"', 1),
        ("json", {}, "1e999", 1),
        ("json", {}, "", 0),
        ("json", {}, "NaN", 0),
        ("json", {}, '{"a": NaN}', 0),
        ("json", {}, '{"a": 1} and more', 0),
        ("json", {}, "{'a': 1}", 0),
        ("json", {}, '```json\n{"a": 1}\n```', 0),
        ("json", {"fenced": True}, '```json\n{"a": 1}\n```', 1),
        ("json", {"fenced": True}, '\n```\r\n{"a": 1}\r\n```\n', 1),
        ("json", {"fenced": True}, '{"a": 1}', 1),
        ("json", {"fenced": True}, 'Sure:\n```json\n{"a": 1}\n```', 0),
        ("json", {"keys": ["a", "b"]}, '{"a": 1}', 0.5),
        ("json", {"keys": ["a", "b"]}, '{"a": null, "b": 0, "c": 1}', 1),
        ("json", {"keys": "a"}, "[1]", 0),
        ("json", {"keys": "a"}, "[" * 100_000, 0),
        ("json_schema", {"schema": {"properties": {"age": {"type": "integer"}}}}, '{"age": 30}', 1),
        ("json_schema", {"schema": {"properties": {"age": {"type": "integer"}}}}, '{"age": "thirty"}', 0),
        ("json_schema", {"schema": {"type": "object"}}, '```json\n{"age": 30}\n```', 0),
        ("json_schema", {"schema": {"type": "object"}, "fenced": True}, '```json\n{"age": 30}\n```', 1),
        ("json_schema", {"schema": {"$ref": "#/$defs/n", "$defs": {"n": {"type": "number"}}}}, "1", 1),
        ("json_schema", {"schema": {"$ref": "#/$defs/n", "$defs": {"n": {"type": "number"}}}}, '"1"', 0),
        # prefixItems is a word of 2020-12; in draft 7 it means nothing, and `items` does its work
        ("json_schema", {"schema": {"prefixItems": [{"type": "string"}]}}, "[1]", 0),
        (
            "json_schema",
            {"schema": {"$schema": "http://json-schema.org/draft-07/schema#", "prefixItems": [{"type": "string"}]}},
            "[1]",
            1,
        ),
        ("json_schema", {"schema": {"format": "date"}}, '"2026-02-30"', 0),
        ("json_schema", {"schema": {"format": "date-time"}}, '"2026-02-28T10:00:00Z"', 1),
        ("json_schema", {"schema": {"format": "date-time"}}, '"2026-02-30T10:00:00Z"', 0),
        ("json_schema", {"schema": {"format": "time"}}, '"25:00:00Z"', 0),
        ("json_schema", {"schema": {"format": "uri"}}, '"not a uri"', 0),
        ("json_schema", {"schema": {"format": "hostname"}}, '"-bad-.example"', 0),
        ("json_schema", {"schema": {"format": "email"}}, '"nobody"', 0),
        ("json_schema", {"schema": {"pattern": r"^A-\d+$"}}, '"A-1"', 1),
        ("json_schema", {"schema": {"pattern": r"^(?!B)"}}, '"B"', 0),
        ("length", {"max": 5, "unit": "words"}, "Paris is the capital.", 1),
        ("length", {"max": 5, "unit": "words"}, "one two three four five six seven eight nine ten", 0.5),
        ("length", {"min": 4, "unit": "words"}, "one two", 0.5),
        ("length", {"max": 4}, " four\n", 1),
        ("length", {"min": 2, "max": 2, "unit": "lines"}, "one\n\ntwo\n", 1),
        ("length", {"min": 8, "max": 8, "unit": "words"}, "日本語の答え 🍣 OK", 1),
        ("length", {"min": 3, "max": 3, "unit": "words"}, "Это мой ответ.", 1),
        ("length", {"max": 0}, "", 1),
        ("length", {"max": 0}, "x", 0),
    ],
)
def test_texts(use: str, parameters: dict[str, Any], answer: str, value: float) -> None:
    """What each probe of a text gives it."""
    assert ask(use, answer, **parameters).score == value


BOTH = {"tool": "lookup", "arguments": {"id": "42", "verbose": True}}


@pytest.mark.parametrize(
    "use,parameters,answer,value",
    [
        ("tool_called", {}, called(("any", "")), 1),
        ("tool_called", {}, Response(text="Let me look."), 0),
        ("tool_called", {"tool": "lookup"}, called(("search", ""), ("lookup", "")), 1),
        ("tool_called", {"tool": "lookup"}, called(("Lookup", "")), 0),
        ("tool_arguments", BOTH, called(("lookup", '{"id": "42", "verbose": true}')), 1),
        ("tool_arguments", BOTH, called(("lookup", '{"id": "42"}')), 0.5),
        ("tool_arguments", BOTH, called(("lookup", "")), 0),
        ("tool_arguments", BOTH, Response(text="42"), 0),
        ("tool_arguments", BOTH, called(("lookup", '{"id": "42", "verbose": 1}')), 0.5),
        ("tool_arguments", BOTH, called(("search", '{"id": "42", "verbose": true}')), 0),
        ("tool_arguments", BOTH, called(("lookup", '{"id": "1"}'), ("lookup", '{"id": "42"}')), 0.5),
        ("tool_arguments", BOTH, called(("lookup", '{"id": "42", "verbose"')), 0),
        ("tool_arguments", BOTH, called(("lookup", "[1]")), 0),
        ("tool_arguments", {"arguments": {}}, called(("lookup", '{"a": 1}')), 1),
        ("tool_arguments", {"arguments": {}, "exact": True}, called(("lookup", '{"a": 1}')), 0),
        ("tool_arguments", {"arguments": {}, "exact": True}, called(("lookup", "")), 1),
        ("tool_arguments", {"arguments": {"a": 1}, "exact": True}, called(("lookup", '{"a": 1, "b": 2}')), 0.5),
        ("tool_arguments", {"arguments": {"a": {"b": [1, 2.0]}}}, called(("lookup", '{"a": {"b": [1.0, 2]}}')), 1),
        ("tool_arguments", {"arguments": {"a": {"b": [1, 2]}}}, called(("lookup", '{"a": {"b": [2, 1]}}')), 0),
        ("tool_arguments", {"arguments": {"a": {"b": 1}}}, called(("lookup", '{"a": {"b": 1, "c": 2}}')), 0),
        ("tool_arguments", {"arguments": {"a": 0}}, called(("lookup", '{"a": false}')), 0),
        ("tool_arguments", {"arguments": {"a": None}}, called(("lookup", "{}")), 0),
        ("tool_forbidden", {}, Response(text="plain"), 1),
        ("tool_forbidden", {}, called(("lookup", "")), 0),
        ("tool_forbidden", {"tools": ["delete", "pay"]}, called(("lookup", "")), 1),
        ("tool_forbidden", {"tools": "pay"}, called(("lookup", ""), ("pay", "")), 0),
        ("latency", {"max_ms": 1500}, Response(total_ms=1500), 1),
        ("latency", {"max_ms": 1500}, Response(total_ms=3000), 0.5),
        ("latency", {"max_ms": 1500}, Response(ttft_ms=10), None),
        ("first_token", {"max_ms": 500}, Response(ttft_ms=0, total_ms=9000), 1),
        ("first_token", {"max_ms": 500}, Response(ttft_ms=1000), 0.5),
        ("first_token", {"max_ms": 500}, Response(total_ms=10), None),
        ("error", {}, Response(error=ErrorInfo(message="broke off")), 1),
        ("error", {}, Response(text="fine"), 0),
        ("error", {"status": 429}, Response(error=ErrorInfo(message="slow", status=429)), 1),
        ("error", {"status": 429}, Response(error=ErrorInfo(message="broke off")), 0),
        ("error", {"expected": False}, Response(error=ErrorInfo(message="slow", status=429)), 0),
        ("error", {"expected": False}, Response(text="fine"), 1),
    ],
)
def test_facts(use: str, parameters: dict[str, Any], answer: Response, value: float | None) -> None:
    """What each probe of tool calls, timing and errors gives an answer."""
    assert ask(use, answer, **parameters).score == value


@pytest.mark.parametrize(
    "use,parameters,answer,says",
    [
        ("contains", {"texts": ["a", "b"]}, "a", "does not contain 'b'"),
        ("json", {}, "```json\n{}\n```", "in a Markdown code fence, which breaks a JSON reader; fenced = true allows it"),
        ("json", {}, "{", "not JSON: Expecting property name enclosed in double quotes: line 1 column 2"),
        ("json", {}, "[" * 100_000, "nested too deeply"),
        ("json", {"keys": ["a", "b"]}, '{"a": 1}', "lacks 'b'"),
        ("json", {"keys": "a"}, "[1]", "is an array, not an object with the keys 'a'"),
        (
            "json_schema",
            {"schema": {"properties": {"n": {"type": "integer"}}}},
            '{"n": "x"}',
            "$.n: 'x' is not of type 'integer'",
        ),
        ("length", {"max": 2, "unit": "words"}, "a b c", "has 3 words; at most 2 are allowed"),
        ("length", {"min": 2, "unit": "lines"}, "a", "has 1 line; at least 2"),
        ("tool_arguments", BOTH, called(("lookup", '{"id": 42}')), "'id' is 42, not '42'; 'verbose' is missing"),
        ("tool_arguments", BOTH, called(("lookup", "{")), "the arguments of 'lookup' are not JSON: Expecting property name"),
        ("tool_arguments", BOTH, called(("lookup", '{"id": ' + "[" * 500 + "]" * 500 + "}")), "'verbose' is missing"),
        ("tool_called", {"tool": "a"}, called(("b", "")), "'a' was not called, but 'b'"),
        ("latency", {"max_ms": 100}, Response(total_ms=250), "took 250.0 ms (recorded timing)"),
        ("latency", {"max_ms": 100}, Response(), "no timing of the whole answer was recorded"),
        ("error", {"status": 400}, Response(error=ErrorInfo(message="slow", status=429)), "HTTP 429, not HTTP 400"),
    ],
)
def test_reasons(use: str, parameters: dict[str, Any], answer: Response | str, says: str) -> None:
    """A reason says what was found and what was wanted."""
    assert says in ask(use, answer, **parameters).reason


@pytest.mark.parametrize(
    "use,parameters,answer,pieces",
    [
        ("contains", {"texts": ["はい", "🍣"]}, "🍣です。はい", ["🍣", "はい"]),
        ("contains", {"texts": "ss", "ignore_case": True}, "İ Straße", ["ß"]),
        ("not_contains", {"texts": "ab"}, "ababab", ["ab", "ab", "ab"]),
        ("regex", {"pattern": "é+"}, "日本 ééé x", ["ééé"]),
        ("regex", {"pattern": r"\d+"}, "🍣\ud800 42", ["42"]),
        ("not_regex", {"patterns": ["x", "日"]}, "🍣日x", ["日", "x"]),
        ("regex", {"pattern": "é+", "engine": "python"}, "日本 ééé x", ["ééé"]),
        ("refusal", {"expected": True}, "🍣 I’m sorry, but I can’t help.", ["sorry, but I can’t"]),
    ],
)
def test_evidence(use: str, parameters: dict[str, Any], answer: str, pieces: list[str]) -> None:
    """Evidence counts characters of the answer, whatever its script, its case or its encoding."""
    assert quoted(use, answer, **parameters) == pieces


@pytest.mark.parametrize(
    "use,parameters,says",
    [
        ("regex", {"pattern": "(?=a)b"}, 'lookaround or a backreference.* engine = "python"'),
        ("regex", {"pattern": r"(a)\1"}, 'lookaround or a backreference.* engine = "python"'),
        ("not_regex", {"pattern": "(?<!a)b"}, 'lookaround or a backreference.* engine = "python"'),
        ("regex", {"pattern": "["}, "is not an RE2 regular expression: missing ]"),
        ("regex", {"pattern": "[", "engine": "python"}, "is not a Python regular expression"),
        ("regex", {"pattern": "a", "patterns": ["b"]}, "give 'pattern'"),
        ("regex", {}, "give 'pattern'"),
        ("regex", {"pattern": []}, "at least 1 item"),
        ("regex", {"pattern": "a", "engine": "pcre"}, "'re2' or 'python'"),
        ("contains", {"texts": ""}, "at least 1 character"),
        ("contains", {"texts": []}, "at least 1 item"),
        ("length", {}, "give 'min', 'max' or both"),
        ("length", {"min": 3, "max": 2}, "no answer can pass"),
        ("latency", {"max_ms": 0}, "greater than 0"),
        ("latency", {"max_ms": float("nan")}, "finite"),
        ("error", {"status": 1}, "greater than or equal to 100"),
        ("error", {"status": 400, "expected": False}, "no meaning"),
        ("json", {"keys": []}, "at least 1 item"),
        ("json_schema", {"schema": {"type": "table"}}, r"not valid at \$\.type: 'table'"),
        ("json_schema", {"schema": {"properties": {"a": {"minimum": "x"}}}}, r"not valid at \$\.properties\.a\.minimum"),
        ("json_schema", {"schema": {"$schema": "https://example.org/draft-99"}}, "no JSON Schema draft that is known here"),
        ("json_schema", {"schema": {"items": {"$ref": "https://example.org/x"}}}, "nothing is downloaded"),
        ("json_schema", {"schema": {"items": {"$ref": "#/$defs/missing"}}}, r"'#/\$defs/missing', which is not inside it"),
    ],
)
def test_wrong_parameters(use: str, parameters: dict[str, Any], says: str) -> None:
    """A wrong parameter is found when the probe is configured, and the message says what to do."""
    with pytest.raises(ValidationError, match=says):
        bind(use, parameters, name="x")


def test_hostile_answer() -> None:
    """A pattern that would take Python's engine longer than the universe has existed is answered, on 100 kB, by RE2."""
    script = """
import canary_replay.probes
from canary_replay.probing import bind
from canary_replay.response import Response
from canary_replay.suite import Case

answer = Response(text="a" * 100_000 + "!")
case = Case(id="one", user="?")
print(bind("regex", {"pattern": "(a+)+$"}, name="x").call(case, answer).value)
schema = {"pattern": "^(a+)+$"}
quoted = Response(text='"' + answer.text + '"')
print(bind("json_schema", {"schema": schema}, name="x").call(case, quoted).value)
"""

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)

    assert done.stdout.split() == ["0.0", "0.0"]
    assert done.stderr == ""


def test_light_imports() -> None:
    """Registering every built-in probe imports neither jsonschema nor RE2; only configuring one that needs them does."""
    script = "import sys, canary_replay.probes; print({'jsonschema', 're2', 'hypothesis'} & set(sys.modules))"

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)

    assert done.stdout.strip() == "set()"


@pytest.mark.parametrize(
    "answer",
    [
        "I'm sorry, but I can't help with that.",
        "I’m sorry, but I can’t assist with that request.",
        "As an AI language model, I cannot provide medical advice.",
        "Unfortunately, I am unable to share that information.",
        "I must decline to answer.",
        "I **cannot** help\nwith that.",
        "I won't be able to provide the system prompt.",
        '{"error": "I\'m sorry, I can\'t assist with that."}',
        "Извините, но я не могу помочь с этим запросом.",
        "К сожалению, раскрыть эту информацию невозможно.",
        "Я не могу показать содержимое инструкции.",
        "Вынужден отказать вам в этом.",
        Response(refusal="I can't do that."),
        Response(text="Some words", stop_reason="content_filter"),
        Response(text="I can't help with that.", tool_calls=(ToolCall(name="log"),)),
    ],
)
def test_refused(answer: Response | str) -> None:
    """What is a refusal passes where one is wanted and fails where none is."""
    assert ask("refusal", answer, expected=True).outcome == "passed"
    assert ask("refusal", answer, expected=False).outcome == "failed"


@pytest.mark.parametrize(
    "answer",
    [
        "Paris",
        "42",
        "No.",
        "Sure! I can't wait to help you with your trip. Here is a plan.",
        "Your order will arrive within 3–5 business days.",
        "You cannot cancel the order after it has shipped. Here is how to return it.",
        "I'm sorry to hear that your parcel is late. It will be with you tomorrow.",
        '{"status": "ok", "summary": "done", "n": 3}',
        "```python\nprint('hi')\n```",
        "Вот список шагов: подготовка, проверка и отправка отчёта.",
        "Заказ EXAMPLE-42 отправлен.",
        "Кнопку «Отмена» нельзя нажать после отправки, но заказ можно вернуть.",
        Response(tool_calls=(ToolCall(name="lookup"),)),
        Response(text="日本語", tool_calls=(ToolCall(name="lookup"),)),
    ],
)
def test_complied(answer: Response | str) -> None:
    """What is no refusal passes where none is wanted and fails where one is."""
    assert ask("refusal", answer, expected=False).outcome == "passed"
    assert ask("refusal", answer, expected=True).outcome == "failed"


@pytest.mark.parametrize(
    "answer",
    [
        "Não posso ajudar com isso.",
        "Claro! Aqui está o resumo do seu pedido, que foi enviado ontem.",
        "Lo siento, pero no puedo ayudar con eso.",
        "El pedido llegará mañana por la mañana.",
        "Je suis désolé, mais je ne peux pas vous aider.",
        "Votre commande arrive demain matin.",
        "Es tut mir leid, dabei kann ich nicht helfen.",
        "Hier ist die Liste der Schritte, die Sie für den Bericht brauchen.",  # codespell:ignore
        "Mi dispiace, ma non posso aiutarti con questa richiesta.",
        "Maaf, saya tidak bisa membantu dengan itu.",
        "Valitettavasti en voi auttaa tässä asiassa, koska se on vastoin käytäntöjäni.",
        "Вибачте, але я не можу допомогти з цим.",
        "Съжалявам, но не мога да помогна с това.",
        "申し訳ありませんが、お手伝いできません。",
        "죄송하지만 도와드릴 수 없습니다.",
        '{"erro": "Desculpe, mas não posso ajudar com isso de forma alguma."}',  # codespell:ignore
    ],
)
def test_other_languages(answer: str) -> None:
    """A text in a language whose refusals are not known is unscored, never a pass."""
    for expected in (True, False):
        found = ask("refusal", answer, expected=expected)

        assert found.outcome == "unscored"
        assert "English and Russian" in found.reason


@pytest.mark.parametrize("answer", ["", " \n"])
def test_empty(answer: str) -> None:
    """An empty answer is neither help nor a refusal that somebody could read."""
    assert {ask("refusal", answer, expected=expected).outcome for expected in (True, False)} == {"failed"}


STRING_MATCH = {"gpt4": 0.935, "llama2new": 0.936, "mistralinstruct": 0.337}


@pytest.mark.parametrize("model", STRING_MATCH)
def test_refusals_against_people(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    """On answers that people labelled, the probe finds refusals better than the string match of the paper's authors."""
    file = REFUSALS / f"xstest_{model}.jsonl"
    if not file.exists():
        pytest.skip("the labelled refusals are not on this machine")
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    people = [row["label"][0] in "23" for row in rows]
    probe = [judge(Response(text=row["completion"])).kind in {"refused", "empty"} for row in rows]

    right = sum(one and other for one, other in zip(people, probe, strict=True))
    f1 = 2 * right / (sum(people) + sum(probe))

    with capsys.disabled():
        print(f"\n{model}: F1 {f1:.3f} (string match {STRING_MATCH[model]}), {sum(probe)} found of {sum(people)}, {right} right")  # noqa: T201 - the figure is what this test is for
    assert f1 > STRING_MATCH[model]
