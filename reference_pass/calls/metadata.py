"""Keeping `node.meta["val"]` true while a graph is rewritten.

True means two things. The fake tensor of each node has the sizes, strides, offset and dtype that
the node's value will have. And two nodes have fakes on one storage if and only if their values will
share a storage. A rewrite that replaces one operand can change all of these for every later node.

A value depends on the op, its constant arguments and the values of its operands. These are noted
beside the value (`meta["val_of"]`), so `refresh` knows which values are out of date.
"""

from __future__ import annotations

from itertools import zip_longest
from typing import Any

import torch
from torch import fx

from aliasproof.reference_pass.calls.nested import leaves_in, on_values
from aliasproof.reference_pass.calls.operator_forms import aten, writes
from aliasproof.reference_pass.calls.regions import Region, equal, known, same_strides
from aliasproof.reference_pass.calls.storages import (
    encoding,
    operand_storages,
    same_location,
    storage_of,
    value_of,
)
from aliasproof.reference_pass.semantics import Semantics, Values


def set_value(node: fx.Node, semantics: Semantics) -> Any:
    """Run a node on the values of its operands and note the result.

    The caller has entered `on_fakes`.
    """
    note_value(node, run(node, value_of, semantics))
    return node.meta["val"]


def note_value(node: fx.Node, value: Any) -> None:
    """Note the value of a node, and the properties on which it depends."""
    node.meta["val"] = value
    node.meta["val_of"] = dependencies(node)


def run(node: fx.Node, values: Values, semantics: Semantics) -> Any:
    """The value of a node on fakes.

    If the epilogue changes the metadata of an input, the fake of the input does not change: it is
    the input as the caller passes it.
    """
    # An alias is a new object on the same storage, so `set_` and `resize_` change that one.
    if node.target is aten.set_.source_Tensor:
        return aten.alias.default(values(node.args[1]))  # type: ignore[arg-type]
    if node.target is aten.resize_.default:
        alias = aten.alias.default(values(node.args[0]))  # type: ignore[arg-type]
        return aten.resize_.default(alias, *node.args[1:])
    return semantics.run(node, values)


def run_with(node: fx.Node, instead: dict[fx.Node, Any], semantics: Semantics) -> Any:
    """The value of a call on fakes, with other values for some operands; None if it raises."""

    def values(operand: fx.Node) -> Any:
        return instead.get(operand, operand.meta["val"])

    # Eager raises if a view ends past the end of a storage, but on fakes the storage grows.
    if node.target is aten.as_strided.default:
        operand, sizes, strides, *offset = on_values(node.args, values)
        first = offset[0] if offset and offset[0] is not None else operand.storage_offset()
        region = Region.of_layout(sizes, strides, first, operand.itemsize)
        if not (region.empty or known(region.end <= operand.untyped_storage().nbytes())):
            return None
    try:
        return semantics.run(node, values)
    except (RuntimeError, ValueError):  # the operator does not accept such an operand
        return None


def dependencies(node: fx.Node) -> tuple[Any, ...]:
    """The op, constant arguments and values of operands on which the value of a node depends."""
    leaves = leaves_in((node.args, node.kwargs))
    return (
        node.target,
        *(leaf.meta.get("val") if isinstance(leaf, fx.Node) else leaf for leaf in leaves),
    )


def can_keep(old: Any, new: Any, node: fx.Node) -> bool:
    """True if the old value of a node is still true.

    It has the metadata of the new one, and both are on the same storage, or each is on a new one.
    """
    operands, pairs = operand_storages(node), zip_longest(leaves_in(old), leaves_in(new))
    return all(_can_keep(*pair, node, operands) for pair in pairs)


def _can_keep(old: Any, new: Any, node: fx.Node, operands: set[int]) -> bool:
    if not (isinstance(old, torch.Tensor) and isinstance(new, torch.Tensor)):
        return type(old) is type(new) and bool(old == new)  # sizes and other plain results
    same_metadata = (
        encoding(old) == encoding(new)
        and equal(tuple(old.shape), tuple(new.shape))
        and same_strides(tuple(old.shape), old.stride(), new.stride())
        and same_location(old, new)
    )
    if not same_metadata:
        return False
    if storage_of(old) == storage_of(new):  # a view, or a mutating call
        # A mutating call returns the very object that it writes.
        return not writes(node.target) or old is new
    # Two storages, none of them an operand's: the node makes a new tensor in each run.
    return not operands & {storage_of(old), storage_of(new)}
