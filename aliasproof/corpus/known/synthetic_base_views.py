"""Views of an input that was merged into a synthetic base are replayed on that base."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from aliasproof.corpus.known_bug import KnownBug, inputs_share, program_of, view
from aliasproof.corpus.mends import MERGED_INPUTS, mends


@mends(MERGED_INPUTS)
def mended(original: Callable[..., Any], metadata: Any, merged: Sequence[Any], *rest: Any) -> Any:
    """Outputs that are views of a merged input are made from their sizes, strides and offset.

    That is the correction of pytorch/pytorch#198097. No sizes and strides make a view of another
    dtype, so such a view is replayed.
    """
    outputs = [
        replace(info, view_meta_sequence=None)
        if info.base_idx is not None
        and isinstance(merged[info.base_idx], tuple)
        and not _changes_dtype(info.view_meta_sequence)
        else info
        for info in metadata.output_info
    ]
    return original(replace(metadata, output_info=outputs), merged, *rest)


def _changes_dtype(views: Any) -> bool:
    return views is not None and any(
        type(view).__name__.startswith("view_dtype") for view in views.sequence
    )


BUG = KnownBug(
    "synthetic-base-views",
    "an output that is a view of a merged input is replayed on the synthetic base",
    "https://github.com/pytorch/pytorch/issues/198095",
    program_of(
        """
        aten.add_.Scalar(x0, 1)
        v0 = aten.slice.Tensor(x0, 0, 0, 1)
        v1 = aten.add.Scalar(x1, 1)
        return v0, v1
        """,
        view(1, offset=1, storage=0),
        view(2, storage=0),
    ),
    ("aot", "aot-epilogue"),
    ("2.13", "2.15"),
    mended,
    plausible=inputs_share,
    rank=40,
)
