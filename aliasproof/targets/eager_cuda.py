"""Target *eager-cuda*: a function of tensors on the CPU, run in eager on CUDA.

It compares the kernels of the two devices. Correct kernels may differ as eager and generated code
may (`aliasproof/eager/op_properties.py`): moves must be exact, other operators are compared with
the tolerance of the dtype.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from aliasproof.ir.devices import CPU, without_cuda
from aliasproof.ir.errors import Rejected
from aliasproof.oracles.contract import Contract, Precondition, draws_nothing
from aliasproof.targets.target import Build, Function, Target

DEVICE = "cuda"


class Elsewhere:
    """A function of tensors, which runs on another device. What it leaves there is copied back.

    Strides, offsets, sharing and identities stay, in both directions.
    """

    def __init__(self, function: Any, device: Any) -> None:
        self.function, self.device = function, device

    def __call__(self, *inputs: Any) -> Any:
        # By the identity of a storage: the storage, and its copy on the other device.
        copies: dict[int, tuple[Any, Any]] = {}
        there = {id(x): self.moved(x, self.device, copies) for x in inputs}
        passed = list(copies.values())
        returned = self.function(*(there[id(x)] for x in inputs))
        copies = {used._cdata: (used, here) for here, used in passed}
        for here, used in passed:
            if here.nbytes() != used.nbytes():
                here.resize_(used.nbytes())
            self.bytes_of(here).copy_(self.bytes_of(used))
        back: dict[int, Any] = {}
        for x in inputs:
            moved = self.moved(there[id(x)], x.device, copies)
            # A run may give an input another layout, or another storage.
            x.set_(moved.untyped_storage(), moved.storage_offset(), moved.shape, moved.stride())
            back[id(there[id(x)])] = x

        def returned_here(y: Any) -> Any:
            if isinstance(y, torch.Tensor) and id(y) not in back:
                back[id(y)] = self.moved(y, "cpu", copies)
            return back.get(id(y), y)

        return pytree.tree_map(returned_here, returned)

    def moved(self, x: Any, device: Any, copies: dict[int, tuple[Any, Any]]) -> Any:
        """A tensor of the same layout, on the copy of the storage."""
        storage = x.untyped_storage()
        if storage._cdata not in copies:
            copied = self.bytes_of(storage).to(device, copy=True).untyped_storage()
            copies[storage._cdata] = storage, copied
        made: Any = torch.empty(0, dtype=x.dtype, device=device)
        made.set_(copies[storage._cdata][1], x.storage_offset(), x.shape, x.stride())
        made = made.conj() if x.is_conj() else made
        return made._neg_view() if x.is_neg() else made

    def bytes_of(self, storage: Any) -> Any:
        empty: Any = torch.empty(0, dtype=torch.uint8, device=storage.device)
        return empty.set_(storage)


CONTRACT = Contract(
    preconditions=(
        Precondition(
            "no random numbers",
            "each device has its own generator, and equal seeds draw other numbers"
            " (https://pytorch.org/docs/stable/notes/randomness.html)",
            draws_nothing,
        ),
    )
)
RECIPE = f"""
from typing import Any

from torch.utils import _pytree as pytree

{inspect.getsource(Elsewhere)}

def compiled(program, inputs):
    return Elsewhere(program, "{DEVICE}")
"""


def build(function: Function, inputs: Sequence[torch.Tensor]) -> Build:
    """Wrap the function. Raises `Rejected` for inputs that are not on the CPU."""
    if any(tensor.device.type != CPU for tensor in inputs):
        raise Rejected("it compares the CPU with CUDA, so its inputs start on the CPU")
    return Build(
        Elsewhere(function, DEVICE), [], "value hashes do not follow a copy to another device"
    )


@functools.cache
def unavailable() -> str | None:
    """Why torch cannot use CUDA on this machine; None if it can."""
    reason = without_cuda()
    return None if reason is None else f"needs CUDA: {reason}"


TARGET = Target(
    name="eager-cuda",
    summary="eager on CUDA, compared with eager on the CPU",
    contract=CONTRACT,
    build=build,
    recipe=RECIPE,
    lacking=unavailable,
)
