"""What the notes of autograd say about operators, compared with autograd itself."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor
from torch._ops import OpOverload

from aliasproof.reference_pass.calls.operator_forms import aten, writes
from aliasproof.reference_pass.capture.autograd_notes import KEEP_HISTORY


def keeps_history(op: OpOverload) -> bool:
    """True if an in-place operator leaves the history of what it writes as it is."""
    written = torch.full((3,), 0.5).requires_grad_() * 1
    before = written.grad_fn
    required = [each for each in op._schema.arguments[1:] if not each.has_default_value()]
    values = {"Tensor": torch.ones(3), "number": 1, "int": 1, "float": 0.5, "bool": True}
    given = {each.name: values.get(str(each.type)) for each in required}
    try:
        op(written, **given)
    except (RuntimeError, TypeError, IndexError):  # not for such arguments
        return False
    return written.grad_fn is before


def overloads(name: str) -> list[OpOverload]:
    packet = getattr(aten, name)
    return [getattr(packet, overload) for overload in packet.overloads()]


def test_these_operators_alone_keep_the_history_of_what_they_write():
    names = {name.partition(".")[0] for name in torch._C._dispatch_get_all_op_names()}
    methods = [
        name[6:]
        for name in sorted(names)
        if name.startswith("aten::") and name.endswith("_") and hasattr(Tensor, name[6:])
    ]
    methods.remove("requires_grad_")
    in_place = [op for name in methods for op in overloads(name) if writes(op)]
    assert len(in_place) > 100
    with warnings.catch_warnings(action="ignore"):
        assert {op for op in in_place if keeps_history(op)} == KEEP_HISTORY
