"""A reduction keeps the known bug of a violation, or keeps that it is an unknown one."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from aliasproof.campaigns.failure.failure import Kept
from aliasproof.campaigns.failure.recognition import cause_of, has_cause
from aliasproof.corpus.bug_files import known_bugs
from aliasproof.ir.execution import glue
from aliasproof.ir.program import Program
from aliasproof.judge.attribution import Symptom

pytestmark = pytest.mark.skipif(
    not torch.__version__.startswith("2.13."), reason="bugs of torch 2.13"
)
WRONG = Symptom("functionalize", "values", "wrong value")
EXPAND, UNFOLD = "expand-inverse", "unfold-inverse"


def program_of(bug: str) -> Program:
    program = known_bugs()[bug].program
    return replace(program, outputs=tuple(view.name for view in program.inputs))


def test_the_known_bug_is_told_by_few_compiles() -> None:
    assert cause_of(program_of(EXPAND), WRONG) == EXPAND
    assert has_cause(program_of(EXPAND), WRONG, EXPAND)
    assert not has_cause(program_of(EXPAND), WRONG, "")


def test_a_candidate_that_shows_another_bug_is_not_interesting() -> None:
    kept = Kept(WRONG, cause=UNFOLD)
    assert Kept(WRONG).grade(program_of(EXPAND)) == 1
    assert kept.grade(program_of(EXPAND)) == 0


def test_a_bug_that_another_patch_prevents_too_is_told_apart() -> None:
    # Two conditions of one pattern: with either patch, the pattern is not applied at all.
    cause, wrong = "attention-mask-of-numbers", Symptom("inductor-fx", "values", "wrong value")
    over_last = known_bugs()[cause].program
    calls = [
        replace(call, args=(call.args[0], 0, *call.args[2:])) if "softmax" in call.op else call
        for call in over_last.instructions
    ]
    over_first = replace(over_last, instructions=tuple(calls))
    assert has_cause(over_last, wrong, cause)
    assert not has_cause(over_first, wrong, cause)


def test_what_no_patch_removes_has_no_known_cause() -> None:
    both = glue([program_of(EXPAND), program_of(UNFOLD)]).program
    assert cause_of(both, WRONG) is None
    assert cause_of(program_of(EXPAND), Symptom("identity", "values", "wrong value")) is None


def test_a_target_of_ours_has_no_excuse(program: Callable[..., Program]) -> None:
    given = program("v0 = aten.neg.default(x0)\nreturn (v0,)", (4,))
    assert cause_of(given, Symptom("reference", "values", "wrong value")) is None
