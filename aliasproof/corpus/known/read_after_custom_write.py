"""Inductor reads a tensor after a custom operator has written it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch._ops import OpOverload
from torch.utils._pytree import tree_leaves

from aliasproof.corpus.known_bug import KnownBug, program_of, view
from aliasproof.corpus.mends import mends
from aliasproof.ir.program import Program


@mends("torch._inductor.graph:GraphLowering.call_function")
def mended(
    original: Callable[..., Any], graph: Any, op: Any, args: Any, kwargs: dict[str, Any]
) -> Any:
    """What reads the memory of an operand is computed before the call is registered.

    `MutationOutput` asks for it when the call has its place already. An operand that is not yet
    computed has no memory to be read. A reader of an operand that is not written becomes a buffer
    of its own, too, which changes no value.
    """
    from torch._inductor.ir import is_storage_and_layout  # noqa: PLC0415 - it takes two seconds

    if isinstance(op, OpOverload) and op._schema.is_mutable and op.namespace != "aten":
        for operand in filter(is_storage_and_layout, tree_leaves((args, kwargs))):
            for reader in graph.name_to_users[operand.get_name()]:
                reader.realize()
    return original(graph, op, args, kwargs)


def _writes_by_custom_operator(program: Program) -> bool:
    return any(call.mutates() and not call.op.startswith("aten.") for call in program.instructions)


BUG = KnownBug(
    "read-after-custom-write",
    "Inductor computes a value after a custom operator has written the tensor that it reads",
    "",
    program_of(
        """
        v0 = aten.add.Scalar(x0, 1)
        torch.ops.aliasproof.double.default(x0)
        aten.copy_.default(x1, v0)
        return ()
        """,
        view(4),
        view(4),
    ),
    ("inductor",),
    ("2.13", "2.15"),
    mended,
    plausible=_writes_by_custom_operator,
    rank=320,
)
