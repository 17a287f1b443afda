"""Under AOTAutograd, `dropout` that drops nothing copies its operand."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from unittest import mock

import torch
from torch._C import DispatchKey

from aliasproof.corpus.known_bug import KnownBug, calls, program_of, view

aten = torch.ops.aten
KEYS = (DispatchKey.CompositeImplicitAutograd, DispatchKey.Autograd)


@contextlib.contextmanager
def mended() -> Iterator[None]:
    """`dropout` that drops nothing returns its operand, as in eager."""
    op = aten.dropout.default
    with mock.patch.dict(op.py_kernels, dict.fromkeys(KEYS, _dropout)):
        op._dispatch_cache.clear()
        yield
    op._dispatch_cache.clear()


def _dropout(x: torch.Tensor, p: float, train: bool) -> torch.Tensor:
    if train and p != 0:
        dropped: torch.Tensor = aten.native_dropout.default(x, p, train)[0]
        return dropped
    return x


BUG = KnownBug(
    "dropout-of-nothing",
    "dropout in evaluation is a copy of its operand, which eager returns",
    "https://github.com/pytorch/pytorch/issues/115249",
    program_of(
        """
        v0 = aten.neg.default(x0)
        v1 = aten.dropout.default(v0, 0.5, False)
        return (v0, v1)
        """,
        view(),
    ),
    ("aot",),
    ("2.13",),
    mended,
    plausible=lambda program: calls(program, "dropout"),
    rank=160,
)
