"""Higher-order operators (`cond`, `while_loop`, ...) as the operators that they call in eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._higher_order_ops.base_hop import BaseHOP
from torch._higher_order_ops.cond import cond_op
from torch._higher_order_ops.invoke_subgraph import invoke_subgraph
from torch._higher_order_ops.scan import generic_scan, scan_op
from torch._higher_order_ops.strict_mode import strict_mode_op
from torch._ops import HigherOrderOperator

# The kernels of these refuse to run in a dispatch mode.
_STEPS: dict[Any, Callable[..., Any]] = {
    cond_op: lambda chosen, yes, no, operands: (yes if chosen else no)(*operands),
    scan_op: lambda combine, init, xs, others: generic_scan(
        combine, init, xs, additional_inputs=others
    ),
    strict_mode_op: lambda function, operands: function(*operands),
    invoke_subgraph: lambda subgraph, identifier, *operands: _call_subgraph(subgraph, operands),
}


def eager_steps(op: HigherOrderOperator) -> Callable[..., Any] | None:
    """A function that calls the operators that `op` consists of; None if there is none in Python.

    A dispatch mode that meets `op` calls it within the mode.
    """
    if op in _STEPS:
        return _STEPS[op]
    if isinstance(op, BaseHOP):
        return lambda subgraph, *operands, **kwargs: _call_subgraph(subgraph, operands)
    # This kernel calls the ops; those for other dispatch keys trace or transform them.
    return op.py_kernels.get(torch._C.DispatchKey.CompositeExplicitAutograd)


def _call_subgraph(subgraph: Any, operands: tuple[Any, ...]) -> Any:
    boxed = getattr(subgraph, "_boxed_call", False)
    return subgraph(list(operands)) if boxed else subgraph(*operands)
