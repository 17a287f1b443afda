"""Variant *second-call*: a function is compiled for inputs of other sharing, and called again.

`aot_function` compiles once and checks nothing in later calls. What a graph assumes about sharing
and layouts of its inputs is checked by the guards of Dynamo: AOTAutograd hands it `DuplicateInputs`
and `StorageOverlap` guards (torch/_functorch/_aot_autograd/input_output_analysis.py,
`compute_overlapping_inputs`; torch/_guards.py). So only through Dynamo is a second call with inputs
of other sharing promised to be right.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence

import torch

from programs.definedness import Watch
from programs.errors import InternalError, Rejected
from programs.values import clone_inputs
from targets.target import Build, Function, MakeInputs


class CalledBefore:
    """A function, and the inputs of a call that comes before the one that is compared."""

    def __init__(self, function: Function, first_inputs: MakeInputs) -> None:
        self.function, self.first_inputs = function, first_inputs

    def __call__(self, *inputs: torch.Tensor) -> object:
        return self.function(*inputs)


def conditions(
    function: Function, inputs: MakeInputs, second_inputs: MakeInputs | None
) -> tuple[Function, MakeInputs]:
    """With second inputs, these are compared, and the first ones are for the call before."""
    if second_inputs is None:
        return function, inputs
    return CalledBefore(function, inputs), second_inputs


def first_inputs(inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """The same tensors in other storages: apart if some share one, else together."""
    storages = [x.untyped_storage() for x in inputs]
    if len({storage._cdata for storage in storages}) < len(inputs):
        found = [(storage.clone(), 0) for storage in storages]
    elif len({x.dtype for x in inputs}) < len(inputs):
        by_size = sorted(zip(storages, inputs, strict=True), key=lambda pair: pair[0].nbytes())
        largest = {x.dtype: storage.clone() for storage, x in by_size}
        found = [(largest[x.dtype], 0) for x in inputs]
    else:  # nothing can be shared: begin one element later
        flat = [x.new_empty(0, dtype=torch.uint8).set_(x.untyped_storage()) for x in inputs]
        found = [
            (torch.cat([f[: x.itemsize], f]).untyped_storage(), 1)
            for f, x in zip(flat, inputs, strict=True)
        ]
    return [
        x.new_empty(0).set_(storage, x.storage_offset() + later, x.shape, x.stride())
        for x, (storage, later) in zip(inputs, found, strict=True)
    ]


def build(
    plain: Callable[[Function, Sequence[torch.Tensor]], Build],
    function: Function,
    inputs: Sequence[torch.Tensor],
) -> Build:
    """Compile, and make the first call."""
    called = function.function if isinstance(function, CalledBefore) else function
    found = plain(called, inputs)
    _call_before(function, found.function, inputs)
    return Build(
        found.function, found.stages, "guards choose among the graphs of several compilations"
    )


def _call_before(function: Function, compiled: Function, inputs: Sequence[torch.Tensor]) -> None:
    """Make the first call. Raises `Rejected` if it fails, or is undefined in eager."""
    first = (
        list(function.first_inputs())
        if isinstance(function, CalledBefore)
        else first_inputs(list(inputs))
    )
    eager = clone_inputs(first)
    try:
        with Watch(eager):
            function(*eager)
        compiled(*first)
    except Rejected as reason:
        raise Rejected(f"the first call is undefined in eager: {reason}") from reason
    except InternalError:
        raise
    # Only the second call is compared: target `dynamo` shows what is wrong with one call.
    except Exception as error:
        raise Rejected(f"the first call raises {type(error).__name__}: {error}") from error


def recipe(plain: str) -> str:
    """The source of `build`, from the recipe of the target without a first call."""
    return f"""
{plain.strip().replace("def compiled(", "def compiled_once(")}


{inspect.getsource(first_inputs)}

def compiled(program, inputs):
    function = compiled_once(program, inputs)
    function(*first_inputs(inputs))
    return function
"""
