"""Inductor's patterns match calls with keywords that they do not name, and drop these."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import fx

from aliasproof.corpus.known_bug import KnownBug, program_of, view
from aliasproof.corpus.mends import mends


@mends("torch._inductor.pattern_matcher:_TargetArgsExpr._match")
def mended(original: Callable[..., Any], pattern: Any, node: Any, context: Any) -> Any:
    """A pattern does not match a call with another `alpha` or `dtype` than the default."""
    from torch._inductor.pattern_matcher import FailedMatch  # noqa: PLC0415

    given = node.kwargs if isinstance(node, fx.Node) else {}
    for name, default in (("alpha", 1), ("dtype", None)):
        if name not in pattern.kwargs and given.get(name, default) != default:
            return FailedMatch("the pattern does not name {}", name)
    return original(pattern, node, context)


BUG = KnownBug(
    "pattern-keywords",
    "Inductor's patterns drop keywords: mm + alpha * c becomes addmm without alpha",
    "",
    program_of(
        """
        v0 = aten.mm.default(x0, x1)
        v1 = aten.add.Tensor(v0, x2, alpha=2)
        return (v1,)
        """,
        view(2, 2),
        view(2, 2),
        view(2, 2),
    ),
    ("inductor-fx",),
    ("2.13",),
    mended,
    rank=490,
)
