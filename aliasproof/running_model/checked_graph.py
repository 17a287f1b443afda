"""`CheckedGraph`: a graph of a model in eager and on a target, call by call.

The model gets eager's results on its own tensors. The target runs on copies. Results are compared
bit by bit, except for rounding that an earlier call showed; only a remaining difference costs a
closer look. Gradients are compared if the model's own backward pass provides some.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeAlias

import torch
from torch import fx
from torch.utils import _pytree as pytree

from aliasproof.eager.definedness import Watch, why_unjudged
from aliasproof.eager.trace import EXACT, InputLocation, Tolerance, Trace
from aliasproof.ir.devices import finish
from aliasproof.ir.errors import InternalError, OutOfMemory, Rejected
from aliasproof.ir.execution import keep_random_state
from aliasproof.ir.values import clone_inputs
from aliasproof.judge.python_case import numbers_for
from aliasproof.judge.rounding_control import Control, widened, without_rounding
from aliasproof.oracles.contract import EVERYTHING, Contract
from aliasproof.oracles.judge import Judgement, judge
from aliasproof.oracles.observation import Observation
from aliasproof.oracles.verdict import ON_VALUES, PlaceNames, Verdict, Violation
from aliasproof.reports.console import counted
from aliasproof.running_model.checked_target import CheckedTarget
from aliasproof.running_model.graph_call import (
    FORBIDDEN,
    RESULT,
    ArrivingGradients,
    End,
    GraphCall,
    GraphFunction,
    GraphRun,
    Overwritten,
    Tangents,
    end_of,
    histories,
)
from aliasproof.user_code.user_file import not_comparable

LONGEST_REASON = 120  # characters of a message
IN_BACKWARD = "in its backward pass: "
# Makes the context in which something runs, from a description of it.
Running: TypeAlias = Callable[[str], AbstractContextManager[object]]
RECORDED = "create_graph=True records its gradients, and AOTAutograd does not differentiate them"
OTHER_HISTORY = (
    "a tensor is a leaf of autograd, or requires gradients, in one run only; gradients are equal"
)


FORWARD, BACKWARD = "forward", "backward"


# --- known rounding -------------------------------------------------------------------------------
#
# `KnownRounding`: what an earlier call of a graph showed about rounding.
#
# Only a watched run of eager shows what correct kernels may do differently, and it takes several
# times as long. Rounding depends on the operators, not on the data. So the first watched run of a
# graph serves later calls. What depends on data is left open here: if this trace does not explain a
# difference, a closer look with its own watched run follows.


@dataclass(frozen=True, slots=True)
class MayDiffer:
    """How the tensor at one location may differ."""

    tolerance: Tolerance
    between: bool  # whether a target that fuses ops may round less often


@dataclass(slots=True)
class KnownRounding(Trace):
    """The trace of an unwatched run, from the locations of an earlier watched run."""

    known: dict[int, MayDiffer] = field(default_factory=dict)

    @classmethod
    def on(
        cls, observation: Observation, places: Mapping[str, MayDiffer], *, gradients: bool = False
    ) -> KnownRounding:
        """The trace for this run in eager, whose outputs can be the `gradients` of a backward pass.

        Without `places`, nothing may differ.
        """
        trace = cls(tuple(map(InputLocation.of, observation.before)))
        tensors = observation.tensors()
        trace.known = {id(it): places[name] for name, it in tensors.items() if name in places}
        for index, tensor in enumerate(observation.before):
            if f"input {index}" in places:
                trace.known[id(tensor)] = places[f"input {index}"]
        if gradients:
            for tensor in tensors.values():
                trace.gradients.add(tensor)
        return trace

    def exact(self, value: object) -> bool:
        """See `Trace`."""
        return not self.tolerance(value).rounds if isinstance(value, torch.Tensor) else True

    def tolerance(self, value: torch.Tensor) -> Tolerance:
        """See `Trace`."""
        place = self.known.get(id(value))
        return EXACT if place is None else place.tolerance

    def bits_open(self, value: object) -> bool:
        """False: it depends on the data, which this trace does not know."""
        return False

    def rounds_between(self, value: object) -> bool:
        """See `Trace`."""
        place = self.known.get(id(value))
        return place is not None and place.between


# --- checked graph --------------------------------------------------------------------------------


class GraphDiffers(AssertionError):
    """A graph of a model differs from eager, and the check was asked to raise."""


@dataclass(slots=True)
class CallCounts:
    """What was done with the calls of a graph, and how many seconds it took.

    `model` are the seconds of eager's own calls, `target` those of only the target, `checking`
    those of everything that the model waits for besides eager. The first call compiles, so its
    seconds, including the compilation, are not among these but in `first`. `zeros` counts the
    backward passes in which a gradient is zeros on one side, and None on the other.
    """

    calls: int = 0
    forward: int = 0
    backward: int = 0
    rounding: int = 0
    documented: int = 0
    zeros: int = 0
    unjudged: dict[str, int] = field(default_factory=dict)
    model: float = 0.0
    target: float = 0.0
    checking: float = 0.0
    first: float = 0.0

    def spend(self, call: int, **seconds: float) -> None:
        """Add seconds of a call to the fields with these names."""
        for name, value in seconds.items():
            if call > 1:
                setattr(self, name, getattr(self, name) + value)
            elif name != "target":  # the others include it
                self.first += value

    def judge(self, direction: str, reason: str | None) -> None:
        """Count a call as judged in a direction; or with a reason, as not judged."""
        if reason is not None:
            self.leave_out(reason if direction == FORWARD else f"{IN_BACKWARD}{reason}")
        elif direction == FORWARD:
            self.forward += 1
        else:
            self.backward += 1

    def leave_out(self, reason: str) -> None:
        """Count a call that is not judged, or not completely."""
        self.unjudged[reason] = self.unjudged.get(reason, 0) + 1


@dataclass(frozen=True, slots=True)
class FoundDifference:
    """A new difference of a graph, in one direction."""

    graph: CheckedGraph
    direction: str
    violation: Violation
    call: GraphCall
    tangents: Tangents | None


@dataclass(slots=True, eq=False)
class CheckedGraph:
    """A graph as Dynamo captured it, as eager runs it, and as the target compiled it.

    The first inputs are the tensors that the graph captured. `report` is called once with each
    difference. At most `most` calls are judged. `running` is called with a description of what
    runs.
    """

    number: int
    module: fx.GraphModule
    eager: fx.GraphModule
    captured: Sequence[torch.Tensor]
    target: CheckedTarget
    compiled: Callable[..., object]
    report: Callable[[FoundDifference], None]
    where: str = ""
    names: PlaceNames = field(default_factory=dict)
    most: int | None = None
    running: Running = nullcontext
    counts: CallCounts = field(default_factory=CallCounts)
    found: list[FoundDifference] = field(default_factory=list)
    _seen: set[tuple[str, Violation]] = field(default_factory=set)
    _places: dict[str, Mapping[str, MayDiffer]] = field(default_factory=dict)
    _histories: dict[frozenset[tuple[str, str]], str] = field(default_factory=dict)
    _wide: dict[object, tuple[GraphFunction, GraphFunction]] = field(default_factory=dict)

    def __call__(self, *given: object) -> object:
        """The outputs of eager, on the given arguments themselves."""
        args = (*self.captured, *given)
        self.counts.calls += 1
        reason = self._skipped() or next(filter(None, map(_not_judged, args)), None)
        if reason is not None:
            self.counts.leave_out(reason)
            return self.eager(*args)
        started = time.perf_counter()
        try:
            call = GraphCall.of(args, self.counts.calls)
            tensors = [value for value in args if isinstance(value, torch.Tensor)]
            eager = Observation(tensors, [tensor.detach() for tensor in tensors])
            ends = list(map(end_of, tensors))  # before the call
        except (Exception, OutOfMemory) as error:  # noqa: BLE001 - the model must not stop
            self.counts.leave_out(_failure(error))
            return self.eager(*args)
        middle = time.perf_counter()
        try:
            outputs = self.eager(*args)
        except Exception as error:  # an error of the model, too
            self.counts.leave_out(f"eager raises {type(error).__name__}")
            raise
        finish(tensors)
        ended = time.perf_counter()
        try:
            eager.outputs = pytree.tree_leaves(outputs)
            self._check(call, eager, ends)
        finally:
            spent = time.perf_counter() - started
            self.counts.spend(call.number, model=ended - middle, checking=spent - ended + middle)
        return outputs

    def _skipped(self) -> str | None:
        """Why this call and later ones need not be judged; None if they must be."""
        if self._has_wrong_values(FORWARD):
            return "an earlier call of the graph is wrong"
        if self.most is not None and self.counts.calls > self.most:
            return f"only the first {counted(self.most, 'call')} of a graph were asked for"
        return None

    # --- one call ---

    def _named(self, direction: str) -> AbstractContextManager[object]:
        call = f"graph {self.number} ({self.where}), call {self.counts.calls}, {direction}"
        return self.running(f"{call}, through {self.target.name}")

    @contextmanager
    def _keep_model_running(self) -> Iterator[None]:
        """Compare in this context: errors do not stop the model, except reported differences."""
        with keep_random_state():
            try:
                yield
            except GraphDiffers:
                raise
            except (Exception, OutOfMemory) as error:  # noqa: BLE001 - see above
                self.counts.leave_out(_failure(error))

    def _check(self, call: GraphCall, eager: Observation, ends: Sequence[End]) -> None:
        with self._keep_model_running():
            started = time.perf_counter()
            try:
                with self._named(FORWARD):
                    run = call.run(self.compiled)
            finally:
                self.counts.spend(call.number, target=time.perf_counter() - started)
            trace = KnownRounding.on(eager, self._places.get(FORWARD, {}))
            judgement = judged(self.target.contract, eager, run.observation, trace)
            self.counts.documented += len(judgement.documented)
            reported = self._is_settled(FORWARD, judgement)
            reason = None if reported else self._look(call, None)
            ours = histories(eager, ends)
            if self._may_compare_gradients():
                reason = self._compare_histories(call, eager, ours, run) or reason
            self.counts.judge(FORWARD, reason)
            if self._may_compare_gradients():
                self._wait_for_gradients(call, eager, ours, run)

    def _compare_histories(
        self, call: GraphCall, eager: Observation, ours: Mapping[str, str], run: GraphRun
    ) -> str | None:
        """Compare gradients if histories differ. Returns why nothing is judged, if equal.

        The model's own backward pass uses only the history of eager.
        """
        differing = frozenset(ours.items() ^ run.histories.items())
        if run.observation.error is not None or not differing:
            return None
        if differing not in self._histories:
            places = {*ours, *run.histories} - {it for it in ours if ours[it] == FORBIDDEN}
            ends = {it: numbers_for(end) for it, end in eager.tensors().items() if it in places}
            self._histories[differing] = self._look(call, ends) or OTHER_HISTORY
        return None if self._has_wrong_values(BACKWARD) else self._histories[differing]

    def _wait_for_gradients(
        self, call: GraphCall, eager: Observation, ours: Mapping[str, str], run: GraphRun
    ) -> None:
        ends = [place for place, history in ours.items() if history == RESULT]
        if ends and run.leaves and torch.is_grad_enabled():
            versions = list(map(_version, eager.inputs))

            def overwritten() -> Overwritten:
                """The contents of the inputs that were written since then, by index."""
                pairs = enumerate(zip(eager.inputs, versions, strict=True))
                written = {i: it.detach() for i, (it, version) in pairs if version < _version(it)}
                return dict(zip(written, clone_inputs([*written.values()]), strict=True))

            then = partial(self._check_gradients, call, run)
            arriving = ArrivingGradients(then, overwritten)
            for place in ends:
                arriving.wait_at(place, eager.tensors()[place])

    def _check_gradients(
        self, call: GraphCall, run: GraphRun, overwritten: Overwritten, tangents: Tangents
    ) -> None:
        if not self._may_compare_gradients():
            return
        if torch.is_grad_enabled():
            self.counts.leave_out(f"{IN_BACKWARD}{RECORDED}")
        started = time.perf_counter()
        try:
            with self._keep_model_running():
                later = replace(call, overwritten=overwritten)
                with self._named(BACKWARD):
                    actual = differentiated(replace(run, overwritten=overwritten), tangents)
                ended = time.perf_counter()
                self.counts.spend(call.number, target=ended - started)
                expected = differentiated(later.run(self.eager), tangents)
                self.counts.zeros += zeros_for_none(expected, actual)
                places = self._places.get(BACKWARD, {})
                trace = KnownRounding.on(expected, places, gradients=True)
                judgement = judged(self.target.contract, expected, actual, trace)
                reported = self._is_settled(BACKWARD, judgement)
                reason = None if reported else self._look(call, tangents)
                if overwritten and not reported and not self._has_wrong_values(BACKWARD):
                    reason = self._look(later, tangents)
                self.counts.judge(BACKWARD, reason)
        finally:
            self.counts.spend(call.number, checking=time.perf_counter() - started)

    def _look(self, call: GraphCall, tangents: Tangents | None) -> str | None:
        """Look closer, and report differences. Returns why nothing could be judged, if so."""
        with self._named(FORWARD if tangents is None else BACKWARD):
            look = look_closer(self, call, tangents)
        if look.unjudged is not None:
            return look.unjudged
        self._places |= look.places
        self.counts.rounding += any(look.rounding.values())
        for direction in (FORWARD, BACKWARD):
            violations = look.violations.get(direction, ())
            if not self._seen.issuperset((direction, it) for it in violations):
                self._seen.update((direction, violation) for violation in violations)
                found = FoundDifference(self, direction, violations[0], call, tangents)
                self.found.append(found)
                self.report(found)
        return look.unknown.get(FORWARD if tangents is None else BACKWARD)

    def _is_settled(self, direction: str, judgement: Judgement) -> bool:
        """Whether nothing is undecided, and all differences were reported earlier."""
        seen = self._seen.issuperset((direction, it) for it in judgement.violations)
        return seen and undecided(judgement) is None

    def _has_wrong_values(self, direction: str) -> bool:
        """Whether a difference was found that makes further comparisons useless."""
        return any(
            found.direction == direction and found.violation.oracle in (*ON_VALUES, "errors")
            for found in self.found
        )

    def _may_compare_gradients(self) -> bool:
        return not (self._has_wrong_values(FORWARD) or self._has_wrong_values(BACKWARD))

    def compile_wide(self, given: Sequence[object]) -> tuple[GraphFunction, GraphFunction]:
        """The graph in eager and on the target, with float64 instead of narrower dtypes."""
        key = tuple(_layout(value) for value in given)
        if key not in self._wide:
            self._wide[key] = self.target.compile_wide(self.module, self.eager, given)
        return self._wide[key]


def _version(tensor: torch.Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version


def _failure(error: BaseException) -> str:
    """Why a call could not be judged: it cannot be compared, or aliasproof has a mistake."""
    text = " ".join(str(error).split())[:LONGEST_REASON]
    if isinstance(error, Rejected):
        return text
    if isinstance(error, (OutOfMemory, torch.OutOfMemoryError)):
        return "no memory for the comparison"
    return f"an error of aliasproof, please report it: {type(error).__name__}: {text}"


def _layout(value: object) -> object:
    if not isinstance(value, torch.Tensor):
        return value
    return value.shape, value.stride(), value.dtype, value.requires_grad


def _not_judged(value: object) -> str | None:
    """Why a call with this argument is not judged; None if it can be."""
    if isinstance(value, torch.Tensor):
        reason = not_comparable(value)
        return None if reason is None else f"an input is {reason}"
    if value is None or isinstance(value, (bool, int, float)):
        return None
    return f"an input is of type {type(value).__name__}"


# --- closer look ----------------------------------------------------------------------------------
#
# At a call on which eager and target differ: which differences count.
#
# Eager runs again, watched, and once more unwatched: it must be defined, and equal to itself. The
# target runs again: a difference counts only if both runs show it. A control in float64 decides
# what is rounding (`aliasproof/judge/rounding_control.py`).


@dataclass(frozen=True, slots=True)
class Look:
    """The result of a closer look, by direction: *forward* and *backward*.

    `rounding` has the locations that differ only by rounding. `unjudged` says why nothing can be
    judged, and `unknown` why one oracle cannot judge. `places` is what the watched run shows about
    rounding.
    """

    violations: Mapping[str, Sequence[Violation]] = field(default_factory=dict)
    rounding: Mapping[str, Sequence[str]] = field(default_factory=dict)
    places: Mapping[str, Mapping[str, MayDiffer]] = field(default_factory=dict)
    unknown: Mapping[str, str | None] = field(default_factory=dict)
    unjudged: str | None = None


def look_closer(graph: CheckedGraph, call: GraphCall, tangents: Tangents | None) -> Look:
    """Run both sides again. With `tangents`, each run is followed by a backward pass to judge."""
    try:
        expected, trace = _watched(graph.eager, call, tangents)
        alone = _observed(graph.eager, call, tangents)
        actual = _observed(graph.compiled, call, tangents)
    except Rejected as rejected:
        return Look(unjudged=why_unjudged(rejected))
    except InternalError as mistake:
        return Look(unjudged=f"aliasproof cannot watch it: {mistake}")
    failed = next((it.error for it in expected.values() if it.error is not None), None)
    if failed is not None:
        raised = f"{type(failed).__name__}: {' '.join(str(failed).split())[:100]}"
        return Look(unjudged=f"eager raises if it is watched: {raised}")
    if _raises_later(graph.eager, call, actual[FORWARD].error):
        return Look(unjudged="eager raises in the backward pass, what the target raises before it")
    for name, run in expected.items():
        for own in judged(EVERYTHING, run, alone[name], trace).violations[:1]:
            return Look(unjudged=f"two runs in eager differ: {own.describe()}")

    @functools.cache
    def in_float64() -> tuple[Mapping[str, Observation], Mapping[str, Observation]]:
        # This may be called during a backward pass, which disables gradients.
        with call.modes.entered():
            eager, target = graph.compile_wide(call.given)
        exact = _observed(eager, call, tangents, wide=True)
        return exact, _observed(target, call, tangents, wide=True)

    def control(name: str) -> Control:
        def watched() -> tuple[Observation, Trace]:
            eager, _ = graph.compile_wide(call.given)
            observed, trace = _watched(eager, call, tangents, wide=True)
            return observed[name], trace

        return Control(lambda: in_float64()[0][name], watched, lambda: in_float64()[1][name])

    violations, rounding, unknown = {}, {}, {}
    for name, run in expected.items():
        runs = run, actual[name]
        again = partial(judged, graph.target.contract, *runs)
        judgement, rounding[name] = without_rounding(
            again(trace),
            again,
            runs,
            trace,
            [control(name)],
            partial(_observed_in, name, graph.eager, call, tangents),
        )
        violations[name] = judgement.violations
        unknown[name] = undecided(judgement)
    # What the watched run shows about each of its tensors.
    seen = {
        name: {
            place: MayDiffer(trace.tolerance(tensor), trace.rounds_between(tensor))
            for place, tensor in run.tensors().items()
        }
        for name, run in expected.items()
    }
    return Look(violations, rounding, seen, unknown)


def _watched(
    eager: GraphFunction, call: GraphCall, tangents: Tangents | None, *, wide: bool = False
) -> tuple[dict[str, Observation], Trace]:
    watches: list[Watch] = []

    def watching(inputs: Sequence[torch.Tensor]) -> Watch:
        watches.append(Watch(inputs))
        return watches[0]

    run = call.run(eager, watching, wide=wide)
    observed = {FORWARD: run.observation}
    if tangents is not None and run.observation.error is None:
        observed[BACKWARD] = run.differentiate(_as_wide(tangents, wide=wide), watches[0])
    watches[0].require_defined(run.observation.error)
    outputs = [it for it in run.observation.outputs if isinstance(it, torch.Tensor)]
    watches[0].require_initialised(outputs)
    return observed, watches[0].trace


def _observed(
    function: GraphFunction, call: GraphCall, tangents: Tangents | None, *, wide: bool = False
) -> dict[str, Observation]:
    run = call.run(function, wide=wide)
    observed = {FORWARD: run.observation}
    if tangents is not None:
        observed[BACKWARD] = differentiated(run, _as_wide(tangents, wide=wide))
    return observed


def _observed_in(
    direction: str, function: GraphFunction, call: GraphCall, tangents: Tangents | None
) -> Observation:
    return _observed(function, call, tangents)[direction]


def differentiated(run: GraphRun, tangents: Tangents) -> Observation:
    """The gradients after a run; the error if it raised."""
    if run.observation.error is not None:
        return Observation([], [], error=run.observation.error)
    return run.differentiate(tangents)


def _raises_later(eager: GraphFunction, call: GraphCall, error: Exception | None) -> bool:
    """Whether a backward pass of eager raises an error, too.

    AOTAutograd traces the backward pass together with the forward pass. So it raises in the forward
    pass, for example, that a tensor was written which the backward pass needs.
    """
    if error is None:
        return False
    run = call.run(eager)
    ends = {name: it for name, it in run.observation.tensors().items() if it.requires_grad}
    raised = run.differentiate({name: torch.ones_like(it) for name, it in ends.items()}).error
    return raised is not None and type(raised) is type(error)


def _as_wide(tangents: Tangents, *, wide: bool) -> Tangents:
    made = widened([*tangents.values()]) if wide else None
    return tangents if made is None else dict(zip(tangents, made, strict=True))


def judged(contract: Contract, eager: Observation, target: Observation, trace: Trace) -> Judgement:
    """The verdicts of the oracles on results. A gradient of zeros counts as None."""
    eager, target = _same_zeros(eager, target)
    # Autograd forbids reading some views after a write to their base.
    with torch.no_grad():
        return judge(contract, eager, target, trace)


def undecided(judgement: Judgement) -> str | None:
    """Why an oracle on results could not decide; None if all could."""
    for name, report in judgement.reports.items():
        if report.verdict is Verdict.UNKNOWN:
            return f"the oracle {name} cannot decide: {report.reason}"
    return None


def _same_zeros(eager: Observation, target: Observation) -> tuple[Observation, Observation]:
    """Both runs, where a gradient of zeros becomes None if the other run has None."""
    if not zeros_for_none(eager, target):
        return eager, target
    pairs = zip(eager.outputs, target.outputs, strict=True)
    kept = [(None, None) if _is_zero(pair) else pair for pair in pairs]
    ours, theirs = zip(*kept, strict=True)
    return (
        replace(eager, outputs=ours, _regions={}),
        replace(target, outputs=theirs, _regions={}),
    )


def zeros_for_none(eager: Observation, target: Observation) -> bool:
    """Whether one run has a gradient of zeros where the other has None."""
    same_number = len(eager.outputs) == len(target.outputs)
    return same_number and any(map(_is_zero, zip(eager.outputs, target.outputs, strict=True)))


def _is_zero(pair: tuple[object, object]) -> bool:
    """Whether one of the two is None, and the other a tensor of zeros."""
    tensors = [value for value in pair if isinstance(value, torch.Tensor)]
    return len(tensors) == 1 and any(value is None for value in pair) and not bool(tensors[0].any())
