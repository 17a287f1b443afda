"""The storage of an output: a result must not keep a much larger storage alive for the caller.

In place, a result is in the storage of its operand:

    h = x + 1                                h is 4 MB
    return h[:1] * 2                         a row of 4 kB

Written into the row of `h`, the result would save 4 kB in the call, and cost 4 MB for as long as
the caller, or autograd, keeps it. No result is wrong for that, so this is not one of the
`CONDITIONS`: it is asked after them, with the ratio that the caller of `reinplace` allows.
"""

from __future__ import annotations

from aliasproof.reference_pass.alias_analysis import storage_of
from aliasproof.reference_pass.candidates import Candidate
from aliasproof.reference_pass.regions import known


def larger_output_storage(candidate: Candidate, growth: int) -> str | None:
    """The reason why a result that is returned must not be in its operand's storage, or None.

    That storage may have at most `growth` times the bytes that the result has in eager.
    """
    live = candidate.liveness
    for slot in candidate.slots:
        ours, eager = (tensor.untyped_storage() for tensor in (slot.written, slot.value))
        if storage_of(slot.written) == storage_of(slot.value) or not live.escapes(slot.value):
            continue
        # A symbolic size is allowed if it is known to be small enough.
        if not known(ours.nbytes() <= growth * eager.nbytes()):
            return (
                f"the result is returned, and would keep the storage of {slot.destination} alive:"
                f" {ours.nbytes()} bytes in place of {eager.nbytes()}"
            )
    return None
