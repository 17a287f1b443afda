"""Variant *same-input*: one tensor object is passed twice, as in `f(x, x)`, in eager too.

AOTAutograd compiles the function without the second one (`AOTDedupeWrapper` in
torch/_functorch/_aot_autograd/runtime_wrappers.py). Dynamo deduplicates earlier, and guards it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from aliasproof.ir.errors import Rejected
from aliasproof.targets.target import (
    Build,
    Function,
    MakeInputs,
    PlainBuild,
    conditions_after,
    renamed,
    source_of,
)


def passed_twice(inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """The inputs; of two with equal sizes and dtypes, the earlier one is passed for both."""
    given = list(inputs)
    for later in reversed(range(len(given))):
        for x in given[:later]:
            if (x.shape, x.dtype) == (given[later].shape, given[later].dtype):
                given[later] = x
                return given
    return given


def conditions(
    function: Function, inputs: MakeInputs, second_inputs: MakeInputs | None
) -> tuple[Function, MakeInputs]:
    """The function, and inputs of which two are one object."""

    def made() -> list[torch.Tensor]:
        given = passed_twice(list(inputs()))
        if len(set(map(id, given))) == len(given):
            raise Rejected("no two inputs have equal sizes and dtypes")
        return given

    return function, made


def build(plain: PlainBuild, function: Function, inputs: Sequence[torch.Tensor]) -> Build:
    """Compile as the target does; only the inputs differ."""
    return plain(function, inputs)


def recipe(plain: str) -> str:
    """The recipe of a target, with two inputs that are one tensor."""
    return f"""
{renamed(plain, "compiled")}


{source_of(passed_twice)}

{conditions_after(plain, "program, lambda: passed_twice(inputs())")}
"""
