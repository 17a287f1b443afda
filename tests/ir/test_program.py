"""`Program` is a value: what changes it gives another one."""

from __future__ import annotations

import pytest
import torch

from aliasproof.ir.program import Input, Instruction, Program, Ref, Storage

X, Y = Input("x", 0, torch.float32, (4,), (1,)), Input("y", 0, torch.float32, (2,), (1,), 2)
READ = Instruction("aten.neg.default", (Ref("x"),), results=("v",))
WRITE = Instruction("aten.add_.Tensor", (Ref("y"), Ref("v")))
PROGRAM = Program((Storage(torch.float32, 4),), (X, Y), (READ, WRITE), ("v",), seed=3)
CLONE = Instruction("aten.clone.default", (Ref("x"),), results=("v",))


@pytest.mark.parametrize(("index", "expected"), [(0, (CLONE, WRITE)), (1, (READ, CLONE))])
def test_with_instruction_replaces_that_instruction_alone(
    index: int, expected: tuple[Instruction, ...]
) -> None:
    changed = PROGRAM.with_instruction(index, CLONE)
    assert changed == Program(PROGRAM.storages, (X, Y), expected, ("v",), seed=3)
    assert PROGRAM.instructions == (READ, WRITE)


@pytest.mark.parametrize("index", [0, 1])
def test_with_input_replaces_that_input_alone(index: int) -> None:
    other = Input("z", 0, torch.float32, (), ())
    expected = (other, Y) if index == 0 else (X, other)
    changed = PROGRAM.with_input(index, other)
    assert changed == Program(PROGRAM.storages, expected, (READ, WRITE), ("v",), seed=3)


def test_renamed_gives_names_in_order_to_inputs_and_results() -> None:
    program = PROGRAM.with_input(0, Input("first", 0, torch.float32, (4,), (1,))).with_instruction(
        0, Instruction("aten.neg.default", (Ref("first"),), results=("v",))
    )
    renamed = program.renamed()
    assert [view.name for view in renamed.inputs] == ["x0", "x1"]
    assert [instruction.results for instruction in renamed.instructions] == [("v0",), ()]
    assert [instruction.refs for instruction in renamed.instructions] == [("x0",), ("x1", "v0")]
    assert renamed.outputs == ("v0",)
