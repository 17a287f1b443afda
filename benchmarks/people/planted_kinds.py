"""The kinds of mistakes of wrong passes, on graphs of AOTAutograd.

A kind is a generator over a graph: it yields an edit for each site where its mistake can be made.
The graphs have calls without mutation, then `copy_` into the inputs that the function writes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import combinations, pairwise
from typing import Any, TypeAlias

import torch
from torch import fx
from torch._ops import OpOverload

aten = torch.ops.aten
Edit: TypeAlias = Callable[[], object]
Kind: TypeAlias = Callable[[fx.Graph], Iterator[Edit]]

# --- what the kinds ask of a graph ----------------------------------------------------------------


def _epilogue(graph: fx.Graph) -> list[fx.Node]:
    """The writes into inputs."""
    return [
        node
        for node in graph.find_nodes(op="call_function", target=aten.copy_.default)
        if node.args[0].op == "placeholder" and isinstance(node.args[1], fx.Node)
    ]


def _calls(graph: fx.Graph, *names: str) -> list[fx.Node]:
    """The calls of operators with these names, such as 'aten::slice'; of all without names."""
    return [
        node
        for node in graph.nodes
        if node.op == "call_function"
        and isinstance(node.target, OpOverload)
        and (not names or node.target.name().partition(".")[0] in names)
    ]


def _value(node: object) -> torch.Tensor | None:
    value = node.meta.get("val") if isinstance(node, fx.Node) else None
    return value if isinstance(value, torch.Tensor) else None


def _alike(one: object, other: object) -> bool:
    a, b = _value(one), _value(other)
    return a is not None and b is not None and (a.shape, a.dtype) == (b.shape, b.dtype)


def _operand(node: fx.Node) -> fx.Node | None:
    """The first operand, if it is a tensor of the same size and dtype as the result."""
    first = node.args[0] if node.args else None
    return first if isinstance(first, fx.Node) and _alike(first, node) else None


def _replace(node: fx.Node, by: fx.Node) -> None:
    node.replace_all_uses_with(by)
    node.graph.erase_node(node)


def _setting(node: fx.Node, index: int, value: Any) -> Edit:
    return _giving(node, *node.args[:index], value, *node.args[index + 1 :])


def _giving(node: fx.Node, *args: Any) -> Edit:
    return partial(setattr, node, "args", args)


def _retargeting(node: fx.Node, target: OpOverload) -> Edit:
    return partial(setattr, node, "target", target)


def _argument(node: fx.Node, index: int, otherwise: Any) -> Any:
    return node.args[index] if len(node.args) > index else otherwise


# --- copies into inputs ---------------------------------------------------------------------------


def dropped_copy(graph: fx.Graph) -> Iterator[Edit]:
    """An input does not get its new contents."""
    for copy in _epilogue(graph):
        yield partial(_replace, copy, copy.args[1])  # type: ignore[arg-type]


def hoisted_copy(graph: fx.Graph) -> Iterator[Edit]:
    """An input is written as soon as its new contents are there, before its last read."""
    for copy in _epilogue(graph):
        source = copy.args[1]
        if isinstance(source, fx.Node) and source.op == "call_function":
            yield partial(source.append, copy)


def sunk_copy(graph: fx.Graph) -> Iterator[Edit]:
    """The old contents of an input are read, or copied, after the input was written."""
    nodes = list(graph.nodes)
    for copy in _epilogue(graph):
        written = copy.args[0]
        assert isinstance(written, fx.Node)
        before = nodes[: nodes.index(copy)]
        for read in written.users:
            if read is copy or read not in before:
                continue
            moved = [read]
            for node in before[before.index(read) :]:
                if {*node.all_input_nodes} & {*moved}:
                    moved.append(node)
            if not {*copy.all_input_nodes} & {*moved}:
                yield partial(_move_behind, copy, moved)


def _move_behind(copy: fx.Node, moved: list[fx.Node]) -> None:
    for node in reversed(moved):
        copy.append(node)


def swapped_copies(graph: fx.Graph) -> Iterator[Edit]:
    """Two inputs of one size get the new contents of each other."""
    for one, other in combinations(_epilogue(graph), 2):
        if _alike(one.args[0], other.args[0]):
            yield partial(_swap, one, other)


def _swap(one: fx.Node, other: fx.Node) -> None:
    first, second = one.args[1], other.args[1]
    for copy, source in ((one, second), (other, first)):
        copy.args = (copy.args[0], source)
    last = max((one, other), key=list(one.graph.nodes).index)
    for copy in (one, other):
        if copy is not last:
            last.prepend(copy)  # a source may be computed between the two


def repeated_write(graph: fx.Graph) -> Iterator[Edit]:
    """What computes the new contents of an input is done twice, the second time on its result."""
    for copy in _epilogue(graph):
        source = copy.args[1]
        if isinstance(source, fx.Node) and source in _calls(graph) and _operand(source):
            yield partial(_repeat, copy, source)


def _repeat(copy: fx.Node, source: fx.Node) -> None:
    with source.graph.inserting_after(source):
        again = source.graph.node_copy(source)
    again.args = (source, *source.args[1:])
    copy.args = (copy.args[0], again)


# --- values between the writes --------------------------------------------------------------------

SCATTERS = (
    "aten::slice_scatter",
    "aten::select_scatter",
    "aten::diagonal_scatter",
    "aten::as_strided_scatter",
    "aten::index_put",
    "aten::scatter",
    "aten::scatter_add",
    "aten::index_add",
    "aten::index_copy",
    "aten::masked_scatter",
    "aten::copy",
)


def removed_clone(graph: fx.Graph) -> Iterator[Edit]:
    """A copy is replaced by the original."""
    for node in _calls(graph, "aten::clone", "aten::lift_fresh_copy", "aten::alias_copy"):
        if operand := _operand(node):
            yield partial(_replace, node, operand)


def stale_read(graph: fx.Graph) -> Iterator[Edit]:
    """A read after a write sees the contents from before the write."""
    writes = [(copy.args[1], copy.args[0]) for copy in _epilogue(graph)]
    writes += [(scatter, scatter.args[0]) for scatter in _calls(graph, *SCATTERS)]
    for new, old in writes:
        if not isinstance(new, fx.Node) or not isinstance(old, fx.Node) or not _alike(new, old):
            continue
        for reader in new.users:
            if reader.target is not aten.copy_.default:
                yield partial(reader.replace_input_with, new, old)


def reused_buffer(graph: fx.Graph) -> Iterator[Edit]:
    """A result is stored over an operand that is read later."""
    nodes = {node: number for number, node in enumerate(graph.nodes)}
    for node in _calls(graph):
        operand = _operand(node)
        inplace = _inplace(node.target)  # type: ignore[arg-type]
        if operand is None or inplace is None:
            continue
        if any(nodes[user] > nodes[node] for user in operand.users):
            yield _retargeting(node, inplace)


def _inplace(op: OpOverload) -> OpOverload | None:
    """The in-place form of a functional operator with the same arguments."""
    namespace, _, name = op._schema.name.partition("::")
    packet = getattr(getattr(torch.ops, namespace), f"{name}_", None)
    form = getattr(packet, op._overloadname, None)
    if form is None or op._schema.is_mutable:
        return None
    ours, theirs = ([argument.name for argument in o._schema.arguments] for o in (op, form))
    return form if ours == theirs else None


def lost_view(graph: fx.Graph) -> Iterator[Edit]:
    """A view shows other elements: without its offset, of another row, or not transposed."""
    for node in _calls(graph, "aten::slice"):
        start, size = _argument(node, 2, None), _value(node)
        if isinstance(start, int) and start != 0 and size is not None:
            length = size.shape[_argument(node, 1, 0)] * _argument(node, 4, 1)
            yield _giving(node, *node.args[:2], 0, length, *node.args[4:])
    for node in _calls(graph, "aten::select"):
        base, (dim, index) = _value(node.args[0]), node.args[1:3]
        if base is not None and isinstance(index, int) and base.shape[dim] > 1:  # type: ignore[index]
            yield _setting(node, 2, (index + 1) % base.shape[dim])  # type: ignore[index]
    transposing = ("aten::t", "aten::transpose", "aten::permute", "aten::flip", "aten::view_copy")
    for node in _calls(graph, *transposing):
        if operand := _operand(node):
            yield partial(_replace, node, operand)
    for node in _calls(graph, "aten::diagonal", "aten::as_strided"):
        index = 1 if "diagonal" in str(node.target) else 3
        if _argument(node, index, 0):
            yield _setting(node, index, 0)


def skipped_second_write(graph: fx.Graph) -> Iterator[Edit]:
    """Of two writes to one tensor, the second is skipped."""
    scatters = _calls(graph, *SCATTERS)
    contents = [copy.args[1] for copy in _epilogue(graph)]
    for second in _calls(graph):
        first = _operand(second)
        if first is None or first.op != "call_function":
            continue
        if (second in scatters and first in scatters) or (second in contents and _operand(first)):
            yield partial(_replace, second, first)


def wrong_scatter(graph: fx.Graph) -> Iterator[Edit]:
    """A write through a view or an index reaches other elements, or adds where it should store."""
    for node in _calls(graph, "aten::slice_scatter"):
        base, dim, start = _value(node.args[0]), _argument(node, 2, 0), _argument(node, 3, None)
        source = _value(node.args[1])
        step = _argument(node, 5, 1)
        if base is None or source is None or not (start is None or isinstance(start, int)):
            continue
        start, extent = (start or 0) % base.shape[dim], source.shape[dim] * step
        moved = start - 1 if start else start + 1
        if moved + extent - step < base.shape[dim]:
            yield _giving(node, *node.args[:2], dim, moved, moved + extent, step)
    for node in _calls(graph, "aten::select_scatter"):
        base, (dim, index) = _value(node.args[0]), node.args[2:4]
        if base is not None and isinstance(index, int) and base.shape[dim] > 1:  # type: ignore[index]
            yield _setting(node, 3, (index + 1) % base.shape[dim])  # type: ignore[index]
    for node in _calls(graph, "aten::index_put"):
        yield _giving(node, *node.args[:3], not _argument(node, 3, False))
    for node in _calls(graph):
        if node.target in OTHER_SCATTERS:
            yield _retargeting(node, OTHER_SCATTERS[node.target])


OTHER_SCATTERS: dict[object, OpOverload] = {
    aten.scatter_add.default: aten.scatter.src,
    aten.scatter.src: aten.scatter_add.default,
    aten.index_add.default: aten.index_copy.default,
    aten.index_copy.default: aten.index_add.default,
}


def dropped_operator(graph: fx.Graph) -> Iterator[Edit]:
    """An operator that writes its arguments is dropped: what it wrote keeps its old contents."""
    mutating = {
        torch.ops.higher_order.auto_functionalized,
        torch.ops.higher_order.auto_functionalized_v2,
    }
    for node in graph.nodes:
        if node.target not in mutating:
            continue
        bases = node.kwargs.get("_all_bases", [])
        for result in node.users:
            back = len(bases) - len(node.meta["val"]) + result.args[1]
            if 0 <= back < len(bases) and _alike(result, bases[back]):
                yield partial(_replace, result, bases[back])


# --- outputs, random numbers, precision -----------------------------------------------------------


def swapped_outputs(graph: fx.Graph) -> Iterator[Edit]:
    """Two outputs of one size are exchanged."""
    outputs = list(graph.output_node().args[0])  # type: ignore[arg-type]
    for one, other in combinations(range(len(outputs)), 2):
        if _alike(outputs[one], outputs[other]) and outputs[one] is not outputs[other]:
            swapped = list(outputs)
            swapped[one], swapped[other] = swapped[other], swapped[one]
            yield _setting(graph.output_node(), 0, tuple(swapped))


def _random_calls(graph: fx.Graph) -> list[fx.Node]:
    seeded = torch.Tag.nondeterministic_seeded
    return [node for node in _calls(graph) if seeded in node.target.tags]  # type: ignore[union-attr]


def merged_random_calls(graph: fx.Graph) -> Iterator[Edit]:
    """Two random tensors of one size are one."""
    for one, other in combinations(_random_calls(graph), 2):
        if _alike(one, other) and one.target is other.target:
            yield partial(_replace, other, one)


def reordered_random_calls(graph: fx.Graph) -> Iterator[Edit]:
    """A random tensor is drawn before the one that is drawn before it in eager."""
    for one, other in pairwise(_random_calls(graph)):
        if not any(isinstance(operand, fx.Node) for operand in other.all_input_nodes):
            yield partial(one.prepend, other)


def lost_precision(graph: fx.Graph) -> Iterator[Edit]:
    """A result passes through a format with fewer digits."""
    for node in _calls(graph):
        value = _value(node)
        wide = value is not None and value.dtype in (torch.float32, torch.float64)
        if wide and node.target is not aten.copy_.default and not node.target.is_view:  # type: ignore[union-attr]
            yield partial(_round, node, value.dtype)  # type: ignore[union-attr]


def _round(node: fx.Node, dtype: torch.dtype) -> None:
    with node.graph.inserting_after(node):
        low = node.graph.call_function(aten._to_copy.default, (node,), {"dtype": torch.bfloat16})
    with node.graph.inserting_after(low):
        back = node.graph.call_function(aten._to_copy.default, (low,), {"dtype": dtype})
    node.replace_all_uses_with(back, delete_user_cb=lambda user: user is not low)


KINDS: dict[str, Kind] = {
    kind.__name__: kind
    for kind in (
        dropped_copy,
        hoisted_copy,
        sunk_copy,
        swapped_copies,
        repeated_write,
        removed_clone,
        stale_read,
        reused_buffer,
        lost_view,
        skipped_second_write,
        wrong_scatter,
        dropped_operator,
        swapped_outputs,
        merged_random_calls,
        reordered_random_calls,
        lost_precision,
    )
}
