"""Higher-order operators: calls whose arguments are graphs, or an operator; and `print`.

The passes treat such a call as one functional call: it reads its operands, and returns new tensors.
That is right if none of its graphs (`torch.cond`, `while_loop`, `scan`, `map`) writes to an
operand. A graph that writes to its own tensors is functionalized first. If the backward graph runs
a random operator again (`torch.utils.checkpoint`), AOTAutograd calls it through another operator,
which keeps the state of the generator. Operators that only run a graph are no calls for the passes:
the trace has the calls of that graph (`trace_modes`).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import fx

from aliasproof.reference_pass.calls.graphs import copied
from aliasproof.reference_pass.calls.nested import graphs_called
from aliasproof.reference_pass.calls.operator_forms import writes
from aliasproof.reference_pass.exceptions import Refused

_ops = torch.ops.higher_order

CONTROL_FLOW: frozenset[object] = frozenset(
    {
        *(_ops.cond, _ops.while_loop, _ops.while_loop_stack_output, _ops.scan, _ops.map_impl),
        *(_ops.flex_attention, _ops.flex_attention_backward),
    }
)
OF_AN_OPERATOR: frozenset[object] = frozenset(
    {_ops.run_and_save_rng_state, _ops.run_with_rng_state, _ops.out_dtype}
)
# It has no result, so a call of it never has a user.
PRINT: object = _ops.print
HIGHER_ORDER = CONTROL_FLOW | OF_AN_OPERATOR | {PRINT}


def functional_branches(
    captured: fx.GraphModule, functionalize: Callable[..., fx.GraphModule]
) -> fx.GraphModule:
    """The graph module with functional graphs as arguments of its control flow calls.

    The given one does not change. `functionalize` takes a graph and its inputs. Raises `Refused` if
    one of the graphs, or an operator, writes to an operand.
    """
    for node in captured.graph.nodes:
        if node.target in OF_AN_OPERATOR and any(map(writes, node.args)):
            raise Refused(f"{node.format_node()} calls an operator that writes to its operand")
    branches = {
        name: branch
        for node in captured.graph.nodes
        if node.target in CONTROL_FLOW
        for name, branch in graphs_called(node).items()
        if _writes(branch)
    }
    if not branches:
        return captured
    result = copied(captured)
    for name, branch in branches.items():
        inputs = [node.meta.get("val") for node in branch.graph.find_nodes(op="placeholder")]
        functional = functionalize(branch, *inputs)
        if _writes(functional):
            raise Refused(
                "a branch or loop body writes to its operand; return the new value from there,"
                f" and write it outside: {branch.graph}"
            )
        result.set_submodule(name, functional)
    return result


def _writes(branch: fx.GraphModule) -> bool:
    """True if a call writes, at any depth."""
    graphs = [module.graph for module in branch.modules() if isinstance(module, fx.GraphModule)]
    return any(writes(node.target) for graph in graphs for node in graph.nodes)
