"""Target *dynamo*: the graph that Dynamo captures, run as it is.

Dynamo reads Python code and refuses to run under a `TorchDispatchMode`. So it gets a program as
plain Python source, and value hashes come from the captured graph alone.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from aliasproof.oracles.contract import Contract, Promise, Waiver
from aliasproof.oracles.stage import Stage
from aliasproof.targets.captured_graph import CapturedGraph
from aliasproof.targets.clauses import BODY_CAPTURED_WHOLE, FORGETFUL_CACHE, MISSING_METADATA
from aliasproof.targets.target import Build, Function, Target
from aliasproof.targets.tracing import PLAIN, Tracing, untraced
from aliasproof.targets.variants import CONTROL_FLOW, GUARDED, SYMBOLIC

CONTRACT = Contract(
    waivers=(
        Waiver(Promise.GRAPHS, "a captured graph mutates where the program does"),
        FORGETFUL_CACHE,
        MISSING_METADATA,
    ),
    refusals=(BODY_CAPTURED_WHOLE,),
)


def build(function: Function, inputs: Sequence[torch.Tensor], tracing: Tracing = PLAIN) -> Build:
    """Compile in the first call, with a backend that returns the graph."""
    stages: list[Stage] = []

    def backend(graph: fx.GraphModule, _: Sequence[object]) -> Callable[..., object]:
        stages.append(Stage("captured graph", graph, functional=False, whole=False))
        return graph

    captured = compiled(function, backend, tracing)
    return Build(captured, stages, replay=captured.replay)


def unmeasured() -> None:
    """Let this process compile without measuring guards.

    After each compilation, Dynamo flushes the processor's caches and times its guards, for a log.
    That takes a quarter of the time of a small program, and changes nothing.
    """
    guards: Any = importlib.import_module("torch._dynamo.guards")  # it takes a second
    guards.profile_guard_manager = lambda *_: 0.0


def compiled(function: Function, backend: Any, tracing: Tracing = PLAIN) -> CapturedGraph:
    """`torch.compile` with a backend, as for a function that was never compiled."""
    unmeasured()
    # What was compiled for earlier programs would count towards the limit of compilations.
    torch._dynamo.reset()
    # A program gets a code object that belongs to no other program.
    return CapturedGraph(untraced(function), backend, dynamic=tracing.symbolic or None)


def recipe(tracing: Tracing = PLAIN, backend: str = "eager") -> str:
    """The source of `build`."""
    return f"""
def compiled(program, inputs):
    return torch.compile(program, backend="{backend}"{tracing.dynamic})
"""


TARGET = Target(
    name="dynamo",
    summary='torch.compile(backend="eager"): the graph that Dynamo captures, run in eager',
    contract=CONTRACT,
    build=build,
    recipe=recipe(),
    traced_recipe=recipe,
    variants=(SYMBOLIC, *GUARDED, *CONTROL_FLOW),
    backend="eager",
)
