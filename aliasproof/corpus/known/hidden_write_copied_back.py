"""AOTAutograd copies under autograd what was written to an input and autograd did not see."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from aliasproof.corpus.known_bug import KnownBug, calls, program_of, view
from aliasproof.corpus.mends import MERGED_INPUTS, mends
from aliasproof.ir.custom_operators import NAMESPACE
from aliasproof.ir.program import Program

INPUT = "torch._functorch._aot_autograd.schemas:InputAliasInfo.__post_init__"


@contextlib.contextmanager
def mended() -> Iterator[None]:
    """An input whose writes autograd does not see is written back as a leaf is.

    Such writes are under `no_grad`, to a detached view, or by a custom operator. Torch copies to a
    detached leaf, since autograd would raise. For other inputs, the copy becomes the `grad_fn`, and
    the gradient of what was copied is zero.
    """
    changed: list[Any] = []

    def post_init(original: Callable[..., Any], info: Any) -> None:
        original(info)
        hidden = info.mutations_under_no_grad_or_inference_mode
        if (hidden or info.mutations_hidden_from_autograd) and not info.is_leaf:
            object.__setattr__(info, "is_leaf", True)
            changed.append(info)

    def merged(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        # Torch asserts that all or none of the inputs that it merges are leaves.
        for info in changed:
            object.__setattr__(info, "is_leaf", False)
        return original(*args, **kwargs)

    with mends(INPUT)(post_init)(), mends(MERGED_INPUTS)(merged)():
        yield


def _hides_a_write(program: Program) -> bool:
    return calls(program, "detach") or any(
        call.mutates() and (not call.grad or call.op.startswith(NAMESPACE))
        for call in program.instructions
    )


BUG = KnownBug(
    "hidden-write-copied-back",
    "an input whose writes autograd does not see is copied back under autograd: gradient zero",
    "",
    program_of(
        """
        with torch.no_grad():
            aten.add_.Scalar(x0, 1)
        return ()
        """,
        view(),
    ),
    ("aot-epilogue:grad",),
    ("2.13", "2.15"),
    mended,
    plausible=_hides_a_write,
    rank=900,
)
