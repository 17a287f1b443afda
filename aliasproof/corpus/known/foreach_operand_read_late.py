"""Inductor computes an operand of a foreach call in place after an earlier result was written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aliasproof.corpus.known_bug import KnownBug, program_of, view
from aliasproof.corpus.mends import mends


@mends("torch._inductor.graph:GraphLowering.call_function")
def mended(
    original: Callable[..., Any], graph: Any, op: Any, args: Any, kwargs: dict[str, Any]
) -> Any:
    """All results are computed before the first of them is written.

    The lowering writes each result into its operand, and what was not computed until then is
    computed from what was written. Torch asks for the readers of an operand to be computed first,
    but results of the same call are not yet among them.
    """
    from torch._inductor import lowering  # noqa: PLC0415 - it takes two seconds

    for outplace, inplace in lowering.inplaceable_foreach_ops.items():
        if op is inplace:
            results = original(graph, outplace, args, kwargs)
            for result in results:
                result.realize()
            return [
                lowering.mutate_to(operand, result)
                for operand, result in zip(args[0], results, strict=True)
            ]
    return original(graph, op, args, kwargs)


BUG = KnownBug(
    "foreach-operand-read-late",
    "_foreach_copy_([x, y], [y + 1, x + 1]) is compiled to code that reads x after it was written",
    "https://github.com/pytorch/pytorch/issues/198033",
    program_of(
        """
        v0 = aten.add.Scalar(x1, 1)
        v1 = aten.add.Scalar(x0, 1)
        aten._foreach_copy_.default([x0, x1], [v0, v1])
        return ()
        """,
        view(4),
        view(4),
    ),
    ("inductor",),
    ("2.13",),
    mended,
    plausible=lambda program: any("_foreach_" in call.op for call in program.instructions),
    rank=466,
)
