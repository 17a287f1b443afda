"""Functional collectives: they use memory after their call, and `wait_tensor` returns its operand.

The group is torch's fake one, of one process, so that a reduction changes nothing.
"""

from __future__ import annotations

import pytest
import torch
from torch import distributed, fx
from torch.testing._internal.distributed.fake_pg import FakeStore

from aliasproof.reference_pass import pipeline
from tests.reference_pass.scene import counted

aten = torch.ops.aten


@pytest.fixture(autouse=True)
def group():
    distributed.init_process_group("fake", rank=0, world_size=1, store=FakeStore())
    # Registers the operators.
    import torch.distributed._functional_collectives

    yield torch.ops._c10d_functional
    distributed.destroy_process_group()


@pytest.mark.parametrize("views", ["alias", "copy"])
def test_what_is_waited_for_is_not_overwritten_while_its_operand_lives(group, views):
    def doubled(x):
        return aten.mul.Tensor(group.wait_tensor.default(x), 2)

    def both(x):
        made = aten.add.Tensor(x, 1)
        sine = aten.sin.default(group.wait_tensor.default(made))
        return aten.add.Tensor(sine, made)

    for program in (doubled, both):
        x = counted(3)
        result = pipeline(fx.symbolic_trace(program), counted(3), views=views)(x)
        assert torch.equal(x, counted(3))
        assert torch.equal(result, program(counted(3)))


@pytest.mark.parametrize("views", ["alias", "copy"])
def test_a_result_that_only_the_wait_has_is_overwritten(group, views):
    def mean(x):
        made = aten.add.Tensor(x, 1)
        total = group.all_reduce.default(made, "sum", "0")
        sine = aten.sin.default(made)  # not in place: the collective may still read its operand
        return aten.mul.Tensor(group.wait_tensor.default(total), 0.5), sine

    done = pipeline(fx.symbolic_trace(mean), counted(3), views=views)
    found = [node.target for node in done.graph.nodes]
    assert aten.mul_.Tensor in found
    assert aten.sin.default in found
    for one, other in zip(done(counted(3)), mean(counted(3)), strict=True):
        assert torch.equal(one, other)
