"""Regions without gradients survive printing, parsing, writing, running and capture."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import fx

from aliasproof.generators.features import swarm
from aliasproof.generators.strategies import sample
from aliasproof.ir.errors import UserError
from aliasproof.ir.execution import as_graph, run
from aliasproof.ir.ordinary_syntax import ordinary_source
from aliasproof.ir.parsing import parse_source
from aliasproof.ir.printing import source
from aliasproof.ir.program import Program
from aliasproof.ir.serialization import dumps, from_json, loads, to_json
from aliasproof.ir.values import input_tensors
from tests.short_programs import of_vectors

REGION = """\
v0 = aten.mul.Scalar(x0, 2)
with torch.no_grad():
    v1 = aten.mul.Scalar(v0, 3)
    aten.add_.Tensor(v0, v1)
v2 = aten.add.Tensor(v0, v1)
return (v2,)"""


@pytest.fixture
def program() -> Program:
    return of_vectors(REGION, 0)


def test_a_region_is_a_block_of_lines(program: Program) -> None:
    assert source(program) == (
        "def program(x0):\n"
        "    v0 = aten.mul.Scalar(x0, 2)\n"
        "    with torch.no_grad():\n"
        "        v1 = aten.mul.Scalar(v0, 3)\n"
        "        aten.add_.Tensor(v0, v1)\n"
        "    v2 = aten.add.Tensor(v0, v1)\n"
        "    return (v2,)\n"
    )
    assert [call.grad for call in program.instructions] == [True, False, False, True]
    assert program.renamed() == program


def test_no_value_leaves_its_region_in_ordinary_syntax(program: Program) -> None:
    text = ordinary_source(program, near=True)
    assert "with torch.no_grad():\n        v1 = v0 * 3\n        v0.add_(v1)\n    return" in text


def test_drawn_programs_survive_text_and_json() -> None:
    met = 0
    for seed in range(40):
        for program in sample(replace(swarm(seed), gradients=True), seed, 1):
            kept = program.storages, program.inputs, program.seed, program.fill, program.device
            assert parse_source(source(program), *kept) == program
            assert loads(dumps(program)) == program
            met += any(not call.grad for call in program.instructions)
    assert met > 10


def test_regions_are_drawn_under_their_switch_alone() -> None:
    for seed in range(40):
        for program in sample(replace(swarm(seed), gradients=False), seed, 1):
            assert all(call.grad for call in program.instructions)
            assert {storage.gradient for storage in program.storages} <= {"computed"}


def test_the_key_is_there_only_for_calls_without_gradients(program: Program) -> None:
    written: Any = to_json(program)
    calls = written["instructions"]
    assert ["grad" in call for call in calls] == [False, True, True, False]
    calls[0]["grad"] = 0
    with pytest.raises(UserError, match=r"instructions\[0\].grad: expected true or false, got 0"):
        from_json(written)


def test_a_run_and_a_graph_record_the_same(program: Program) -> None:
    """d(x * 2 + 6 * const) / dx is 2: what the region computes is constant for autograd."""
    module = fx.GraphModule(torch.nn.Module(), as_graph(program))
    for function in (lambda *given: run(program, given), module):
        (x,) = input_tensors(program)
        (output,) = function(x.requires_grad_())
        output.sum().backward()
        assert x.grad is not None
        assert x.grad.tolist() == [2.0] * 4
        assert torch.is_grad_enabled()


def test_without_gradients_a_graph_has_no_switches(program: Program) -> None:
    with torch.no_grad():
        assert "_set_grad_enabled" not in str(as_graph(program))
    assert "_set_grad_enabled" in str(as_graph(program))
