"""The reduced program fails as the original one, and is short after few checks."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from aliasproof.generators.features import Features
from aliasproof.generators.strategies import sample
from aliasproof.ir.execution import ProgramFunction
from aliasproof.ir.program import Instruction, Program
from aliasproof.ir.validation import validate
from aliasproof.ir.values import input_tensors
from aliasproof.judge.attribution import Symptom, grade, shows
from aliasproof.judge.examination import examine
from aliasproof.judge.trial import Case, run_trial
from aliasproof.oracles.observation import observe_eager
from aliasproof.oracles.verdict import Violation
from aliasproof.reduction.program_steps import PROGRAM
from aliasproof.reduction.reducer import Reducer
from aliasproof.targets.registry import target
from aliasproof.targets.target import Target
from tests.short_programs import instead_of, known_bug, without

WRONG_VALUE = Symptom("planted", "values", "wrong value")


def ops(program: Program) -> list[str]:
    return [instruction.op.removeprefix("aten.") for instruction in program.instructions]


def reduced(program: Program, tested: Target, symptom: Symptom) -> Program:
    """The reduced program, checked: well formed, defined in eager, fails in the same way."""
    assert shows(program, tested, symptom)
    result = Reducer(PROGRAM, program, lambda candidate: shows(candidate, tested, symptom)).run()
    validate(result)
    observed, _ = observe_eager(ProgramFunction(result), input_tensors(result))
    assert observed.error is None
    assert shows(result, tested, symptom)
    return result


def violations(program: Program, tested: Target) -> list[Violation]:
    return run_trial(Case.of(program), tested).judgement.violations


def test_a_lost_write_reduces_to_that_write(compiler, noisy) -> None:
    result = reduced(
        noisy("    y = aten.neg.default(x2)\n    aten.zero_.default(y)"),
        compiler(without("aten.zero_.default")),
        WRONG_VALUE,
    )
    assert ops(result) == ["zero_.default"]
    assert len(result.inputs) == len(result.storages) == len(result.outputs) == 1
    assert result.inputs[0].sizes in ((), (1,))
    assert result.seed == 0


def test_the_result_has_canonical_names(compiler, noisy) -> None:
    faulty = compiler(without("aten.neg_.default"))
    result = reduced(
        noisy("    y = aten.clone.default(x1)\n    aten.neg_.default(y)"), faulty, WRONG_VALUE
    )
    assert result == result.renamed()


# --- no slippage ----------------------------------------------------------------------------------


def raises_without(op: str, then: Callable[[Program], Program]) -> Callable[[Program], Program]:
    """Two bugs: the compiler raises on programs without this op and is wrong on the others."""

    def rewrite(program: Program) -> Program:
        if op not in [call.op for call in program.instructions]:
            raise RuntimeError("planted")
        return then(program)

    return rewrite


def test_a_wrong_value_does_not_slip_to_an_error(compiler, noisy) -> None:
    """The empty program is smaller, and shows the error."""
    faulty = compiler(raises_without("aten.mul_.Tensor", without("aten.zero_.default")))
    start = noisy("    y = aten.neg.default(x2)\n    aten.zero_.default(y)")
    result = reduced(start, faulty, WRONG_VALUE)
    assert sorted(ops(result)) == ["mul_.Tensor", "zero_.default"]
    # With a predicate that accepts any failure, it slips.
    slipped = Reducer(PROGRAM, start, lambda program: fails(program, faulty)).run()
    assert len(slipped) == 0


def fails(program: Program, tested: Target) -> bool:
    kinds = ("raises RuntimeError: planted", "wrong value")
    oracles = ("errors", "values")
    return any(
        shows(program, tested, Symptom("planted", oracle, kind))
        for oracle, kind in zip(oracles, kinds, strict=True)
    )


def test_an_error_does_not_slip_to_another_error(compiler, noisy) -> None:
    def rewrite(program: Program) -> Program:
        raise (
            IndexError("cat")
            if "aten.cat.default" in [call.op for call in program.instructions]
            else KeyError("rest")
        )

    symptom = Symptom("planted", "errors", "raises IndexError: cat")
    result = reduced(noisy("    y = aten.neg.default(x2)"), compiler(rewrite), symptom)
    assert ops(result) == ["cat.default"]


def test_a_wrong_input_does_not_slip_to_a_wrong_value(compiler, program) -> None:
    start = program(
        "v0 = aten.neg.default(x1)\naten.zero_.default(v0)\naten.zero_.default(x0)\nreturn (v0,)",
        (4,),
        (4,),
    )

    def rewrite(candidate: Program) -> Program:  # drops only the last call
        return replace(candidate, instructions=candidate.instructions[:-1])

    result = reduced(start, compiler(rewrite), Symptom("planted", "inputs", "input ends wrong"))
    assert len(result) == 1
    assert result.outputs == ()


def test_the_fault_of_one_target_does_not_slip_to_the_one_before(compiler, noisy) -> None:
    """Both targets drop something. The failure to reduce is of the later one only."""
    first = compiler(without("aten.zero_.default"), "first")
    both = compiler(
        lambda program: without("aten.neg_.default")(without("aten.zero_.default")(program)),
        after=first,
    )
    start = noisy(
        "    y = aten.clone.default(x1)\n    aten.mul_.Scalar(x0, 2)\n    aten.neg_.default(y)"
    )
    start = replace(start, outputs=("y",))
    assert ops(reduced(start, both, WRONG_VALUE)) == ["neg_.default"]


# --- parts that are kept --------------------------------------------------------------------------


def test_an_input_that_must_be_there_is_used(compiler, program) -> None:
    """The compiler drops a write if another input shares the storage, used or not."""

    def rewrite(candidate: Program) -> Program:
        shared = len(candidate.inputs) > len({view.storage for view in candidate.inputs})
        return without("aten.zero_.default")(candidate) if shared else candidate

    start = program(
        "aten.zero_.default(x0)\nv0 = aten.mul.Tensor(x1, x1)\nreturn v0, x0", (4,), (4,)
    )
    start = replace(start, inputs=(start.inputs[0], replace(start.inputs[1], storage=0)))
    result = reduced(start, compiler(rewrite), WRONG_VALUE)
    assert len(result.inputs) == 2
    assert {name for call in result.instructions for name in call.refs} >= {"x0", "x1"}


def test_an_unused_input_that_does_not_matter_is_gone(compiler, program) -> None:
    start = program("aten.zero_.default(x0)\nreturn (x0,)", (4,), (4,))
    start = replace(start, inputs=(start.inputs[0], replace(start.inputs[1], storage=0)))
    result = reduced(start, compiler(without("aten.zero_.default")), WRONG_VALUE)
    assert len(result.inputs) == 1


def raises_on(op: str) -> Callable[[Program], Program]:
    def rewrite(candidate: Program) -> Program:
        if op in [call.op for call in candidate.instructions]:
            raise IndexError("planted")
        return candidate

    return rewrite


PLANTED = Symptom("planted", "errors", "raises IndexError: planted")


def test_a_write_that_changes_nothing_is_not_simpler(compiler, program) -> None:
    start = program("aten.add_.Scalar(x0, 5)\nreturn (x0,)", (4,))
    result = reduced(start, compiler(raises_on("aten.add_.Scalar")), PLANTED)
    assert result.instructions[0].args[1] == 1
    start = program("aten.add_.Scalar(x0, 0)\nreturn (x0,)", (4,))
    result = reduced(start, compiler(raises_on("aten.add_.Scalar")), PLANTED)
    assert result.instructions[0].args[1] == 1


def test_windows_without_elements_are_not_simpler(compiler, program) -> None:
    """Like the inverse of `unfold` in torch, which is wrong if windows skip elements."""

    def rewrite(candidate: Program) -> Program:
        for call in candidate.instructions:
            match call:
                case Instruction("aten.unfold.default", (_, _, int(size), int(step))) if (
                    size < step
                ):
                    raise IndexError("planted")
        return candidate

    for body in ("v0 = aten.unfold.default(x0, 0, 2, 3)", "v0 = aten.unfold.default(x0, 0, 0, 1)"):
        start = program(f"{body}\naten.neg_.default(v0)\nreturn (x0,)", (6,))
        result = reduced(start, compiler(rewrite), PLANTED)
        assert result.instructions[0].args[1:] == (0, 1, 2)
        assert result.inputs[0].sizes in ((), (1,))


def test_an_alias_gives_way_to_a_wrong_value(compiler, program) -> None:
    """The compiler drops a clone. After a later write, values show that, too."""

    faulty = compiler(instead_of("aten.clone.default", "aten.alias.default"))
    symptom = Symptom("planted", "aliasing", "new alias between input and output")
    start = program(
        "v0 = aten.mul.Tensor(x0, x0)\nv1 = aten.clone.default(x0)\nreturn v0, v1", (4,)
    )
    assert grade(start, faulty, symptom) == 1

    def predicate(candidate: Program) -> int:
        return grade(candidate, faulty, symptom)

    better = Reducer(PROGRAM, start, predicate, best_grade=3)
    better.run()
    assert better.grade == 3
    assert ops(better.current) == ["clone.default", "add_.Scalar"]
    assert shows(better.current, faulty, WRONG_VALUE)
    assert ops(Reducer(PROGRAM, start, predicate).run()) == ["clone.default"]


# --- known bugs of torch --------------------------------------------------------------------------

EXPANDED_ZERO = """    v9 = aten.expand.default(x0, [2, 3, 3])
    aten.zero_.default(v9)
    y = aten.neg.default(x0)"""


@known_bug
def test_a_write_through_expand_reduces_to_two_instructions(noisy) -> None:
    # AOTAutograd calls functionalization, which is at fault.
    symptom = Symptom("functionalize", "values", "wrong value")
    result = reduced(noisy(EXPANDED_ZERO), target("aot"), symptom)
    assert ops(result) == ["expand.default", "zero_.default"]
    assert len(result.inputs) == len(result.outputs) == 1


@known_bug
def test_a_value_that_reinplace_breaks_does_not_slip_to_functionalize(program) -> None:
    """functionalize breaks the write through expand here too, but no output shows it."""
    start = program(
        """
        v0 = aten.slice.Tensor(x0, 0, 0, 2)
        v1 = aten.slice.Tensor(x0, 0, 2)
        aten.add_.Scalar(x0, 1)
        aten.neg.out(v0, out=v1)
        v2 = aten.neg.default(x0)
        v3 = aten.expand.default(v2, [2, 4])
        aten.zero_.default(v3)
        return (x0,)
        """,
        (4,),
    )
    result = reduced(
        start, target("fx-reinplace"), Symptom("fx-reinplace", "values", "wrong value")
    )
    assert len(result) <= 4
    assert not violations(result, target("functionalize"))


# --- programs of about 200 instructions -----------------------------------------------------------


MOST_QUESTIONS, MOST_INSTRUCTIONS = 150, 6
# Only features that the rules below rewrite, so that new groups, dtypes or scenarios change
# nothing.
LONG = Features(
    dtypes=(torch.float32, torch.int64),
    groups=("view", "in-place", "functional"),
    layouts=("contiguous", "transposed", "offset"),
    scenarios=(),
    large=False,
    instructions=220,
    gradients=False,
)


def writes_through_parts_are_lost(program: Program) -> Program:
    parts = {
        result
        for call in program.instructions
        for result in call.results
        if call.op.split(".")[1] in ("select", "slice", "diagonal", "narrow")
    }

    def kept(call: Instruction) -> bool:
        return not call.mutates() or parts.isdisjoint(call.refs[:1])

    return replace(program, instructions=tuple(filter(kept, program.instructions)))


@pytest.mark.parametrize(
    ("rule", "seed"),
    [
        (writes_through_parts_are_lost, 1),
        (instead_of("aten.clone.default", "aten.alias.default"), 0),
        (writes_through_parts_are_lost, 2),
        # A negation is computed in place, even if its operand is read afterwards.
        (instead_of("aten.neg.default", "aten.neg_.default"), 11),
    ],
)
def test_one_mistake_in_200_instructions_ends_short(compiler, rule, seed: int) -> None:
    faulty = compiler(rule)
    for program in (it for it in sample(LONG, seed, 50) if 180 <= len(it) <= 220):
        symptom = examine(Case.of(program), faulty).symptom
        if symptom is not None and symptom.oracle in ("values", "inputs"):
            break
    else:
        pytest.fail("no program fails")
    shown: list[int] = []  # the sizes of checked candidates

    def predicate(candidate: Program) -> int:
        answer = grade(candidate, faulty, symptom)
        shown.append(len(candidate) if answer else len(program))
        return answer

    assert len(Reducer(PROGRAM, program, predicate).run()) <= MOST_INSTRUCTIONS
    assert min(shown[:MOST_QUESTIONS]) <= MOST_INSTRUCTIONS
