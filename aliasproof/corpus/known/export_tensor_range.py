"""The decomposition of a range that starts or ends at a tensor asks for `torch.device(None)`."""

from __future__ import annotations

from aliasproof.corpus.known_bug import KnownBug, Mark, calls, program_of, view

BUG = KnownBug(
    "export-tensor-range",
    "aten.linspace from a tensor cannot be decomposed if no device is given",
    "",
    program_of(
        """
        v0 = aten.linspace.Tensor_Scalar(x0, 0, 3)
        return (v0,)
        """,
        view(),
    ),
    ("export",),
    ("2.13",),
    mark=Mark(
        ("errors",),
        r"TypeError: device\(\) received",
        lambda program: calls(program, "linspace", "logspace"),
    ),
    plausible=lambda program: calls(program, "linspace", "logspace"),
    rank=918,
)
