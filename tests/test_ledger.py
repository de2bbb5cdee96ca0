"""Tests of the ledger and the scorecard: sorted, append-only, read in slices as in one pass, and damage is named."""

from __future__ import annotations

import itertools
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from canary_replay import ledger
from canary_replay.errors import DamagedFileError
from canary_replay.ledger import Approval, Scorecard
from canary_replay.outcome import AcceptedOutcome
from tests.strategies import case_ids, scorecards


def outcome(case: str, probe: str = "polite", trial: int = 0) -> AcceptedOutcome:
    """A passing outcome."""
    return AcceptedOutcome(case=case, trial=trial, probe=probe, outcome="passed", score=1.0, response="aa", rule="bb")


def approval(case: str = "greeting", *, old: str | None = None, new: str = "aa") -> Approval:
    """An approval."""
    return Approval(case=case, action="first", at="2026-05-01T12:00:00Z", who="Ada", reason="é\n", old=old, new=new, key="kk")


def read(path: Path) -> list[AcceptedOutcome]:
    """All accepted outcomes."""
    return list(ledger.read_scorecard(path, shown="scorecard.jsonl"))


# ------------------------------------------------------------------------------------------------ the scorecard
@given(scorecards, st.randoms(use_true_random=False))
def test_a_scorecard_is_sorted(
    tmp_path_factory: pytest.TempPathFactory, outcomes: list[AcceptedOutcome], shuffle: object
) -> None:
    """Whatever the order in which outcomes come, the file is the same, and it is in the order of case, probe and trial."""
    path = tmp_path_factory.getbasetemp() / "sorted.jsonl"
    ledger.write_scorecard(path, outcomes)
    first = path.read_bytes()

    shuffle.shuffle(outcomes)
    ledger.write_scorecard(path, outcomes)

    assert path.read_bytes() == first
    assert read(path) == sorted(outcomes, key=ledger.place_of)


def test_a_scorecard_that_is_not_there(tmp_path: Path) -> None:
    """A target that was never approved has accepted nothing."""
    path = tmp_path / "scorecard.jsonl"
    scorecard, skipped = Scorecard(path, shown="scorecard.jsonl", after="a"), []

    found = scorecard.of("b", skipped=skipped.append)
    scorecard.rest(skipped=skipped.append)

    assert read(path) == found == skipped == []


@pytest.mark.parametrize(
    "outcomes, line",
    [
        ([outcome("a"), outcome("a")], 2),
        ([outcome("a"), outcome("b"), outcome("a", trial=1)], 3),
        ([outcome("b"), outcome("a")], 2),
        ([outcome("a", "z"), outcome("a", "b")], 2),
        ([outcome("a", trial=1), outcome("a", trial=0)], 2),
        ([outcome("a"), outcome("A")], 2),
    ],
)
def test_lines_out_of_order(tmp_path: Path, outcomes: list[AcceptedOutcome], line: int) -> None:
    """A line that stands twice or out of order, after a merge for example, is named."""
    path = tmp_path / "scorecard.jsonl"
    path.write_bytes(b"".join(msgspec.json.encode(one) + b"\n" for one in outcomes))

    with pytest.raises(DamagedFileError) as raised:
        read(path)

    wrong = outcomes[line - 1]
    assert str(raised.value) == (
        f"scorecard.jsonl: line {line}: stands twice or out of order ({wrong.case!r}, {wrong.probe!r}, trial {wrong.trial}); "
        "restore the file"
    )


DAMAGE = [
    b"<<<<<<< HEAD",
    b"{}",
    b"[]",
    b'{"case": "a", "trial": 0, "probe": "\xff", "outcome": "passed"}',
    b'{"case": "a", "trial": 0, "probe": "p", "outcome": "splendid"}',
    b'{"case": "a", "trial": "0", "probe": "p", "outcome": "passed"}',
    b'{"case": "b", "trial": 0, "probe": "polite", "outcome": "pas',
    b'{"later": ' + b"[" * 100_000,
]


@pytest.mark.parametrize("line", DAMAGE)
def test_a_damaged_scorecard(tmp_path: Path, line: bytes) -> None:
    """A line that cannot be read, the last one too, is named in one line."""
    path = tmp_path / "scorecard.jsonl"
    path.write_bytes(msgspec.json.encode(outcome("a")) + b"\n\n" + line)

    with pytest.raises(DamagedFileError) as raised:
        read(path)

    assert str(raised.value).startswith("scorecard.jsonl: line 3: is damaged: ")
    assert str(raised.value).endswith("; restore the file")
    assert len(str(raised.value).splitlines()) == 1


@pytest.mark.parametrize("line", DAMAGE)
def test_a_damaged_scorecard_that_is_read_in_slices(tmp_path: Path, line: bytes) -> None:
    """A later slice meets the same damage and names it too."""
    path = tmp_path / "scorecard.jsonl"
    path.write_bytes(msgspec.json.encode(outcome("a")) + b"\n" + line + b"\n" + msgspec.json.encode(outcome("c")) + b"\n")

    with pytest.raises(DamagedFileError, match=r"^scorecard\.jsonl: (byte|line) \d+( behind byte \d+)?: is damaged: "):
        Scorecard(path, shown="scorecard.jsonl", after="a").rest(skipped=lambda _one: None)


Asked = list[tuple[str, AcceptedOutcome]]


def ask(scorecard: Scorecard, cases: list[str], found: Asked, *, to_the_end: bool) -> None:
    """Add each accepted outcome, with the case that asked for it, or with nothing where it was skipped."""

    def skipped(one: AcceptedOutcome) -> None:
        found.append(("", one))

    for case in cases:
        given = scorecard.of(case, skipped=skipped)
        found += [(case, one) for one in given]
    if to_the_end:
        scorecard.rest(skipped=skipped)


def in_slices(path: Path, slices: list[list[str]]) -> Asked:
    """What is handed over when each slice begins behind the one before it, with a scorecard of its own, as workers do."""
    found: Asked = []
    after: str | None = None
    for number, cases in enumerate(slices, 1):
        ask(Scorecard(path, shown="scorecard.jsonl", after=after), cases, found, to_the_end=number == len(slices))
        after = cases[-1]
    return found


@given(scorecards, st.lists(case_ids, unique=True, min_size=1, max_size=12), st.sets(st.integers(1, 11)), st.data())
def test_slices_read_what_one_pass_reads(
    tmp_path_factory: pytest.TempPathFactory,
    outcomes: list[AcceptedOutcome],
    asked: list[str],
    cuts: set[int],
    data: st.DataObject,
) -> None:
    """However the cases are cut into slices, each accepted outcome is handed over once, in the same order, to the same case.

    Blank lines, which a merge may leave, change nothing.
    """
    path = tmp_path_factory.getbasetemp() / "slices.jsonl"
    ledger.write_scorecard(path, outcomes)
    blank = data.draw(st.integers(0, len(outcomes)), label="blank line before")
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:blank], b"\n \n", *lines[blank:]]))
    cases = sorted({*asked, *(one.case for one in outcomes if one.trial)})
    ends = [0, *sorted(cut for cut in cuts if cut < len(cases)), len(cases)]
    slices = [cases[start:end] for start, end in itertools.pairwise(ends)]

    found = in_slices(path, slices)

    assert found == in_slices(path, [cases])
    assert [one for _case, one in found] == sorted(outcomes, key=ledger.place_of)
    assert all(case == (one.case if one.case in cases else "") for case, one in found)


@given(scorecards, case_ids)
def test_beginning_behind_a_case(tmp_path_factory: pytest.TempPathFactory, outcomes: list[AcceptedOutcome], case: str) -> None:
    """A scorecard that begins behind a case holds exactly what sorts behind it."""
    path, rest = tmp_path_factory.getbasetemp() / "behind.jsonl", []
    ledger.write_scorecard(path, outcomes)

    Scorecard(path, shown="scorecard.jsonl", after=case).rest(skipped=rest.append)

    assert rest == sorted((one for one in outcomes if one.case > case), key=ledger.place_of)


# ------------------------------------------------------------------------------------------------ the ledger
def test_approvals_are_read_in_the_order_they_were_given(tmp_path: Path) -> None:
    """Each append adds to the end and leaves what stands before."""
    path = tmp_path / "deep" / "approvals.jsonl"
    ledger.append(path, [approval("b"), approval("a")])
    before = path.read_bytes()

    ledger.append(path, [approval("b", old="aa", new="bb")])

    assert path.read_bytes().startswith(before)
    assert ledger.approvals(path, shown="approvals.jsonl") == [approval("b"), approval("a"), approval("b", old="aa", new="bb")]


def test_nothing_to_approve_writes_nothing(tmp_path: Path) -> None:
    """No approval makes no file."""
    path = tmp_path / "deep" / "approvals.jsonl"

    ledger.append(path, [])

    assert not path.parent.exists()
    assert ledger.approvals(path, shown="approvals.jsonl") == []


def test_a_ledger_whose_last_line_end_was_stripped(tmp_path: Path) -> None:
    """An editor that takes the last line end away does not make the next approval run into the one before."""
    path = tmp_path / "approvals.jsonl"
    ledger.append(path, [approval("a")])
    path.write_bytes(path.read_bytes().rstrip(b"\n"))

    ledger.append(path, [approval("b")])

    assert ledger.approvals(path, shown="approvals.jsonl") == [approval("a"), approval("b")]


@pytest.mark.parametrize(
    "line", [b"<<<<<<< HEAD", b"{}", b'{"case": "\xff"}', b'{"case": "greeting", "action": "fir', b"[" * 100_000]
)
def test_a_damaged_ledger(tmp_path: Path, line: bytes) -> None:
    """A line that cannot be read is named, the last one too: a ledger that lost an approval is no ledger."""
    path = tmp_path / "approvals.jsonl"
    ledger.append(path, [approval()])
    path.write_bytes(path.read_bytes() + line)

    with pytest.raises(DamagedFileError) as raised:
        ledger.approvals(path, shown="approvals.jsonl")

    assert str(raised.value).startswith("approvals.jsonl: line 2: is damaged: ")
    assert len(str(raised.value).splitlines()) == 1


def test_a_ledger_of_a_later_version(tmp_path: Path) -> None:
    """A format that is not known is not guessed at."""
    path = tmp_path / "approvals.jsonl"
    ledger.append(path, [approval(), msgspec.structs.replace(approval(), format=2)])

    with pytest.raises(DamagedFileError, match=r"line 2: has format 2, this canary-replay reads up to 1; upgrade canary-replay$"):
        ledger.approvals(path, shown="approvals.jsonl")


def test_places_of_a_target(tmp_path: Path) -> None:
    """Ledger and scorecard stand beside the cassettes of their target."""
    folder = tmp_path / "cassettes" / "support" / "current"

    assert ledger.ledger_path(tmp_path, "support", "current") == folder / "approvals.jsonl"
    assert ledger.scorecard_path(tmp_path, "support", "current") == folder / "scorecard.jsonl"
