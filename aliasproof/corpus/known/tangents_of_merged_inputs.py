"""Two written inputs that are merged into one base still count as two gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from aliasproof.corpus.known_bug import KnownBug, inputs_share, program_of, view
from aliasproof.corpus.mends import MERGED_INPUTS, mends


@mends(MERGED_INPUTS)
def mended(original: Callable[..., Any], metadata: Any, merged: Sequence[Any], *rest: Any) -> Any:
    """The gradients of all written inputs make room for those of the bases.

    In `create_synthetic_base_metadata`, torch drops as many gradients as there are bases, but there
    was one for each written input.
    """
    created, indices = original(metadata, merged, *rest)
    before, after = _gradient_count(metadata), _gradient_count(created)
    for name in ("traced_tangents", "traced_tangents_descs", "subclass_tangent_meta"):
        of_bases = getattr(created, name)[:after]
        setattr(created, name, of_bases + getattr(metadata, name)[before:])
    return created, indices


def _gradient_count(metadata: Any) -> int:
    return sum(info.mutates_data and info.requires_grad for info in metadata.input_info)


BUG = KnownBug(
    "tangents-of-merged-inputs",
    "AOTAutograd asserts in training if two inputs on one storage are written",
    "",
    program_of(
        """
        aten.add_.Scalar(x0, 1)
        aten.add_.Scalar(x1, 1)
        return ()
        """,
        view(2, storage=0),
        view(2, storage=0),
    ),
    ("aot:grad", "aot-epilogue:grad"),
    ("2.13", "2.15"),
    mended,
    plausible=inputs_share,
    rank=290,
)
