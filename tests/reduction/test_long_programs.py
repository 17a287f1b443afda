"""A program of about 200 instructions with one planted mistake ends short after few questions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from generators.strategies import EVERYTHING, sample
from programs.program import Instruction, Program
from reduction.reducer import Reducer
from targets.target import Target
from trials.attribution import grade
from trials.examination import examine
from trials.trial import Case

MOST_QUESTIONS, MOST_INSTRUCTIONS = 150, 6
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


def second_of_two_writes_is_lost(program: Program) -> Program:
    """Of two writes in a row to one value, the second is forgotten."""
    kept: list[Instruction] = []
    for call in program.instructions:
        before = kept[-1] if kept else None
        again = before is not None and before.mutates() and before.refs[:1] == call.refs[:1]
        if not (call.mutates() and again):
            kept.append(call)
    return replace(program, instructions=tuple(kept))


def long_programs(seed: int) -> Iterator[Program]:
    """Programs of 180 to 220 instructions."""
    features = replace(EVERYTHING, instructions=220)
    return (program for program in sample(features, seed, 50) if 180 <= len(program) <= 220)


def reduced(seed: int, faulty: Target) -> tuple[Program, list[int]]:
    """The reduced form of the first long program that fails; the sizes that were asked about."""
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

    return Reducer(program, predicate).run(), shown


RULES: list[Rewrite] = [
    writes_through_parts_are_lost,
    clones_are_aliases,
    second_of_two_writes_is_lost,
]


@pytest.mark.parametrize(
    ("rule", "seed"),
    [
        pytest.param(rule, seed, marks=[pytest.mark.slow] if seed != 10 + index else [])
        for index, rule in enumerate(RULES)
        for seed in range(10, 16)
    ],
)
def test_one_mistake_in_200_instructions_ends_short(compiler, rule: Rewrite, seed: int) -> None:
    result, shown = reduced(seed, compiler(rule))
    assert len(result) <= MOST_INSTRUCTIONS
    assert min(shown[:MOST_QUESTIONS]) <= MOST_INSTRUCTIONS
