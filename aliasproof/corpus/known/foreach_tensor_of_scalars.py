"""`_foreach_addcmul` and `_foreach_addcdiv` with a tensor of scalars have no fake kernel."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TypeAlias

import torch

from aliasproof.corpus.known_bug import KnownBug, calls, view, written
from aliasproof.corpus.overrides import kernel_added

Tensors: TypeAlias = Sequence[torch.Tensor]

aten = torch.ops.aten

OPS = ("_foreach_addcmul", "_foreach_addcmul_", "_foreach_addcdiv", "_foreach_addcdiv_")


@contextlib.contextmanager
def mended() -> Iterator[None]:
    """The ops have a kernel for tensors without data, as the overloads with numbers have.

    Torch takes the kernel for tensors with data, which reads the scalars.
    """
    with contextlib.ExitStack() as stack:
        for name in OPS:
            kernel = _in_place if name.endswith("_") else _new
            stack.enter_context(kernel_added(f"{name}.Tensor", "Meta", kernel))
        _forget_kernels()
        yield
    _forget_kernels()


def _forget_kernels() -> None:
    """The dispatcher in Python caches which kernel it takes for a key."""
    for name in OPS:
        getattr(aten, name).Tensor._dispatch_cache.clear()


def _new(x: Tensors, y: Tensors, z: Tensors, scalars: torch.Tensor) -> list[torch.Tensor]:
    return [torch.addcmul(*operands) for operands in zip(x, y, z, strict=True)]


def _in_place(x: Tensors, y: Tensors, z: Tensors, scalars: torch.Tensor) -> None:
    for target, *operands in zip(x, y, z, strict=True):
        target.addcmul_(*operands)


BUG = KnownBug(
    "foreach-tensor-of-scalars",
    "_foreach_addcdiv_ with a tensor of scalars raises 'Expected scalars to be on CPU, got meta'",
    "",
    written(
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
    mended,
    plausible=lambda program: calls(program, *OPS),
)
