"""Variant *captured*: some tensors are no inputs; the compiled function closes over them.

Of a program, the last half of the inputs is captured. Of a user's function, those tensors are that
it captures itself: such a function says in `captured` how many of its last inputs these are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from aliasproof.eager.trace import Trace
from aliasproof.ir.errors import Rejected
from aliasproof.oracles.contract import Precondition, Refusal
from aliasproof.oracles.stage import Stage
from aliasproof.targets.target import Build, CallsUser, Function, PlainBuild
from aliasproof.targets.tracing import untraced


def captured_are_not_written(trace: Trace) -> bool:
    """No captured tensor is on a storage that is written."""
    count = trace.captured if trace.captured is not None else half(trace.inputs)
    captured = trace.inputs[len(trace.inputs) - count :]
    return not any(view.storage in trace.written for view in captured)


def half(inputs: Sequence[Any]) -> int:
    """How many inputs of a program are captured."""
    return (len(inputs) + 1) // 2


NOT_WRITTEN = Precondition(
    "captured tensors are not written",
    "a trace keeps a captured tensor as an attribute of the graph and runs all calls, so a write"
    " changes it while it is traced (torch/fx/experimental/proxy_tensor.py, at 'tensor constants"
    " get interned as buffers'; pytorch/pytorch#107538)",
    captured_are_not_written,
)


def _some_captured(trace: Trace) -> bool:
    """The function captures a tensor."""
    return True  # of every function that this variant compiles


NOT_WRAPPED = Refusal(
    "a write of an input into what comes from captured tensors alone",
    r"mutating a non-functional tensor with a functional tensor is not allowed",
    "functionalize wraps its inputs only, and the error asks to pass all tensors as inputs",
    _some_captured,
)


def build(plain: PlainBuild, function: Function, inputs: Sequence[torch.Tensor]) -> Build:
    """Compile in the run, since only the run has the tensors that are captured."""
    function = untraced(function)
    given = getattr(function, "captured", None)
    count = half(inputs) if given is None else given
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
