"""The outcome of a check, printed."""

import io
from collections.abc import Sequence

import pytest
from rich.console import Console

from aliasproof.oracles.check_result import Check, EagerResult, TargetResult
from aliasproof.oracles.judge import oracle_names
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
from aliasproof.reports.verdict_table import CheckPrinter, Shown

PLAIN = Shown()
RIGHT = dict.fromkeys(oracle_names(paths=False, memory=False), HOLDS)
# The least width of a table with a row of the target "functionalize".
FITS = len("functionalize") + sum(1 + max(len(name), len("wrong")) for name in RIGHT)
WRONG = RIGHT | {
    "values": Report(Verdict.VIOLATED, (Violation("values", "wrong value", "output 0"),))
}


def printed(
    *results: TargetResult,
    width: int = 100,
    unspecified: str | None = None,
    outputs: Sequence[str] = (),
    shown: Shown = PLAIN,
) -> str:
    file = io.StringIO()
    by_name = {result.target: result for result in results}
    eager = EagerResult(None, None, unspecified=unspecified, outputs=outputs, torch="2.13.0")
    check = Check(eager, by_name)
    console = Console(file=file, width=width)
    printer = CheckPrinter(console, "mine.py", list(by_name), check.eager, shown)
    printer.begin()
    for result in results:
        printer.target(result)
    printer.end(check)
    return file.getvalue()


def test_a_violation_of_an_earlier_target_is_named_after_it():
    second = TargetResult("two", "one", WRONG, wrong_part="a pass")
    out = printed(TargetResult("one", None, WRONG), second)
    assert out.count("values: wrong value (output 0)\n") == 1
    assert "values: wrong value (output 0), as in one" in out
    assert out.strip().endswith("Wrong: one, two.")


def test_a_violation_elsewhere_than_in_an_earlier_target_is_shown():
    elsewhere = Violation("values", "wrong value", "output 1")
    second = TargetResult("two", "one", RIGHT | {"values": Report(Verdict.VIOLATED, (elsewhere,))})
    out = printed(TargetResult("one", None, WRONG), second)
    assert "values: wrong value (output 1)\n" in out
    assert "as in" not in out


def test_what_targets_show_alike_is_shown_once():
    def raising(message: str) -> dict[str, Report]:
        error = Violation("errors", "raises TypeError", "call", {"message": message})
        return RIGHT | {"errors": Report(Verdict.VIOLATED, (error,))}

    messages = {"one": "no kernel", "two": "no dtype", "three": "no kernel", "four": "no dtype"}
    out = printed(*(TargetResult(name, None, raising(it)) for name, it in messages.items()))
    headings = [line.strip("─ ") for line in out.splitlines() if line.startswith("──")]
    assert headings == ["one, three", "two, four"]
    assert [out.count(message) for message in ("no kernel", "no dtype")] == [1, 1]


def test_oracles_that_only_some_targets_have_are_explained():
    generated = RIGHT | {"bounds": HOLDS, "structure": HOLDS}
    results = [TargetResult(name, None, it) for name, it in (("a", RIGHT), ("b", generated))]
    out = printed(*results, width=200)
    assert out.count("a (bounds): only for the Python code that Inductor generates") == 1
    assert "b (" not in out


def test_missed_opportunities_are_listed_with_their_bytes():
    missed = [Opportunity("add", "aten.add.Tensor", "aten.add_.Tensor", 48)]
    out = printed(TargetResult("one", None, RIGHT, missed=missed))
    assert "one missed 1 opportunity to save memory, 48 bytes:" in out
    assert "    add = aten.add.Tensor → aten.add_.Tensor (48 bytes)" in out
    assert "Nothing wrong: one." in out


@pytest.mark.parametrize("width", [78, 80, FITS - 1, FITS])
def test_no_verdict_is_cut_off_in_a_narrow_terminal(width):
    out = printed(TargetResult("functionalize", None, RIGHT), width=width)
    assert "…" not in out
    (row,) = (
        line for line in out.splitlines() if line.startswith(("functionalize ", "functionalize:"))
    )
    if width == FITS:
        assert row.split()[1:] == ["holds"] * len(RIGHT)
        assert set(RIGHT) <= set(out.split()), "no heading is broken"
    else:
        assert row == f"functionalize: holds: {', '.join(RIGHT)}"


def test_in_a_narrow_terminal_what_is_unknown_is_a_mark():
    reports = RIGHT | {"values": Report(Verdict.UNKNOWN)}
    for width, word in ((200, "unknown"), (FITS, "?")):
        out = printed(TargetResult("functionalize", None, reports), width=width)
        (row,) = (line for line in out.splitlines() if line.startswith("functionalize "))
        assert row.split()[2] == word


def test_a_terminal_too_narrow_for_a_table_gets_a_list():
    out = printed(TargetResult("functionalize", None, WRONG), width=40)
    assert "functionalize: wrong: values; holds: errors, inputs" in out


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


def test_a_documented_difference_has_one_line():
    limited = TargetResult("one", None, LIMITED), TargetResult("more", None, LIMITED)
    out = printed(*limited, TargetResult("two", None, RIGHT))
    assert "\none, more: requires 'no overlap', documented (values of output 0)\n" in out
    assert "eager 1" not in out
    how = "Differs from eager, as documented (--documented shows how)"
    assert out.strip().endswith(f"{how}: one, more. Equal to eager: two.")


def test_a_documented_difference_is_shown_with_its_evidence_and_source_if_asked():
    out = printed(
        TargetResult("one", None, LIMITED),
        TargetResult("two", None, RIGHT),
        shown=Shown(documented=True),
    )
    assert "values: wrong value (output 0)" in out
    assert "documented: requires 'no overlap': the docs say so" in out
    assert "eager 1" in out
    assert "Nothing wrong" not in out
    assert out.strip().endswith("Differs from eager, as documented: one. Equal to eager: two.")


def test_what_eager_leaves_open_is_not_called_documented():
    out = printed(TargetResult("one", None, LIMITED), unspecified="fold overlaps")
    assert "unspecified in eager: fold overlaps" in out
    assert "documented" not in out.replace("--documented", "")
    assert "Differs from eager, where eager is unspecified (--documented shows how): one." in out


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
    noted = TargetResult("one", None, reports), TargetResult("two", None, reports)
    out = printed(*noted)
    assert "4 notes on graphs, which change no result (--strict shows them)\n" in out
    assert "a forgetful cache" not in out
    assert "Nothing wrong: one, two." in out
    strict = printed(*noted, shown=Shown(strict=True))
    assert strict.count("a forgetful cache") == 1
    assert "2  two  invariants: metadata has another offset" in strict
    assert strict.strip().endswith("(--strict): one, two. Equal to eager: one, two.")


LARGE = "\n".join(["tensor([[1., 2.],"] + ["        [3., 4.],"] * 40 + ["        [5., 6.]])"])


def test_the_first_line_names_the_targets():
    out = printed(TargetResult("one", None, RIGHT), TargetResult("two", None, RIGHT))
    assert out.splitlines()[0] == "mine.py in torch 2.13.0, eager beside one, two"


@pytest.mark.parametrize("right", [True, False])
def test_many_large_outputs_fit_one_screen(right):
    wrong = [Violation("values", "wrong value", f"output {index}") for index in range(12)]
    reports = RIGHT if right else RIGHT | {"values": with_differences(wrong, [], [])}
    rows = [(f"output {index}", LARGE, LARGE + "!") for index in range(12)]
    undecided = {name: Report(Verdict.UNKNOWN, reason=f"{name} " * 90) for name in list(RIGHT)[1:]}
    result = TargetResult("one", None, reports, rows=() if right else rows)
    unknown = TargetResult("two", None, RIGHT | undecided)
    out = printed(result, unknown, outputs=[LARGE] * 12)
    assert len(out.splitlines()) <= (25 if right else 45)
    assert "and 9 more outputs" in out
    assert f"and {len(undecided) - 6} more reasons" in out
    assert ("the same in output 1, output 2, output 3, output 4 and 7 more" in out) is not right
    assert ("and 9 more" in out.partition("── one")[2]) is not right


def test_the_wrong_rows_come_first():
    wrong = [Violation("values", "wrong value", "output 9")]
    reports = RIGHT | {"values": with_differences(wrong, [], [])}
    rows = [(f"output {index}", LARGE, LARGE + "!") for index in range(9)]
    rows.append(("output 9", LARGE, LARGE))  # they differ in a bit that is not printed
    out = printed(TargetResult("one", None, reports, rows=rows))
    _, _, beside = out.partition("eager")
    assert beside.index("output 9") < beside.index("output 0")
