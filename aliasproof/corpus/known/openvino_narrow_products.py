"""OpenVINO's `prod` and `cumsum` of short integers keep the dtype, and eager's give int64."""

from __future__ import annotations

import torch

from aliasproof.corpus.known_bug import KnownBug, Mark, calls, program_of, view

OPS = ("prod", "cumsum", "cumprod")

# Of `sum`, that was mended (openvinotoolkit/openvino#23518).
BUG = KnownBug(
    "openvino-narrow-products",
    "OpenVINO: prod and cumsum of int8 have dtype int8, and int64 in eager",
    "",
    program_of(
        """
        v0 = aten.prod.default(x0)
        v1 = aten.cumsum.default(x0, 0)
        return v0, v1
        """,
        view(2, dtype=torch.int8),
    ),
    ("openvino-model", "openvino-aot"),
    ("2.13",),
    mark=Mark(("metadata",), "wrong dtype", lambda program: calls(program, *OPS)),
    plausible=lambda program: calls(program, *OPS),
    rank=1280,
)
