"""Variants *captured*, *buffers* and *kept-buffers*: half of the inputs are not passed as such.

In *captured*, the compiled function closes over the last half of the inputs of a program. A user's
function captures tensors itself: its attribute `captured` says how many, and they come last.

In *buffers*, that half are buffers of a compiled module. A compiler lifts buffers to inputs of its
graph. What `forward` writes into a buffer must be visible after the call. Buffers may share a
storage with each other and with inputs.

In *kept-buffers*, the module is compiled once and called twice. A compiler that copies buffers must
keep the writes of the first call in its copies.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from aliasproof.eager.trace import Trace
from aliasproof.ir.errors import Rejected
from aliasproof.ir.regions import Region, overlaps_itself
from aliasproof.oracles.contract import Precondition, Refusal, always
from aliasproof.oracles.stage import Stage
from aliasproof.targets.target import Build, CallsUser, Function, MakeInputs, PlainBuild, source_of
from aliasproof.targets.tracing import untraced

# --- captured tensors -----------------------------------------------------------------------------


def captured_are_not_written(trace: Trace) -> bool:
    """Whether the trace writes no storage of a captured tensor."""
    captured = trace.inputs[len(trace.inputs) - captured_count(trace, trace.inputs) :]
    return not any(view.storage in trace.written for view in captured)


def captured_count(of: object, inputs: Sequence[object]) -> int:
    """How many of the last inputs of a function, or of its trace, are captured."""
    count: int | None = getattr(of, "captured", None)
    return (len(inputs) + 1) // 2 if count is None else count


NOT_WRITTEN = Precondition(
    "captured tensors are not written",
    "a trace keeps a captured tensor as an attribute of the graph and runs all calls, so a write"
    " changes it while it is traced (torch/fx/experimental/proxy_tensor.py, at 'tensor constants"
    " get interned as buffers'; pytorch/pytorch#107538)",
    captured_are_not_written,
)


NOT_WRAPPED = Refusal(
    "a write of an input into what comes from captured tensors alone",
    r"mutating a non-functional tensor with a functional tensor is not allowed",
    "functionalize wraps its inputs only, and the error asks to pass all tensors as inputs",
    always,
)


def build_captured(plain: PlainBuild, function: Function, inputs: Sequence[torch.Tensor]) -> Build:
    """Compile inside the run: only there do the captured tensors exist."""
    function = untraced(function)
    count = captured_count(function, inputs)
    if not count:
        raise Rejected("the function captures no tensor")
    own = len(inputs) - count
    stages: list[Stage] = []

    def run(*tensors: torch.Tensor) -> object:
        captured = tensors[own:]
        compiled = plain(lambda *rest: function(*rest, *captured), inputs[:own])
        stages[:] = compiled.stages
        return compiled.function(*tensors[:own])

    return Build(run, stages, "the graph closes over the tensors of one run")


def build_captured_by_dynamo(
    plain: PlainBuild, function: Function, inputs: Sequence[torch.Tensor]
) -> Build:
    """As `build_captured`, but compile a user's function unchanged, with what it captures."""
    if not isinstance(function, CallsUser):
        return build_captured(plain, function, inputs)
    if not getattr(function, "captured", 0):
        raise Rejected("the function captures no tensor")
    return plain(function, inputs)


def recipe_of_captured(plain: str) -> str:
    """The source of `build_captured`, from the recipe of the target that captures nothing."""
    return f"""{plain.replace("def compiled(", "def capturing(")}

def compiled(program, inputs):
    own = len(inputs) // 2

    def run(*tensors):
        captured = tensors[own:]
        closed = capturing(lambda *rest: program(*rest, *captured), inputs[:own])
        return closed(*tensors[:own])

    return run
"""


# --- buffers --------------------------------------------------------------------------------------


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
    """How many inputs are no buffers. What a user's function captures becomes buffers."""
    count = captured_count(function, inputs)
    if not count:
        raise Rejected("no input can become a buffer")
    return len(inputs) - count


def build(plain: PlainBuild, function: Function, inputs: Sequence[torch.Tensor]) -> Build:
    """Compile inside the run: only there do the tensors exist that become buffers."""
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
    """As `build`, but compile a user's function unchanged, with its own buffers."""
    if not isinstance(function, CallsUser):
        return build(plain, function, inputs)
    own_inputs(function, inputs)
    return plain(function, inputs)


def recipe(plain: str) -> str:
    """The source of `build`, from the recipe of the target without buffers."""
    module = plain.strip().replace("def compiled(", "def compiled_module(")
    # Unlike `aot_module`, `aot_function` takes no function that reads tensors beside its inputs.
    module = module.replace("aot_function", "aot_module")
    # `Module` comes from the recipe of *export*: it calls a program.
    return f"""
from typing import Any

{module}


{source_of(WithBuffers)}

def compiled(program, inputs):
    own = len(inputs) // 2

    def run(*tensors):
        module = WithBuffers(program, tensors[own:])
        return compiled_module(module, inputs[:own])(*tensors[:own])

    return run
"""


# --- two calls ------------------------------------------------------------------------------------


class CalledAgain:
    """A function that is called twice. The last `own` inputs take the place of the first ones then.

    It returns what the second call returns.
    """

    def __init__(self, function: Any, own: int) -> None:
        self.function, self.own = function, own

    def __call__(self, *inputs: Any) -> Any:
        count = len(inputs) - self.own
        self.function(*inputs[:count])
        return self.function(*inputs[count:], *inputs[self.own : count])


class CopiedBuffers(WithBuffers):
    """A module that also returns copies of its buffers: a compiler may keep them to itself."""

    def forward(self, *inputs: Any) -> Any:
        """Call it."""
        return super().forward(*inputs), [buffer.clone() for buffer in self.buffers()]


def call_again(compiled: Any, own: int, tensors: Any) -> Any:
    """Make both calls of a compiled `CopiedBuffers`, and leave in the tensors what it kept."""
    count = len(tensors) - own
    compiled(*tensors[:own])
    outputs, kept = compiled(*tensors[count:])
    for tensor, new in zip(tensors[own:count], kept, strict=True):
        tensor.copy_(new)
    return outputs


def conditions(
    function: Function, inputs: MakeInputs, second_inputs: MakeInputs | None
) -> tuple[Function, MakeInputs]:
    """Two calls with equal inputs, on the same buffers."""
    given = inputs()
    own = len(given) - captured_count(function, given)

    def made() -> list[torch.Tensor]:
        if any(overlaps_itself(Region.of(x)) for x in given[own_inputs(function, given) :]):
            raise Rejected("a buffer overlaps itself, so nothing can be copied into it")
        return [*inputs(), *inputs()[:own]]

    return CalledAgain(function, own), made


def build_kept(plain: PlainBuild, function: Function, inputs: Sequence[torch.Tensor]) -> Build:
    """Compile once, inside the run, with the tensors that become buffers."""
    assert isinstance(function, CalledAgain)
    called, own = untraced(function.function), function.own
    stages: list[Stage] = []

    def run(*tensors: torch.Tensor) -> object:
        compiled = plain(CopiedBuffers(called, tensors[own : len(tensors) - own]), inputs[:own])
        result = call_again(compiled.function, own, tensors)
        stages[:] = compiled.stages
        return result

    return Build(run, stages, "the compiled module has the buffers of one run")


def recipe_of_kept(plain: str) -> str:
    """The source of `build_kept` and `conditions`, from the recipe without buffers."""
    classes = "\n\n".join(map(source_of, (WithBuffers, CopiedBuffers, CalledAgain)))
    return f"""
from typing import Any

{plain.strip().replace("def compiled(", "def compiled_module(")}


{classes}

{source_of(call_again)}

def conditions(program, inputs):
    own = len(inputs()) // 2
    return CalledAgain(program, own), lambda: (*inputs(), *inputs()[:own])


def compiled(program, inputs):
    own = program.own

    def run(*tensors):
        module = CopiedBuffers(program.function, tensors[own : len(tensors) - own])
        return call_again(compiled_module(module, inputs[:own]), own, tensors)

    return run
"""
