"""A reproducer is confirmed by what it prints, and then runs under `torch.compile`."""

import itertools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from aliasproof.campaigns.failure.finding import Finding
from aliasproof.campaigns.failure.reduction import _of_two_runs
from aliasproof.campaigns.publish.confirmation import (
    OTHER_EVIDENCE,
    Confirmation,
    Reproduced,
    Run,
    answer,
    at_user_level,
    confirmed,
    of_target,
    shows,
)
from aliasproof.campaigns.publish.reproducer import Compiler, Reproducer, render
from aliasproof.ir.program import Program
from aliasproof.judge.trial import Case, run_trial
from aliasproof.oracles.contract import Contract
from aliasproof.oracles.verdict import Violation
from aliasproof.targets.registry import TARGETS, target
from aliasproof.targets.target import Build, Function, Target
from tests.scripts_here import confirm_here
from tests.short_programs import program_of, view


def wrong(body: str) -> Target:
    """A target with this body of `compiled`, which promises everything."""
    recipe = f"\ndef compiled(program, inputs):\n    {body}\n"
    scope: dict[str, Any] = {"torch": torch}
    exec(recipe, scope)

    def build(function: Function, inputs: Sequence[torch.Tensor]) -> Build:
        def one(*args: torch.Tensor) -> object:
            returned = function(*args)
            return returned[0] if isinstance(returned, tuple) and len(returned) == 1 else returned

        return Build(scope["compiled"](one, inputs), [])

    return replace(TARGETS["identity"], contract=Contract(), build=build, recipe=recipe)


def reproducer(program: Program, tested: Target, violation: Violation) -> Reproducer:
    return Reproducer(program, Compiler.of_target(tested), violation, exact=True)


WRITTEN = program_of(
    "aten.add_.Scalar(x0, 1)\nv0 = aten.mul.Scalar(x0, 2)\nreturn (v0,)", view(2, 3)
)
TWO = program_of("v0 = aten.add.Scalar(x0, 1)\nreturn x0, v0", view(4))
PART = program_of("aten.zero_.default(x0)\nreturn (x0,)", view(2, offset=1))
TURNED = program_of(
    "aten.add_.Scalar(x0, 1)\naten.transpose_.default(x0, 0, 1)\nreturn ()", view(2, 3)
)
ZERO = program_of("v0 = aten.mul.Scalar(x0, 0)\nreturn (v0,)", view(3))
CHANGE = "return lambda x: [y := program(x), {}][0]"
KINDS = {
    "wrong value": (WRITTEN, "return lambda x: program(x).index_fill(1, torch.tensor(1), 7)"),
    "zero of the other sign": (ZERO, "return lambda x: program(x).neg()"),
    "input ends wrong": (WRITTEN, CHANGE.format("x[1].zero_()")),
    "bytes outside the inputs change": (
        PART,
        CHANGE.format("x.as_strided((1,), (1,), 0).fill_(9)"),
    ),
    "storage has another size": (WRITTEN, CHANGE.format("x.untyped_storage().resize_(64)")),
    "new alias between input and output": (
        WRITTEN,
        "return lambda x: x.copy_(program(x)).view(2, 3).div_(1)",
    ),
    "new alias between output and output": (
        TWO,
        "return lambda x: (x, x.as_strided((4,), (1,)).copy_(program(x)[1]))",
    ),
    "lost alias between input and output": (TWO, "return lambda x: (x.clone(), program(x)[1])"),
    "output overlaps itself": (ZERO, "return lambda x: program(x)[:1].expand(3)"),
    "output became an input": (
        program_of("v0 = aten.alias.default(x0)\nreturn (v0,)", view(3)),
        "return lambda x: x",
    ),
    "output is no longer the input itself": (
        program_of("return (x0,)", view(3)),
        "return lambda x: x.view(3)",
    ),
    "wrong dtype": (WRITTEN, "return lambda x: program(x).double()"),
    "wrong size": (WRITTEN, "return lambda x: program(x)[:1]"),
    "wrong stride": (WRITTEN, "return lambda x: program(x).t().contiguous().t()"),
    "wrong storage offset": (
        program_of("v0 = aten.alias.default(x0)\nreturn x0, v0", view(2)),
        "return lambda x: [x.set_(torch.ones(3).untyped_storage(), 1, (2,), (1,))] * 2",
    ),
    "input ends with another shape": (WRITTEN, CHANGE.format("x.t_()")),
    "raises ValueError: no # here": (WRITTEN, "raise ValueError('no 3 here')"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_script_prints_what_the_campaign_sees(kind: str) -> None:
    program, body = KINDS[kind]
    tested = wrong(body)
    trial = run_trial(Case.of(program), tested)
    violation = next(it for it in trial.judgement.violations if it.kind == kind)
    script = reproducer(program, tested, violation)
    confirmation = confirmed(script, confirm_here)
    assert confirmation.shown, (violation, script.script, confirmation)
    right = replace(script, compiler=script.compiler.in_eager)
    assert not confirmed(right, confirm_here).shown
    for key in {"eager", "target", "first wrong index", "first wrong byte", "wrong elements"} & {
        *violation.evidence
    }:
        other = replace(violation, evidence={**violation.evidence, key: "another"})
        assert not shows(other, confirmation.output), key


def test_another_error_than_the_campaign_saw_is_told() -> None:
    """The title of a script quotes the error of the campaign, whatever error the script shows."""
    seen = Violation("errors", "raises ValueError: no", "call", {"message": "no such thing"})
    script = reproducer(WRITTEN, wrong("raise RuntimeError('something else')"), seen)
    assert "no such thing" in script.script
    shown = confirmed(script, confirm_here)
    assert (shown.shown, shown.ending) == (False, OTHER_EVIDENCE)


def test_an_input_is_looked_at_as_it_was_passed() -> None:
    """After `t_`, the tensor of the caller has another layout, and may hide the wrong value."""
    tested = wrong("return lambda x: [x.set_(x.add(1).t())][1:]")
    trial = run_trial(Case.of(TURNED), tested)
    violation = next(it for it in trial.judgement.violations if it.oracle == "inputs")
    script = reproducer(TURNED, tested, violation)
    assert "return passed[0]" in script.script
    assert confirmed(script, confirm_here).shown


def test_random_numbers_are_drawn_in_both_runs_as_in_the_campaign() -> None:
    """By default, `torch.compile` draws other numbers, so any random program would differ."""
    drawn = program_of("aten.cauchy_.default(x0)\nreturn ()", view(4))
    violation = Violation("inputs", "input ends wrong", "input 0", {"eager": "1.0"})
    settings = "{'fallback_random': True}"
    for name in ("inductor-fx", "inductor", "inductor-fx:grad"):
        text = render(drawn, target(name), violation, exact=True)
        assert settings in text
        assert settings not in render(WRITTEN, target(name), violation, exact=True)
    by_backend = Compiler.of_backend("inductor", "aot", near=True)
    assert settings in Reproducer(drawn, by_backend, violation, exact=True).script
    confirmation = confirmed(reproducer(drawn, target("inductor-fx"), violation), confirm_here)
    assert confirmation.ending == "exits 0", confirmation.output
    unset = target("inductor-fx:fallback_random=False")
    shown = confirmed(reproducer(drawn, unset, violation), confirm_here)
    assert (shown.shown, shown.ending) == (False, OTHER_EVIDENCE)


def test_evidence_that_depends_on_chance_is_left_out() -> None:
    """For example, values that a compiled function reads from memory that nothing wrote."""
    numbers = itertools.count(1)

    def build(function: Function, inputs: Sequence[torch.Tensor]) -> Build:
        return Build(lambda x: [function(x), x.fill_(next(numbers))][1], [])

    chancy = replace(TARGETS["identity"], build=build)
    written = program_of("aten.zero_.default(x0)\nreturn (x0,)", view(2))
    case = Case.of(written)
    violation = run_trial(case, chancy).judgement.violations[0]
    shared = _of_two_runs(violation, case, chancy)
    assert {*violation.evidence} - {*shared.evidence} == {"target"}
    line = "differs:  2 of 2, first [0]: 1e-41 for 0.0"
    assert shows(shared, line)
    assert not shows(violation, line)


def test_a_literal_script_keeps_what_nobody_uses() -> None:
    """`resize_` of a tensor is refused as long as a view of it exists."""
    kept = program_of(
        "v0 = aten.alias.default(x0)\naten.resize_.default(x0, [3])\nreturn ()",
        view(2),
        bytes_of={0: 16},
    )
    # As a violation, without the clause that documents the refusal.
    functionalize = replace(target("functionalize"), contract=Contract())
    violation = run_trial(Case.of(kept), functionalize).judgement.violations[0]
    script = reproducer(kept, functionalize, violation)
    assert not confirmed(script, confirm_here).shown
    assert confirmed(replace(script, literal=True), confirm_here).shown


# --- under torch.compile --------------------------------------------------------------------------


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
