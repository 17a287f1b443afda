"""Variants in which inputs are passed otherwise: half of them as what a function has, or one twice.

In *captured*, the compiled function closes over the last half of the inputs of a program. A user's
function captures tensors itself: its attribute `captured` says how many, and they come last.

In *buffers*, that half are buffers of a compiled module. A compiler lifts buffers to inputs of its
graph. What `forward` writes into a buffer must be visible after the call. Buffers may share a
storage with each other and with inputs.

In *kept-buffers*, the module is compiled once and called twice. A compiler that copies buffers must
keep the writes of the first call in its copies.

In *freezing*, Inductor may inline the buffers. With `torch._inductor.config.freezing`, it makes
constants of the parameters and buffers that the graph does not mutate, and folds what is computed
from them (torch/_inductor/freezing.py). It does so only without gradients.

In *same-input*, one tensor object is passed twice, as in `f(x, x)`, in eager too. AOTAutograd
compiles the function without the second one (`AOTDedupeWrapper` in
torch/_functorch/_aot_autograd/runtime_wrappers.py). Dynamo deduplicates earlier, and guards it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import fx
from torch._inductor import config

from aliasproof.eager.trace import Trace
from aliasproof.ir.errors import InternalError, Rejected
from aliasproof.ir.execution import ProgramFunction, as_graph
from aliasproof.ir.program import Program
from aliasproof.ir.regions import Region, overlaps_itself
from aliasproof.oracles.contract import Precondition, Refusal, always
from aliasproof.oracles.stage import Stage
from aliasproof.targets.target import (
    Build,
    CallsUser,
    Function,
    MakeInputs,
    PlainBuild,
    UserRun,
    conditions_after,
    renamed,
    source_of,
)
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


def _compile_inside(
    plain: PlainBuild,
    inputs: Sequence[torch.Tensor],
    close: Callable[[Sequence[torch.Tensor]], Function],
    opaque: str,
) -> Build:
    """Compile what `close` makes of all tensors of a run, for the first ones of them, the `inputs`.

    That happens inside the run: only there do the tensors exist.
    """
    stages: list[Stage] = []

    def run(*tensors: torch.Tensor) -> object:
        compiled = plain(close(tensors), inputs)
        result = compiled.function(*tensors[: len(inputs)])
        stages[:] = compiled.stages
        return result

    return Build(run, stages, opaque)


def build_captured(plain: PlainBuild, function: Function, inputs: Sequence[torch.Tensor]) -> Build:
    """Compile a function that closes over the last inputs."""
    function = untraced(function)
    count = captured_count(function, inputs)
    if not count:
        raise Rejected("the function captures no tensor")
    own = len(inputs) - count

    def close(tensors: Sequence[torch.Tensor]) -> Function:
        return lambda *rest: function(*rest, *tensors[own:])

    opaque = "the graph closes over the tensors of one run"
    return _compile_inside(plain, inputs[:own], close, opaque)


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
    """Compile a module whose buffers are the last inputs."""
    function = untraced(function)
    own = own_inputs(function, inputs)
    opaque = "the compiled module has the buffers of one run"
    return _compile_inside(
        plain, inputs[:own], lambda tensors: WithBuffers(function, tensors[own:]), opaque
    )


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


# --- freezing -------------------------------------------------------------------------------------


FREEZING = "freezing"  # the variant, and the setting


def written_through_itself_alone(trace: Trace) -> bool:
    """Whether no buffer on a written storage shares it with another input."""
    buffers = trace.inputs[len(trace.inputs) - captured_count(trace, trace.inputs) :]
    storages = [view.storage for view in trace.inputs]
    return not any(
        view.storage in trace.written and storages.count(view.storage) > 1 for view in buffers
    )


ONE_VIEW = Precondition(
    "written buffers share no storage",
    "'After freezing, weights can no longer be updated' (torch/_inductor/config.py). Only those"
    " that the graph mutates itself are kept (_freeze in torch/_inductor/freezing.py)",
    written_through_itself_alone,
)


class ProgramWithBuffers(fx.GraphModule):
    """A program as a graph whose last inputs are buffers. Inductor compiles the graph unchanged."""

    @classmethod
    def of(cls, program: Program, buffers: Sequence[torch.Tensor]) -> ProgramWithBuffers:
        """Lift the last inputs of the program to these buffers."""
        graph, module = as_graph(program), torch.nn.Module()
        captured = graph.find_nodes(op="placeholder")[-len(buffers) :]
        for index, (node, buffer) in enumerate(zip(captured, buffers, strict=True)):
            name = f"captured_{index}"
            module.register_buffer(name, buffer)
            with graph.inserting_before(node):
                node.replace_all_uses_with(graph.get_attr(name))
            graph.erase_node(node)
        return cls(module, graph)


def build_frozen(plain: PlainBuild, function: Function, inputs: Sequence[torch.Tensor]) -> Build:
    """Compile with buffers. A user's function is compiled unchanged, with its own ones."""
    if getattr(function, "captured", None) == len(inputs) or not inputs:
        raise Rejected("no input can become a buffer")
    if isinstance(function, CallsUser):
        compiled = plain(_WithoutGradients(function), inputs)
    else:
        own = len(inputs) - captured_count(function, inputs)

        def close(tensors: Sequence[torch.Tensor]) -> Function:
            if isinstance(function, ProgramFunction):
                return ProgramWithBuffers.of(function.program, tensors[own:])
            return WithBuffers(function, tensors[own:])

        inside = _compile_inside(plain, inputs[:own], close, "")
        compiled = replace(inside, function=torch.no_grad()(inside.function))

    def run(*tensors: torch.Tensor) -> object:
        # Dynamo reads the setting in the first call.
        with config.patch({FREEZING: True}):
            return compiled.function(*tensors)

    return Build(run, compiled.stages, "the graph has constants of one run")


class _WithoutGradients:
    """A user's function that is called without gradients."""

    def __init__(self, function: CallsUser) -> None:
        self.function = function

    def run_compiled(
        self, passed: Sequence[torch.Tensor], compiler: Callable[[Function], Function]
    ) -> UserRun:
        """Compile the user's function with `compiler`, and run it without gradients."""
        return self.function.run_compiled(passed, lambda own: torch.no_grad()(compiler(own)))

    def __call__(self, *passed: torch.Tensor) -> object:
        raise InternalError("only a compiler of Python code freezes a user's function")


def recipe_of_frozen(plain: str) -> str:
    """The source of `build_frozen`, from the recipe of the target without buffers."""
    return f"""
from typing import Any

import torch._inductor.config
{plain.replace("def compiled(", "def compiled_module(")}

{source_of(WithBuffers)}

def compiled(program, inputs):
    own = len(inputs) // 2

    def run(*tensors):
        torch._inductor.config.freezing = True
        module = WithBuffers(program, tensors[own:])
        with torch.no_grad():
            return compiled_module(module, tensors[:own])(*tensors[:own])

    return run
"""


# --- same input -----------------------------------------------------------------------------------


def passed_twice(inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """The inputs; of two with equal sizes and dtypes, the earlier one is passed for both."""
    given = list(inputs)
    for later in reversed(range(len(given))):
        for x in given[:later]:
            if (x.shape, x.dtype) == (given[later].shape, given[later].dtype):
                given[later] = x
                return given
    return given


def conditions_of_same(
    function: Function, inputs: MakeInputs, second_inputs: MakeInputs | None
) -> tuple[Function, MakeInputs]:
    """The function, and inputs of which two are one object."""

    def made() -> list[torch.Tensor]:
        given = passed_twice(list(inputs()))
        if len(set(map(id, given))) == len(given):
            raise Rejected("no two inputs have equal sizes and dtypes")
        return given

    return function, made


def recipe_of_same(plain: str) -> str:
    """The recipe of a target, with two inputs that are one tensor."""
    return f"""
{renamed(plain, "compiled")}


{source_of(passed_twice)}

{conditions_after(plain, "program, lambda: passed_twice(inputs())")}
"""
