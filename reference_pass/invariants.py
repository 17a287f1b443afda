"""The invariants of FX passes, as checks: each looks at a graph module and says what is wrong, or None.

They are what `torch/_inductor/fx_passes/README.md` asks of a pass: no mutation but a `copy_`
epilogue, true metadata, and no new aliasing between inputs and outputs. A pass names the ones that
it requires and the ones that it ensures (`pipeline.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import fx

from reference_pass.alias_analysis import (
    Storages,
    fake_mode,
    on_fakes,
    operand_storages,
    storage_of,
    written_tensors,
)
from reference_pass.capture import is_aten
from reference_pass.metadata import run, value_of
from reference_pass.operator_forms import EPILOGUE, aten, nodes_in, tensors_in, writes
from reference_pass.regions import Region, known, overlap, overlaps_itself

Invariant: TypeAlias = Callable[[fx.GraphModule], str | None]
Aliases: TypeAlias = frozenset[tuple[str, str]]


def is_aten_graph(graph_module: fx.GraphModule) -> str | None:
    """All calls are ATen calls, and the graph is well formed."""
    graph_module.graph.lint()
    return None if is_aten(graph_module) else "a node is no ATen call"


def is_functional(graph_module: fx.GraphModule) -> str | None:
    """Nothing is written but inputs, by the epilogue, after which nothing is computed."""
    inputs: set[int] = set()
    epilogue: fx.Node | None = None
    for node in graph_module.graph.nodes:
        if node.op in ("placeholder", "get_attr"):
            inputs.update(map(storage_of, tensors_in(node.meta.get("val"))))
        elif writes(node.target):
            if node.target not in EPILOGUE:
                return f"{node.format_node()} writes, and is not of the epilogue"
            if not inputs.issuperset(map(storage_of, written_tensors(node, value_of))):
                return f"{node.format_node()} writes to what is no input"
            epilogue = node
        elif epilogue is not None and node.op == "call_function" and _computes(node):
            return f"{node.format_node()} computes after the epilogue began, at {epilogue}"
    return None


def metadata_is_true(graph_module: fx.GraphModule) -> str | None:
    """The metadata of each node is what a run on fakes gives: size, strides, offset, dtype, and what shares storage."""
    placeholders = [node for node in graph_module.graph.nodes if node.op == "placeholder"]
    values: dict[fx.Node, Any] = {node: node.meta.get("val") for node in placeholders}
    noted, real = Storages(), Storages()
    mode = fake_mode(graph_module, [])
    with on_fakes(mode):
        for node in graph_module.graph.nodes:
            if node.op == "output":
                continue
            if node not in values:
                if "val" not in node.meta:
                    return f"{node} has no metadata"
                values[node] = run(node, lambda each: values[each], mode)
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
    """No `copy_` writes to a region that overlaps itself, or the source at other positions."""
    for node in graph_module.graph.nodes:
        if node.target is aten.copy_.default:
            place, source = node.args[0].meta["val"], node.args[1].meta["val"]
            one, other = Region.of(place), Region.of(source)
            if overlaps_itself(one):
                return f"{node.format_node()} writes to a region that overlaps itself"
            if (
                storage_of(place) == storage_of(source)
                and overlap(one, other)
                and not one.same(other)
            ):
                return f"{node.format_node()} reads what it writes"
    return None


def aliases_at_end(graph_module: fx.GraphModule) -> Aliases:
    """Which inputs and outputs share storage with which outputs."""
    nodes = list(graph_module.graph.nodes)
    places = [(node.name, node) for node in nodes if node.op == "placeholder"]
    inputs = len(places)
    places += [(f"output {i}", leaf) for i, leaf in enumerate(nodes_in(nodes[-1].args))]
    storages = [
        (name, {storage_of(each) for each in tensors_in(node.meta["val"])}) for name, node in places
    ]
    return frozenset(
        (name, other_name)
        for index, (name, own) in enumerate(storages)
        for other_name, other in storages[max(index + 1, inputs) :]
        if own & other
    )


def _computes(node: fx.Node) -> bool:
    return not {storage_of(each) for each in tensors_in(node.meta["val"])} <= operand_storages(node)


def _shows(tensor: torch.Tensor) -> str:
    return f"{tensor.dtype} {list(tensor.shape)}, strides {list(tensor.stride())}, offset {tensor.storage_offset()}"


def _differ(one: torch.Tensor, other: torch.Tensor) -> bool:
    """True if two tensors have different metadata.

    Sizes that depend on numbers are other symbols in each run.
    """
    if (
        one.dtype != other.dtype
        or one.dim() != other.dim()
        or known(one.storage_offset() != other.storage_offset())
    ):
        return True
    if any(known(a != b) for a, b in zip(one.shape, other.shape, strict=True)):
        return True
    pairs = zip(one.shape, one.stride(), other.stride(), strict=True)
    return not any(known(n == 0) for n in one.shape) and any(
        known(n != 1) and known(a != b) for n, a, b in pairs
    )
