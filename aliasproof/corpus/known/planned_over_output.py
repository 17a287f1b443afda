"""With memory planning, the memory of an output is given to a later buffer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aliasproof.corpus.known_bug import KnownBug, program_of, view, views_dtype
from aliasproof.corpus.mends import mends


@mends("torch._inductor.codegen.memory_planning:MemoryPlanner.compute_buffer_groups")
def mended(original: Callable[..., Any], self: Any, lines: Any) -> Any:
    """A buffer lives to the end if an output shares its memory.

    `MemoryPlanner` asks only whether an output has the name of the buffer. A view of another item
    size has a name of its own.
    """
    from torch._inductor.scheduler import OutputNode  # noqa: PLC0415
    from torch._inductor.virtualized import V  # noqa: PLC0415

    groups = original(self, lines)
    buffers = V.graph.scheduler.name_to_buf
    for group in self.buffer_groups:
        users = [user for name in group.names for user in buffers[name].users]
        group.is_output |= any(isinstance(user.node, OutputNode) for user in users)
    return groups


BUG = KnownBug(
    "planned-over-output",
    "with memory_planning, a buffer is reused while an output still shares its memory",
    "https://github.com/pytorch/pytorch/pull/187678",
    program_of(
        """
        v0 = aten.add.Scalar(x0, 1)
        v1 = aten.view.dtype(v0, torch.int16)
        v2 = aten.mul.Scalar(x0, 2)
        v3 = aten.mm.default(v2, x0)
        return v1, v3
        """,
        view(4, 4),
    ),
    ("inductor:memory_planning=True",),
    ("2.13",),
    mended,
    plausible=views_dtype,
    rank=710,
)
