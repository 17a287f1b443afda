"""Inductor's patterns match calls with keywords that they do not name, and drop these."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from torch import fx

from aliasproof.corpus.inductor_passes import replaced
from aliasproof.corpus.known_bug import KnownBug, view, written


@contextlib.contextmanager
def mended() -> Iterator[None]:
    """A pattern does not match a call with another `alpha` or `dtype` than the default."""
    with replaced("pattern_matcher", "_TargetArgsExpr._match", _match):
        yield


def _match(original: Callable[..., Any], pattern: Any, node: Any, context: Any) -> Any:
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
    written(
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
)
