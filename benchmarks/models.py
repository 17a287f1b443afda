"""What `torch.compile(backend="aliasproof")` computes and costs on models and optimizers.

`python -m benchmarks models` needs the extra `models` (`pip install '.[models]'`). Models are built
from configurations with random weights. Eager, `aot_eager` and `aliasproof` run side by side, each
in a process of its own (`models_side`), and take turns.

How to read a row: *bits* says whether outputs, gradients and, for an optimizer, parameters of two
calls are bit for bit as in *eager*, or as under *aot_eager*; else the largest difference from it.
The figures are those of `aliasproof` divided by those of `aot_eager`: CPU seconds of the first
call, compilation included (the fastest of three), those of a later call (the fastest of many), and
the bytes that tensors hold at the peak of a call, counted by the allocator. Parameters and inputs
do not count, nor does what was allocated before the call.
"""

from __future__ import annotations

import importlib.util
import multiprocessing
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

import numpy as np

from aliasproof.ir.errors import UserError
from benchmarks.models_side import FIRST, PEAK, RESULTS, STEP, Array, SideError, serve
from benchmarks.models_subjects import needs_transformers, subjects
from benchmarks.tables import Table

SIDES = ("eager", "aot_eager", "aliasproof")
FIRST_CALLS = 3  # compilations from nothing
ROUNDS = 10  # of steps
ALLOWED = 1.1  # times `aot_eager`
SECONDS = 600.0  # that an answer may take


@dataclass(frozen=True, slots=True)
class ModelCost:
    """The figures of one scene: CPU seconds and bytes by side. `error` says why there are none."""

    scene: str
    bits: str = ""
    first: Mapping[str, float] = field(default_factory=dict)
    step: Mapping[str, float] = field(default_factory=dict)
    peak: Mapping[str, float] = field(default_factory=dict)
    error: str = ""

    def ratios(self) -> tuple[float, float, float]:
        """First call, step and peak of `aliasproof`, divided by those of `aot_eager`."""
        return _ratio(self.first), _ratio(self.step), _ratio(self.peak)


@dataclass(frozen=True, slots=True)
class Models:
    """The figures of all scenes."""

    costs: Sequence[ModelCost]

    def tables(self) -> list[Table]:
        """A row per scene, medians, and what is above the limit."""
        measured = [cost for cost in self.costs if not cost.error]
        rows = [(cost.scene, cost.bits, *map(_times, cost.ratios())) for cost in measured]
        notes = [f"fails: {cost.scene}: {cost.error}" for cost in self.costs if cost.error]
        for index, name in enumerate(("first call", "step", "peak")):
            ratios = [cost.ratios()[index] for cost in measured]
            above = sum(ratio > ALLOWED for ratio in ratios)
            if ratios:
                notes.append(
                    f"{name}: median {_times(statistics.median(ratios))}, largest"
                    f" {_times(max(ratios))}, {above} of {len(ratios)} above {ALLOWED}"
                )
        columns = ("scene", "bits as", "first call", "step", "peak")
        return [Table("models: aliasproof / aot_eager", columns, rows, notes)]


def measure(names: Sequence[str] = ()) -> Models:
    """Measure the scenes with these names; all of them, if none is given.

    Raises `UserError` for an unknown name, and if a model needs transformers that is not there.
    """
    known = subjects()
    for name in names:
        if name not in known:
            raise UserError(f"unknown scene '{name}'; scenes: {'; '.join(known)}")
    names = names or list(known)
    if any(map(needs_transformers, names)) and importlib.util.find_spec("transformers") is None:
        raise UserError("transformers is not installed; pip install '.[models]'")
    return Models([measure_scene(name) for name in names])


def measure_scene(name: str) -> ModelCost:
    """Measure one scene on all sides, which take turns."""
    sides = {backend: Side(name, backend) for backend in SIDES}
    try:
        firsts = [_answers(sides, FIRST) for _ in range(FIRST_CALLS)]
        results = _answers(sides, RESULTS)
        steps = [_answers(sides, STEP) for _ in range(ROUNDS)]
        peaks = _answers(sides, PEAK)
    except _SideFailedError as error:
        return ModelCost(name, error=str(error))
    finally:
        for side in sides.values():
            side.end()
    return ModelCost(name, same_bits(results), _fastest(firsts), _fastest(steps), peaks)


class _SideFailedError(Exception):
    """A side has no answer; it says which one, and why."""


class Side:
    """A process that runs a scene under a backend."""

    def __init__(self, name: str, backend: str) -> None:
        # Forked from a server that has imported torch, and has compiled nothing.
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([serve.__module__])
        self.connection: Connection
        self.connection, other = context.Pipe()
        self.process: BaseProcess = context.Process(target=serve, args=(other, name, backend))
        self.process.start()
        other.close()

    def ask(self, what: str) -> Any:
        """The answer, or a `SideError`."""
        try:
            self.connection.send(what)
            if self.connection.poll(SECONDS):
                return self.connection.recv()
        except (EOFError, BrokenPipeError):
            return SideError("the process died")
        return SideError(f"no answer within {SECONDS:.0f} s")

    def end(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.join()


def _answers(sides: Mapping[str, Side], what: str) -> dict[str, Any]:
    answers = {}
    for backend, side in sides.items():
        answers[backend] = side.ask(what)
        if isinstance(answers[backend], SideError):
            raise _SideFailedError(f"{backend}: {answers[backend].message}")
    return answers


def _fastest(rounds: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {backend: min(figures[backend] for figures in rounds) for backend in SIDES}


def same_bits(results: Mapping[str, Sequence[Array]]) -> str:
    """As which side the results of `aliasproof` are bit for bit; else how far they are off."""
    ours = results["aliasproof"]
    for other in ("eager", "aot_eager"):
        theirs = results[other]
        if len(ours) == len(theirs) and all(map(_equal, ours, theirs)):
            return other
    pairs = zip(ours, results["aot_eager"], strict=False)
    return f"differs by {max(float(np.abs(one - other).max()) for one, other in pairs):.0e}"


def _equal(one: Array, other: Array) -> bool:
    return (
        one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
    )


def _ratio(figures: Mapping[str, float]) -> float:
    ours, theirs = figures["aliasproof"], figures["aot_eager"]
    return ours / theirs if theirs else float(ours == theirs)


def _times(ratio: float) -> str:
    return f"{ratio:.2f}"
