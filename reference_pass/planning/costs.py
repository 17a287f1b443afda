"""When a result in the memory of an operand costs more bytes than it saves.

These are conditions of reinplacing, as those in `conditions`. But no result is wrong without them.
"""

from __future__ import annotations

from aliasproof.reference_pass.calls.nested import tensors_in
from aliasproof.reference_pass.calls.regions import known
from aliasproof.reference_pass.calls.storages import storage_of
from aliasproof.reference_pass.candidates import Candidate


def larger_output_storage(candidate: Candidate) -> str | None:
    """No output has a storage of more bytes than in eager.

    In place, a result is in the storage of its operand:

        h = x + 1                                h is 4 MB
        return h[:1] * 2                         a row of 4 kB

    Written into the row of `h`, the result would save 4 kB in the call, and cost 4 MB for as long
    as the caller, or autograd, keeps it. No result is wrong for that, so this is not one of
    `all_conditions`.
    """
    live = candidate.liveness
    for slot in candidate.slots:
        ours, eager = (tensor.untyped_storage().nbytes() for tensor in (slot.written, slot.value))
        # A symbolic size is allowed if it is known to be small enough.
        if storage_of(slot.written) == storage_of(slot.value) or known(ours <= eager):
            continue
        # A scatter copies the whole storage of its base.
        values = () if slot.result is None else live.at_same_offset(slot.result)
        shown = [tensor for value in values for tensor in tensors_in(value.meta["val"])]
        if any(map(live.returned_in, (slot.value, *shown))):
            return (
                f"the result is returned, and would keep the storage of {slot.destination}"
                f" alive: {ours} bytes in place of {eager}"
            )
    return None


def larger_storage_longer(candidate: Candidate) -> str | None:
    """No storage lives longer for a result that needs fewer bytes.

        p, q = cat([x, y]).split(n)              4 MB, which nothing else reads
        r = p.exp()                              2 MB, needed until the end

    In place of `p`, the result saves 2 MB at its call, and costs 2 MB from then on. Whether that is
    worth it depends on where the peak is, so this is for a graph whose peak would rise.
    """
    live = candidate.liveness
    for slot in candidate.slots:
        ours, own = (tensor.untyped_storage().nbytes() for tensor in (slot.written, slot.value))
        memory = live.memory(slot.written)
        if memory.is_input or slot.result is None or known(ours <= own):
            continue
        needed = max((read.at for reads in memory.values.values() for read in reads), default=-1)
        if live.last_read(slot.result) > needed:
            return f"{slot.result} would keep the storage of {slot.destination}: {ours} bytes"
    return None
