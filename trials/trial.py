"""One trial: a function runs in eager and through a target, and the oracles hold one against the other."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from oracles.judge import Judgement, excluded, judge
from oracles.observation import Observation, observe, observe_eager
from programs.execution import ProgramFunction
from programs.program import Program
from programs.trace import Trace
from programs.values import clone_inputs, input_tensors
from targets.target import Build, Function, Target

SEED = 0  # of torch's random numbers, the same before each run


@dataclass(slots=True)
class Case:
    """Something to test: a function, and how to make fresh inputs for it."""

    function: Function
    fresh_inputs: Callable[[], Sequence[torch.Tensor]]

    @classmethod
    def of(cls, program: Program) -> Case:
        """A program with its own inputs."""
        return cls(ProgramFunction(program), lambda: input_tensors(program))

    @classmethod
    def of_function(cls, function: Function, inputs: Sequence[torch.Tensor]) -> Case:
        """Any function, on clones of the given inputs."""
        return cls(function, lambda: clone_inputs(inputs))


@dataclass(slots=True)
class Spent:
    """Seconds spent, by part. `target` is the target's build and run, the rest is the harness.

    `oracles` judge what was left behind, those of `inside` terms and stages.
    """

    generation: float = 0.0
    eager: float = 0.0
    target: float = 0.0
    oracles: float = 0.0
    inside: float = 0.0

    @property
    def harness_share(self) -> float:
        """The part of all time that is not the target's."""
        whole = self.generation + self.eager + self.target + self.oracles + self.inside
        return 1 - self.target / whole if whole else 0.0

    def add(self, other: Spent) -> None:
        """Add another account to this one."""
        self.generation += other.generation
        self.eager += other.eager
        self.target += other.target
        self.oracles += other.oracles
        self.inside += other.inside


@dataclass(slots=True)
class Trial:
    """What one trial showed."""

    eager: Observation
    trace: Trace
    target: Observation | None
    judgement: Judgement
    build: Build | None = None


def observed_eager(subject: Case, spent: Spent) -> tuple[Observation, Trace]:
    """The eager run. Raises `Undefined` if it has no single meaning."""
    start = time.perf_counter()
    torch.manual_seed(SEED)
    try:
        return observe_eager(subject.function, subject.fresh_inputs())
    finally:
        spent.eager += time.perf_counter() - start


def run_trial(
    subject: Case,
    target: Target,
    spent: Spent | None = None,
    eager: tuple[Observation, Trace] | None = None,
) -> Trial:
    """Run and judge.

    Raises `Rejected` if eager gives no single meaning or the target is not for this function.
    """
    spent = spent if spent is not None else Spent()
    expected, trace = eager or observed_eager(subject, spent)
    precondition = target.contract.unmet(trace)
    if precondition is not None:
        return Trial(
            expected,
            trace,
            None,
            excluded(f"precondition '{precondition.name}' is not met: {precondition.reason}"),
        )
    sample, inputs = subject.fresh_inputs(), subject.fresh_inputs()
    builds: list[Build] = []

    def build_and_run(*tensors: torch.Tensor) -> object:
        builds.append(target.build(subject.function, sample))
        torch.manual_seed(
            SEED
        )  # again: a build that traces with real tensors draws random numbers, too
        return builds[0].function(*tensors)

    FakeTensorMode.cache_clear()  # it outlives a program, and what it holds can change what the next one compiles to
    start = time.perf_counter()
    actual = observe(build_and_run, inputs)
    spent.target += (between := time.perf_counter()) - start
    judgement = judge(target.contract, expected, actual, trace)
    spent.oracles += time.perf_counter() - between
    return Trial(expected, trace, actual, judgement, builds[0] if builds else None)
