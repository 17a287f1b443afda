"""What `torch.compile(backend="aliasproof")` costs, beside `aot_eager` and eager.

*Peaks*: the largest number of bytes that tensors hold at once during one call, counted by the
allocator. Parameters and inputs do not count, nor does what was allocated before the call. *left*:
the bytes that the results hold after the call. *calls*: seconds of the calls of a loop, compiles
included, and how many graphs the backend built for them. *reinplace*: seconds to reinplace one
`foreach` call on so many tensors. *bits*: the largest difference from the results of `aot_eager`.
"""

from __future__ import annotations

import gc
import operator
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any
from unittest import mock

import torch
from torch import fx, nn
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.backends.debugging import boxed_nop
from torch.profiler import ProfilerActivity, profile

from aliasproof.reference_pass.backend import aliasproof
from aliasproof.reference_pass.pipeline import pipeline
from aliasproof.reference_pass.reinplace import reinplace
from benchmarks.backend_scenes import BITS, LOOPS, PEAKS, Compile, Scene
from benchmarks.tables import Table

aten = torch.ops.aten

BACKENDS = ("eager", "aot_eager", "aliasproof")
FOREACH_SIZES = (100, 200, 400)


@dataclass(frozen=True, slots=True)
class Peak:
    """The bytes of one scene under one backend: at most during a call, and after it."""

    scene: str
    backend: str
    peak: int
    left: int


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop of calls under one backend: how many, seconds for all, graphs built."""

    scene: str
    backend: str
    calls: int
    seconds: float
    graphs: int


@dataclass(frozen=True, slots=True)
class BackendCost:
    """All figures. `foreach` has seconds by number of tensors, `bits` differences by scene."""

    peaks: Sequence[Peak]
    loops: Sequence[Loop]
    foreach: dict[int, float]
    bits: dict[str, float]

    def tables(self) -> list[Table]:
        return [_peak_table(self.peaks), _loop_table(self.loops), *_others(self)]


def measure() -> BackendCost:
    """Measure all scenes."""
    return BackendCost(
        [_peak(scene, backend) for scene in PEAKS for backend in BACKENDS],
        [_loop(scene, backend) for scene in LOOPS for backend in BACKENDS],
        {count: _foreach_seconds(count) for count in FOREACH_SIZES},
        {scene: _difference(BITS[scene]) for scene in BITS},
    )


# --- measuring ------------------------------------------------------------------------------------


def compiled_by(backend: str, built: list[object]) -> Compile:
    """Compiles with a backend, and notes each graph that the backend builds."""
    if backend == "eager":
        return lambda function: function

    def count(graph_module: fx.GraphModule, inputs: list[Any]) -> Any:
        built.append(graph_module)
        return boxed_nop(graph_module, inputs)

    chosen = aliasproof if backend == "aliasproof" else aot_autograd(fw_compiler=count)
    return lambda function: torch.compile(function, backend=chosen)


def bytes_of(call: Callable[[], Any]) -> tuple[int, int]:
    """The most bytes that are allocated at once during a call, and those of its result after it."""
    gc.collect()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        result = call()
        gc.collect()
    events = [
        event for event in profiled.profiler.kineto_results.events() if event.name() == "[memory]"
    ]
    live = most = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        live += event.nbytes()
        most = max(most, live)
    del result
    return most, live


def _peak(scene: str, backend: str) -> Peak:
    torch._dynamo.reset()
    call = PEAKS[scene](compiled_by(backend, []))
    for _ in range(2):
        call()
    return Peak(scene, backend, *bytes_of(call))


def _loop(scene: str, backend: str) -> Loop:
    torch._dynamo.reset()
    built: list[object] = []
    with mock.patch("aliasproof.reference_pass.backend.pipeline", wraps=pipeline) as pipelines:
        calls = LOOPS[scene](compiled_by(backend, built))
        start = time.process_time()
        number = calls()
        seconds = time.process_time() - start
    return Loop(scene, backend, number, seconds, len(built) + pipelines.call_count)


def _foreach_seconds(count: int) -> float:
    """Seconds to reinplace the sum of two lists of tensors, one call for each list."""
    graph = fx.Graph()
    inputs = [graph.placeholder(f"x_{index}") for index in range(count)]
    values: list[fx.Node] = inputs
    for scalar in (2, 3):
        product = graph.call_function(aten._foreach_mul.Scalar, (values, scalar))
        values = [graph.call_function(operator.getitem, (product, index)) for index in range(count)]
    graph.output(tuple(values))
    module = fx.GraphModule(nn.Module(), graph)
    start = time.process_time()
    reinplace(module, *(torch.ones(2) for _ in range(count)))
    return time.process_time() - start


def _difference(scene: Scene) -> float:
    """The largest absolute difference between the results of the two backends."""
    results = []
    for backend in ("aot_eager", "aliasproof"):
        torch._dynamo.reset()
        results.append(scene(compiled_by(backend, []))().detach())
    return float((results[0] - results[1]).abs().max())


# --- tables ---------------------------------------------------------------------------------------


def _peak_table(peaks: Sequence[Peak]) -> Table:
    base = {peak.scene: peak for peak in peaks if peak.backend == "aot_eager"}
    rows = [
        (
            f"{peak.scene}: {peak.backend}",
            f"{peak.peak:,}",
            f"{peak.peak / base[peak.scene].peak:.2f}",
            f"{peak.left:,}",
        )
        for peak in peaks
    ]
    return Table(
        "backend_cost: bytes at the peak of a call",
        ("scene: backend", "peak", "/ aot_eager", "left"),
        rows,
    )


def _loop_table(loops: Sequence[Loop]) -> Table:
    base = {loop.scene: loop for loop in loops if loop.backend == "aot_eager"}
    rows = [
        (
            f"{loop.scene}: {loop.backend}",
            str(loop.calls),
            f"{loop.seconds:.3f}",
            f"{loop.seconds / base[loop.scene].seconds:.2f}",
            str(loop.graphs),
        )
        for loop in loops
    ]
    return Table(
        "backend_cost: seconds of a loop of calls, compiles included",
        ("scene: backend", "calls", "seconds", "/ aot_eager", "graphs"),
        rows,
    )


def _others(cost: BackendCost) -> list[Table]:
    counts = list(cost.foreach)
    growth = ["", *(f"{cost.foreach[b] / cost.foreach[a]:.1f}" for a, b in pairwise(counts))]
    return [
        Table(
            "backend_cost: seconds to reinplace a foreach call",
            ("tensors", "seconds", "growth"),
            [
                (str(count), f"{cost.foreach[count]:.3f}", grown)
                for count, grown in zip(counts, growth, strict=True)
            ],
        ),
        Table(
            "backend_cost: largest difference from aot_eager",
            ("scene", "difference"),
            [(scene, f"{difference:.1e}") for scene, difference in cost.bits.items()],
        ),
    ]
