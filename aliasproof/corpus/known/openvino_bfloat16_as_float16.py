"""OpenVINO's backend for `torch.compile` returns the bits of bfloat16 numbers as float16."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from aliasproof.corpus.known_bug import KnownBug, program_of, view
from aliasproof.corpus.mends import mends_outside

EXECUTE = "openvino.frontend.pytorch.torchdynamo.execute"


# numpy has no bfloat16. `openvino_execute` makes a tensor of torch of what numpy shows.
@mends_outside(f"{EXECUTE}:openvino_execute")
def mended(original: Callable[..., Any], graph: Any, *inputs: Any, **options: Any) -> Any:
    """A result has the dtype of the output of the model."""
    from openvino.frontend.pytorch.torchdynamo import execute  # noqa: PLC0415

    results = original(graph, *inputs, **options)
    listed = results if isinstance(results, list) else [results]
    ports = execute.compiled_cache[options["partition_id"]].outputs
    right = [
        y.view(torch.bfloat16) if port.get_element_type().get_type_name() == "bf16" else y
        for y, port in zip(listed, ports, strict=True)
    ]
    return right if isinstance(results, list) else right[0]


BUG = KnownBug(
    "openvino-bfloat16-as-float16",
    'torch.compile(backend="openvino") returns bfloat16 numbers as other numbers of float16',
    "",
    program_of(
        """
        v0 = aten.add.Scalar(x0, 1)
        v1 = aten._to_copy.default(v0, dtype=torch.bfloat16)
        return (v1,)
        """,
        view(2),
    ),
    ("openvino", "openvino-aot"),
    ("2.13",),
    mended,
    rank=1410,
)
