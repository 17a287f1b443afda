"""A program of about 200 instructions with one planted mistake is short after few checks."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
import torch

from aliasproof.generators.features import Features
from aliasproof.generators.strategies import sample
from aliasproof.ir.program import Instruction, Program
from aliasproof.judge.attribution import grade
from aliasproof.judge.examination import examine
from aliasproof.judge.trial import Case
from aliasproof.reduction.program_steps import PROGRAM
from aliasproof.reduction.reducer import Reducer
from aliasproof.targets.target import Target

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
Rewrite = Callable[[Program], Program]


def views_made_by(program: Program, *ops: str) -> set[str]:
    """The results of these ops."""
    return {
        result
        for call in program.instructions
        for result in call.results
        if call.op.split(".")[1] in ops
    }


def writes_through_parts_are_lost(program: Program) -> Program:
    parts = views_made_by(program, "select", "slice", "diagonal", "narrow")

    def kept(call: Instruction) -> bool:
        return not call.mutates() or parts.isdisjoint(call.refs[:1])

    return replace(program, instructions=tuple(filter(kept, program.instructions)))


def clones_are_aliases(program: Program) -> Program:
    calls = (
        replace(call, op="aten.alias.default", kwargs=())
        if call.op == "aten.clone.default"
        else call
        for call in program.instructions
    )
    return replace(program, instructions=tuple(calls))


def operands_are_overwritten(program: Program) -> Program:
    """A negation is computed in place, even if its operand is read afterwards."""
    calls = (
        replace(call, op="aten.neg_.default") if call.op == "aten.neg.default" else call
        for call in program.instructions
    )
    return replace(program, instructions=tuple(calls))


def long_programs(seed: int) -> Iterator[Program]:
    """Programs of 180 to 220 instructions."""
    return (program for program in sample(LONG, seed, 50) if 180 <= len(program) <= 220)


def reduced(seed: int, faulty: Target) -> tuple[Program, list[int]]:
    """The reduced form of the first long program that fails; the sizes of checked candidates."""
    for program in long_programs(seed):
        symptom = examine(Case.of(program), faulty).symptom
        if symptom is not None and symptom.oracle in ("values", "inputs"):
            break
    else:
        pytest.fail("no program fails")
    shown: list[int] = []

    def predicate(candidate: Program) -> int:
        answer = grade(candidate, faulty, symptom)
        shown.append(len(candidate) if answer else len(program))
        return answer

    return Reducer(PROGRAM, program, predicate).run(), shown


CASES = [
    (writes_through_parts_are_lost, 1),
    (clones_are_aliases, 0),
    (writes_through_parts_are_lost, 2),
    (operands_are_overwritten, 11),
]


@pytest.mark.parametrize(("rule", "seed"), CASES)
def test_one_mistake_in_200_instructions_ends_short(compiler, rule: Rewrite, seed: int) -> None:
    result, shown = reduced(seed, compiler(rule))
    assert len(result) <= MOST_INSTRUCTIONS
    assert min(shown[:MOST_QUESTIONS]) <= MOST_INSTRUCTIONS
