"""The functional form of `copy_` fails on a storage whose bytes its dtype does not divide."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from corpus.known_bug import KnownBug, view, written
from corpus.overrides import kernel_added


@contextlib.contextmanager
def mended() -> Iterator[None]:
    """The clone has the strides of the view, but not the rest of its storage.

    Torch clones the whole storage as elements of the view's dtype
    (`clone_preserve_strides`, aten/src/ATen/native/TensorShape.cpp).
    """

    def copy(x: torch.Tensor, source: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
        return _like(x).copy_(source, non_blocking)

    with contextlib.ExitStack() as stack:
        for key in ("CPU", "Meta"):
            stack.enter_context(kernel_added("copy", key, copy))
        yield


def _like(x: torch.Tensor) -> torch.Tensor:
    if torch._debug_has_internal_overlap(x) == 1:
        return torch.empty_like(x)
    return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device)


BUG = KnownBug(
    "copy-of-odd-storage",
    "functional copy asserts nbytes % dtype_size == 0 of the storage that a view is in",
    "",
    written(
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
            storage.nbytes % each.dtype.itemsize
            for each in program.inputs
            for storage in [program.storages[each.storage]]
        )
        or any("view.dtype" in call.op for call in program.instructions)
    ),
)
