"""A reproducer is confirmed if it prints what a campaign sees, and its control shows nothing."""

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from aliasproof.campaigns.failure.reduction import _of_two_runs
from aliasproof.campaigns.publish.confirmation import OTHER_EVIDENCE, confirmed, shows
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
