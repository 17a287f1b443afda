"""The invariants of FX passes, as checks: each returns what is wrong with a graph module, or None.

Other passes may run between those of this package. So each pass names what it requires and ensures
(`pipeline.py`): no mutation except a `copy_` epilogue, true metadata, no new aliasing between
inputs and outputs (`torch/_inductor/fx_passes/README.md`), and operands that give the bits of
eager.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import fx

from aliasproof.reference_pass.calls.copied_operands import noted_strides
from aliasproof.reference_pass.calls.fake_inputs import attribute, fake_value
from aliasproof.reference_pass.calls.fake_tensors import fake_mode, on_fakes
from aliasproof.reference_pass.calls.metadata import run
from aliasproof.reference_pass.calls.nested import nodes_in, tensors_in
from aliasproof.reference_pass.calls.operator_forms import EPILOGUE, aten, writes
from aliasproof.reference_pass.calls.regions import (
    Region,
    is_data_dependent,
    known,
    overlap,
    overlaps_itself,
    same_strides,
)
from aliasproof.reference_pass.calls.storages import (
    Storages,
    operand_storages,
    storage_of,
    value_of,
    written_tensors,
)
from aliasproof.reference_pass.semantics import NAIVE, Semantics

Invariant: TypeAlias = Callable[[fx.GraphModule], str | None]
Aliases: TypeAlias = frozenset[tuple[str, str]]


def is_functional(graph_module: fx.GraphModule) -> str | None:
    """Only the epilogue writes, it writes inputs only, and nothing is computed after it began."""
    inputs: set[int] = set()
    epilogue: fx.Node | None = None
    for node in graph_module.graph.nodes:
        # A constant of the module counts as an input: the next call would see a write to it.
        if node.op in ("placeholder", "get_attr"):
            inputs.update(map(storage_of, tensors_in(node.meta.get("val"))))
        elif writes(node.target):
            if node.target not in EPILOGUE:
                return f"{node.format_node()} writes, and is not a call of the epilogue"
            # A graph could also write a tensor that it made; FX passes allow only writes to inputs.
            if not inputs.issuperset(map(storage_of, written_tensors(node, value_of))):
                return f"{node.format_node()} writes to what is not an input"
            epilogue = node
        elif epilogue is not None and node.op == "call_function":
            # Views may be taken after the epilogue began.
            storages = {storage_of(tensor) for tensor in tensors_in(node.meta["val"])}
            if not storages <= operand_storages(node):
                return f"{node.format_node()} computes after the epilogue began, at {epilogue}"
    return None


def untrue_metadata(graph_module: fx.GraphModule, semantics: Semantics = NAIVE) -> str | None:
    """The first node whose noted value differs from a run on fakes; None if there is none.

    Nodes must share a storage on the noted fakes if and only if they do in the run.
    """
    placeholders = [node for node in graph_module.graph.nodes if node.op == "placeholder"]
    # The inputs are taken as noted; everything else is run anew from them.
    values: dict[fx.Node, Any] = {node: node.meta.get("val") for node in placeholders}
    # Storages are numbered in order of their first use. So the numbers are equal if and only if the
    # same nodes share storage.
    noted, real = Storages(), Storages()
    mode = fake_mode(graph_module)
    with on_fakes(mode):
        for node in graph_module.graph.nodes:
            if node.op == "output":
                continue
            if node not in values:
                if "val" not in node.meta:
                    return f"{node} has no metadata"
                values[node] = (
                    fake_value(mode, attribute(node))
                    if node.op == "get_attr"
                    else run(node, values.__getitem__, semantics)
                )
            for one, other in zip(
                tensors_in(node.meta["val"]), tensors_in(values[node]), strict=False
            ):
                if _differ(one, other) or noted.number(one) != real.number(other):
                    return (
                        f"{node} is noted as {_shows(one)} on storage {noted.number(one)},"
                        f" but a run gives {_shows(other)} on storage {real.number(other)}"
                    )
    return None


def no_copy_reads_what_it_writes(graph_module: fx.GraphModule) -> str | None:
    """No `copy_` writes to a region that overlaps itself, or overlaps the source at an offset."""
    for node in graph_module.graph.nodes:
        if node.target is aten.copy_.default:
            destination, source = node.args[0].meta["val"], node.args[1].meta["val"]
            one, other = Region.of(destination), Region.of(source)
            # In both cases eager refuses the call, or its result depends on the order of the copy.
            if overlaps_itself(one):
                return f"{node.format_node()} writes to a region that overlaps itself"
            if (
                storage_of(destination) == storage_of(source)
                and overlap(one, other)
                and not one.same(other)
            ):
                return f"{node.format_node()} reads what it writes"
    return None


def operand_of_other_strides(
    graph_module: fx.GraphModule, semantics: Semantics = NAIVE
) -> str | None:
    """A call whose bits depend on strides, with an operand of other strides than in eager.

    None if there is no such call.
    """
    for node in graph_module.graph.nodes:
        for operand, strides in noted_strides(node):
            value = operand.meta["val"]
            own, sizes = value.stride(), tuple(value.shape)
            # A data-dependent size has another symbol in the captured graph.
            if same_strides(sizes, own, tuple(strides)) or any(map(is_data_dependent, own)):
                continue
            if semantics.rounds_by_strides(node, value_of):
                return (
                    f"{operand} has strides {list(own)}, in eager {list(strides)},"
                    f" and the bits of {node.format_node()} depend on them"
                )
    return None


def aliases_at_end(graph_module: fx.GraphModule) -> Aliases:
    """Which inputs and outputs share storage with which outputs."""
    # By name and index, so that the results of two graphs with the same inputs can be compared.
    nodes = list(graph_module.graph.nodes)
    ends = [(node.name, node) for node in nodes if node.op == "placeholder"]
    inputs = len(ends)
    ends += [(f"output {i}", node) for i, node in enumerate(nodes_in(nodes[-1].args))]
    storages = [
        (name, {storage_of(tensor) for tensor in tensors_in(node.meta["val"])})
        for name, node in ends
    ]
    # Pairs of two inputs are left out: they depend on the caller, not on the graph.
    return frozenset(
        (name, other_name)
        for index, (name, own) in enumerate(storages)
        for other_name, other in storages[max(index + 1, inputs) :]
        if own & other
    )


def _shows(tensor: torch.Tensor) -> str:
    return (
        f"{tensor.dtype} {list(tensor.shape)}, strides {list(tensor.stride())},"
        f" offset {tensor.storage_offset()}"
    )


def _differ(one: torch.Tensor, other: torch.Tensor) -> bool:
    """True if two tensors are known to have different metadata.

    Data-dependent sizes are new symbols in each run, so they are not known to differ.
    """
    if (
        one.dtype != other.dtype
        or one.dim() != other.dim()
        or known(one.storage_offset() != other.storage_offset())
    ):
        return True
    if any(known(a != b) for a, b in zip(one.shape, other.shape, strict=True)):
        return True
    # The stride of a dimension of size one is never used, nor are those of an empty tensor.
    if any(known(size == 0) for size in one.shape):
        return False
    pairs = zip(one.shape, one.stride(), other.stride(), strict=True)
    return any(known(size != 1) and known(a != b) for size, a, b in pairs)
