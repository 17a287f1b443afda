"""The decomposition of `linspace` passes None as a device."""

from __future__ import annotations

import torch

from aliasproof.corpus.known_bug import KnownBug, Mark, calls, program_of, view

BUG = KnownBug(
    "counted-from-tensor",
    "linspace to an integer tensor raises TypeError: device()",
    "",
    program_of(
        """
        v0 = aten.linspace.Scalar_Tensor(2, x0, 2)
        return (v0,)
        """,
        view(dtype=torch.int64),
    ),
    ("aot:decompose", "inductor-fx"),
    ("2.13",),
    mark=Mark(
        ("errors",),
        r"TypeError: device\(\) received",
        lambda program: calls(program, "linspace", "logspace"),
    ),
    plausible=lambda program: calls(program, "linspace", "logspace"),
    rank=845,
)
