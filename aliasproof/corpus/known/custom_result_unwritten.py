"""The result of a custom in-place or `out=` operator is another tensor than its argument."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch._higher_order_ops import auto_functionalize

from aliasproof.corpus.known_bug import KnownBug, program_of, view
from aliasproof.corpus.mends import mends
from aliasproof.ir.program import Program


@mends(
    "torch._higher_order_ops.auto_functionalize:_do_auto_functionalize_v2_for_inplace_operator",
    "torch._higher_order_ops.auto_functionalize:_do_auto_functionalize_v2_for_out_operator",
)
def mended(
    original: Callable[..., Any], ctx: Any, op: Any, schema: Any, arguments: dict[str, Any]
) -> Any:
    """Functionalization returns the written argument, as the operator does.

    Torch wraps the result anew. So a write through the result is lost, and the fallback for lazily
    negated and conjugated tensors asserts that the result is the argument.
    """
    names, _ = auto_functionalize.get_mutable_args_from_schema(schema)
    returned = [arguments[name] for name in names]  # the original removes them
    original(ctx, op, schema, arguments)
    return returned[0] if len(returned) == 1 else tuple(returned)


def _calls_such(program: Program) -> bool:
    return any(
        call.mutates() and call.results and not call.op.startswith("aten.")
        for call in program.instructions
    )


BUG = KnownBug(
    "custom-result-unwritten",
    "a write to the result of a custom in-place operator does not change the argument",
    "",
    program_of(
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
    rank=870,
)
