"""The fused optimizers `_fused_adagrad_` and `_fused_sgd_` have no fake kernel."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from aliasproof.corpus.known_bug import KnownBug, calls, view, written
from aliasproof.corpus.overrides import kernel_added

aten = torch.ops.aten

# Those of `_fused_adam_` and `_fused_adamw_` with a number as rate have one.
OPS = (
    ("_fused_adagrad_", "default"),
    ("_fused_adagrad_", "tensor_lr"),
    ("_fused_sgd_", "default"),
    ("_fused_sgd_", "tensor_lr"),
    ("_fused_adam_", "tensor_lr"),
    ("_fused_adamw_", "tensor_lr"),
)


@contextlib.contextmanager
def mended() -> Iterator[None]:
    """The ops have a kernel for tensors without data. There is nothing to do: they only write."""
    with contextlib.ExitStack() as stack:
        for name, overload in OPS:
            op = name if overload == "default" else f"{name}.{overload}"
            stack.enter_context(kernel_added(op, "Meta", _writes_data_only))
        _forget_kernels()
        yield
    _forget_kernels()


def _writes_data_only(*args: Any, **kwargs: Any) -> None:
    """The parameters and states keep their sizes and strides."""


def _forget_kernels() -> None:
    """The dispatcher in Python caches which kernel it takes for a key."""
    for name, overload in OPS:
        getattr(getattr(aten, name), overload)._dispatch_cache.clear()


BUG = KnownBug(
    "fused-optimizers",
    "_fused_adagrad_ and _fused_sgd_ raise NotImplementedError: they have no fake kernel",
    "",
    written(
        """
        aten._fused_adagrad_.default([x0], [x1], [x2], [x3], lr=1.0, lr_decay=0.0,
            weight_decay=0.0, eps=1.0, maximize=False)
        return ()
        """,
        view(1),
        view(1),
        view(1),
        view(),
    ),
    ("functionalize", "fx-reinplace", "aot", "aot-epilogue", "inductor-fx"),
    ("2.13", "2.15"),
    mended,
    plausible=lambda program: calls(program, *(name for name, _ in OPS)),
)
