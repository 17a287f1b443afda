"""One side of `models`: a process that runs one scene under one backend.

Each side has a process of its own, so that no side finds the caches of another one full.
"""

from __future__ import annotations

import gc
import logging
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

from aliasproof.reference_pass.backend import aliasproof
from aliasproof.reference_pass.calls.nested import tensors_in
from benchmarks.models_subjects import Compile, subjects

# What a side can be asked for. The first call is asked for before the others.
FIRST, RESULTS, STEP, PEAK, END = "first", "results", "step", "peak", "end"
STEP_SECONDS = 0.2  # of calls for one answer

Call: TypeAlias = Callable[[], Any]
Array: TypeAlias = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class SideError:
    """Why a side has no figures."""

    message: str


def serve(connection: Connection, name: str, backend: str) -> None:
    """Answer until the end is asked for."""
    torch.set_num_threads(1)
    logging.getLogger("torch").setLevel(logging.CRITICAL)
    warnings.simplefilter("ignore")
    side = _Scene(name, backend)
    answers: dict[str, Call] = {
        FIRST: side.first,
        RESULTS: side.results,
        STEP: side.step,
        PEAK: side.peak,
    }
    while (asked := connection.recv()) != END:
        try:
            connection.send(answers[asked]())
        except Exception as error:  # noqa: BLE001 - what a model raises under a backend is a figure
            connection.send(SideError(f"{type(error).__name__}: {error}"[:300]))


class _Scene:
    """A scene under a backend."""

    def __init__(self, name: str, backend: str) -> None:
        self.scene = subjects()[name]
        self.compiled = compiled_by(backend)
        _warm_up(self.compiled)
        self.call: Call
        self.first_results: list[Array] = []

    def first(self) -> float:
        """CPU seconds of a first call, compilation included."""
        torch._dynamo.reset()
        torch.manual_seed(0)  # the same weights and inputs for all backends
        self.call = self.scene(self.compiled)
        start = time.process_time()
        result = self.call()
        seconds = time.process_time() - start
        self.first_results = _values(result)
        return seconds

    def results(self) -> list[Array]:
        """The results of the first call, and of one more."""
        return [*self.first_results, *_values(self.call())]

    def step(self) -> float:
        """CPU seconds of the fastest of some calls."""
        best, end = float("inf"), time.process_time() + STEP_SECONDS
        while time.process_time() < end or best == float("inf"):
            start = time.process_time()
            self.call()
            best = min(best, time.process_time() - start)
        return best

    def peak(self) -> float:
        """The bytes that tensors hold at the peak of a call."""
        return bytes_of(self.call)[0]


def compiled_by(backend: str) -> Compile:
    """Compiles with a backend, or leaves eager."""
    if backend == "eager":
        return lambda function: function
    chosen = aliasproof if backend == "aliasproof" else backend
    return lambda function: torch.compile(function, backend=chosen)


def bytes_of(call: Call) -> tuple[int, int]:
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


def _warm_up(compiled: Compile) -> None:
    """Compile something small, so that imports do not count."""
    linear = nn.Linear(2, 2)
    compiled(linear)(torch.ones(2)).sum().backward()
    with torch.no_grad():
        compiled(linear)(torch.ones(2))


def _values(result: Any) -> list[Array]:
    # Copies: the next call of an optimizer writes the same parameters.
    return [tensor.detach().numpy().copy() for tensor in tensors_in(result)]
