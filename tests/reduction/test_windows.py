"""`keep_window`: halves of a program on what eager had computed until there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch

from aliasproof.ir.execution import run
from aliasproof.ir.program import Instruction, Program, Ref
from aliasproof.ir.values import input_tensors
from aliasproof.reduction.instruction_steps import keep_window
from aliasproof.reduction.program_steps import PROGRAM
from aliasproof.reduction.reducer import Reducer

BODY = """
    v0 = aten.select.int(x0, 0, 1)
    v1 = aten.add.Scalar(v0, 3)
    aten.mul_.Tensor(v0, v1)
    v2 = aten.view.default(x0, [9])
    v3 = aten.sum.default(v2)
    v4 = aten.mul.Tensor(v2, v3)
    v5 = aten.cumsum.default(v4, 0)
    v6 = aten.neg.default(v1)
    aten.add_.Tensor(v2, v5)
    v7 = aten.add.Tensor(v6, v0)
    v8 = aten.mul_.Scalar(v7, 2)
    v9 = aten.clone.default(v8)
    aten.zero_.default(v0)
    v10 = aten.add.Tensor(v9, v0)
    v11 = aten.sin.default(v10)
    v12 = aten.exp.default(v9)
    return v11, x0
"""


def test_a_window_computes_what_the_program_computes(program: Callable[..., Program]) -> None:
    whole = program(BODY, (3, 3))
    windows = list(keep_window(whole))
    assert [len(window) for window in windows] == [8] * 6
    head, tail = windows[1], windows[3]
    # What is used later is returned: v1, v2 and v5, v6 of the head.
    assert len(head.outputs) == 5
    # The last half with the values of eager: it has the output of the whole, and v2 shares its
    # storage with v0 and x0, which are inputs now.
    (expected, left), (computed, *_) = (run(it, input_tensors(it)) for it in (whole, tail))
    torch.testing.assert_close(computed, expected)
    assert left[1].count_nonzero() == 0
    shared = [view.storage for view in tail.inputs]
    assert len(set(shared)) < len(shared)


def test_a_short_program_has_no_windows(program: Callable[..., Program]) -> None:
    assert not list(keep_window(program("v0 = aten.neg.default(x0)\nreturn (v0,)", (4,))))


def test_one_cause_in_2000_instructions_costs_few_questions_about_long_programs(
    program: Callable[..., Program],
) -> None:
    chain = [
        Instruction("aten.add.Tensor", (Ref(f"v{index}"), Ref("x0")), (), (f"v{index + 1}",))
        for index in range(2000)
    ]
    chain[1234] = replace(chain[1234], op="aten.sub.Tensor")
    first = Instruction("aten.neg.default", (Ref("x0"),), (), ("v0",))
    start = program("return (x0,)", (4,))
    long = replace(start, instructions=(first, *chain), outputs=("v2000",))
    asked: list[int] = []

    def wrong(candidate: Program) -> int:
        asked.append(len(candidate))
        return int(any(call.op == "aten.sub.Tensor" for call in candidate.instructions))

    assert len(Reducer(PROGRAM, long, wrong).run()) == 1
    assert len(asked) < 80
    assert sum(asked) < 3 * len(long)
