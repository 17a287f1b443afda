"""What a function returns that OpenVINO compiled is overwritten by the next call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from aliasproof.corpus.known_bug import KnownBug, program_of, view
from aliasproof.corpus.mends import mends_outside


# `openvino_execute` in openvino/frontend/pytorch/torchdynamo/execute.py calls one infer request
# with `share_outputs=True`, and returns tensors over the memory of its outputs.
@mends_outside("openvino.frontend.pytorch.torchdynamo.execute:openvino_execute")
def mended(original: Callable[..., Any], graph: Any, *inputs: Any, **options: Any) -> Any:
    """Each call returns memory of its own. That of an input is another bug."""
    results = original(graph, *inputs, **options)
    given = {x.untyped_storage().data_ptr() for x in inputs if isinstance(x, torch.Tensor)}
    own = [
        y if y.untyped_storage().data_ptr() in given else y.clone()
        for y in (results if isinstance(results, list) else [results])
    ]
    return own if isinstance(results, list) else own[0]


BUG = KnownBug(
    "openvino-outputs-reused",
    'torch.compile(backend="openvino") returns memory that its next call overwrites',
    "",
    program_of(
        """
        v0 = aten.mul.Tensor(x0, x0)
        v1 = aten.add.Tensor(v0, x0)
        return (v1,)
        """,
        view(2),
    ),
    ("openvino:kept-outputs", "openvino-aot:kept-outputs"),
    ("2.13",),
    mended,
    rank=1180,
)
