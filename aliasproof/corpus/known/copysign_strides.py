"""The decomposition of `copysign` has other strides than eager's kernel."""

from __future__ import annotations

from aliasproof.corpus.known_bug import KnownBug, Mark, calls, program_of, view

BUG = KnownBug(
    "copysign-strides",
    "copysign of two tensors with other orders of strides has the order of the second one",
    "",
    program_of(
        """
        v0 = aten.copysign.Tensor(x0, x1)
        return (v0,)
        """,
        view(2, 2),
        view(2, 2, strides=(1, 2)),
    ),
    ("inductor",),
    ("2.13",),
    mark=Mark(
        ("metadata",), "wrong stride", lambda program: calls(program, "copysign", "copysign_")
    ),
    plausible=lambda program: calls(program, "copysign", "copysign_"),
    rank=885,
)
