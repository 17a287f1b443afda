"""When a result may have another layout than in the functional graph.

The naive answer is never (`conditions.same_layout`). These conditions check whether a use depends
on the layout.
"""

from __future__ import annotations

from aliasproof.reference_pass.calls.emission import has_partial_element
from aliasproof.reference_pass.calls.nested import tensors_in
from aliasproof.reference_pass.calls.operand_reads import depends_on_location
from aliasproof.reference_pass.calls.operand_strides import noted_strides
from aliasproof.reference_pass.calls.operator_forms import WRITTEN_IN_PLACE, facts
from aliasproof.reference_pass.calls.regions import Size, equal, known, same_strides
from aliasproof.reference_pass.calls.storages import storage_of, value_of
from aliasproof.reference_pass.candidates import Candidate, How, Slot
from aliasproof.reference_pass.eager.layout_uses import (
    location_use,
    stride_use,
    use_of_unknown_strides,
)
from aliasproof.reference_pass.eager.operand_access import (
    misaligned_by,
    rounds_by_strides,
    shows_layout,
)
from aliasproof.reference_pass.liveness import Liveness
from aliasproof.reference_pass.planning.noops import Duplicate


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
    for value in liveness.at_same_offset(slot.result):
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
    old, new = duplicate.value, duplicate.replacement
    same = (
        known(old.storage_offset() == new.storage_offset())
        and known(old.untyped_storage().nbytes() == new.untyped_storage().nbytes())
        and not has_partial_element(new)
    )
    shift = (new.storage_offset() - old.storage_offset()) * new.itemsize
    return same or location_use(duplicate.node, shift, duplicate.liveness) is None
