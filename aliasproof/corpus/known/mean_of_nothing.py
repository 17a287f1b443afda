"""The mean that Inductor computes beside a variance is 0 where nothing is reduced."""

from __future__ import annotations

from typing import Any

import torch

from aliasproof.corpus.known_bug import KnownBug, calls, program_of, view
from aliasproof.corpus.mends import LOWERINGS, mends, run_in_eager

aten = torch.ops.aten


@mends(LOWERINGS, keys=(aten.var_mean.correction,))
def mended(original: Any, *args: Any, **kwargs: Any) -> Any:
    """Eager's kernel reduces what has no element."""
    if 0 in args[0].get_size():
        return run_in_eager(aten.var_mean.correction, *args, **kwargs)
    return original(*args, **kwargs)


BUG = KnownBug(
    "mean-of-nothing",
    "the mean of var_mean and std_mean of an empty tensor is 0, and nan in eager",
    "https://github.com/pytorch/pytorch/issues/197108",
    program_of(
        """
        v0, v1 = aten.var_mean.correction(x0, [0], correction=-1)
        return (v1,)
        """,
        view(0),
    ),
    ("inductor",),
    ("2.13",),
    mended,
    plausible=lambda program: calls(program, "var_mean", "std_mean"),
    rank=1030,
)
