"""Variant *captured*: some tensors are no inputs; the compiled function closes over them.

Of a program, the last half of the inputs is captured. Of a user's function, those tensors are that
it captures itself: such a function says in `captured` how many of its last inputs these are.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from aliasproof.eager.trace import Trace
from aliasproof.ir.errors import Rejected
from aliasproof.oracles.contract import Precondition, Refusal, always
from aliasproof.oracles.stage import Stage
from aliasproof.targets.target import Build, CallsUser, Function, PlainBuild
from aliasproof.targets.tracing import untraced


def captured_are_not_written(trace: Trace) -> bool:
    """No captured tensor is on a storage that is written."""
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


def build(plain: PlainBuild, function: Function, inputs: Sequence[torch.Tensor]) -> Build:
    """Compile in the run, since only the run has the tensors that are captured."""
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


def build_by_dynamo(plain: PlainBuild, function: Function, inputs: Sequence[torch.Tensor]) -> Build:
    """The same, but a user's own function is compiled as it is, with all that it captures."""
    if not isinstance(function, CallsUser):
        return build(plain, function, inputs)
    if not getattr(function, "captured", 0):
        raise Rejected("the function captures no tensor")
    return plain(function, inputs)


def recipe(plain: str) -> str:
    """The source of `build`, from the recipe of the target that captures nothing."""
    return f"""{plain.replace("def compiled(", "def capturing(")}

def compiled(program, inputs):
    own = len(inputs) // 2

    def run(*tensors):
        captured = tensors[own:]
        closed = capturing(lambda *rest: program(*rest, *captured), inputs[:own])
        return closed(*tensors[:own])

    return run
"""
