"""Functional forms of writes fail on a storage whose bytes the dtype does not divide."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from aliasproof.corpus.known_bug import KnownBug, program_of, view
from aliasproof.corpus.mends import Mend, mends_kernel, together


def _of_whole_elements(
    original: Callable[..., torch.Tensor], x: torch.Tensor, *arguments: Any
) -> torch.Tensor:
    """The bytes that are no whole element are left out of a copy of the storage.

    Torch clones the storage as elements of the view's dtype (`clone_preserve_strides`,
    aten/src/ATen/native/TensorShape.cpp).
    """
    storage = x.untyped_storage()
    # What torch does not get wrong is left to torch. It clones an overlapping view without storage.
    if storage.nbytes() % x.itemsize == 0 or torch._debug_has_internal_overlap(x) == 1:
        return original(x, *arguments)
    copied = storage.clone()
    copied.resize_(storage.nbytes() // x.itemsize * x.itemsize)
    whole = torch.empty(0, dtype=x.dtype, device=x.device)
    whole.set_(copied, x.storage_offset(), x.shape, x.stride())
    return original(whole, *arguments)


def _mends(name: str, *keys: str) -> Mend:
    arguments = getattr(torch.ops.aten, name).default._schema.arguments

    def mended(original: Callable[..., torch.Tensor], *given: Any) -> torch.Tensor:
        defaults = (argument.default_value for argument in arguments[len(given) :])
        return _of_whole_elements(original, *given, *defaults)

    return mends_kernel(name, *keys)(mended)


# What functionalization makes of `copy_`, and of a write through a view.
MENDED = together(
    _mends("copy", "CPU", "Meta"),
    *(_mends(f"{kind}_scatter", "CPU") for kind in ("select", "slice", "diagonal", "as_strided")),
)


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
    MENDED,
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
