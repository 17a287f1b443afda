"""What a program from a file would allocate is refused before it runs."""

from __future__ import annotations

import time

import pytest
import torch

from aliasproof.generators.features import swarm
from aliasproof.generators.strategies import sample
from aliasproof.ir.errors import UserError
from aliasproof.ir.program import Argument, Input, Instruction, Program, Ref, Storage
from aliasproof.ir.serialization import dumps, loads, require_bounded

X, OPEN_END = Ref("x"), 2**63 - 1


def made_of(*calls: tuple[str, tuple[Argument, ...]], length: int = 4) -> Program:
    """A program of one input x; the result of call `i` is `v<i>`."""
    instructions = tuple(
        Instruction(op, args, (), (f"v{index}",)) for index, (op, args) in enumerate(calls)
    )
    storage, view = Storage(torch.float32, length), Input("x", 0, torch.float32, (length,), (1,))
    return Program((storage,), (view,), instructions, ())


TOO_LARGE = {
    "expand": made_of(
        ("aten.expand.default", (X, (10**9, 4))), ("aten.clone.default", (Ref("v0"),))
    ),
    "full": made_of(("aten.full.default", ((2**40,), 1))),
    "arange": made_of(("aten.arange.default", (10**12,))),
    "repeat": made_of(("aten.repeat.default", (X, (10**5, 10**5)))),
    "pad": made_of(("aten.constant_pad_nd.default", (X, (0, 10**10)))),
    "as_strided": made_of(("aten.as_strided.default", (X, (10**6, 10**6), (0, 0)))),
    "resize": made_of(("aten.resize_.default", (X, (10**10,)))),
    "empty": made_of(("aten.empty.memory_format", ((2**62,),))),
    "outer": made_of(("aten.outer.default", (X, X)), length=100_000),
    "composite": made_of(("aten.tile.default", (X, (10**6, 10**6)))),
    "rank": made_of(("aten.view.default", (X, (*(1,) * 5000, 4)))),
    "results": made_of(("aten.unbind.int", (X,)), length=10**6),
    "chunks": made_of(("aten.chunk.default", (X, 10**6)), length=10**6),
    "together": made_of(*(("aten.full.default", ((2**25,), 1)),) * 40),
    "work": made_of(
        ("aten.full.default", ((2**25,), 1)), *(("aten.neg_.default", (Ref("v0"),)),) * 300
    ),
    # `masked_select` and a failing call give stand-ins.
    "after nonzero": made_of(
        ("aten.nonzero.default", (X,)),
        ("aten.expand.default", (Ref("v0"), (10**9, 4, 1))),
        ("aten.clone.default", (Ref("v1"),)),
    ),
    "without a fake kernel": made_of(("aten.histc.default", (X, 10**10))),
    "bincount": made_of(("aten.bincount.default", (X, None, 10**12))),
}


@pytest.mark.parametrize("name", TOO_LARGE)
def test_a_call_that_takes_too_much_is_refused_at_once(name: str) -> None:
    started = time.process_time()
    with pytest.raises(UserError, match=r"^instructions\[\d+\]: aten\.\S+ \w+") as refused:
        require_bounded(TOO_LARGE[name])
    assert time.process_time() - started < 5
    assert "\n" not in str(refused.value)
    with pytest.raises(UserError, match=r"^x\.json: instructions"):
        loads(dumps(TOO_LARGE[name]), "x.json")


def test_what_is_drawn_is_accepted() -> None:
    for program in sample(swarm(7), 7, 25):
        require_bounded(program)


@pytest.mark.parametrize(
    "program",
    [
        made_of(("aten.add.Tensor", (X, X)), ("aten.view.default", (X, (3, 3)))),  # eager raises
        made_of(("aten.slice.Tensor", (X, 0, 0, OPEN_END))),
        made_of(("aten.nonzero.default", (X,)), ("aten.slice.Tensor", (Ref("v0"), 0, 0, OPEN_END))),
        made_of(("aten.gt.Scalar", (X, 0)), ("aten.masked_select.default", (X, Ref("v0")))),
    ],
)
def test_what_fails_or_depends_on_data_and_is_small_is_accepted(program: Program) -> None:
    require_bounded(program)
