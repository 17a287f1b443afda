"""Faults of the epilogue: what the caller's inputs hold in the end."""

from __future__ import annotations

from itertools import pairwise

from torch import fx

from faults.fault import Fault, Inputs, Passes, after_functionalize, fault
from programs.values import clone_inputs
from reference_pass.operator_forms import aten
from reference_pass.regions import Region, is_dense
from targets.target import Build, Function


def _copies(graph_module: fx.GraphModule) -> list[fx.Node]:
    return [node for node in graph_module.graph.nodes if node.target is aten.copy_.default]


def epilogue_is_dead_code(graph_module: fx.GraphModule) -> None:
    """Dead code elimination goes by users alone, and nothing uses the copy_ calls of the epilogue."""
    for copy in _copies(graph_module):
        graph_module.graph.erase_node(copy)


def one_input_is_written_back(graph_module: fx.GraphModule) -> None:
    """Of several inputs that were written, the first alone gets its new contents."""
    for copy in _copies(graph_module)[1:]:
        graph_module.graph.erase_node(copy)


def epilogue_is_swapped(graph_module: fx.GraphModule) -> None:
    """The new contents of two inputs of one size are written back to each other."""
    copies = _copies(graph_module)
    for one, other in pairwise(copies):
        if one.args[1].meta["val"].shape == other.args[1].meta["val"].shape:  # type: ignore[union-attr]
            one.args, other.args = (one.args[0], other.args[1]), (other.args[0], one.args[1])
            return


def inputs_are_written_at_once(graph_module: fx.GraphModule) -> None:
    """New contents are copied to an input as soon as they are known, and what reads the old ones may come later."""
    for copy in _copies(graph_module):
        place, source = copy.args
        if isinstance(place, fx.Node) and place.op == "placeholder" and isinstance(source, fx.Node):
            source.append(copy)


def gaps_are_zeroed(graph_module: fx.GraphModule) -> None:
    """An input with gaps is written back from its first to its last byte, with zeros for the bytes in between."""
    for copy in _copies(graph_module):
        place, source = copy.args
        shown = (
            place.meta["val"] if isinstance(place, fx.Node) and place.op == "placeholder" else None
        )
        if shown is None or is_dense(Region.of(shown)) or shown.numel() == 0:
            continue
        span = 1 + sum(
            (size - 1) * stride for size, stride in zip(shown.shape, shown.stride(), strict=True)
        )
        with graph_module.graph.inserting_before(copy):
            new = graph_module.graph.call_function
            zeros = new(aten.new_zeros.default, (source, [span]))
            whole = new(
                aten.as_strided_scatter.default,
                (zeros, source, list(shown.shape), list(shown.stride()), 0),
            )
            into = new(aten.as_strided.default, (place, [span], [1], shown.storage_offset()))
        copy.args = (into, whole)


def shared_inputs_are_apart(function: Function, inputs: Inputs) -> Build:
    """Inputs that share a storage are taken for separate ones, as if a graph made for others were used again."""
    return Passes()(function, [copy for tensor in inputs for copy in clone_inputs([tensor])])


def output_loses_its_offset(graph_module: fx.GraphModule) -> None:
    """An output that is a view of an input in a shared storage is taken from the start of that storage."""
    copies = _copies(graph_module)
    for node in graph_module.graph.nodes:
        if (
            node.target is aten.as_strided.default
            and copies
            and node > copies[-1]
            and len(node.args[1]) > 0
        ):
            node.args = (*node.args[:3], 0)


FAULTS: tuple[Fault, ...] = (
    after_functionalize(epilogue_is_dead_code, "pytorch/pytorch#68301"),
    after_functionalize(
        one_input_is_written_back, "rule of functionalize: a copy_ into each input that was written"
    ),
    after_functionalize(
        epilogue_is_swapped, "rule of functionalize: a copy_ into each input that was written"
    ),
    after_functionalize(inputs_are_written_at_once, "pytorch/pytorch#198101"),
    after_functionalize(
        gaps_are_zeroed,
        "rule of functionalize: an input ends as in eager, and no byte around it changes",
    ),
    fault(shared_inputs_are_apart, "pytorch/pytorch#139789", shared_inputs_are_apart),
    after_functionalize(output_loses_its_offset, "pytorch/pytorch#198095"),
)
