"""Keeping `node.meta["val"]` true while a graph is rewritten.

True means two things. The fake tensor of each node has the sizes, strides, offset and dtype that
the node's value will have. And two nodes have fakes on one storage if and only if their values will
share a storage. A rewrite that replaces one operand can change all of that for every later node.

A value depends on the op, its constant arguments and the values of its operands, which are noted
beside it (`meta["val_of"]`). So `refresh` knows what is out of date.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor

from aliasproof.reference_pass.calls.fake_tensors import fake_on
from aliasproof.reference_pass.calls.nested import leaves_in, on_values
from aliasproof.reference_pass.calls.operand_reads import is_plain_view
from aliasproof.reference_pass.calls.operator_forms import aten, writes
from aliasproof.reference_pass.calls.regions import Region, Size, equal, known, same_strides
from aliasproof.reference_pass.calls.storages import (
    encoding,
    operand_storages,
    same_layout,
    same_location,
    storage_of,
    value_of,
)
from aliasproof.reference_pass.semantics import Semantics, Values


def set_value(node: fx.Node, semantics: Semantics) -> Any:
    """Run a node on the values of its operands and note the result.

    The caller has entered `on_fakes`.
    """
    value = _moved(node)
    if value is None:
        value = run(node, value_of, semantics)
    note_value(node, value)
    return value


def _moved(node: fx.Node) -> Any:
    """The value of a view, if its operand has only moved since it was noted; else None.

    The operand has the layout of before, at another offset or in another storage.
    """
    if not isinstance(node.target, OpOverload) or not is_plain_view(node.target):
        return None
    old: Any = node.meta.get("val")
    noted, now = node.meta.get("val_of"), dependencies(node)
    # All leaves except the operand are constants, and equal.
    if noted is None or any(map(is_value, (*noted[2:], *now[2:]))):
        return None
    if noted[0] is not now[0] or noted[2:] != now[2:]:
        return None
    before, operand = noted[1], now[1]
    if not all(map(_is_fixed, (old, before, operand))) or not same_layout(before, operand):
        return None
    if storage_of(old) != storage_of(before):
        return None
    offset = old.storage_offset() + operand.storage_offset() - before.storage_offset()
    return fake_on(operand.untyped_storage(), offset, old, old.fake_mode)


def _is_fixed(value: Any) -> bool:
    """True for a fake tensor without symbols."""
    return isinstance(value, FakeTensor) and not value._has_symbolic_sizes_strides


def note_value(node: fx.Node, value: Any) -> None:
    """Note the value of a node, and what it depends on."""
    node.meta["val"] = value
    node.meta["val_of"] = dependencies(node)


def run(node: fx.Node, values: Values, semantics: Semantics) -> Any:
    """The value of a node on fakes.

    Where the epilogue changes the metadata of an input, the fake of the input stays as it is: it is
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

    # Eager raises where a view goes past the end of a storage. On fakes the storage grows.
    if node.target is aten.as_strided.default and not _is_inside(*on_values(node.args, values)):
        return None
    try:
        return semantics.run(node, values)
    except (RuntimeError, ValueError):  # it does not accept such an operand
        return None


def _is_inside(
    operand: torch.Tensor,
    sizes: Sequence[Size],
    strides: Sequence[Size],
    offset: Size | None = None,
) -> bool:
    """True if a view by `as_strided` is known to be in the storage of its operand."""
    first = operand.storage_offset() if offset is None else offset
    region = Region.of_layout(sizes, strides, first, operand.itemsize)
    return region.empty or known(region.end <= operand.untyped_storage().nbytes())


def dependencies(node: fx.Node) -> tuple[Any, ...]:
    """What the value of a node depends on: op, constant arguments, values of operands."""
    leaves = leaves_in((node.args, node.kwargs))
    return (
        node.target,
        *(leaf.meta.get("val") if isinstance(leaf, fx.Node) else leaf for leaf in leaves),
    )


def is_value(leaf: Any) -> bool:
    """True for what a run gives, and not for a constant."""
    return isinstance(leaf, (torch.Tensor, list, tuple, torch.SymInt))


def can_keep(old: Any, new: Any, node: fx.Node) -> bool:
    """True if the old value of a node is still true.

    It has the metadata of the new one, and is on the same storage; or each is on a storage of its
    own.
    """
    # Once for all tensors of a list.
    return _can_keep(old, new, node, operand_storages(node))


def _can_keep(old: Any, new: Any, node: fx.Node, operands: set[int]) -> bool:
    if isinstance(old, torch.Tensor) and isinstance(new, torch.Tensor):
        if not _same_metadata(old, new):
            return False
        if storage_of(old) == storage_of(new):  # a view, or a mutating call
            # A mutating call hands back the very object that it writes.
            return not writes(node.target) or old is new
        # Two storages, none of them an operand's: the node makes a new tensor in each run.
        return not operands & {storage_of(old), storage_of(new)}
    if isinstance(old, (list, tuple)) and isinstance(new, (list, tuple)):
        return len(old) == len(new) and all(
            _can_keep(a, b, node, operands) for a, b in zip(old, new, strict=True)
        )
    # Sizes and other plain results.
    return type(old) is type(new) and not isinstance(old, torch.Tensor) and bool(old == new)


def _same_metadata(one: torch.Tensor, other: torch.Tensor) -> bool:
    return (
        encoding(one) == encoding(other)
        and equal(tuple(one.shape), tuple(other.shape))
        and same_strides(tuple(one.shape), one.stride(), other.stride())
        and same_location(one, other)
    )
