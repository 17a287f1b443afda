"""ExecuTorch forgets to write a buffer whose new contents are another buffer."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from aliasproof.corpus.known_bug import KnownBug, program_of, view, writes
from aliasproof.corpus.mends import mends_outside


@mends_outside("executorch.exir.program._program:insert_write_back_for_buffers_pass")
def mended(original: Callable[..., Any], program: Any) -> Any:
    """What is written back is no input of the graph itself: such an input is copied first.

    ExecuTorch takes an output that is a buffer for the buffer that it belongs to
    (`_inplace_lineage`), and does not write that one. With only one of two written, the other
    would also be read after it was written.
    """
    ops: Any = importlib.import_module("executorch.exir.dialects._ops").ops
    end = program.graph.output_node()
    outputs = list(end.args[0])
    for index, spec in enumerate(program.graph_signature.output_specs):
        node = outputs[index]
        if "MUTATION" in spec.kind.name and node.op == "placeholder":
            with program.graph.inserting_before(end):
                outputs[index] = copy = program.graph.call_function(
                    ops.edge.aten.alias_copy.default, (node,)
                )
            copy.meta["val"] = node.meta["val"]
    end.args = (tuple(outputs),)
    return original(program)


BUG = KnownBug(
    "executorch-buffer-copied",
    "copy_ of one buffer into another is lost in ExecuTorch",
    "https://github.com/pytorch/executorch/issues/7515",
    program_of(
        """
        v0 = aten.copy_.default(x1, x2)
        v1 = aten.add_.Tensor(x2, x0)
        v2 = aten.add.Tensor(x0, x0)
        return (v2,)
        """,
        view(2),
        view(2),
        view(2),
    ),
    ("executorch:buffers",),
    ("2.13",),
    mended,
    plausible=writes,
    rank=2100,
)
