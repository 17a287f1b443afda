"""Inductor replaces the parts of a `cat` by its operands."""

from __future__ import annotations

from typing import Any

from torch._ops import OpOverload

from aliasproof.corpus.known_bug import KnownBug, calls, program_of, view
from aliasproof.corpus.mends import narrows
from aliasproof.ir.schemas import Kind, facts


@narrows("post_grad", "cat_splitwithsizes_replace")
def mended(match: Any) -> bool:
    """The rewrite is left to operands that an op computes, and that are no outputs of the graph.

    It returns the operands, and the parts of a `cat` are views of a new tensor.
    """
    return all(
        isinstance(operand.target, OpOverload)
        and facts(operand.target).kind is Kind.FUNCTIONAL
        and not any(use.op == "output" for use in operand.users)
        for operand in match.kwargs["input_"]
    )


BUG = KnownBug(
    "split-of-cat",
    "Inductor returns the operands of cat for its parts, so outputs share memory with inputs",
    "",
    program_of(
        """
        v0 = aten.cat.default([x0, x1], 1)
        v1, v2 = aten.split_with_sizes.default(v0, [1, 1], 1)
        return v1, v2
        """,
        view(1, 1),
        view(1, 1),
    ),
    ("inductor-fx",),
    ("2.13", "2.15"),
    mended,
    plausible=lambda program: calls(program, "cat"),
    rank=620,
)
