"""`_foreach_addcmul` and `_foreach_addcdiv` with a tensor of scalars have no fake kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import torch

from aliasproof.corpus.known_bug import KnownBug, calls, program_of, view
from aliasproof.corpus.mends import adds_kernel, together

Tensors: TypeAlias = Sequence[torch.Tensor]

NAMES = ("_foreach_addcmul", "_foreach_addcdiv")


@adds_kernel("Meta", *(f"{name}.Tensor" for name in NAMES))
def _new(x: Tensors, y: Tensors, z: Tensors, scalars: torch.Tensor) -> list[torch.Tensor]:
    return [torch.addcmul(*operands) for operands in zip(x, y, z, strict=True)]


@adds_kernel("Meta", *(f"{name}_.Tensor" for name in NAMES))
def _in_place(x: Tensors, y: Tensors, z: Tensors, scalars: torch.Tensor) -> None:
    for target, *operands in zip(x, y, z, strict=True):
        target.addcmul_(*operands)


# The ops have a kernel for tensors without data, as the overloads with numbers have. Torch takes
# the kernel for tensors with data, which reads the scalars.
MENDED = together(_new, _in_place)


BUG = KnownBug(
    "foreach-tensor-of-scalars",
    "_foreach_addcdiv_ with a tensor of scalars raises 'Expected scalars to be on CPU, got meta'",
    "",
    program_of(
        """
        aten._foreach_addcdiv_.Tensor([x0], [x1], [x1], x2)
        return ()
        """,
        view(1),
        view(1),
        view(1),
    ),
    ("functionalize", "fx-reinplace", "aot", "aot-epilogue", "inductor-fx"),
    ("2.13", "2.15"),
    MENDED,
    plausible=lambda program: calls(program, *NAMES, *(f"{name}_" for name in NAMES)),
    rank=130,
)
