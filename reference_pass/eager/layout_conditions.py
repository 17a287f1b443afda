"""When a result may have another layout than in the functional graph.

The naive answer is never (`conditions.same_layout`). These conditions check whether a use depends
on the layout.
"""

from __future__ import annotations

import operator
import weakref
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload

from aliasproof.reference_pass.calls.copied_operands import noted_strides
from aliasproof.reference_pass.calls.emission import has_partial_element
from aliasproof.reference_pass.calls.metadata import run_with
from aliasproof.reference_pass.calls.nested import nodes_in, tensors_in
from aliasproof.reference_pass.calls.operand_reads import depends_on_location
from aliasproof.reference_pass.calls.operator_forms import SCATTERS, WRITTEN_IN_PLACE, aten, facts
from aliasproof.reference_pass.calls.regions import Size, equal, is_contiguous, known, same_strides
from aliasproof.reference_pass.calls.storages import storage_of, value_of
from aliasproof.reference_pass.candidates import Candidate, How, Slot
from aliasproof.reference_pass.eager.operand_access import (
    misaligned_by,
    reads_all_strides,
    rounds_by_strides,
    shows_layout,
)
from aliasproof.reference_pass.liveness import Liveness
from aliasproof.reference_pass.planning.noops import Duplicate, copy_has_the_location


def same_stride(candidate: Candidate) -> str | None:
    """(1a) The operand has the strides of the result, or no use of the result depends on them.

    The op itself must not depend on them either. Kernels draw random numbers and add in memory
    order, and some kernels with several results expect the same layout for all of them. (If eager
    makes the call in place at these strides, the call has the bits of eager.) Strides that locate
    no element are not reliable on fakes, so no use may depend on them.
    """
    op = facts(candidate.op)
    for slot in candidate.slots:
        operand = slot.destination.meta["val"]
        if slot.result is not None and (
            user := use_of_unknown_strides(slot.result, slot.destination, candidate.liveness)
        ):
            return f"fakes may have strides of {slot.destination} wrong, and {user} reads them"
        # All strides are compared: a view as another dtype depends on all of them.
        if known(slot.value.numel() == 0) or equal(operand.stride(), slot.value.stride()):
            continue
        strides = operand.stride(), slot.value.stride()
        differs = "{} has strides {}, the result {}".format(slot.destination, *strides)
        shape = tuple(slot.value.shape)
        # Kernels ignore dimensions of size one.
        in_order = same_strides(shape, operand.stride(), slot.value.stride())
        by_order = not in_order and (op.random or _rounds_elsewhere(candidate))
        if by_order or len(op.writes) > 1:
            return f"{differs}, and the op itself depends on them"
        if slot.result is not None and (
            user := stride_use(slot.result, operand, candidate.liveness)
        ):
            return f"{differs}, and {user} depends on them"
    return None


def _rounds_elsewhere(candidate: Candidate) -> bool:
    """True if the call may have other bits at the strides of its destinations than now.

    False if eager also makes it in place, at the same strides.
    """
    if not rounds_by_strides(candidate.node, value_of):
        return False
    if candidate.how is How.OUT or not candidate.node.meta.get(WRITTEN_IN_PLACE):
        return True
    noted = dict(noted_strides(candidate.node))
    return not all(
        equal(tuple(noted.get(slot.destination, ())), slot.destination.meta["val"].stride())
        for slot in candidate.slots
    )


def same_location(candidate: Candidate) -> str | None:
    """(1a) The operand has the offset of the result, or no use of the result depends on the offset.

    Uses that depend on it are `as_strided`, views as a larger dtype, and outputs that share a
    storage. A scatter into the result copies the whole storage of its base. So it must accept that
    storage, and must not return a copy of a larger input.
    """
    for slot in candidate.slots:
        operand = slot.destination.meta["val"]
        # Nothing uses the result, or it is on that storage already.
        if slot.result is None or storage_of(operand) == storage_of(slot.value):
            continue
        same = known(operand.storage_offset() == slot.value.storage_offset()) and same_strides(
            tuple(operand.shape), operand.stride(), slot.value.stride()
        )
        nbytes = slot.value.untyped_storage().nbytes()
        larger = not known(operand.untyped_storage().nbytes() <= nbytes)
        smaller = not known(operand.untyped_storage().nbytes() >= nbytes)
        # Usually nothing differs, and the uses need not be searched.
        shared = candidate.how is How.VIEW  # an operator of another library would see that, too
        if same and not (larger or smaller or shared) and not has_partial_element(operand):
            continue
        moved = not same or larger or smaller or shared
        reason = _location_matters(slot, same, moved, larger, candidate.liveness)
        if reason is not None:
            return reason
    return None


def _location_matters(
    slot: Slot, same: bool, moved: bool, larger: bool, liveness: Liveness
) -> str | None:
    """Why the result must not be at the location of its operand; None if no use depends on it.

    `same` says that both have the same offset and strides, `moved` that they do not, or that the
    sizes of their storages differ, `larger` that the operand's storage is larger.
    """
    assert slot.result is not None
    operand = slot.destination.meta["val"]
    shift: Size = (operand.storage_offset() - slot.value.storage_offset()) * operand.itemsize
    for value in liveness.with_views(slot.result, copies=True):
        # Outputs that share a storage show the caller their offsets in it.
        shown = [] if same else tensors_in(value.meta["val"])
        if any(len(liveness.returned_in(tensor)) > 1 for tensor in shown):
            return f"{slot.destination} is at another location, and outputs on one storage show it"
        for user in value.users:
            if moved and shows_layout(user):
                return f"{slot.destination} is at another location, and {user} may depend on it"
            # A user depends only on the location of its first operand.
            if user.op == "output" or not user.args or user.args[0] is not value:
                continue
            if (not same and depends_on_location(user.target)) or misaligned_by(user, shift):
                return f"{slot.destination} is at another location, and {user} depends on it"
            # The other checks are about the storage as a whole, which only these users copy.
            if not liveness.semantics.copies_whole_storage(user.target):
                continue
            # The user may see it as a larger dtype.
            if not known(operand.untyped_storage().nbytes() % value.meta["val"].itemsize == 0):
                return (
                    f"{user} copies the whole storage of {slot.destination},"
                    " whose size is not a multiple of the element size"
                )
            if (
                larger
                and liveness.memory(operand).is_input
                and liveness.returned_in(user.meta["val"])
            ):
                return (
                    f"{user} is returned, so it would copy the whole input that {slot.destination}"
                    " is memory of"
                )
    return None


def no_use_of_location(duplicate: Duplicate) -> bool:
    """No use of a copy depends on its offset, or on the bytes around it in its storage."""
    if duplicate.is_view:
        return True
    old, new, liveness = duplicate.value, duplicate.replacement, duplicate.liveness
    if copy_has_the_location(duplicate) and not has_partial_element(new):
        return True
    shift: Size = (new.storage_offset() - old.storage_offset()) * new.itemsize
    return not any(
        shows_layout(user)
        or depends_on_location(user.target)
        or liveness.semantics.copies_whole_storage(user.target)
        or misaligned_by(user, shift)
        for shown in liveness.with_views(duplicate.node)
        for user in shown.users
    )


# --- uses that depend on the layout of a value ----------------------------------------------------
#
# A value may be replaced by another tensor with the same elements, at another location or with
# other strides, if no use can tell the difference. For a view, the uses of the view are checked as
# well.


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
