"""Variant *buffers*: half of the inputs are buffers of the module that is compiled.

A compiler lifts buffers to inputs of its graph. A write of `forward` into a buffer must be there
after the call. Buffers may share a storage with each other and with inputs.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import torch

from aliasproof.oracles.stage import Stage
from aliasproof.programs.errors import Rejected
from aliasproof.targets.captured import half
from aliasproof.targets.target import Build, CallsUser, Function, PlainBuild
from aliasproof.targets.tracing import untraced


class WithBuffers(torch.nn.Module):
    """A module that calls a function, with its buffers as the last arguments."""

    def __init__(self, function: Any, buffers: Any) -> None:
        super().__init__()
        self.function = function
        for index, buffer in enumerate(buffers):
            self.register_buffer(f"captured_{index}", buffer)

    def forward(self, *inputs: Any) -> Any:
        """Call it."""
        return self.function(*inputs, *self.buffers())


def own_inputs(function: Function, inputs: Sequence[torch.Tensor]) -> int:
    """How many inputs are no buffers. Of a user's function, what it captures becomes a buffer."""
    captured = getattr(function, "captured", None)
    if captured == 0 or not inputs:
        raise Rejected("no input can become a buffer")
    return len(inputs) - (half(inputs) if captured is None else captured)


def build(plain: PlainBuild, function: Function, inputs: Sequence[torch.Tensor]) -> Build:
    """Compile in the run, since only the run has the tensors that become buffers."""
    function = untraced(function)
    own = own_inputs(function, inputs)
    stages: list[Stage] = []

    def run(*tensors: torch.Tensor) -> object:
        compiled = plain(WithBuffers(function, tensors[own:]), inputs[:own])
        result = compiled.function(*tensors[:own])
        stages[:] = compiled.stages
        return result

    return Build(run, stages, "the compiled module has the buffers of one run")


def build_by_dynamo(plain: PlainBuild, function: Function, inputs: Sequence[torch.Tensor]) -> Build:
    """The same, but a user's own function is compiled as it is, with the buffers that it has."""
    if not isinstance(function, CallsUser):
        return build(plain, function, inputs)
    own_inputs(function, inputs)
    return plain(function, inputs)


def recipe(plain: str) -> str:
    """The source of `build`, from the recipe of the target without buffers."""
    module = plain.strip().replace("def compiled(", "def compiled_module(")
    # Its form for modules: `aot_function` takes no function that reads tensors beside its inputs.
    module = module.replace("aot_function", "aot_module")
    # `Module` of the recipe of *export* calls a program.
    return f"""
from typing import Any

{module}


{inspect.getsource(WithBuffers)}

def compiled(program, inputs):
    own = len(inputs) // 2

    def run(*tensors):
        module = WithBuffers(program, tensors[own:])
        return compiled_module(module, inputs[:own])(*tensors[:own])

    return run
"""
