"""The result of a custom in-place or `out=` operator is another tensor than its argument."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

from torch._higher_order_ops import auto_functionalize

from aliasproof.corpus.known_bug import KnownBug, view, written
from aliasproof.programs.program import Program

_KINDS = ("inplace", "out")


@contextlib.contextmanager
def mended() -> Iterator[None]:
    """Functionalization returns the written argument, as the operator does.

    Torch wraps the result anew. So a write through the result is lost, and the fallback for lazily
    negated and conjugated tensors asserts that the result is the argument.
    """
    with contextlib.ExitStack() as stack:
        for kind in _KINDS:
            name = f"_do_auto_functionalize_v2_for_{kind}_operator"
            returning = _returning_arguments(getattr(auto_functionalize, name))
            stack.enter_context(mock.patch.object(auto_functionalize, name, returning))
        yield


def _returning_arguments(original: Callable[..., Any]) -> Callable[..., Any]:
    def functionalize(ctx: Any, op: Any, schema: Any, arguments: dict[str, Any]) -> Any:
        names, _ = auto_functionalize.get_mutable_args_from_schema(schema)
        returned = [arguments[name] for name in names]  # the original removes them
        original(ctx, op, schema, arguments)
        return returned[0] if len(returned) == 1 else tuple(returned)

    return functionalize


def _calls_such(program: Program) -> bool:
    return any(
        call.mutates() and call.results and not call.op.startswith("aten.")
        for call in program.instructions
    )


BUG = KnownBug(
    "custom-result-unwritten",
    "a write to the result of a custom in-place operator does not change the argument",
    "",
    written(
        """
        v0 = torch.ops.aliasproof.add_.default(x0, x0)
        aten.add_.Scalar(v0, 1)
        return (x0,)
        """,
        view(),
    ),
    ("aot", "aot-epilogue", "inductor-fx"),
    ("2.13", "2.15"),
    mended,
    plausible=_calls_such,
)
