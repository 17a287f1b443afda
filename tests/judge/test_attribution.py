"""Symptoms, and which target is at fault."""

import itertools
from collections.abc import Callable
from dataclasses import replace

import pytest

from aliasproof.ir.errors import Rejected
from aliasproof.ir.program import Program
from aliasproof.judge.attribution import Symptom, at_fault, shows
from aliasproof.judge.trial import Case, run_trial
from aliasproof.oracles.contract import Contract, Precondition, Promise, Waiver
from aliasproof.targets.registry import target
from aliasproof.targets.target import Target
from tests.short_programs import known_bug

WRONG_VALUE = Symptom("planted", "values", "wrong value")
SQUARE = "aten.mul.Tensor(x0, x0)"


def without(op: str):
    """A bug: the compiler drops calls of this op."""

    def rewrite(program: Program) -> Program:
        return replace(
            program, instructions=tuple(call for call in program.instructions if call.op != op)
        )

    return rewrite


loses_zero = without("aten.zero_.default")


def crash(program: Program) -> Program:
    raise RuntimeError("planted")


def crash_again(program: Program) -> Program:
    raise ValueError("planted again")


def reject(program: Program) -> Program:
    raise Rejected("not for this")


def right(program: Program) -> Program:
    return program


@pytest.fixture
def zeroed(program: Callable[..., Program]) -> Program:
    return program("v0 = aten.add.Scalar(x0, 1)\naten.zero_.default(v0)\nreturn (v0,)", (4,))


# --- shows ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rewrite", "symptom", "shown"),
    [
        (loses_zero, WRONG_VALUE, True),
        (loses_zero, replace(WRONG_VALUE, target="another"), False),
        (loses_zero, replace(WRONG_VALUE, oracle="inputs"), False),
        (loses_zero, replace(WRONG_VALUE, kind="wrong number of outputs"), False),
        (right, WRONG_VALUE, False),
        (crash, WRONG_VALUE, False),
        (crash, Symptom("planted", "errors", "raises RuntimeError: planted"), True),
    ],
)
def test_a_failure_shows_its_symptom_and_no_other(compiler, zeroed, rewrite, symptom, shown):
    assert shows(zeroed, compiler(rewrite), symptom) is shown


def test_only_the_main_failure_is_the_symptom(compiler, program) -> None:
    both = program("aten.zero_.default(x0)\nreturn (x0,)", (4,))
    faulty = compiler(loses_zero)
    assert shows(both, faulty, WRONG_VALUE)
    assert not shows(both, faulty, Symptom("planted", "inputs", "input ends wrong"))


def test_an_undefined_program_shows_nothing(compiler, program) -> None:
    undefined = program(
        "v0 = aten.expand.default(x0, [3, 4])\naten.add_.Scalar(v0, 1)\nreturn (x0,)", (4,)
    )
    assert not shows(undefined, compiler(without("aten.add_.Scalar")), WRONG_VALUE)


def test_a_failure_that_is_not_reproduced_shows_nothing(compiler, zeroed: Program) -> None:
    turns = itertools.cycle([zeroed, loses_zero(zeroed)])
    flaky = compiler(lambda program: next(turns))
    assert [shows(zeroed, flaky, WRONG_VALUE) for _ in range(4)] == [False] * 4


def test_a_failure_in_another_place_the_second_time_shows_nothing(compiler, program) -> None:
    two = program("v0 = aten.neg.default(x0)\nv1 = aten.neg.default(x0)\nreturn v0, v1", (4,))
    turns = itertools.cycle([("x0", "v1"), ("v0", "x0")])
    assert not shows(
        two, compiler(lambda program: replace(program, outputs=next(turns))), WRONG_VALUE
    )


# --- who is at fault ------------------------------------------------------------------------------


def layer_at_fault(program: Program, tested: Target) -> str:
    case = Case.of(program)
    trial = run_trial(case, tested)
    attributed, violation = at_fault(case, tested, trial, trial.judgement.violations[0])
    assert violation == run_trial(case, attributed).judgement.violations[0]
    return attributed.name


NOTHING = Contract(preconditions=(Precondition("never", "for this test", lambda trace: False),))
# Rewrites of targets that build on each other, the first one first; the contract; and the index of
# the target at fault.
LAYERS = {
    "a target that builds on none": ([loses_zero], None, 0),
    "the earliest with the same failure": ([loses_zero] * 3, None, 0),
    "none before a right one": ([loses_zero, right, loses_zero], None, 2),
    "none that raises": ([crash, loses_zero], None, 1),
    "one that raises, for another error": ([crash, crash_again], None, 0),
    "none whose precondition is not met": ([loses_zero, loses_zero], NOTHING, 1),
    "none that rejects the program": ([reject, loses_zero], None, 1),
}


@pytest.mark.parametrize(("rewrites", "contract", "number"), LAYERS.values(), ids=LAYERS)
def test_at_fault_is(compiler, zeroed, rewrites, contract, number):
    tested = compiler(rewrites[0], "0", contract=contract)
    for index, rewrite in enumerate(rewrites[1:], 1):
        tested = compiler(rewrite, str(index), after=tested)
    assert layer_at_fault(zeroed, tested) == str(number)


@pytest.fixture
def negated(program) -> tuple[Program, Program]:
    """A program, and the same with other strides of the result."""
    plain = program("v0 = aten.neg.default(x0)\nreturn (v0,)", (2, 3))
    lines = "v1 = aten.t.default(x0)\nv2 = aten.neg.default(v1)\nv3 = aten.contiguous.default(v2)"
    return plain, program(f"{lines}\nv0 = aten.t.default(v3)\nreturn (v0,)", (2, 3))


def test_an_earlier_target_that_breaks_another_promise_is_not_at_fault(compiler, negated):
    plain, restrided = negated
    first = compiler(lambda _: restrided, "first")
    assert layer_at_fault(plain, first) == "first"
    unchanged = lambda given: replace(given, outputs=("x0",))  # noqa: E731
    assert layer_at_fault(plain, compiler(unchanged, after=first)) == "planted"


def test_an_earlier_target_that_promises_nothing_is_passed_over(compiler, negated):
    plain, restrided = negated
    first = compiler(lambda _: restrided, "first")
    waiver = Contract(waivers=(Waiver(Promise.STRIDE, "for this test"),))
    second = compiler(lambda _: restrided, "second", after=first, contract=waiver)
    assert layer_at_fault(plain, compiler(lambda _: restrided, after=second)) == "first"
    second = compiler(right, "second", after=first)
    assert layer_at_fault(plain, compiler(lambda _: restrided, after=second)) == "planted"


def test_a_program_shows_the_symptom_of_the_target_at_fault(compiler, zeroed: Program) -> None:
    tested = compiler(loses_zero, after=compiler(loses_zero, "first"))
    assert shows(zeroed, tested, replace(WRONG_VALUE, target="first"))
    assert not shows(zeroed, tested, WRONG_VALUE)


@known_bug
def test_what_functionalize_breaks_is_not_the_fault_of_those_that_build_on_it(program) -> None:
    expanded = program(
        "v0 = aten.expand.default(x0, [3, 4])\naten.zero_.default(v0)\nreturn (x0,)", (4,)
    )
    assert layer_at_fault(expanded, target("fx-reinplace")) == "functionalize"
    for name in ("functionalize", "fx-reinplace"):
        symptom = replace(WRONG_VALUE, target=name)
        assert shows(expanded, target("fx-reinplace"), symptom) is (name == "functionalize")


# --- a layer that is called in another way --------------------------------------------------------


def test_a_layer_is_at_fault_only_if_it_breaks_the_same_promise(compiler, zeroed: Program) -> None:
    whole = compiler(loses_zero, "whole")
    for rewrite, name in (
        (loses_zero, "layer"),
        (right, "whole"),
        (crash, "whole"),  # an error does not explain a wrong value
    ):
        assert layer_at_fault(zeroed, replace(whole, layer=compiler(rewrite, "layer"))) == name


def test_aotautograd_is_not_blamed_for_functionalization(program) -> None:
    body = "v0 = aten.unfold.default(x0, 0, 1, 2)\naten.add_.Scalar(v0, 1)\nreturn (x0,)"
    assert layer_at_fault(program(body, (2,)), target("aot")) == "functionalize"
