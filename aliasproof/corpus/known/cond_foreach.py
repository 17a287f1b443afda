"""The schema of `torch.cond` cannot be made if a branch writes a list of tensors."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from aliasproof.corpus.known_bug import KnownBug, program_of, view
from aliasproof.corpus.mends import mends
from aliasproof.ir.program import Program

aten = torch.ops.aten


@mends("torch._higher_order_ops.cond:check_input_alias_and_mutation_return_outputs")
def mended(original: Callable[..., Any], branch: fx.GraphModule) -> Any:
    """The analysis of a branch sees a write for each tensor of a written list.

    It expects that each written argument is a tensor.
    """
    return original(_with_single_writes(branch))


def _with_single_writes(branch: fx.GraphModule) -> fx.GraphModule:
    """The branch, where each `_foreach_` call that writes is many calls that write one tensor."""
    changed = copy.copy(branch)
    changed.graph = copy.deepcopy(branch.graph)
    for node in list(changed.graph.nodes):
        target = node.target
        if isinstance(target, torch._ops.OpOverload) and _is_foreach_write(target._schema.name):
            operands: Any = node.args[0]
            with changed.graph.inserting_before(node):
                for operand in operands:
                    changed.graph.call_function(aten.zero_.default, (operand,))
            changed.graph.erase_node(node)
    return changed


def _is_foreach_write(name: str) -> bool:
    return name.startswith("aten::_foreach_") and name.endswith("_")


def _writes_lists(program: Program) -> bool:
    return any(
        call.mutates() and call.op.startswith("aten._foreach_") for call in program.instructions
    )


BUG = KnownBug(
    "cond-foreach",
    "a branch of torch.cond cannot write by a foreach call: an assertion expects a tensor",
    "",
    program_of(
        """
        aten._foreach_neg_.default([x0])
        v0 = aten.neg.default(x0)
        return (v0,)
        """,
        view(),
    ),
    ("aot:cond", "aot-epilogue:cond"),
    ("2.13", "2.15"),
    mended,
    plausible=_writes_lists,
    rank=880,
)
