"""Inductor puts a foreach call in place whatever result is copied to which operand."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload

from aliasproof.corpus.inductor_passes import copy_operand
from aliasproof.corpus.known_bug import KnownBug, calls, program_of, view
from aliasproof.corpus.mends import before_reinplacing
from aliasproof.programs.foreach_calls import is_foreach

aten = torch.ops.aten


@before_reinplacing
def mended(graph: fx.Graph) -> None:
    """A result that is written to another operand is copied first, so the pass does not see it.

    Torch asks whether each operand gets a result of the call, and not whether it gets its own.
    """
    for write in graph.find_nodes(op="call_function", target=aten.copy_.default):
        target: Any = write.args[0]
        source: Any = write.args[1]
        if isinstance(source, fx.Node) and source.target is operator.getitem:
            call: Any = source.args[0]
            index: Any = source.args[1]
            # Another call with several results can begin with a list of sizes.
            foreach = isinstance(call.target, OpOverload) and is_foreach(call.target)
            if foreach and call.args[0][index] is not target:
                copy_operand(write, 1)


BUG = KnownBug(
    "foreach-results",
    "Inductor puts a foreach call in place although its results go to other operands",
    "",
    program_of(
        """
        v0, v1 = aten._foreach_add.Scalar([x0, x1], 1)
        aten.copy_.default(x0, v1)
        aten.copy_.default(x1, v0)
        return ()
        """,
        view(),
        view(),
    ),
    ("inductor-fx",),
    ("2.13", "2.15"),
    mended,
    plausible=lambda program: calls(program, "_foreach_add"),
    rank=460,
)
