"""The outcome of a check, printed."""

import io

import pytest
from rich.console import Console

from aliasproof.oracles.check_result import Check, EagerResult, TargetResult
from aliasproof.oracles.judge import EVERY_ORACLE
from aliasproof.oracles.missed import Opportunity
from aliasproof.oracles.verdict import (
    HOLDS,
    Documented,
    Limitation,
    Report,
    Verdict,
    Violation,
    with_differences,
)
from aliasproof.reports.verdict_table import CheckPrinter

RIGHT = dict.fromkeys(EVERY_ORACLE, HOLDS)
WRONG = RIGHT | {
    "values": Report(Verdict.VIOLATED, (Violation("values", "wrong value", "output 0"),))
}


def printed(
    *results: TargetResult, width: int = 100, unspecified: str | None = None, strict: bool = False
) -> str:
    file = io.StringIO()
    by_name = {result.target: result for result in results}
    check = Check(EagerResult(None, None, unspecified=unspecified), by_name)
    console = Console(file=file, width=width)
    printer = CheckPrinter(console, "mine.py", list(by_name), check.eager, strict)
    printer.begin()
    for result in results:
        printer.target(result)
    printer.end(check)
    return file.getvalue()


def test_a_violation_of_an_earlier_target_is_named_after_it():
    out = printed(TargetResult("one", None, WRONG), TargetResult("two", "one", WRONG))
    assert out.count("values: wrong value (output 0)\n") == 1
    assert "values: wrong value (output 0), as in one" in out
    assert out.strip().endswith("Wrong: one, two.")


def test_missed_opportunities_are_listed_with_their_bytes():
    missed = [Opportunity("add", "aten.add.Tensor", "aten.add_.Tensor", 48)]
    out = printed(TargetResult("one", None, RIGHT, missed=missed))
    assert "one missed 1 opportunity to save memory, 48 bytes:" in out
    assert "    add = aten.add.Tensor → aten.add_.Tensor (48 bytes)" in out
    assert "Nothing wrong: one." in out


@pytest.mark.parametrize("width", [78, 80, 100])
def test_no_verdict_is_cut_off_in_a_narrow_terminal(width):
    out = printed(TargetResult("functionalize", None, RIGHT), width=width)
    assert "…" not in out
    (row,) = (line for line in out.splitlines() if line.startswith("functionalize "))
    assert row.split()[1:] == ["holds"] * len(RIGHT)


def test_in_a_narrow_terminal_what_is_unknown_is_a_mark():
    reports = RIGHT | {"values": Report(Verdict.UNKNOWN)}
    for width, word in ((200, "unknown"), (78, "?")):
        out = printed(TargetResult("functionalize", None, reports), width=width)
        (row,) = (line for line in out.splitlines() if line.startswith("functionalize "))
        assert row.split()[2] == word


def test_a_terminal_too_narrow_for_a_table_gets_a_list():
    out = printed(TargetResult("functionalize", None, WRONG), width=40)
    assert "functionalize: wrong in values; holds in errors, inputs" in out


LIMITED = RIGHT | {
    "values": with_differences(
        [],
        [
            Documented(
                Violation("values", "wrong value", "output 0", {"eager": "1"}),
                Limitation("requires 'no overlap'", "the docs say so"),
            )
        ],
        [],
    )
}


def test_a_documented_difference_is_shown_with_its_evidence_and_source():
    out = printed(TargetResult("one", None, LIMITED), TargetResult("two", None, RIGHT))
    assert "values: wrong value (output 0)" in out
    assert "documented: requires 'no overlap': the docs say so" in out
    assert "eager 1" in out
    assert "Nothing wrong" not in out
    assert out.strip().endswith("Differs from eager, as documented: one. Equal to eager: two.")


def test_what_eager_leaves_open_is_not_called_documented():
    out = printed(TargetResult("one", None, LIMITED), unspecified="fold overlaps")
    assert "unspecified in eager: fold overlaps" in out
    assert out.strip().endswith("Differs from eager, where eager is unspecified: one.")


def test_disputed_violations_come_last():
    disputed = Violation("values", "wrong value", "output 0", label="disputed")
    clear = Violation("values", "wrong value", "output 1")
    reports = RIGHT | {"values": with_differences([disputed, clear], [], [])}
    out = printed(TargetResult("one", None, reports))
    assert out.index("(output 1)") < out.index("(output 0) [disputed]")


def test_the_cause_of_notes_is_named_once():
    notes = [
        Violation("invariants", "metadata has another offset", name, {"cause": "a forgetful cache"})
        for name in ("add", "mul")
    ]
    reports = RIGHT | {"invariants": with_differences([], [], notes)}
    out = printed(TargetResult("one", None, reports), TargetResult("two", None, reports))
    assert out.count("a forgetful cache") == 1
    assert "2  two  invariants: metadata has another offset" in out
    assert "Nothing wrong: one, two." in out
    strict = printed(TargetResult("one", None, reports), strict=True)
    assert strict.strip().endswith("(--strict): one. Equal to eager: one.")
