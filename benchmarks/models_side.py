"""One side of `models`: a process that runs one scene under one backend.

Each side has a process of its own, so that no side finds the caches of another one full.
"""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import torch
from torch import nn

from benchmarks.backend_cost import bytes_of
from benchmarks.backend_scenes import Compile, Scene
from benchmarks.models_subjects import subjects
from reference_pass.backend import aliasproof
from reference_pass.nested import tensors_in

STEP, PEAK, END = "step", "peak", "end"  # what a side can be asked for
FIRST_CALLS = 2  # compilations from nothing
STEP_SECONDS = 0.05  # of calls for one answer


@dataclass(frozen=True, slots=True)
class FirstCalls:
    """CPU seconds of the fastest first call; the results of the last first call, and of a second.

    `error` says why there are none.
    """

    seconds: float = 0.0
    results: tuple[np.ndarray[Any, Any], ...] = ()
    error: str = ""


def serve(connection: Connection, name: str, backend: str) -> None:
    """Make the first calls, then answer until the end is asked for."""
    torch.set_num_threads(1)
    logging.getLogger("torch").setLevel(logging.CRITICAL)
    warnings.simplefilter("ignore")
    compiled = _compile_by(backend)
    _warm_up(compiled)
    try:
        first, call = _first_calls(subjects()[name], compiled)
    except Exception as error:  # noqa: BLE001 - what a model raises under a backend is a figure
        connection.send(FirstCalls(error=f"{type(error).__name__}: {error}"[:300]))
        return
    connection.send(first)
    while (asked := connection.recv()) != END:
        connection.send(_seconds(call) if asked == STEP else bytes_of(call)[0])


def _compile_by(backend: str) -> Compile:
    if backend == "eager":
        return lambda function: function
    chosen = aliasproof if backend == "aliasproof" else backend
    return lambda function: torch.compile(function, backend=chosen)


def _warm_up(compiled: Compile) -> None:
    """Compile something small, so that imports do not count."""
    linear = nn.Linear(2, 2)
    compiled(linear)(torch.ones(2)).sum().backward()
    with torch.no_grad():
        compiled(linear)(torch.ones(2))


def _first_calls(scene: Scene, compiled: Compile) -> tuple[FirstCalls, Callable[[], Any]]:
    seconds = min(_first_call(scene, compiled)[0] for _ in range(FIRST_CALLS - 1))
    last, first, call = _first_call(scene, compiled)
    return FirstCalls(min(seconds, last), (*first, *_values(call()))), call


def _first_call(
    scene: Scene, compiled: Compile
) -> tuple[float, list[np.ndarray[Any, Any]], Callable[[], Any]]:
    torch._dynamo.reset()
    torch.manual_seed(0)  # the same weights and inputs for all backends
    call = scene(compiled)
    start = time.process_time()
    result = call()
    return time.process_time() - start, _values(result), call


def _values(result: Any) -> list[np.ndarray[Any, Any]]:
    # Copies: the next call of an optimizer writes the same parameters.
    return [tensor.detach().numpy().copy() for tensor in tensors_in(result)]


def _seconds(call: Callable[[], Any]) -> float:
    """CPU seconds of the fastest of some calls."""
    best, end = float("inf"), time.process_time() + STEP_SECONDS
    while time.process_time() < end or best == float("inf"):
        start = time.process_time()
        call()
        best = min(best, time.process_time() - start)
    return best
