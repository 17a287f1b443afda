"""ExecuTorch's memory planning fails for a program without outputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aliasproof.corpus.known_bug import KnownBug, program_of, view
from aliasproof.corpus.mends import mends_outside


@mends_outside("executorch.exir.memory_planning:Verifier.verify_graph_input_output")
def mended(original: Callable[..., None], verifier: Any) -> None:
    """What has no outputs has no output without memory."""
    if verifier.graph_module.graph.output_node().args[0]:
        original(verifier)


BUG = KnownBug(
    "executorch-no-output",
    "a program without outputs ends in 'graph_output_allocated not set' in ExecuTorch",
    "https://github.com/pytorch/executorch/issues/22477",
    program_of("return ()", view(2)),
    ("executorch",),
    ("2.13",),
    mended,
    plausible=lambda program: not program.outputs,
    rank=2170,
)
