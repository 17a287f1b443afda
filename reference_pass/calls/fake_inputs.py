"""Fakes of the inputs of a graph, and of the attributes of its module."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from operator import attrgetter
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import (
    FakeTensor,
    FakeTensorMode,
    in_kernel_invocation_manager,
    unset_fake_temporarily,
)

from aliasproof.reference_pass.calls.fake_tensors import without_record_of_views
from aliasproof.reference_pass.exceptions import Refused


def fake_inputs(mode: FakeTensorMode, sample_args: Sequence[object]) -> list[Any]:
    """The sample arguments as fake tensors, which share storages as the arguments do.

    They are new objects. So a program that changes metadata does not change the caller's tensors.
    """
    with mode, torch.no_grad(), without_record_of_views():
        return [fake_value(mode, argument) for argument in sample_args]


def fake_value(mode: FakeTensorMode, value: object) -> Any:
    """One sample argument as a fake tensor, or the argument itself if it is not a tensor.

    Raises `Refused` for a tensor without strides.
    """
    if not isinstance(value, torch.Tensor):
        return value
    refuse_without_regions(value)
    if isinstance(value, FakeTensor):
        return another_fake(value)
    with unset_fake_temporarily():
        value = value.detach()
    # Sizes of the sample arguments are fixed; symbols come only from fakes of the caller.
    fake = mode.from_tensor(value, static_shapes=True)
    nbytes = value.untyped_storage().nbytes()
    # The fake storage ends where the tensor ends, but as_strided may show bytes after that.
    if fake.untyped_storage().nbytes() != nbytes:
        fake.untyped_storage().resize_(nbytes)
    return fake


def another_fake(fake: FakeTensor) -> Any:
    """A new object on the same storage, without a graph of gradients.

    It can be used like an input: autograd has no record that it is a view, and it allows a change
    of its metadata. This takes a sixth of the time of a call on fakes.
    """
    mode = fake.fake_mode
    # `set_` compares symbols, and that must not add a guard.
    no_guards = mode.shape_env.suppress_guards() if mode.shape_env else contextlib.nullcontext()
    with in_kernel_invocation_manager(mode), no_guards:
        meta = torch.empty(0, dtype=fake.dtype, device="meta")
        meta.set_(fake.untyped_storage(), fake.storage_offset(), fake.shape, fake.stride())
    torch._C._set_conj(meta, fake.is_conj())
    torch._C._set_neg(meta, fake.is_neg())
    return FakeTensor(mode, meta, fake.device)


def refuse_another_number(inputs: Sequence[object], sample_args: Sequence[object]) -> None:
    """Raise `Refused` if a graph has another number of inputs than there are sample arguments."""
    if len(inputs) != len(sample_args):
        raise Refused(
            f"the graph takes {len(inputs)} inputs, but {len(sample_args)} sample arguments were"
            " given"
        )


def refuse_without_regions(leaf: object) -> None:
    """Raise `Refused` for a tensor, or dtype, that no region of a storage describes."""
    if isinstance(leaf, torch.Tensor) and leaf.layout is not torch.strided:
        raise Refused(
            f"a {leaf.layout} tensor has no strides to reason about; pass dense (strided) tensors"
        )
    # Fakes of quantized tensors may have the dtype of the operand, so the argument is checked.
    dtype = leaf.dtype if isinstance(leaf, torch.Tensor) else leaf
    if isinstance(dtype, torch.dtype) and dtype in _QUANTIZED:
        raise Refused(
            f"a {dtype} tensor has a scale beside its storage, which fakes do not have;"
            " use the quantized_decomposed operators on integers"
        )


_QUANTIZED = {torch.qint8, torch.quint8, torch.qint32, torch.quint4x2, torch.quint2x4}


def attribute(node: fx.Node) -> Any:
    """The attribute of the module that a get_attr node names."""
    return attrgetter(str(node.target))(node.graph.owning_module)
