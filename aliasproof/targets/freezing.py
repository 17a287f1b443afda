"""Variant *freezing*: half of the inputs are buffers of a module, which Inductor may inline.

With `torch._inductor.config.freezing`, Inductor makes constants of the parameters and buffers that
the graph does not mutate, and folds what is computed from them (torch/_inductor/freezing.py). It
does so only without gradients.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from aliasproof.eager.trace import Trace
from aliasproof.ir.errors import InternalError, Rejected
from aliasproof.ir.execution import ProgramFunction, as_graph
from aliasproof.ir.program import Program
from aliasproof.oracles.contract import Precondition
from aliasproof.targets.buffers import WithBuffers, captured_count
from aliasproof.targets.target import Build, CallsUser, Function, PlainBuild, UserRun

NAME = "freezing"
SETTING = {NAME: True}


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


def build(plain: PlainBuild, function: Function, inputs: Sequence[torch.Tensor]) -> Build:
    """Compile inside the run: only there do the tensors exist that become buffers."""
    if getattr(function, "captured", None) == len(inputs) or not inputs:
        raise Rejected("no input can become a buffer")
    if isinstance(function, CallsUser):
        return _build_user(plain, function, inputs)
    own = len(inputs) - captured_count(function, inputs)
    stages: list[Any] = []

    def run(*tensors: torch.Tensor) -> object:
        module: Any = (
            ProgramWithBuffers.of(function.program, tensors[own:])
            if isinstance(function, ProgramFunction)
            else WithBuffers(function, tensors[own:])
        )
        # Imported here: this takes two seconds, and other targets do not need it.
        from torch._inductor import config  # noqa: PLC0415

        # Dynamo reads the setting in the first call.
        with torch.no_grad(), config.patch(SETTING):
            compiled = plain(module, inputs[:own])
            stages[:] = compiled.stages
            return compiled.function(*tensors[:own])

    return Build(run, stages, "the graph has constants of one run")


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


def _build_user(plain: PlainBuild, function: CallsUser, inputs: Sequence[torch.Tensor]) -> Build:
    """Compile a user's function unchanged, with its own parameters and buffers."""
    compiled = plain(_WithoutGradients(function), inputs)

    def run(*tensors: torch.Tensor) -> object:
        from torch._inductor import config  # noqa: PLC0415 - as above

        with config.patch(SETTING):
            return compiled.function(*tensors)

    return Build(run, compiled.stages, "the graph has constants of one run")


def recipe(plain: str) -> str:
    """The source of `build`, from the recipe of the target without buffers."""
    return f"""
from typing import Any

import torch._inductor.config
{plain.replace("def compiled(", "def compiled_module(")}

{inspect.getsource(WithBuffers)}

def compiled(program, inputs):
    own = len(inputs) // 2

    def run(*tensors):
        torch._inductor.config.freezing = True
        module = WithBuffers(program, tensors[own:])
        with torch.no_grad():
            return compiled_module(module, tensors[:own])(*tensors[:own])

    return run
"""
