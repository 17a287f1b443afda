"""How mends change the lowering of an operator to Inductor's loops."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias
from unittest import mock

from torch._ops import OpOverload

Lowering: TypeAlias = Callable[..., Any]


@contextlib.contextmanager
def lowering_replaced(op: OpOverload, lower: Lowering) -> Iterator[None]:
    """Inductor lowers this operator by `lower`, which gets the original before the arguments."""
    from torch._inductor import lowering  # noqa: PLC0415 - takes two seconds

    original = lowering.lowerings[op]

    def replaced(*args: Any, **kwargs: Any) -> Any:
        return lower(original, *args, **kwargs)

    with mock.patch.dict(lowering.lowerings, {op: replaced}):
        yield


def run_in_eager(op: OpOverload, *args: Any, **kwargs: Any) -> Any:
    """Lower a call of the operator to a call of its kernel, as where Inductor has no lowering."""
    from torch._inductor import lowering  # noqa: PLC0415

    return lowering.fallback_handler(op, add_to_fallback_set=False)(*args, **kwargs)


def traced_dtype() -> Any:
    """The dtype that the operator being lowered has in the traced graph."""
    from torch._inductor.virtualized import V  # noqa: PLC0415

    return V.graph.current_node.meta["val"].dtype
