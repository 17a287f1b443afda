"""AOTInductor passes a number that its package does not list: a keyword argument's default."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from aliasproof.corpus.known_bug import KnownBug, program_of, view
from aliasproof.corpus.mends import mends


@mends("torch._inductor.ir:FallbackKernel.export_extern_kernel_node")
def mended(original: Callable[..., Any], kernel: Any) -> Any:
    """All keyword arguments are listed."""
    unflatten = kernel.unflatten_args
    defaults = {
        argument.name: argument.default_value
        for argument in kernel.op_overload._schema.arguments
        if argument.kwarg_only and argument.has_default_value()
    }

    def with_defaults(*flat: Any) -> Any:
        args, kwargs = unflatten(*flat)
        return args, {**defaults, **kwargs}

    kernel.unflatten_args = with_defaults
    try:
        return original(kernel)
    finally:
        kernel.unflatten_args = unflatten


BUG = KnownBug(
    "package-omits-default",
    "a package of AOTInductor fails for a fallback that leaves a number at its default",
    "https://github.com/pytorch/pytorch/pull/194261",
    program_of(
        """
        v0 = aten.index_add.default(x0, 0, x1, x2)
        return (v0,)
        """,
        view(2, dtype=torch.bfloat16),
        view(2, dtype=torch.int64),
        view(2, dtype=torch.bfloat16),
    ),
    ("aot-inductor",),
    ("2.13",),
    mended,
    rank=912,
)
