"""In training, outputs that share memory are renumbered as if they shared it with inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from torch._functorch._aot_autograd.schemas import OutputType

from aliasproof.corpus.known_bug import KnownBug, inputs_share, program_of, view
from aliasproof.corpus.mends import MERGED_INPUTS, mends

_OF_INPUTS = (OutputType.alias_of_input, OutputType.is_input)


@mends(MERGED_INPUTS)
def mended(original: Callable[..., Any], metadata: Any, merged: Sequence[Any], *rest: Any) -> Any:
    """The base of an output that is a view of another output keeps its index.

    Torch looks up each index of a base among the inputs, and inputs move when others are merged.
    """
    outputs = [
        info if info.output_type in _OF_INPUTS else replace(info, base_idx=None)
        for info in metadata.output_info
    ]
    created, indices = original(replace(metadata, output_info=outputs), merged, *rest)
    restored = [
        now if before.output_type in _OF_INPUTS else replace(now, base_idx=before.base_idx)
        for before, now in zip(metadata.output_info, created.output_info, strict=False)
    ]
    # Behind them are inputs whose metadata change.
    added = created.output_info[len(restored) :]
    return replace(created, output_info=[*restored, *added]), indices


BUG = KnownBug(
    "renumbered-outputs",
    "in training, an output that is a view of another output becomes a view of a third one",
    "",
    program_of(
        """
        aten.add_.Scalar(x0, 1)
        v0 = aten.mul.Scalar(x0, 2)
        v1 = aten.mul.Scalar(x0, 3)
        v2 = aten.view.default(v1, [2])
        return v0, v1, v2
        """,
        view(2, storage=0),
        view(2, storage=0),
    ),
    ("aot:grad",),
    ("2.13",),
    mended,
    plausible=inputs_share,
    rank=630,
)
