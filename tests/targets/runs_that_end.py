"""What a run of a compiled function leaves behind."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from aliasproof.judge.trial import Case
from aliasproof.oracles.observation import observe
from aliasproof.targets.target import Function


def ends(case: Case, compile_: Callable[[Function, Sequence[Tensor]], Function]) -> object:
    """What a run leaves behind, in a form that can be compared."""

    def run(*inputs: Tensor) -> object:
        return compile_(case.function, case.fresh_inputs())(*inputs)

    seen = observe(run, case.fresh_inputs())
    if seen.error is not None:
        return type(seen.error)
    return [
        (tensor.dtype, tensor.stride(), tensor.storage_offset(), str(tensor.tolist()))
        for tensor in seen.tensors().values()
    ]
