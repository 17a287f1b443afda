"""An output that is an input is another object once other inputs are merged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from torch._functorch._aot_autograd.schemas import OutputType

from aliasproof.corpus.known_bug import KnownBug, inputs_share, program_of, view
from aliasproof.corpus.mends import MERGED_INPUTS, mends


@mends(MERGED_INPUTS)
def mended(original: Callable[..., Any], metadata: Any, merged: Sequence[Any], *rest: Any) -> Any:
    """An output that is an input which was not merged stays that input.

    Torch takes a new index of the input for a new base, but inputs also move when others are
    merged.
    """
    created, indices = original(metadata, merged, *rest)
    outputs = list(created.output_info)
    for position, info in enumerate(metadata.output_info):
        if info.output_type is OutputType.is_input and isinstance(merged[info.base_idx], int):
            outputs[position] = replace(outputs[position], output_type=OutputType.is_input)
    return replace(created, output_info=outputs), indices


BUG = KnownBug(
    "renumbered-input",
    "an output that is an input becomes another object if other inputs are merged",
    "https://github.com/pytorch/pytorch/pull/187111",
    program_of(
        """
        aten.add_.Scalar(x0, 1)
        return (x2,)
        """,
        view(2, storage=0),
        view(2, storage=0),
        view(2, storage=1),
    ),
    ("aot", "aot-epilogue"),
    ("2.13",),
    mended,
    plausible=inputs_share,
    rank=50,
)
