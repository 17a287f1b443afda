"""The semantics of torch: the answers that the tables of this folder give."""

from __future__ import annotations

from collections.abc import Iterator

from torch import fx
from torch._ops import OpOverload

from aliasproof.reference_pass.conditions import all_conditions
from aliasproof.reference_pass.eager import fake_execution
from aliasproof.reference_pass.eager.layout_conditions import (
    no_use_of_location,
    same_location,
    same_stride,
)
from aliasproof.reference_pass.eager.opaque_calls import call_of_other_library
from aliasproof.reference_pass.eager.operand_access import rounds_by_strides
from aliasproof.reference_pass.eager.overlapping_items import call_of_overlapping_items
from aliasproof.reference_pass.eager.rounding import (
    call_of_exact_bits,
    in_place_form,
    operand_with_strides,
    same_bits,
)
from aliasproof.reference_pass.eager.strided_calls import (
    call_with_strides,
    copied_around,
    copies_whole_storage,
    reads_whole,
)
from aliasproof.reference_pass.environment import InEager
from aliasproof.reference_pass.planning.noops import all_noop_rules
from aliasproof.reference_pass.semantics import Semantics

# A call that needs more than current values is emitted by the first of these that handles it.
_CALLS = (
    call_with_strides,
    call_of_other_library,
    call_of_overlapping_items,
    call_of_exact_bits,
)


def held_by_collective(node: fx.Node) -> Iterator[fx.Node]:
    """The values whose memory a functional collective may use after its call.

    A collective runs in the background, and reads its operands until `wait_tensor` is called. The
    result of `wait_tensor` is its operand, although its schema says that it is new
    (torch/csrc/distributed/c10d/Functional.cpp). If that operand is a result of a collective, and
    nothing else uses it, the returned tensor is the only user of that memory.
    """
    if not isinstance(node.target, OpOverload) or node.target.namespace not in _COLLECTIVES:
        return
    is_wait = node.target.overloadpacket.__name__ == "wait_tensor"
    for operand in node.all_input_nodes:
        made_by = getattr(operand.target, "namespace", None)
        if is_wait and made_by in _COLLECTIVES and len(operand.users) == 1:
            continue
        yield operand
        if is_wait:
            yield node


_COLLECTIVES = {"_c10d_functional", "_c10d_functional_autograd"}


EAGER = Semantics(
    run=fake_execution.run,
    copied_around=copied_around,
    copies_whole_storage=copies_whole_storage,
    reads_whole=reads_whole,
    rounds_by_strides=rounds_by_strides,
    in_place_form=in_place_form,
    held=held_by_collective,
)
IN_EAGER = InEager(
    lambda env, node, effect: any(emit(env, node, effect) for emit in _CALLS), operand_with_strides
)
CONDITIONS = all_conditions(same_bits, same_stride, same_location)
NOOP_RULES = all_noop_rules(no_use_of_location)
