"""Keeping `node.meta["val"]` true while a graph is rewritten.

True means: the fake tensor of each node has the size, strides, offset and dtype that the node's
value will have, and two nodes have fakes of one storage if and only if their values will share one.
A rewrite that replaces one operand can change all of that for everything behind it.

`update_metadata` recomputes only what is out of date. A value depends on the op, its plain
arguments and the values of its operands, so these are noted next to each value (`meta["val_of"]`),
and a node is run again if what it would be run on is not what is noted. If its new value is like
the old one, the old one stays, and nothing behind it is run again.

Mirrors `FakeTensorUpdater` (`torch/_inductor/fx_utils.py`), which the passes of Inductor rely on.
Differences: what was seen is noted on the nodes, not in an object that must be made before the
rewrite; an operand is the very tensor, not its hash.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode

from reference_pass.alias_analysis import (
    fake_inputs,
    fake_mode,
    on_fakes,
    operand_storages,
    run_node,
    storage_of,
)
from reference_pass.exceptions import Refused
from reference_pass.operator_forms import aten, leaves_in, writes
from reference_pass.regions import equal, known, same_strides


def set_value(node: fx.Node, mode: FakeTensorMode) -> Any:
    """Run a node on the values of its operands and note the result.

    The caller has entered `on_fakes(mode)`.
    """
    value = run(node, value_of, mode)
    note_value(node, value)
    return value


def note_value(node: fx.Node, value: Any) -> None:
    """Note the value of a node, and what it depends on."""
    node.meta["val"] = value
    node.meta["val_of"] = operands_noted(node)


def run(node: fx.Node, values: Callable[[fx.Node], Any], mode: FakeTensorMode) -> Any:
    """The value of a node on fakes.

    Where the epilogue changes an input's metadata, the fake of the input keeps its own: it stands
    for the input as given.
    """
    if node.target is aten.set_.source_Tensor:
        return aten.alias.default(values(node.args[1]))  # type: ignore[arg-type]
    if node.target is aten.resize_.default:
        return aten.resize_.default(aten.alias.default(values(node.args[0])), *node.args[1:])  # type: ignore[arg-type]
    return run_node(node, values, mode)


def value_of(node: fx.Node) -> Any:
    """The value noted of a node."""
    return node.meta["val"]


def update_metadata(graph_module: fx.GraphModule, *sample_args: object) -> int:
    """Make `meta["val"]` true for every node; the number of nodes that were run.

    Inputs keep the values that they have, or get those of the sample arguments, if given. Linear in
    the number of nodes. Raises `Refused` if an input has neither.
    """
    placeholders = [node for node in graph_module.graph.nodes if node.op == "placeholder"]
    mode = fake_mode(graph_module, sample_args)
    ran = 0
    with on_fakes(mode):
        if not all("val_of" in node.meta for node in placeholders):
            _set_inputs(placeholders, sample_args, mode)
        for node in graph_module.graph.nodes:
            if node.op in ("placeholder", "output"):
                continue
            if not _is_current(node):
                _refresh(node, mode)
                ran += 1
    return ran


def _set_inputs(
    placeholders: list[fx.Node], sample_args: Sequence[object], mode: FakeTensorMode
) -> None:
    if sample_args and len(sample_args) != len(placeholders):
        raise Refused(
            f"the graph takes {len(placeholders)} inputs, but {len(sample_args)} sample arguments were given"
        )
    if not sample_args and any("val" not in node.meta for node in placeholders):
        raise Refused("the inputs of the graph have no metadata; pass sample arguments")
    values = fake_inputs(mode, sample_args or [node.meta["val"] for node in placeholders])
    for node, value in zip(placeholders, values, strict=True):
        node.meta["val"], node.meta["val_of"] = value, ()


def operands_noted(node: fx.Node) -> tuple[Any, ...]:
    """What the value of a node depends on: its op, its plain arguments, and the values of its operands."""
    leaves = leaves_in((node.args, node.kwargs))
    return (
        node.target,
        *(each.meta.get("val") if isinstance(each, fx.Node) else each for each in leaves),
    )


def _is_current(node: fx.Node) -> bool:
    noted, now = node.meta.get("val_of"), operands_noted(node)
    return (
        noted is not None
        and len(noted) == len(now)
        and all(
            one is other or (not _is_value(one) and one == other)
            for one, other in zip(noted, now, strict=True)
        )
    )


def _is_value(leaf: Any) -> bool:
    return isinstance(leaf, (torch.Tensor, list, tuple, torch.SymInt))


def _refresh(node: fx.Node, mode: FakeTensorMode) -> None:
    old = node.meta.get("val")
    had_key = "val_of" in node.meta
    new = set_value(node, mode)
    if had_key and alike(old, new, node):
        node.meta["val"] = old


def alike(old: Any, new: Any, node: fx.Node) -> bool:
    """True if an old value still serves: same metadata, on the same storage, or each on a storage of its own."""
    if isinstance(old, torch.Tensor) and isinstance(new, torch.Tensor):
        if not (
            old.dtype == new.dtype
            and equal(tuple(old.shape), tuple(new.shape))
            and same_strides(tuple(old.shape), old.stride(), new.stride())
            and known(old.storage_offset() == new.storage_offset())
            and known(old.untyped_storage().nbytes() == new.untyped_storage().nbytes())
            and (old.is_conj(), old.is_neg()) == (new.is_conj(), new.is_neg())
        ):
            return False
        if storage_of(old) == storage_of(new):
            return not writes(node.target) or old is new
        return not operand_storages(node) & {storage_of(old), storage_of(new)}
    if isinstance(old, (list, tuple)) and isinstance(new, (list, tuple)):
        return len(old) == len(new) and all(
            alike(a, b, node) for a, b in zip(old, new, strict=True)
        )
    return type(old) is type(new) and not isinstance(old, torch.Tensor) and bool(old == new)
