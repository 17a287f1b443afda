"""Uses that depend on the layout of a value: its strides, its offset, the size of its storage.

A value may be replaced by another tensor with the same elements, at another location or with other
strides, if no use can tell the difference. For a view, the uses of the view are checked as well.
"""

from __future__ import annotations

import operator
import weakref
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload

from aliasproof.reference_pass.calls.metadata import run_with
from aliasproof.reference_pass.calls.nested import nodes_in, tensors_in
from aliasproof.reference_pass.calls.operand_reads import depends_on_location
from aliasproof.reference_pass.calls.operator_forms import SCATTERS, aten, facts
from aliasproof.reference_pass.calls.regions import Size, equal, is_contiguous, known, same_strides
from aliasproof.reference_pass.calls.storages import value_of
from aliasproof.reference_pass.eager.operand_access import (
    misaligned_by,
    reads_all_strides,
    rounds_by_strides,
    shows_layout,
)
from aliasproof.reference_pass.liveness import Liveness


def location_use(value: fx.Node, shift: Size, liveness: Liveness) -> fx.Node | None:
    """A use that depends on a value's location, if that moves by `shift` bytes; or None."""
    pending = [value]
    while pending:
        for user in pending.pop().users:
            if (
                shows_layout(user)
                or depends_on_location(user.target)
                or liveness.semantics.copies_whole_storage(user.target)
                or misaligned_by(user, shift)
            ):
                return user
            if user in liveness.views:
                pending.append(user)
    return None


def stride_use(result: fx.Node, other: torch.Tensor, liveness: Liveness) -> fx.Node | None:
    """A use that notices if a result has the strides of another tensor; or None.

    This is found by trial: each user runs on fakes with that tensor as its operand.
    """
    pending = [result]
    instead: dict[fx.Node, Any] = {result: other}
    while pending:
        value = pending.pop()
        for user in value.users:
            if user.op == "output" or user.target is aten.set_.source_Tensor:
                # `set_` of the epilogue returns a tensor to the caller, as an output does.
                # The caller sees strides, except those of dimensions of size one.
                if _same_layout(instead[value], value.meta["val"]):
                    continue
                return user
            if _only_stores(user, value):
                continue
            if shows_layout(user):
                return user
            strides = _strides(value.meta["val"])
            as_dtype = user.target in (aten.view.dtype, aten.view_copy.dtype)
            if as_dtype and _strides(instead[value]) != strides:
                return user  # it depends on all strides, also those of dimensions of size one
            shown = run_with(user, instead, liveness.semantics)
            same = _same_layout(instead[value], value.meta["val"])
            if not same and user not in liveness.views and rounds_by_strides(user, value_of):
                return user
            # Random numbers are drawn in memory order, so other strides permute them.
            if shown is None or (isinstance(user.target, OpOverload) and facts(user.target).random):
                return user
            if user in liveness.views:
                instead[user] = shown
                pending.append(user)
            elif not _same_layout(shown, user.meta["val"]) or _strides(shown) != _strides(
                user.meta["val"]
            ):
                return user  # all strides matter, since a later view as another dtype may follow
    return None


def _only_stores(user: fx.Node, value: fx.Node) -> bool:
    """True if a user only stores the elements of a value elsewhere: then no stride matters."""
    # Only as a source: as the destination of a copy_, or as a scatter's base, its layout is kept.
    if user.target is aten.copy_.default:
        return user.args[0] is not value
    if user.target in SCATTERS:
        return user.args[0] is not value and value not in nodes_in((user.args[2:], user.kwargs))
    return False


# --- strides that locate no element ---------------------------------------------------------------
#
# *Unused* strides are those of dimensions of size one, and of tensors without elements. Fakes often
# have them wrong. A view as another dtype checks them, and an operator of another library may.


def use_of_unknown_strides(
    result: fx.Node, destination: fx.Node, liveness: Liveness
) -> fx.Node | None:
    """A use that depends on unused strides of a result, if these are not known; or None.

    `destination` is the operand in whose memory the result would be.
    """
    value = result.meta["val"]
    if liveness.position[result] > _last_stride_read(liveness) or not _has_unused_strides(value):
        return None
    if not known(value.numel() == 0) and all(
        _knows_unused_strides(each, liveness) for each in (result, destination)
    ):
        return None
    return _use_of_unused_strides(result)


# Cached, since this is queried for each result, and mostly there is no such read.
_LAST_STRIDE_READS: weakref.WeakKeyDictionary[Liveness, int] = weakref.WeakKeyDictionary()


def _last_stride_read(liveness: Liveness) -> int:
    """The last position at which all strides of a value are read; -1 if there is none."""
    if liveness not in _LAST_STRIDE_READS:
        reads = (at for node, at in liveness.position.items() if reads_all_strides(node))
        _LAST_STRIDE_READS[liveness] = max(reads, default=-1)
    return _LAST_STRIDE_READS[liveness]


def _has_unused_strides(tensor: torch.Tensor) -> bool:
    return any(known(size == 1) or known(size == 0) for size in tensor.shape)


def _use_of_unused_strides(result: fx.Node) -> fx.Node | None:
    """A use that depends on strides of a result that locate no element; or None.

    It may also be a use of a value that is computed from the result, and has such strides, too.
    """
    pending, seen = [result], {result}
    while pending:
        value = pending.pop()
        for user in value.users:
            if reads_all_strides(user):
                return user
            # A user without such strides does not pass them on, so the search ends there.
            passes = user.op == "call_function" and any(
                map(_has_unused_strides, tensors_in(user.meta["val"]))
            )
            if passes and user not in seen:
                seen.add(user)
                pending.append(user)
    return None


def _knows_unused_strides(value: fx.Node, liveness: Liveness) -> bool:
    """True if those strides of a value that locate no element are as in a run.

    Fakes are right for views, and for operands that are contiguous in all strides.
    """
    pending, seen = [value], {value}
    while pending:
        node = pending.pop()
        if node.op != "call_function":
            continue
        passes_on = node in liveness.views or node.target is operator.getitem
        for operand in node.all_input_nodes:
            tensors = list(filter(_has_unused_strides, tensors_in(operand.meta["val"])))
            if not passes_on and not all(map(is_contiguous, tensors)):
                return False
            if tensors and operand not in seen:
                seen.add(operand)
                pending.append(operand)
    return True


def _strides(value: Any) -> list[str]:
    # As text, since comparing symbols would add a guard.
    return [str(tensor.stride()) for tensor in tensors_in(value)]


def _same_layout(one: Any, other: Any) -> bool:
    ones, others = tensors_in(one), tensors_in(other)
    return len(ones) == len(others) and all(
        equal(tuple(a.shape), tuple(b.shape))
        and a.dtype == b.dtype
        and same_strides(tuple(a.shape), a.stride(), b.stride())
        for a, b in zip(ones, others, strict=True)
    )
