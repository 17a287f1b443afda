"""The clone of an input that OpenVINO returns is the memory of the input."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from aliasproof.corpus.known_bug import KnownBug, program_of, view
from aliasproof.corpus.mends import mends_outside


# A clone is no operation of OpenVINO, so the input is an output of the model, and
# `openvino_execute` in openvino/frontend/pytorch/torchdynamo/execute.py shares the memory of both.
@mends_outside("openvino.frontend.pytorch.torchdynamo.execute:openvino_execute")
def mended(original: Callable[..., Any], graph: Any, *inputs: Any, **options: Any) -> Any:
    """What is returned shares no memory with an input, nor with what else is returned."""
    results = original(graph, *inputs, **options)
    taken = {x.untyped_storage().data_ptr() for x in inputs if isinstance(x, torch.Tensor)}
    apart = []
    for y in results if isinstance(results, list) else [results]:
        memory = y.untyped_storage().data_ptr()
        apart.append(y.clone() if memory in taken else y)
        taken.add(memory)
    return apart if isinstance(results, list) else apart[0]


BUG = KnownBug(
    "openvino-clone-shares",
    'torch.compile(backend="openvino"): a clone of an input shares its memory, and sees writes',
    "",
    program_of(
        """
        v0 = aten.clone.default(x0)
        aten.add_.Tensor(x0, x0)
        return (v0,)
        """,
        view(2),
    ),
    ("openvino-aot",),
    ("2.13",),
    mended,
    rank=1250,
)
