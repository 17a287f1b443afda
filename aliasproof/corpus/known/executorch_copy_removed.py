"""ExecuTorch removes a `_to_copy` that changes nothing, though what it copied is written later."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.fx.passes.infra.pass_base import PassResult

from aliasproof.corpus.known_bug import KnownBug, calls, program_of, view
from aliasproof.corpus.mends import mends_outside


@mends_outside("executorch.exir.passes.remove_noop_pass:RemoveToCopyPass.call")
def mended(original: Callable[..., Any], made: Any, graph: Any) -> Any:
    """The pass leaves all copies."""
    return PassResult(graph, False)


BUG = KnownBug(
    "executorch-copy-removed",
    "RemoveToCopyPass returns an input in place of its copy, and the input is written",
    "",
    program_of(
        """
        v0 = aten._to_copy.default(x0)
        aten.add_.Scalar(x0, 1)
        return (v0,)
        """,
        view(2),
    ),
    ("executorch",),
    ("2.13",),
    mended,
    plausible=lambda program: calls(program, "_to_copy"),
    rank=2270,
)
