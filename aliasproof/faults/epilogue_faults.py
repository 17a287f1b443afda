"""Faults of the epilogue: the final contents of the inputs."""

from __future__ import annotations

from itertools import pairwise

from torch import fx

from aliasproof.faults.fault import Fault, Inputs, Passes, after_functionalize, after_noops, fault
from aliasproof.ir.values import clone_inputs
from aliasproof.reference_pass.calls.operator_forms import aten
from aliasproof.reference_pass.calls.storages import operand_storages, storage_of
from aliasproof.reference_pass.regions import Region, is_dense
from aliasproof.targets.target import Build, Function


def _copies(graph_module: fx.GraphModule) -> list[fx.Node]:
    return [node for node in graph_module.graph.nodes if node.target is aten.copy_.default]


def epilogue_is_dead_code(graph_module: fx.GraphModule) -> None:
    """Dead code elimination looks at users only, and the copy_ calls of the epilogue have none."""
    for copy in _copies(graph_module):
        graph_module.graph.erase_node(copy)


def one_input_is_written_back(graph_module: fx.GraphModule) -> None:
    """Of several mutated inputs, only the first gets its new contents."""
    for copy in _copies(graph_module)[1:]:
        graph_module.graph.erase_node(copy)


def epilogue_is_swapped(graph_module: fx.GraphModule) -> None:
    """The new contents of two inputs of equal size are written back to each other."""
    copies = _copies(graph_module)
    for one, other in pairwise(copies):
        first, second = one.args[1], other.args[1]
        assert isinstance(first, fx.Node)
        assert isinstance(second, fx.Node)
        if first.meta["val"].shape == second.meta["val"].shape:
            one.args, other.args = (one.args[0], other.args[1]), (other.args[0], one.args[1])
            return


def inputs_are_written_too_early(graph_module: fx.GraphModule) -> None:
    """New contents are copied to an input before the last read of its old contents."""
    nodes = list(graph_module.graph.nodes)
    # In the graph without no-ops, a new value may be one that was computed long before the write.
    for copy in _copies(graph_module):
        destination, source = copy.args
        if not isinstance(destination, fx.Node) or not isinstance(source, fx.Node):
            continue
        storage = storage_of(destination.meta["val"])
        between = nodes[nodes.index(source) + 1 : nodes.index(copy)]
        # Without such a read, the results are right: see `inputs_are_written_before_the_end`.
        read_later = any(storage in operand_storages(node) for node in between)
        if destination.op == "placeholder" and read_later:
            source.append(copy)


def gaps_are_zeroed(graph_module: fx.GraphModule) -> None:
    """An input with gaps is written back from first to last byte, with zeros in the gaps."""
    for copy in _copies(graph_module):
        destination, source = copy.args
        if not isinstance(destination, fx.Node) or destination.op != "placeholder":
            continue
        given = destination.meta["val"]
        if is_dense(Region.of(given)) or given.numel() == 0:
            continue
        span = 1 + sum(
            (size - 1) * stride for size, stride in zip(given.shape, given.stride(), strict=True)
        )
        with graph_module.graph.inserting_before(copy):
            new = graph_module.graph.call_function
            zeros = new(aten.new_zeros.default, (source, [span]))
            whole = new(
                aten.as_strided_scatter.default,
                (zeros, source, list(given.shape), list(given.stride()), 0),
            )
            into = new(aten.as_strided.default, (destination, [span], [1], given.storage_offset()))
        copy.args = (into, whole)


def shared_inputs_are_separate(function: Function, inputs: Inputs) -> Build:
    """Inputs that share a storage are treated as separate, as in a graph for other inputs."""
    # Cloned one by one, the inputs share nothing.
    return Passes()(function, [clone for tensor in inputs for clone in clone_inputs([tensor])])


def output_loses_its_offset(graph_module: fx.GraphModule) -> None:
    """An output that views a storage shared by inputs gets the storage offset zero."""
    copies = _copies(graph_module)
    for node in graph_module.graph.nodes:
        # Behind the epilogue there are only views that are returned.
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
        one_input_is_written_back, "rule of functionalize: a copy_ into each mutated input"
    ),
    after_functionalize(
        epilogue_is_swapped, "rule of functionalize: a copy_ into each mutated input"
    ),
    after_noops(inputs_are_written_too_early, "pytorch/pytorch#198101"),
    after_functionalize(
        gaps_are_zeroed,
        "rule of functionalize: an input ends as in eager, and no byte around it changes",
    ),
    fault(shared_inputs_are_separate, "pytorch/pytorch#139789", shared_inputs_are_separate),
    after_functionalize(output_loses_its_offset, "pytorch/pytorch#198095"),
)
