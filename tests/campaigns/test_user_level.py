"""Findings are run under `torch.compile`; their text says what the scripts showed."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aliasproof.campaigns.failure.finding import Finding
from aliasproof.campaigns.publish.confirmation import (
    Confirmation,
    Reproduced,
    Run,
    answer,
    at_user_level,
    confirmed,
    of_target,
)
from aliasproof.ir.program import Program
from aliasproof.oracles.verdict import Violation
from aliasproof.targets import inductor
from tests.short_programs import program_of, view

CLEARED = program_of(
    """
    v0 = aten.expand.default(x0, [3, 4])
    aten.zero_.default(v0)
    v1 = aten.add.Scalar(x0, 0)
    return (v1,)
    """,
    view(4),
)
WRONG = {
    "eager": "0.0",
    "target": "-2.0",
    "first wrong index": [1],
    "wrong elements": 3,
    "elements": 4,
}


def found(target: str = "aot", program: Program = CLEARED, **others: Any) -> Finding:
    violation = Violation("values", "wrong value", "output 0", WRONG)
    return replace(Finding.of(program, target, violation, f"{target}-values-0"), **others)


RECIPE = Reproduced("# the recipe", "BUG: recipe")


def test_a_bug_of_functionalization_shows_under_torch_compile() -> None:
    reason = inductor.unavailable()
    if reason is not None:
        pytest.skip(f"inductor {reason}")
    evidence = WRONG | {"first wrong index": [0], "wrong elements": 4}
    finding, reproduced = at_user_level(found(evidence=evidence), RECIPE)
    assert finding.user_level == {"aot_eager": "shows", "inductor": "shows"}
    assert 'torch.compile(program, backend="aot_eager")' in reproduced.script
    assert "    x.expand(3, 4).zero_()\n    return x + 0\n" in reproduced.script
    assert "actual:   tensor([-2., -4., -6., -8.])" in reproduced.output


def run_by(answers: dict[str, Confirmation]) -> tuple[list[str], Run]:
    """Stands for the fresh process: it answers by the contents of the script.

    Controls, in which eager takes the place of the compiler, show nothing.
    """
    scripts: list[str] = []

    def run(path: Path) -> Confirmation:
        text = path.read_text()
        if 'backend="eager"' in text or "(program, inputs):\n    return program\n" in text:
            return GONE
        scripts.append(text)
        return next(found for part, found in answers.items() if part in text)

    return scripts, run


PRINTED = "expected: 0\nactual:   1\ndiffers:  3 of 4, first [1]: -2.0 for 0.0\nBUG: it"
SHOWN = Confirmation(True, PRINTED, "exits 1")
GONE = Confirmation(False, "gone: both do the same", "exits 0")


def test_the_exact_syntax_is_tried_where_the_ordinary_one_shows_nothing() -> None:
    scripts, run = run_by({"aten.add.Scalar(x, 0)": SHOWN, "x + 0": GONE})
    finding, reproduced = at_user_level(found(), RECIPE, run)
    assert finding.user_level == {"aot_eager": "shows", "inductor": "shows"}
    assert "aten.add.Scalar(x, 0)" in reproduced.script
    assert len(scripts) == 4


def test_a_backend_that_is_not_asked_is_named() -> None:
    scripts, run = run_by({"": SHOWN})
    finding, _ = at_user_level(found(), RECIPE, run, ["aot_eager"])
    assert finding.user_level == {
        "aot_eager": "shows",
        "inductor": "not run, since the bug is known",
    }
    assert len(scripts) == 1


def test_inductor_is_left_out_where_it_cannot_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    scripts, run = run_by({"": SHOWN})
    finding, _ = at_user_level(found(), RECIPE, run)
    assert finding.user_level["aot_eager"] == "shows"
    assert finding.user_level["inductor"].startswith("not run, since it needs a C++ compiler")
    assert len(scripts) == 1


def test_the_recipe_stays_where_no_backend_shows_it() -> None:
    _, run = run_by({"torch.compile": GONE, "aot_function": SHOWN})
    finding, reproduced = at_user_level(found(), RECIPE, run)
    assert set(finding.user_level.values()) == {"does not show"}
    # In ordinary syntax, since that shows the bug, too.
    assert "return x + 0" in reproduced.script
    _, run = run_by({"": GONE})
    assert at_user_level(found(), RECIPE, run)[1] is RECIPE


RAISES = Violation(
    "errors",
    "raises RuntimeError: result type # can't be cast",
    "call",
    {"type": "RuntimeError", "message": "result type Long 12 can't be cast"},
)


def answer_to(violation: Violation, printed: str) -> str:
    """The text on a finding whose script prints this."""
    finding = found(oracle="errors", kind=violation.kind, place="call", evidence=violation.evidence)
    _, run = run_by({"": Confirmation(True, f"expected: no error\nactual:   {printed}", "exits 1")})
    finding, _ = at_user_level(finding, RECIPE, run, ["aot_eager"])
    return finding.user_level["aot_eager"]


def test_another_error_is_not_the_same_bug() -> None:
    wrapped = "BackendCompilerFailed: raised:\nRuntimeError: result type Long 7 can't be cast\n"
    assert answer_to(RAISES, wrapped) == "shows"
    other = answer_to(RAISES, "Unsupported: no\nBUG: it")
    assert other == "raises another error: Unsupported: no"


def test_dynamos_own_line_says_nothing_of_the_error() -> None:
    def raised_by(backend: str, message: str) -> str:
        return f"backend='{backend}' raised:\nAssertionError: {message}"

    message = raised_by("_recorded", "does not yet handle it")
    tested = Violation("errors", "raises BackendCompilerFailed", "call", {"message": message})
    for raised, said in (("does not yet handle it", "shows"), ("no", "raises another error")):
        output = f"BackendCompilerFailed: {raised_by('inductor', raised)}\nBUG: it"
        assert answer_to(tested, output).startswith(said)


def test_another_value_is_not_the_same_evidence() -> None:
    other = Confirmation(True, PRINTED.replace("-2.0", "-3.0"), "exits 1")
    _, run = run_by({"": other})
    finding, reproduced = at_user_level(found(), RECIPE, run)
    assert finding.user_level["inductor"] == "shows another result: 3 of 4, first [1]: -3.0 for 0.0"
    assert reproduced is RECIPE


def test_a_script_that_shows_eager_accuses_nobody() -> None:
    confirmation = confirmed(of_target(found()), lambda path: SHOWN)
    assert not confirmation.shown
    assert confirmation.ending.startswith("shows a difference also with eager")
    assert confirmed(of_target(found()), run_by({"": SHOWN})[1]).shown
    finding, reproduced = at_user_level(found(), RECIPE, lambda path: SHOWN, ["aot_eager"])
    assert finding.user_level["aot_eager"] == 'shows, as it does with `backend="eager"`'
    assert reproduced is RECIPE


def test_what_happens_instead_is_said() -> None:
    violation = Violation("values", "wrong value", "output 0")
    failed = Confirmation(False, "Traceback\n  ...\nInductorError: no", "exits 1")
    assert answer(violation, failed) == "the script exits 1: InductorError: no"
    hangs = Confirmation(False, "", "hangs: no end after 120 s")
    assert answer(violation, hangs) == "the script hangs: no end after 120 s"


@pytest.mark.parametrize(
    ("variants", "expected"),
    [
        ("aot:symbolic", 'torch.compile(program, backend="inductor", dynamic=True)'),
        ("aot-eager:second-call", "function(*later(inputs))"),
        ("aot:grad", "program, inputs = conditions(program, inputs)"),
        ("functionalize:captured", "def capturing(program, inputs):"),
    ],
)
def test_a_variant_is_called_as_it_says(variants: str, expected: str) -> None:
    scripts, run = run_by({"": GONE})
    at_user_level(found(variants), RECIPE, run)
    [script] = [text for text in scripts if 'backend="inductor"' in text][:1]
    assert expected in script
    compile(script, "reproducer.py", "exec")
