"""Calls whose kernel for CPU in eager writes to memory that is none of its arguments'."""

from __future__ import annotations

import torch

from programs.eager_call import EagerCall

aten = torch.ops.aten


def writes_outside_noise(call: EagerCall) -> str | None:
    """`rrelu_with_noise` in training writes the noise as if it were contiguous."""
    if call.op.overloadpacket not in _RRELU or not call.arguments["training"]:
        return None
    noise = call.arguments["noise"]
    return None if noise.is_contiguous() else "takes its noise for contiguous"


_RRELU = {aten.rrelu_with_noise, aten.rrelu_with_noise_}
