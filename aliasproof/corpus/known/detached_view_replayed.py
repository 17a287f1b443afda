"""AOTAutograd makes a detached output from a view of its base, as if that were the base."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aliasproof.corpus.known_bug import KnownBug, calls, program_of, view
from aliasproof.corpus.mends import mends


@mends("torch._functorch._aot_autograd.schemas:OutputAliasInfo.__init__")
def mended(original: Callable[..., Any], info: Any, **fields: Any) -> None:
    """Such an output is made by `as_strided` from the other one.

    The other one is an output with the same layout in the same storage that requires gradients.
    Torch replays the views of the detached output on it, so that they are applied twice.
    """
    from torch._functorch._aot_autograd.schemas import OutputType  # noqa: PLC0415

    # A view of an output in the sense of autograd requires gradients as its base does.
    of_output = fields["output_type"] is OutputType.alias_of_intermediate_base_is_user_output
    if of_output and not fields["requires_grad"]:
        fields["view_meta_sequence"] = None
    original(info, **fields)


BUG = KnownBug(
    "detached-view-replayed",
    "x.t().detach(), returned beside x.t(), is not transposed in training; other views raise",
    "",
    program_of(
        """
        v0 = aten.mul.Scalar(x0, 2)
        v1 = aten.t.default(v0)
        v2 = aten.detach.default(v1)
        return v1, v2
        """,
        view(2, 2),
    ),
    ("aot:grad", "aot-epilogue:grad", "inductor-fx:grad"),
    ("2.13", "2.15"),
    mended,
    plausible=lambda program: calls(program, "detach"),
    rank=910,
)
