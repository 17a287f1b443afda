"""A glued program does for each member what the member does alone."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from aliasproof.eager.rounding import readable
from aliasproof.generators.strategies import programs
from aliasproof.ir.errors import Rejected
from aliasproof.ir.execution import glue, part, run
from aliasproof.ir.program import Input, Program, Storage
from aliasproof.ir.regions import Region, overlap
from aliasproof.ir.validation import first_defect
from aliasproof.ir.values import input_tensors
from aliasproof.judge.examination import returning
from aliasproof.judge.trial import Case, run_eager

GROUPS = st.lists(programs(), min_size=1, max_size=4)


@given(GROUPS)
def test_each_member_gets_what_it_gets_alone(members: list[Program]) -> None:
    defined = [each for each in members if _returns(each)]
    glued = glue(defined)
    assert first_defect(glued.program) is None
    together = input_tensors(glued.program)
    outputs = run(glued.program, together)
    for member in glued.members:
        inputs = input_tensors(member.program)
        expected = [*run(member.program, inputs), *inputs]
        actual = [*part(outputs, member.outputs), *part(together, member.inputs)]
        assert [each.stride() for each in actual] == [each.stride() for each in expected]
        torch.testing.assert_close(
            list(map(readable, actual)),
            list(map(readable, expected)),
            rtol=0,
            atol=0,
            equal_nan=True,
        )


@given(GROUPS)
def test_members_share_no_byte(members: list[Program]) -> None:
    glued = glue(members)
    inputs = input_tensors(glued.program)
    regions = [[Region.of(each) for each in part(inputs, one.inputs)] for one in glued.members]
    for index, ours in enumerate(regions):
        for theirs in regions[:index]:
            assert not any(overlap(one, other) for one in ours for other in theirs)


def test_a_member_keeps_its_data_whatever_its_place() -> None:
    storages, inputs = (Storage(torch.float32, 3),), (Input("x", 0, torch.float32, (3,), (1,)),)
    one, other = (Program(storages, inputs, (), ("x",), seed) for seed in (5, 0))
    tensors = input_tensors(glue([other, one]).program)
    assert torch.equal(tensors[0], input_tensors(other)[0])
    assert torch.equal(tensors[1], input_tensors(one)[0])
    assert not torch.equal(tensors[0], tensors[1])


def _returns(program: Program) -> bool:
    try:
        eager = run_eager(Case.of(program))
        returning(eager)
    except Rejected:  # undefined in eager, or eager raises
        return False
    return not eager.trace.random  # it draws other numbers after another program
