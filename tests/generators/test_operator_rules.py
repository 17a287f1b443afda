"""Programs derived from operators that Inductor decomposes or lowers, drawn by their schemas."""

from __future__ import annotations

import random

import pytest
import torch

from aliasproof.generators.rules.derived import derive, drawn_rules, holds
from aliasproof.generators.rules.operator_calls import (
    CALLS,
    operators,
    out_of_reach,
    plain_call,
    tabled,
)
from aliasproof.generators.rules.plain_matches import (
    EMPTY,
    KINDS,
    NUMBER,
    OTHER_DTYPE,
    USUAL,
    has_kind,
)
from aliasproof.generators.rules.situations import BY_NAME, NAMES
from aliasproof.generators.scene import Counts, NoChoice, Pick
from aliasproof.generators.sites.all_sites import recording
from aliasproof.ir.execution import ProgramFunction, run
from aliasproof.ir.program import Input, Program
from aliasproof.ir.values import input_tensors
from aliasproof.targets.registry import target
from tests.short_programs import program_of, view

# In the table of operators and not; of images, by index, with a list, in place, with two results.
SAMPLE = (
    "aten.addmm.default",
    "aten.avg_pool2d.default",
    "aten.constant_pad_nd.default",
    "aten.gather.default",
    "aten.hstack.default",
    "aten.logsumexp.default",
    "aten.mul_.Tensor",
    "aten.var_mean.correction",
)
DECOMPOSED = ("aten.logaddexp.default", "aten.huber_loss.default", "aten.trace.default")


def plain(name: str, kind: str = USUAL, number: int = 0) -> Program:
    program = plain_call(name, kind, number)
    assert isinstance(program, Program), program
    return program


@pytest.mark.parametrize("name", SAMPLE)
def test_a_plain_call_has_the_call_and_eager_accepts_it(name: str) -> None:
    for number in range(CALLS):
        program = plain(name, number=number)
        assert name in {call.op for call in program.instructions}
        assert all(isinstance(it, torch.Tensor) for it in run(program, input_tensors(program)))
    assert len(plain(name, number=3)) > 1


@pytest.mark.parametrize("name", DECOMPOSED)
def test_the_site_of_an_operator_fires_on_its_plain_call(name: str) -> None:
    program = plain(name)
    with recording() as recorder, torch.no_grad():
        built = target("inductor-fx").build(ProgramFunction(program), input_tensors(program))
        built.function(*input_tensors(program))
        assert f"decomposition/{name}" in recorder.take()[0]


def test_a_kind_is_what_an_input_is_like() -> None:
    name = "aten.add.Tensor"
    known = {view.dtype for view in plain(name).inputs}
    assert any(0 in view.sizes for view in plain(name, EMPTY).inputs)
    assert any(view.sizes == () for view in plain(name, NUMBER).inputs)
    assert any(view.dtype not in known for view in plain(name, OTHER_DTYPE).inputs)
    assert len(KINDS) == 4


def test_each_situation_of_an_operator_is_met() -> None:
    met = {
        name for name in NAMES if any(_holds("aten.add.Tensor", name, seed) for seed in range(6))
    }
    assert met == set(NAMES)


def _holds(rule: str, situation: str, seed: int) -> bool:
    pick = Pick(random.Random(seed).randint)
    try:
        return holds(derive(pick, rule, BY_NAME[situation], Counts()), situation)
    except NoChoice:
        return False


def test_most_operators_of_the_tables_are_drawn_and_others_have_a_reason() -> None:
    assert operators() in drawn_rules()
    assert len(operators()) > 700
    for name in set(tabled()) - set(operators()):
        assert out_of_reach(name)
    with pytest.raises(NoChoice, match="autograd calls it"):
        derive(
            Pick(random.Random(0).randint), "aten.tanh_backward.default", BY_NAME["alone"], Counts()
        )


@pytest.mark.parametrize(
    ("kind", "operand"),
    [
        (EMPTY, view(2, 0)),
        (NUMBER, view()),
        (OTHER_DTYPE, view(2, dtype=torch.int64)),
        (USUAL, view(2)),
    ],
)
def test_a_program_has_the_kind_of_its_operand_and_no_other(kind: str, operand: Input) -> None:
    usual = program_of("v0 = aten.neg.default(x0)\nreturn (v0,)", view(2))
    program = program_of("v0 = aten.neg.default(x0)\nreturn (v0,)", operand)
    assert {it for it in KINDS if has_kind(program, it, usual)} == {kind, USUAL}
