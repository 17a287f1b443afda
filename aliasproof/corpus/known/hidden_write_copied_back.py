"""AOTAutograd copies under autograd what was written to an input and autograd did not see."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

from aliasproof.corpus.known_bug import KnownBug, calls, view, written
from aliasproof.programs.custom_operators import NAMESPACE
from aliasproof.programs.program import Program


@contextlib.contextmanager
def mended() -> Iterator[None]:
    """An input whose writes autograd does not see is written back as a leaf is.

    Such writes are under `no_grad`, to a detached view, or by a custom operator. Torch copies to a
    detached leaf, since autograd would raise. For other inputs, the copy becomes the `grad_fn`, and
    the gradient of what was copied is zero.
    """
    # Imported here: it takes two seconds, and other bugs do without.
    from torch._functorch._aot_autograd import runtime_wrappers  # noqa: PLC0415
    from torch._functorch._aot_autograd.schemas import InputAliasInfo  # noqa: PLC0415

    original = InputAliasInfo.__post_init__
    merge: Any = vars(runtime_wrappers)["create_synthetic_base_metadata"]
    changed: list[InputAliasInfo] = []

    def post_init(self: InputAliasInfo) -> None:
        original(self)
        hidden = self.mutations_under_no_grad_or_inference_mode
        if (hidden or self.mutations_hidden_from_autograd) and not self.is_leaf:
            object.__setattr__(self, "is_leaf", True)
            changed.append(self)

    def merged(*args: Any, **kwargs: Any) -> Any:
        # Torch asserts that all or none of the inputs that it merges are leaves.
        for info in changed:
            object.__setattr__(info, "is_leaf", False)
        return merge(*args, **kwargs)

    with (
        mock.patch.object(InputAliasInfo, "__post_init__", post_init),
        mock.patch.object(runtime_wrappers, "create_synthetic_base_metadata", merged),
    ):
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
    plausible=_hides_a_write,
)
