"""Opaque calls may retain or alias their arguments: custom operators and Python functions.

    first = cache(x)          # retains x, and returns it again later
    y = x + 1                 # must not be written over x
    again = cache(z)          # may be x

The result of an *opaque call* may alias anything that was ever passed to one. So the memory of its
operands, and of its results, is never overwritten, and never taken over. A user who knows better
states that an operator is `non_aliasing`: it retains no operand and no result, and its results are
new.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterator
from types import FunctionType
from typing import Any

from torch import fx
from torch._ops import OpOverload
from torch.fx.node import has_side_effect

from aliasproof.reference_pass.calls.copied_operands import on_copies
from aliasproof.reference_pass.calls.nested import nodes_in
from aliasproof.reference_pass.calls.operator_forms import bind, facts, is_opaque
from aliasproof.reference_pass.exceptions import Refused
from aliasproof.reference_pass.semantics import Semantics, Values


@has_side_effect
def opaque_call(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a Python function. In a graph, it is never run on fakes: it would retain them."""
    return function(*args, **kwargs)


def hide_functions(graph: fx.Graph) -> None:
    """Make each call of a Python function whose value is noted a call of `opaque_call`."""
    for node in graph.nodes:
        if is_python(node.target) and "val" in node.meta:
            node.target, node.args = opaque_call, (node.target, *node.args)


def show_functions(graph: fx.Graph) -> None:
    """Undo `hide_functions`."""
    for node in graph.find_nodes(op="call_function", target=opaque_call):
        node.target, node.args = node.args[0], node.args[1:]


def is_python(target: object) -> bool:
    """True for a Python function that belongs neither to torch (such as `sym_sum`) nor to us."""
    if not isinstance(target, FunctionType):
        return False
    room = target.__module__.partition(".")[0]
    return room not in ("torch", __name__.partition(".")[0])


def with_opaque_calls(semantics: Semantics, non_aliasing: Collection[object]) -> Semantics:
    """The semantics in which opaque calls retain their arguments and results.

    Raises `Refused` if `non_aliasing` has anything but operators and Python functions.
    """
    given: object = non_aliasing
    if not isinstance(given, Collection) or not all(
        isinstance(op, (OpOverload, FunctionType)) for op in given
    ):
        raise Refused(
            f"non_aliasing={non_aliasing!r}: give a list of operators with their overload, such as"
            " torch.ops.mine.store.default, or of Python functions"
        )

    def held(node: fx.Node) -> Iterator[fx.Node]:
        yield from semantics.held(node)
        called: Any = node.args[0] if node.target in (on_copies, opaque_call) else node.target
        # It is known which values a collective retains.
        is_unknown = is_opaque(called) and not called.namespace.startswith("_c10d_functional")
        if (is_unknown or is_python(called)) and called not in non_aliasing:
            # `on_copies` passes copies for some operands: these are retained, and are its results.
            copies: list[fx.Node] = []
            if node.target is on_copies:
                given = bind(called, node.args[1:], node.kwargs)
                copies = nodes_in([given.get(name) for name in facts(called).writes])
            yield from (operand for operand in node.all_input_nodes if operand not in copies)
            yield node

    def run(node: fx.Node, values: Values) -> Any:
        return node.meta["val"] if node.target is opaque_call else semantics.run(node, values)

    return dataclasses.replace(semantics, held=held, run=run)
