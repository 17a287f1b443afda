"""Calls whose kernel for CPU in eager is wrong: in what it reads, what it writes, or the sign."""

from __future__ import annotations

import torch

from aliasproof.programs.eager_call import EagerCall
from aliasproof.programs.regions import Region

aten = torch.ops.aten


def writes_outside_noise(call: EagerCall) -> str | None:
    """`rrelu_with_noise` in training writes the noise as if it were contiguous."""
    if call.op.overloadpacket not in _RRELU or not call.arguments["training"]:
        return None
    noise = call.arguments["noise"]
    return None if noise.is_contiguous() else "takes its noise for contiguous"


def updates_outside_parameters(call: EagerCall) -> str | None:
    """A fused optimizer walks over all tensors of a parameter as one row of numbers.

    It takes as many numbers as the parameter has, from the first one on, and checks no size
    (`aten/src/ATen/native/cpu/FusedAdamKernel.cpp` and its siblings).
    """
    if call.op.overloadpacket not in _FUSED_OPTIMIZERS:
        return None
    parameters = call.arguments["self"]
    for name, states in call.arguments.items():
        if name == "state_steps" or not isinstance(states, (list, tuple)):
            continue
        for parameter, state in zip(parameters, states, strict=False):
            if state.shape != parameter.shape:
                return "takes all tensors of a parameter to be of its size"
            if not _has_no_gaps(state):
                return "takes the numbers of a parameter to be without gaps"
    return None


def squeezes_a_copy(call: EagerCall) -> str | None:
    """`squeeze_` of some dimensions of a tensor with a lazy conjugate or negative bit.

    Torch has no kernel for it (`aten/src/ATen/native/MathBitFallThroughLists.h` has `squeeze_` of
    all dimensions only), so it squeezes a copy, resizes the tensor to be contiguous, and copies
    back. On other strides, that writes memory, which `squeeze_` must not. Only the resize tells.
    """
    if call.op is not aten.resize_.default:
        return None
    tensor, size = call.written[0], call.arguments["size"]
    if not (tensor.is_conj() or tensor.is_neg()) or len(size) >= tensor.dim():
        return None
    same = [n for n in tensor.shape if n != 1] == [n for n in size if n != 1]
    return "writes what squeeze_ should only view" if same else None


def copies_without_sign(call: EagerCall) -> str | None:
    """`copy_` between float16 and float32 has a kernel of its own, if both have the same layout.

    It does not ask for the lazy negative bit (`aten/src/ATen/native/Copy.cpp`, torch 2.13).
    """
    if call.op is not aten.copy_.default:
        return None
    to, source = call.arguments["self"], call.arguments["src"]
    converts = {to.dtype, source.dtype} == {torch.float16, torch.float32}
    if not converts or to.device.type != "cpu" or to.is_neg() == source.is_neg():
        return None
    return "loses the sign of a lazily negative tensor"


def _has_no_gaps(tensor: torch.Tensor) -> bool:
    start, end = Region.of(tensor).interval
    return end - start == tensor.numel() * tensor.element_size()


_FUSED_OPTIMIZERS = {
    *(aten._fused_sgd_, aten._fused_adam_, aten._fused_adamw_, aten._fused_adagrad_),
}
_RRELU = {aten.rrelu_with_noise, aten.rrelu_with_noise_}
WRONG_KERNELS = (
    writes_outside_noise,
    updates_outside_parameters,
    squeezes_a_copy,
    copies_without_sign,
)
