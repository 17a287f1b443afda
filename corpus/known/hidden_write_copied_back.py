"""AOTAutograd copies under autograd what was written to an input under `no_grad`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from unittest import mock

from corpus.known_bug import KnownBug, view, written
from programs.program import Program


@contextlib.contextmanager
def mended() -> Iterator[None]:
    """All inputs that are written under `no_grad` only are written back as leaves are.

    Torch copies to a detached leaf, since autograd would raise. For other inputs, the copy becomes
    the `grad_fn`, and the gradient of what was copied is zero.
    """
    # Imported here: it takes two seconds, and other bugs do without.
    from torch._functorch._aot_autograd.schemas import InputAliasInfo  # noqa: PLC0415

    original = InputAliasInfo.__post_init__

    def post_init(self: InputAliasInfo) -> None:
        original(self)
        if self.mutations_under_no_grad_or_inference_mode:
            object.__setattr__(self, "is_leaf", True)

    with mock.patch.object(InputAliasInfo, "__post_init__", post_init):
        yield


def _writes_without_autograd(program: Program) -> bool:
    return any(call.mutates() and not call.grad for call in program.instructions)


BUG = KnownBug(
    "hidden-write-copied-back",
    "an input that is written under no_grad is copied back under autograd and loses its gradient",
    "",
    written(
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
    plausible=_writes_without_autograd,
)
