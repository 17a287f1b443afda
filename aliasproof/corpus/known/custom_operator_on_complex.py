"""Inductor leaves `auto_functionalized_v2` in a graph if an operand is complex."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from aliasproof.corpus.known_bug import KnownBug, program_of, view
from aliasproof.corpus.mends import mends
from aliasproof.ir.program import Program


@mends("torch._inductor.pattern_matcher:fallback_node_due_to_unsupported_type")
def mended(original: Callable[..., bool], node: fx.Node, **kwargs: Any) -> bool:
    """A call of a custom operator is decomposed, whatever the dtypes of its operands.

    The matcher of patterns skips each node that has a complex operand, as there is no code for it.
    But the decomposition of `auto_functionalized_v2` is a pattern, too, and it must be applied.
    """
    if node.target is torch.ops.higher_order.auto_functionalized_v2:
        return False
    return original(node, **kwargs)


def _complex(program: Program) -> bool:
    """Whether an input is complex, or an argument is, such as the dtype of a result."""
    complex_inputs = any(tensor.dtype.is_complex for tensor in program.inputs)
    return complex_inputs or "complex" in repr(program.instructions)


BUG = KnownBug(
    "custom-operator-on-complex",
    "Inductor raises 'auto_functionalized_v2 was not removed' for a custom operator on complex64",
    "",
    program_of(
        """
        torch.ops.aliasproof.double.default(x0)
        return ()
        """,
        view(dtype=torch.complex64),
    ),
    ("inductor-fx",),
    ("2.13", "2.15"),
    mended,
    plausible=_complex,
    rank=860,
)
