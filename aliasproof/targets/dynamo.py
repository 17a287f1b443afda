"""Target *dynamo*: the graph that Dynamo captures, run as it is.

Dynamo reads Python code and refuses to run under a `TorchDispatchMode`. So a program is given to it
as plain Python source, and value hashes come only from the captured graph.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import fx
from torch._dynamo.utils import counters
from torch._inductor import config
from torch.utils import _pytree as pytree

from aliasproof.oracles.contract import Contract, Promise, Waiver
from aliasproof.oracles.stage import Stage
from aliasproof.targets.clauses import BODY_CAPTURED_WHOLE, FORGETFUL_CACHE, MISSING_METADATA
from aliasproof.targets.target import Build, CallsUser, Function, Target, UserRun
from aliasproof.targets.tracing import PLAIN, Tracing, untraced
from aliasproof.targets.variants import CONTROL_FLOW, GUARDED, SYMBOLIC


def drawing_as_eager() -> AbstractContextManager[object]:
    """A context in which a compiler draws the same random numbers as eager.

    Without the setting, Inductor removes draws that nobody reads, so later draws get other numbers.
    That is intended (pytorch/pytorch#147790, `torch/fx/graph.py`).
    """
    drawing: AbstractContextManager[object] = config.patch(DRAWS_AS_EAGER)
    return drawing


DRAWS_AS_EAGER = {"fallback_random": True}
# The same for a script that gives the compiler no options.
DRAWING_AS_EAGER = """
import torch._inductor.config

torch._inductor.config.fallback_random = True
"""


# --- captured graph -------------------------------------------------------------------------------
#
# `CapturedGraph`: the graph that Dynamo captured from a function, to be run again without Dynamo.
#
# Dynamo does not run under a dispatch mode, and value hashes need one. But around a single graph
# Dynamo only passes inputs in and outputs out. So a replay runs the compiled graph by itself:
# its arguments are matched with the inputs, and the function's outputs with those of the graph, by
# identity.


class CapturedGraph:
    """A function compiled by `torch.compile` with a backend, in the first call.

    For a `CallsUser`, the user's own function is compiled, and called with the user's arguments.
    """

    def __init__(self, function: Any, backend: Callable[..., Any], **options: Any) -> None:
        self._function, self._backend = function, backend
        self._calls: list[tuple[Function, Sequence[object], object]] = []
        self._replay: Function | str = "the function was never called"
        self._whole = False
        # One object: Dynamo compares the backends of two calls by identity.
        self._compiler = functools.partial(torch.compile, backend=self._recorded, **options)
        self._compiled = None if isinstance(function, CallsUser) else self._compiler(function)

    def __call__(self, *inputs: torch.Tensor) -> object:
        """Run the compiled function."""
        self._calls.clear()
        before = _frames_and_breaks()
        if self._compiled is None:
            run = self._function.run_compiled(inputs, self._compiler)
            result: object = run.outputs
        else:
            result = self._compiled(*inputs)
            leaves = pytree.tree_leaves(result)
            run = UserRun(inputs, leaves, leaves)
        compiled = tuple(now - then for now, then in zip(_frames_and_breaks(), before, strict=True))
        # Whole: one frame, no graph break. A call that compiles nothing changes nothing here.
        self._whole = self._whole if compiled == (0, 0) else compiled == (1, 0)
        self._replay = self._replay_of(run)
        self._calls.clear()  # frees the tensors that they keep alive
        return result

    def replay(self) -> Function | str:
        """The last call as a function without Dynamo; or the reason why there is none."""
        return self._replay

    def _recorded(self, graph: torch.fx.GraphModule, inputs: Sequence[object]) -> Function:
        call = self._backend(graph, inputs)

        def run(*args: object) -> object:
            outputs = call(*args)
            self._calls.append((call, args, outputs))
            return outputs

        return run

    def _replay_of(self, run: UserRun) -> Function | str:
        if len(self._calls) != 1 or not self._whole:
            return "Dynamo runs a part of the function in Python, outside of a graph"
        call, args, outputs = self._calls[0]
        taken = [_position(arg, run.used) for arg in args]
        made = [*pytree.tree_leaves(outputs), *run.used]
        returned = [
            _position(leaf if isinstance(output, torch.Tensor) else output, made)
            for leaf, output in zip(run.left, run.outputs, strict=True)
        ]
        if None in taken:
            return "the graph of Dynamo reads a tensor that is no input"
        if None in returned:
            return "Dynamo makes an output outside of its graph"

        def replayed(*tensors: torch.Tensor) -> list[object]:
            given = [_at(place, tensors) for place in taken]
            available = [*pytree.tree_leaves(call(*given)), *tensors]
            return [_at(place, available) for place in returned]

        return replayed


def _frames_and_breaks() -> tuple[int, int]:
    """How many frames Dynamo compiled, and how many graph breaks it made, in this process."""
    return counters["frames"]["total"], sum(counters["graph_break"].values())


def _position(value: object, among: Sequence[object]) -> int | tuple[object] | None:
    """The index of a tensor, by identity; None if it is not there. Any other value in a tuple.

    Values that are no tensors, such as sizes, are the same in each run of one case.
    """
    if not isinstance(value, torch.Tensor):
        return (value,)
    return next((index for index, other in enumerate(among) if other is value), None)


def _at(place: Any, values: Sequence[object]) -> object:
    return place[0] if isinstance(place, tuple) else values[place]


# --- dynamo ---------------------------------------------------------------------------------------


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
    """Stop Dynamo from timing guards in this process.

    After each compilation, Dynamo flushes the processor's caches and times its guards, for a log.
    For a small program, that takes a quarter of the time.
    """
    guards: Any = torch._dynamo.guards
    guards.profile_guard_manager = lambda *_: 0.0


def compiled(function: Function, backend: Any, tracing: Tracing = PLAIN) -> CapturedGraph:
    """`torch.compile` with a backend, with Dynamo's caches reset."""
    unmeasured()
    # Earlier programs would count towards the limit of recompilations.
    torch._dynamo.reset()
    # `untraced` gives each program its own code object.
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
    traced_recipe=recipe,
    variants=(SYMBOLIC, *GUARDED, *CONTROL_FLOW),
    backend="eager",
)
