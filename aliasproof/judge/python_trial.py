"""A `PythonProgram` in eager and through the layers of `torch.compile`, judged by what is left."""

from __future__ import annotations

import contextlib
import functools
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import torch
from torch import fx
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.backends.debugging import boxed_nop
from torch._dynamo.backends.registry import lookup_backend
from torch._dynamo.exc import SkipFrame
from torch._dynamo.utils import counters
from torch._functorch.partitioners import default_partition, min_cut_rematerialization_partition
from torch._subclasses.fake_tensor import FakeTensorMode

from aliasproof.eager.trace import Trace
from aliasproof.ir.errors import Rejected
from aliasproof.ir.python_program import PythonProgram
from aliasproof.judge.localization import EXPERIMENTS, GUARDS, Experiment, where_raised
from aliasproof.judge.python_run import PythonRun, run_in_eager, run_python
from aliasproof.oracles.contract import Contract
from aliasproof.oracles.errors import skeleton
from aliasproof.oracles.judge import Judgement, all_not_applicable, judge
from aliasproof.oracles.place_names import renamed_report
from aliasproof.oracles.verdict import Violation, not_applicable, report_of
from aliasproof.processes.isolation import ORACLES_STEP, TARGET_STEP, step
from aliasproof.targets.dynamo import unmeasured
from aliasproof.targets.inductor_fx import DRAWS_AS_EAGER
from aliasproof.targets.registry import target as target_named

LAYERS = ("dynamo", "aot-eager", "inductor")  # each builds on those before it
STRUCTURE = "structure"  # what is there at all, and of which type
EVERYTHING = Contract()  # the empty contract promises everything
_NO_ERROR = "does not raise"
EAGER = "identity"  # eager again, in a second world: any difference is a mistake of ours


class Cause(NamedTuple):
    """The target at fault, the oracle that sees it, and the kind of its violation."""

    target: str
    oracle: str
    kind: str


@dataclass(frozen=True, slots=True)
class PythonExamination:
    """What differs from eager, through which target, the first that does.

    `main` is the first violation. `documented` differences are no violations.
    """

    target: str
    violations: Sequence[Violation] = ()
    documented: int = 0

    @property
    def main(self) -> Violation | None:
        return next(iter(self.violations), None)

    @property
    def cause(self) -> Cause | None:
        """What a reduction must keep."""
        main = self.main
        return None if main is None else Cause(self.target, main.oracle, main.kind)


def examine_python(program: PythonProgram, target: str) -> PythonExamination:
    """Run in eager and through a target and the layers below it; the first that is wrong.

    A difference counts if a second run shows it. Raises `Undefined` if the program is undefined in
    eager.
    """
    expected, trace = run_in_eager(program)
    found = whole = _compare(program, target, expected, trace)
    # Most programs hold, and then one compilation tells. A later layer may undo the mistake of
    # an earlier one.
    if not whole.violations:
        return whole
    for layer in layers(target):
        found = whole if layer == target else _compare(program, layer, expected, trace)
        if found.violations:
            again = _compare(program, layer, expected, trace)
            kinds = {(one.oracle, one.kind) for one in again.violations}
            both = [one for one in found.violations if (one.oracle, one.kind) in kinds]
            found = replace(found, violations=tuple(both))
        if found.violations:
            break
    return found


def examine_layer(program: PythonProgram, layer: str) -> PythonExamination:
    """Run in eager and through one layer, whatever those before it do. Raises `Undefined`."""
    expected, trace = run_in_eager(program)
    return _compare(program, layer, expected, trace)


def layers(target: str) -> list[str]:
    """The target and those that it builds on, in their order."""
    if target in LAYERS:
        return list(LAYERS[: LAYERS.index(target) + 1])
    return [target] if target == EAGER else [*LAYERS[:-1], target]


def compiler(target: str, *, draws: bool = False) -> Callable[[Any], Any]:
    """What compiles `program` for a target; it is called once in each run.

    Of a program that `draws` random numbers, Inductor must draw those of eager.
    """
    if target == EAGER:
        # `torch.cond` compiles its branches in eager, too.
        without: Callable[[Any], Any] = torch.compiler.set_stance("force_eager")
        return without
    options = DRAWS_AS_EAGER if draws and target == "inductor" else None
    return compiled_by(target_named(target).backend, options)


def compiled_by(backend: Any, options: Any = None) -> Callable[[Any], Any]:
    """What compiles `program` with a backend, as for one that was never compiled."""
    unmeasured()
    FakeTensorMode.cache_clear()
    return lambda program: torch.compile(program, backend=backend, options=options)


def _compare(
    program: PythonProgram, target: str, expected: PythonRun, trace: Trace
) -> PythonExamination:
    contract = EVERYTHING if target == EAGER else target_named(target).contract
    compiled = compiler(target, draws=trace.random)
    return compare(program, compiled, expected, trace, contract, target)


def compare(
    program: PythonProgram,
    compiled: Callable[[Any], Any],
    expected: PythonRun,
    trace: Trace,
    contract: Contract = EVERYTHING,
    target: str = "",
) -> PythonExamination:
    """Run it with what `compiled` makes of `program`, and compare with a run in eager."""
    step(TARGET_STEP)
    actual = run_python(program, compiled)
    step(ORACLES_STEP)
    judgement = judge_runs(contract, expected, actual, trace)
    return PythonExamination(target, tuple(judgement.violations), len(judgement.documented))


def judge_runs(
    contract: Contract,
    expected: PythonRun,
    actual: PythonRun,
    trace: Trace,
    excuse: Callable[[Judgement], Judgement] = lambda judgement: judgement,
) -> Judgement:
    """The reports of the oracles on results, and of *structure*; places are named by their paths.

    `excuse` gets the judgement before, and leaves out what breaks no promise.
    """
    raise_both = expected.observation.error and actual.observation.error
    # Where the backward pass raises in both runs, what was there before it is compared. A compiler
    # may refuse a function at once whose backward pass raises in eager.
    if raise_both and expected.called and actual.called:
        return judge_runs(contract, expected.called, actual.called, trace, excuse)
    missing = _structure(expected, actual)
    if missing:
        reports = dict(all_not_applicable("eager and target leave other things behind").reports)
    else:
        # Autograd forbids to read some views after a write to their base.
        with torch.no_grad():
            judgement = judge(contract, expected.observation, actual.observation, trace)
        reports = dict(excuse(judgement).reports)
        judged = any(report.violations for report in reports.values())
        missing = () if judged else _kinds(expected, actual)
    raised = expected.observation.error or actual.observation.error
    reports[STRUCTURE] = not_applicable("") if raised else report_of(missing)
    names = {f"output {index}": path for index, path in enumerate(expected.paths)}
    return Judgement({name: renamed_report(report, names) for name, report in reports.items()})


def _structure(expected: PythonRun, actual: PythonRun) -> Sequence[Violation]:
    """Paths that only one of the runs has; none if one raised."""
    if expected.observation.error is not None or actual.observation.error is not None:
        return ()
    lost = [path for path in expected.paths if path not in actual.paths]
    new = [path for path in actual.paths if path not in expected.paths]
    if lost:
        return [Violation(STRUCTURE, "something is missing", lost[0])]
    if new:
        return [Violation(STRUCTURE, "something is new", new[0])]
    pairs = zip(expected.paths, actual.paths, strict=True)
    moved = next((path for path, other in pairs if path != other), None)
    if moved is not None:
        return [Violation(STRUCTURE, "another order", moved)]
    return ()


def _kinds(expected: PythonRun, actual: PythonRun) -> Sequence[Violation]:
    """Leaves of another type, or that require gradients in one run alone."""
    return [
        Violation(
            STRUCTURE,
            "another type, or gradients",
            path,
            {"eager": kind, "target": actual.kinds[path]},
        )
        for path, kind in expected.kinds.items()
        if actual.kinds.get(path, kind) != kind
    ]


@dataclass(slots=True)
class FailsAlike:
    """Whether a program is defined in eager, and its target differs by the same oracle and kind.

    If eager is expected to raise, it raises what is `raised`: without that, what it raised for the
    first program that failed. `compiled` counts the programs that eager did not refuse.
    """

    cause: Cause
    raised: str | None = None
    compiled: int = 0

    def __call__(self, program: PythonProgram) -> bool:
        """Ask about a program. Raises `InternalError` for a mistake of ours."""
        try:
            expected, trace = run_in_eager(program)
            error = expected.observation.error
            raised = "" if error is None else skeleton(error)
            if (error is not None) != self.cause.kind.startswith(_NO_ERROR):
                return False
            if self.raised not in (None, raised):
                return False
            self.compiled += 1
            fails = _compare(program, self.cause.target, expected, trace).cause == self.cause
        except Rejected:
            return False
        if fails:
            self.raised = raised
        return fails


# --- attribution ----------------------------------------------------------------------------------
#
# `part_of`: the part of a layer of `torch.compile` that makes a `PythonProgram` wrong.
#
# Each experiment compiles the program again without one part of the compiler, or one graph alone.
# The first after which the difference is gone names the part. An error of a compilation says
# itself where it was raised.


Transform = Callable[[Any], Any]
LAYER_NAMES = {
    "dynamo": "Dynamo",
    "aot-eager": "AOTAutograd",
    "inductor": "Inductor",
    "reference": "backend aliasproof",
}


def part_of(program: PythonProgram, cause: Cause) -> str:
    """The part at fault: 'Dynamo: guards', 'AOTAutograd: min-cut partitioner, graph 2 of 3'.

    The layer alone if no experiment tells, and nothing if the difference is not there. Raises
    `Undefined` if the program is undefined in eager.
    """
    return _Blame.of(program, cause).part()


@dataclass(frozen=True, slots=True)
class _Blame:
    program: PythonProgram
    cause: Cause
    shows: Callable[[Transform], bool]  # whether the difference is there

    @classmethod
    def of(cls, program: PythonProgram, cause: Cause) -> _Blame:
        expected, trace = run_in_eager(program)
        contract = target_named(cause.target).contract

        def shows(transform: Transform) -> bool:
            FakeTensorMode.cache_clear()
            found = compare(program, transform, expected, trace, contract, cause.target)
            # After another error, nothing is known.
            return any(one.oracle in (cause.oracle, "errors") for one in found.violations)

        return cls(program, cause, shows)

    def part(self) -> str:
        target = self.cause.target
        layer, compiled = LAYER_NAMES.get(target, target), compiler(target, draws=True)
        if not self.shows(compiled):
            return ""
        raised = self._raised_in(compiled)
        if raised is not None:
            return raised
        if not self.shows(_forgetting(compiled)):
            return GUARDS
        for part, transform in self._experiments():
            if not self.shows(transform):
                layer = part
                break
        return layer + self._graph()

    def _raised_in(self, compiled: Transform) -> str | None:
        """Where the compilation raised; None if it did not, or nothing tells."""
        if self.cause.oracle != "errors":
            return None
        error: BaseException | None = run_python(self.program, compiled).observation.error
        while error is not None and error.__cause__ is not None:
            error = error.__cause__
        raised = None if error is None else where_raised(error)
        if raised == LAYER_NAMES["dynamo"] and error is not None:
            return _in_dynamo(error)
        return raised

    def _experiments(self) -> Iterator[tuple[str, Transform]]:
        """The parts that can be left out, each with the compiler without it."""
        if self.cause.target == "aot-eager":
            min_cut = min_cut_rematerialization_partition
            yield "AOTAutograd: min-cut partitioner", _by(_aot(default_partition, keep=True))
            yield "AOTAutograd: mutations in the graph", _by(_aot(min_cut, keep=False))
        if self.cause.target == "inductor":
            passes = (Experiment(name, "", {"disabled_passes": name}) for name in self._passes())
            for experiment in (*passes, *EXPERIMENTS):
                yield f"Inductor: {experiment.part}", _by("inductor", experiment.running)

    def _passes(self) -> Sequence[str]:
        """The names of the passes over graphs that run, in their order."""
        # Imported here: it takes two seconds, and most causes are in other layers.
        from torch.fx.passes.graph_transform_observer import (  # noqa: PLC0415
            GraphTransformObserver,
        )

        names: dict[str, None] = {}
        right = GraphTransformObserver._check_disable_pass

        def noting(observer: Any) -> bool:
            names[observer.passname] = None
            return right(observer)

        with mock.patch.object(GraphTransformObserver, "_check_disable_pass", noting):
            self.shows(_by("inductor"))
        return list(names)

    def _graph(self) -> str:
        """Which graph is at fault, in words, if there are several."""
        target = self.cause.target
        counting = _Chosen(target, range(0))
        self.shows(_by(counting))
        graphs = counting.graphs
        if graphs < 2:
            return ""
        for number in range(graphs):
            # What Dynamo makes of a frame needs what it made of those before it.
            chosen = range(number + 1) if target == "dynamo" else range(number, number + 1)
            if self.shows(_by(_Chosen(target, chosen, skip=target == "dynamo"))):
                return f", graph {number + 1} of {graphs}"
        return ", several graphs"


@dataclass(slots=True)
class _Chosen:
    """A backend that compiles some of the graphs it gets.

    The others run as Dynamo made them, or `skip` their frames, which run as Python then.
    """

    target: str
    chosen: range
    skip: bool = False
    graphs: int = 0

    def __call__(self, graph: fx.GraphModule, inputs: list[torch.Tensor], **_: Any) -> Any:
        self.graphs += 1
        if self.graphs - 1 in self.chosen:
            backend = target_named(self.target).backend
            compiler = lookup_backend(backend) if isinstance(backend, str) else backend
            return compiler(graph, inputs)
        if self.skip:
            raise SkipFrame("not chosen")
        return graph.forward


def _in_dynamo(error: BaseException) -> str:
    """The part of Dynamo that raised: the innermost kind of variable."""
    files = [Path(frame.filename) for frame in traceback.extract_tb(error.__traceback__)]
    kinds = [file.stem for file in files if file.parent.name == "variables"]
    return ": ".join([LAYER_NAMES["dynamo"], *kinds[-1:]])


def _by(
    backend: Any, within: Callable[[], AbstractContextManager[object]] = contextlib.nullcontext
) -> Transform:
    """What compiles a function with a backend, and calls it in a context."""

    def transform(program: Any) -> Any:
        options: Any = DRAWS_AS_EAGER if backend == "inductor" else None
        compiled = torch.compile(program, backend=backend, options=options)

        @functools.wraps(program)
        def call(*args: Any, **kwargs: Any) -> Any:
            with within():
                return compiled(*args, **kwargs)

        return call

    return transform


def _forgetting(compiled: Transform) -> Transform:
    """Each call compiles anew, so no guard is asked."""

    def transform(program: Any) -> Any:
        function = compiled(program)

        @functools.wraps(program)
        def call(*args: Any, **kwargs: Any) -> Any:
            torch._dynamo.reset()
            return function(*args, **kwargs)

        return call

    return transform


def _aot(partition: Any, *, keep: bool) -> Any:
    """The backend *aot_eager* with a partitioner, and with writes to inputs in the graph or not."""
    return aot_autograd(
        fw_compiler=boxed_nop, partition_fn=partition, keep_inference_input_mutations=keep
    )


# --- python frames --------------------------------------------------------------------------------
#
# How Dynamo cuts a `PythonProgram`: whether it is defined, how many graphs, where graphs break.


ONE, BROKEN, NONE, RAISES = "no graph breaks", "graphs break", "no graph", "raises"


def is_defined(program: PythonProgram) -> bool:
    """Whether it is defined in eager, and does the same while it is watched."""
    try:
        run_in_eager(program)
    except Rejected:
        return False
    return True


def cut_of(program: PythonProgram, counts: Counter[str]) -> str:
    """How Dynamo cuts it, all its calls together. Adds frames, graphs and breaks to `counts`.

    A frame that is compiled again for other arguments counts again.
    """
    torch._dynamo.reset()
    counters.clear()
    run = run_python(program, compiler("dynamo"))
    breaks = sum(counters["graph_break"].values())
    graphs = counters["stats"]["unique_graphs"]
    counts["frames"] += counters["frames"]["total"]
    counts["graphs"] += graphs
    counts["graph breaks"] += breaks
    if run.observation.error is not None:
        return RAISES
    return BROKEN if breaks else ONE if graphs else NONE
