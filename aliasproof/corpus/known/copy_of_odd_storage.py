"""The functional form of `copy_` fails on a storage whose bytes its dtype does not divide."""

from __future__ import annotations

from collections.abc import Callable

import torch

from aliasproof.corpus.known_bug import KnownBug, program_of, view
from aliasproof.corpus.mends import mends_kernel


@mends_kernel("copy", "CPU", "Meta")
def mended(
    original: Callable[..., torch.Tensor],
    x: torch.Tensor,
    source: torch.Tensor,
    non_blocking: bool = False,
) -> torch.Tensor:
    """The whole storage is cloned as bytes, so it may have any length.

    Torch clones it as elements of the view's dtype (`clone_preserve_strides`,
    aten/src/ATen/native/TensorShape.cpp).
    """
    storage = x.untyped_storage()
    # What torch does not get wrong is left to torch. It clones an overlapping view without storage.
    if storage.nbytes() % x.itemsize == 0 or torch._debug_has_internal_overlap(x) == 1:
        return original(x, source, non_blocking)
    copied = torch.empty(0, dtype=x.dtype, device=x.device)
    copied.set_(storage.clone(), x.storage_offset(), x.shape, x.stride())
    return copied.copy_(source, non_blocking)


BUG = KnownBug(
    "copy-of-odd-storage",
    "functional copy asserts nbytes % dtype_size == 0 of the storage that a view is in",
    "",
    program_of(
        """
        aten.copy_.default(x0, x1)
        return ()
        """,
        view(1, storage=0, dtype=torch.int16),
        view(1, storage=1, dtype=torch.int16),
        bytes_of={0: 3},
    ),
    ("functionalize", "aot", "aot-epilogue", "fx-reinplace"),
    ("2.13", "2.15"),
    mended,
    plausible=lambda program: (
        any(
            storage.nbytes % tensor.dtype.itemsize
            for tensor in program.inputs
            for storage in [program.storages[tensor.storage]]
        )
        or any("view.dtype" in call.op for call in program.instructions)
    ),
    rank=70,
)
