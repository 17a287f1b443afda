"""Replaces parts of Inductor's passes over FX graphs while a context is entered.

Inductor is imported in the functions: its import takes two seconds, and other bugs do without.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias
from unittest import mock

import torch
from torch import fx

aten = torch.ops.aten

GraphChange: TypeAlias = Callable[[fx.Graph], None]


@contextlib.contextmanager
def replaced(module: str, name: str, replacement: Callable[..., Any]) -> Iterator[None]:
    """In `torch._inductor`, call `replacement(original, *arguments)` in place of a function.

    The name can be that of a method: `Class.method`.
    """
    holder: Any = importlib.import_module(f"torch._inductor.{module}")
    *owners, last = name.split(".")
    for owner in owners:
        holder = getattr(holder, owner)
    original = getattr(holder, last)

    def call(*args: Any, **kwargs: Any) -> Any:
        return replacement(original, *args, **kwargs)

    with mock.patch.object(holder, last, call):
        yield


@contextlib.contextmanager
def before_reinplacing(change: GraphChange) -> Iterator[None]:
    """Change each graph before Inductor puts operators in place."""

    def core(original: GraphChange, graph: fx.Graph) -> None:
        change(graph)
        original(graph)

    with replaced("fx_passes.reinplace", "reinplace_inplaceable_ops_core", core):
        yield


@contextlib.contextmanager
def decomposed(op: Any, replacement: Callable[..., Any]) -> Iterator[None]:
    """Inductor decomposes an operator as `replacement(original, *arguments)`."""
    from torch._inductor import decomposition  # noqa: PLC0415

    with contextlib.ExitStack() as stack:
        # Two tables: the second is used where Inductor draws random numbers itself.
        for table in (decomposition.decompositions, decomposition.fast_random_decomps()):
            stack.enter_context(_entry_replaced(table, op, replacement))
        yield


@contextlib.contextmanager
def _entry_replaced(
    table: dict[Any, Callable[..., Any]], op: Any, replacement: Callable[..., Any]
) -> Iterator[None]:
    original = table[op]

    def decompose(*args: Any, **kwargs: Any) -> Any:
        return replacement(original, *args, **kwargs)

    with mock.patch.dict(table, {op: decompose}):
        yield


@contextlib.contextmanager
def pattern_needs(
    module: str, handlers: tuple[str, ...], condition: Callable[[Any], bool]
) -> Iterator[None]:
    """The rewrites with these handlers need one more condition, on the match.

    `module` is a module of `torch._inductor.fx_passes` with lists of patterns.
    """
    of_module: Any = importlib.import_module(f"torch._inductor.fx_passes.{module}")
    of_module.lazy_init()
    entries = {
        id(entry): entry
        for patterns in of_module.pass_patterns
        for listed in patterns.patterns.values()
        for entry in listed
        if getattr(getattr(entry, "handler", None), "__name__", "") in handlers
    }
    with contextlib.ExitStack() as stack:
        for entry in entries.values():
            check = _both(condition, entry.extra_check)
            stack.enter_context(mock.patch.object(entry, "extra_check", check))
        yield


def _both(first: Callable[[Any], bool], second: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda match: first(match) and second(match)


def copied(node: fx.Node, index: int, **kwargs: Any) -> None:
    """Give a call a copy of its operand with this index."""
    from torch._inductor.fx_passes import reinplace  # noqa: PLC0415

    operand: Any = node.args[index]
    with node.graph.inserting_before(node):
        if index == 0 and (scatters_by_strides(node) or _has_gaps(operand.meta["val"])):
            copy = copy_with_storage(operand)
        else:
            copy = reinplace.graph_call_function(node.graph, aten.clone.default, operand, **kwargs)
    node.update_arg(index, copy)


def _has_gaps(value: torch.Tensor) -> bool:
    """Whether a tensor has other strides than its clone, though it does not overlap itself."""
    extent = 1
    for stride, size in sorted(zip(value.stride(), value.shape, strict=True)):
        if size > 1 and stride < extent:
            return False
        extent += (size - 1) * stride
    return extent > max(value.numel(), 1)


def scatters_by_strides(node: fx.Node) -> bool:
    """Whether this is a scatter by `as_strided`, in the form that Inductor gives to scatters."""
    from torch._inductor.fx_passes import reinplace  # noqa: PLC0415

    scatters = (reinplace._generalized_scatter, reinplace._inplace_generalized_scatter)
    views: Any = node.args[2] if node.target in scatters else ()
    return any(each.target is aten.as_strided.default for each in views)


def copy_with_storage(node: fx.Node) -> fx.Node:
    """A copy of a tensor in a copy of its whole storage, so that strides mean the same."""
    from torch._inductor.fx_passes import reinplace  # noqa: PLC0415

    value, graph, call = node.meta["val"], node.graph, reinplace.graph_call_function
    length = value.untyped_storage().nbytes() // value.itemsize
    storage = call(graph, aten.as_strided.default, node, [length], [1], 0)
    copy = call(graph, aten.clone.default, storage)
    layout = (list(value.shape), list(value.stride()), value.storage_offset())
    found: fx.Node = call(graph, aten.as_strided.default, copy, *layout)
    return found


def reinplaceable(graph: fx.Graph) -> Iterator[tuple[Any, int]]:
    """The calls that Inductor may put in place, with the index of the operand to be written."""
    from torch._inductor.fx_passes import reinplace  # noqa: PLC0415

    for node in list(graph.nodes):
        found = reinplace.inplaceable_ops.get(node.target)
        if found is not None:
            yield from ((node, index) for index in found.mutated_args)


def write_back(node: fx.Node) -> fx.Node | None:
    """The call that writes an input of the graph, if the node is an input that is written."""
    if node.op != "placeholder":
        return None
    writes = node.graph.find_nodes(op="call_function", target=aten.copy_.default)
    return next((call for call in writes if call.args[0] is node), None)
