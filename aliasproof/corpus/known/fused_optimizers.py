"""The fused optimizers `_fused_adagrad_` and `_fused_sgd_` have no fake kernel."""

from __future__ import annotations

from typing import Any

from aliasproof.corpus.known_bug import KnownBug, calls, program_of, view
from aliasproof.corpus.mends import adds_kernel

# Those of `_fused_adam_` and `_fused_adamw_` with a number as rate have one.
OPS = (
    "_fused_adagrad_",
    "_fused_adagrad_.tensor_lr",
    "_fused_sgd_",
    "_fused_sgd_.tensor_lr",
    "_fused_adam_.tensor_lr",
    "_fused_adamw_.tensor_lr",
)


@adds_kernel("Meta", *OPS)
def mended(*args: Any, **kwargs: Any) -> None:
    """The ops have a kernel for tensors without data. There is nothing to do: they only write.

    The parameters and states keep their sizes and strides.
    """


BUG = KnownBug(
    "fused-optimizers",
    "_fused_adagrad_ and _fused_sgd_ raise NotImplementedError: they have no fake kernel",
    "",
    program_of(
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
    plausible=lambda program: calls(program, *(op.partition(".")[0] for op in OPS)),
    rank=140,
)
