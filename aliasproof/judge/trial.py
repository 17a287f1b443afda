"""`run_trial`: a case runs in eager and on a target, and the oracles on results compare."""

from __future__ import annotations

import functools
import gc
import logging
import math
import os
import re
import signal
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import NamedTuple, Protocol, Self

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from aliasproof.eager.definedness import Undefined
from aliasproof.eager.trace import Trace
from aliasproof.ir.devices import on_device
from aliasproof.ir.errors import Rejected
from aliasproof.ir.execution import ProgramFunction, seed_generators
from aliasproof.ir.guarded_memory import (
    NAN_BYTES,
    NUMBER_BYTES,
    Dependent,
    GuardedMemory,
    MemoryUse,
    first_dependent,
    needs_resizing,
)
from aliasproof.ir.program import Program
from aliasproof.ir.values import clone_inputs, input_tensors
from aliasproof.judge.rounding_control import (
    Control,
    wide_factories,
    widened,
    without_narrow_conversions,
    without_rounding,
)
from aliasproof.oracles.contract import Contract
from aliasproof.oracles.judge import Judgement, judge, with_memory
from aliasproof.oracles.observation import Observation, observe, observe_eager
from aliasproof.oracles.verdict import rename_report
from aliasproof.processes.isolation import ORACLES_STEP, TARGET_STEP, step
from aliasproof.targets.dynamo import drawing_as_eager
from aliasproof.targets.target import Build, Conditions, Function, MakeInputs, Target
from aliasproof.targets.user_names import grant


class EarlierLayers(NamedTuple):
    """The targets that a target builds on: see `Target.varies`, `Target.after`, `Target.layer`."""

    varies: Sequence[Target] = ()
    after: Target | None = None
    layer: Target | None = None


class Subject(Protocol):
    """Anything that can be judged. Each run has fresh state, with equal inputs.

    Implementations are `Case`, a function on tensors, and `PythonCase`, Python code as a user calls
    it.
    """

    def under(self, target: Target) -> Self:
        """The subject under the conditions of a target, under which eager runs, too."""

    def run_eager(self) -> EagerRun:
        """Run it in eager, and watch each ATen call. Raises `Undefined`."""

    def observe(self) -> Observation:
        """Run it in eager."""

    def run_target(self, target: Target) -> tuple[Observation, Build | None]:
        """Build and run it; the build is None if that raised, or if there is none."""

    def run_again(self, target: Target, build: Build | None, memory: GuardedMemory) -> Observation:
        """Run once more what `run_target` ran, with that memory."""

    def widened(self) -> Iterator[Self]:
        """The subject with float64 instead of less precise dtypes, in each possible way.

        A run raises `Rejected` where this is impossible.
        """

    def earlier_layers(self, target: Target) -> EarlierLayers:
        """The targets that may be at fault for a wrong result of a target on this subject."""


@dataclass(slots=True)
class Case:
    """A function to test, and how to make fresh inputs for it. See `Subject`.

    Each call of `fresh_inputs` returns new tensors with equal data, layouts and mutual sharing. A
    run may mutate its inputs, so each run needs its own. `second_inputs` makes the inputs of a
    second call, for targets that compare it. `conditions` were applied to the case `plain`.
    """

    function: Function
    fresh_inputs: MakeInputs
    second_inputs: MakeInputs | None = None
    conditions: Conditions | None = None
    plain: Case | None = None

    @classmethod
    def of(cls, program: Program) -> Case:
        """A program with its own inputs."""
        return cls(ProgramFunction(program), lambda: input_tensors(program))

    @classmethod
    def of_function(cls, function: Function, inputs: Sequence[torch.Tensor]) -> Case:
        """Any function, on clones of the given inputs."""
        return cls(function, lambda: clone_inputs(inputs))

    def on(self, device: str) -> Case:
        """The case on a device. Inputs keep their strides, offsets and sharing."""
        plain, second = self.plain or self, (self.plain or self).second_inputs
        if isinstance(plain.function, ProgramFunction):
            return Case.of(on_device(plain.function.program, device))
        moved = partial(_inputs_on, plain.fresh_inputs, device)
        return Case(plain.function, moved, second and partial(_inputs_on, second, device))

    def under(self, target: Target) -> Case:
        """The case under the conditions of a target, under which eager runs, too."""
        # By identity: each kind of conditions is one function.
        if target.conditions is self.conditions:
            return self
        plain = self.plain or self
        if target.conditions is None:
            return plain
        given = plain.function, plain.fresh_inputs, plain.second_inputs
        return Case(*target.conditions(*given), None, target.conditions, plain)

    def run_eager(self) -> EagerRun:
        """Run it in eager, and watch each ATen call. Raises `Undefined`."""
        memory = GuardedMemory()
        with memory:
            run = EagerRun(*observe_eager(self.function, memory.guard(self.fresh_inputs())))
        if needs_resizing(run.observation.error):
            return EagerRun(*observe_eager(self.function, self.fresh_inputs()))
        for written in memory.stray:
            raise Undefined(f"eager writes {written.side}: {written.name}")
        return run

    def observe(self) -> Observation:
        """Run it in eager."""
        return observe(self.function, self.fresh_inputs())

    def run_target(self, target: Target) -> tuple[Observation, Build | None]:
        """Build and run a case that is under the target's conditions. No build if that raised."""
        # Separate inputs, since a build may mutate the inputs that it traces with.
        sample, inputs = self.fresh_inputs(), self.fresh_inputs()
        builds: list[Build] = []

        # The build and the run are observed together: an exception of either is the target's.
        def build_and_run(*tensors: torch.Tensor) -> object:
            builds.append(target.build(self.function, sample))
            # Seed again, since a build that traces with real tensors draws random numbers, too.
            seed_generators()
            return builds[0].function(*tensors)

        # The cache outlives a program, and its entries can change the graphs of the next one.
        FakeTensorMode.cache_clear()
        with drawing_as_eager():
            observation = guarded(lambda memory: observe(build_and_run, memory.guard(inputs)))
            if needs_resizing(observation.error):
                builds.clear()
                observation = observe(build_and_run, self.fresh_inputs())
            return observation, builds[0] if builds else None

    def run_again(self, target: Target, build: Build | None, memory: GuardedMemory) -> Observation:
        """Run the build on fresh inputs."""
        assert build is not None
        inputs = self.fresh_inputs()
        seed_generators()
        with drawing_as_eager(), memory:
            return observe(build.function, memory.guard(inputs))

    def widened(self) -> Iterator[Case]:
        """See `Subject`.

        First only with float64 inputs: a conversion that a target forgets is not rounding. If eager
        then raises because a float64 operand meets a converted one, conversions are widened, too.
        """
        plain = self.plain or self

        def wide(inputs: MakeInputs) -> Sequence[torch.Tensor]:
            return widened(inputs()) or ()

        if not wide(plain.fresh_inputs):
            return
        second = plain.second_inputs
        inputs = partial(wide, plain.fresh_inputs), second and partial(wide, second)
        yield Case(plain.function, *inputs)
        if isinstance(plain.function, ProgramFunction):
            program = without_narrow_conversions(plain.function.program)
            yield Case(ProgramFunction(program), *inputs)

    def earlier_layers(self, target: Target) -> EarlierLayers:
        """The targets that a target declares to build on."""
        return EarlierLayers(target.varies, target.after, target.layer)


def _inputs_on(inputs: MakeInputs, device: str) -> Sequence[torch.Tensor]:
    return clone_inputs(inputs(), device)


@dataclass(slots=True)
class Spent:
    """Seconds spent, by part. `target` is the target's build and run, the rest is the harness.

    `oracles` is the time of the oracles on results, `graphs` that of the oracles on graphs,
    including the runs that these need.
    """

    generation: float = 0.0
    eager: float = 0.0
    target: float = 0.0
    oracles: float = 0.0
    graphs: float = 0.0

    def add(self, other: Spent) -> None:
        """Add the seconds of another `Spent` to this one."""
        for part in fields(self):
            setattr(self, part.name, getattr(self, part.name) + getattr(other, part.name))


class EagerRun(NamedTuple):
    """What eager left behind, and the trace of its ATen calls."""

    observation: Observation
    trace: Trace


@dataclass(slots=True)
class Trial:
    """The result of one trial.

    `eager` and `target` are the observations of the two runs, `trace` has eager's ATen calls.
    `build` is None if the build raised.
    """

    eager: Observation
    trace: Trace
    target: Observation
    judgement: Judgement
    build: Build | None = None

    def exact(self, place: str) -> bool:
        """Whether the tensors in a location, 'output 0', can be compared without tolerance."""
        tensors, names = self.eager.tensors(), re.findall(r"(?:input|output) \d+", place)
        return all(self.trace.exact(tensors.get(name)) for name in names or tensors)


def run_eager(subject: Subject, spent: Spent | None = None) -> EagerRun:
    """Run a subject in eager. Raises `Undefined` if it is undefined in eager.

    If eager raises, the observation has the exception.
    """
    start = time.perf_counter()
    seed_generators()
    try:  # an undefined case raises here, and its time counts too
        return subject.run_eager()
    finally:
        if spent is not None:
            spent.eager += time.perf_counter() - start


def run_trial(
    subject: Subject,
    target: Target,
    spent: Spent | None = None,
    eager: EagerRun | None = None,
    ran: Callable[[], None] = lambda: None,
) -> Trial:
    """Run a subject on a target and judge the results.

    `eager` is the run in eager under the target's conditions, if the caller has it; otherwise eager
    runs here. The seconds are added to `spent`. `ran` is called when the target has run; controls
    may follow. Raises `Rejected` if the subject is undefined in eager, if the target does not take
    it, or if the target is unavailable on this machine.
    """
    reason = target.unavailable()
    if reason is not None:
        raise Rejected(f"{target.name} {reason}")
    spent = spent if spent is not None else Spent()
    subject = subject.under(target)
    expected, trace = eager or run_eager(subject, spent)
    actual, build = run_target(subject, target, spent)
    ran()
    start = time.perf_counter()
    judged, runs = partial(judge, target.contract, expected, actual), (expected, actual)
    controls = [_control(wide, target, expected) for wide in subject.widened()]
    judgement, _ = without_rounding(judged(trace), judged, runs, trace, controls, subject.observe)
    # Without a build, running again means compiling again, so only do so for a violation.
    if build is not None or judgement.violations:
        again = partial(subject.run_again, target, build)
        judgement = with_more_runs(judgement, target.contract, runs, trace, again)
    names = expected.place_names()
    judgement = Judgement({it: rename_report(r, names) for it, r in judgement.reports.items()})
    spent.oracles += time.perf_counter() - start
    return Trial(expected, trace, actual, judgement, build)


def _control(subject: Subject, tested: Target, narrow: Observation) -> Control:
    """The control by a subject in float64. `narrow` is eager's observation in the given dtypes."""

    def alike(run: Observation) -> Observation:
        if run.paths != narrow.paths:
            raise Rejected("it leaves other things in float64")
        return run

    @functools.cache
    def exact() -> Observation:
        with wide_factories():
            seed_generators()
            return alike(subject.under(tested).observe())

    def watched() -> EagerRun:
        with wide_factories():
            run, trace = run_eager(subject.under(tested))
        return EagerRun(alike(run), trace)

    @functools.cache
    def target() -> Observation:
        with wide_factories():
            return alike(run_target(subject.under(tested), tested, Spent())[0])

    return Control(exact, watched, target)


def guarded(run: Callable[[GuardedMemory], Observation]) -> Observation:
    """Run something with guarded memory, as far as its allocations can be guarded."""
    memory = GuardedMemory()
    with memory:
        observation = run(memory)
    observation.memory = memory.use
    return observation


def with_more_runs(
    judgement: Judgement,
    contract: Contract,
    runs: tuple[Observation, Observation],
    trace: Trace,
    run_again: Callable[[GuardedMemory], Observation],
) -> Judgement:
    """The judgement, with what more runs show about memory, if any was guarded."""
    _, actual = runs
    if actual.memory is None:
        return judgement
    step(TARGET_STEP)
    actual.memory = _memory_use(actual, run_again)
    step(ORACLES_STEP)
    return with_memory(judgement, contract, runs, trace)


def _memory_use(
    first: Observation, run_again: Callable[[GuardedMemory], Observation]
) -> MemoryUse | None:
    """What the target did to its memory in a run with guarded memory, and in equal runs.

    The first run has red zones and poison, which cost little. A run with another poison shows which
    results depend on it, and one that checks after each line shows which kernel writes outside of a
    buffer.
    """
    if first.memory is None or first.error is not None:
        return first.memory
    stray = first.memory.stray
    if stray:
        named = GuardedMemory(naming=True)
        run_again(named)
        stray = tuple(named.stray) or stray
    dependent = {found.place: found for found in _dependent(first, run_again, NUMBER_BYTES)}
    if dependent:
        # A result that differs between runs anyway depends on something else.
        for found in _dependent(first, run_again, NAN_BYTES):
            dependent.pop(found.place, None)
    return MemoryUse(stray, tuple(dependent.values()))


def _dependent(
    first: Observation, run_again: Callable[[GuardedMemory], Observation], pattern: int
) -> Iterator[Dependent]:
    other = run_again(GuardedMemory(pattern))
    if other.error is not None:
        yield Dependent("call", [], 0, ("returns", f"raises {type(other.error).__name__}"))
        return
    if len(first.outputs) != len(other.outputs):
        yield Dependent("outputs", [], 0, (len(first.outputs), len(other.outputs)))
        return
    theirs = other.tensors()
    with torch.no_grad():
        for place, tensor in first.tensors().items():
            if place in theirs and (found := first_dependent(place, tensor, theirs[place])):
                yield found
    for index, (one, two) in enumerate(zip(first.outputs, other.outputs, strict=True)):
        if not (isinstance(one, (int, float)) and isinstance(two, (int, float))):
            continue
        if one != two and not (math.isnan(one) and math.isnan(two)):
            yield Dependent(f"output {index}", [], 1, (one, two))


def run_target(subject: Subject, target: Target, spent: Spent) -> tuple[Observation, Build | None]:
    """Build and run a subject under the target's conditions, and add the seconds."""
    start = time.perf_counter()
    step(TARGET_STEP)
    ran = subject.run_target(target)
    step(ORACLES_STEP)
    spent.target += time.perf_counter() - start
    return ran


# --- worker ---------------------------------------------------------------------------------------
#
# The start of a process that runs many programs.


# The distance between shard seeds of runs with neighbouring seeds, so that they share no shard.
SEEDS_APART = 1_000_003


def quiet_torch() -> None:
    """Silence torch's logs and warnings: thousands of failing programs would flood the terminal."""
    logging.getLogger("torch").setLevel(logging.CRITICAL + 1)
    warnings.simplefilter("ignore")


def start_worker(granted: Sequence[str] = ()) -> None:
    """Prepare a worker process: no Ctrl-C, one thread, no warnings.

    The targets named in `granted` may be a user's code.
    """
    grant(granted)
    # Ctrl-C goes to the whole process group. The parent handles it and ends the workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)  # one worker per core
    gc.freeze()  # objects from the import of torch live forever, so the collector can skip them
    quiet_torch()


def processor_seconds() -> float:
    """The seconds of processor time of this process, and of its children that have ended.

    Children matter: Inductor spends most of its time in a C++ compiler.
    """
    return sum(os.times()[:4])
