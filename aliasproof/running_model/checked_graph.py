"""`CheckedGraph`: a graph of a model in eager and on a target, call by call.

The model gets eager's results on its own tensors. The target runs on copies. Results are compared
bit by bit, except for rounding that an earlier call showed; only a remaining difference costs a
closer look. Gradients are compared if the model's own backward pass provides some.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeAlias

import torch
from torch import fx
from torch.utils import _pytree as pytree

from aliasproof.ir.devices import finish
from aliasproof.ir.errors import OutOfMemory, Rejected
from aliasproof.ir.execution import keep_random_state
from aliasproof.ir.values import clone_inputs
from aliasproof.judge.python_case import numbers_for
from aliasproof.oracles.judge import Judgement
from aliasproof.oracles.observation import Observation
from aliasproof.oracles.verdict import ON_VALUES, PlaceNames, Violation
from aliasproof.reports.console import counted
from aliasproof.running_model.checked_target import CheckedTarget
from aliasproof.running_model.closer_look import (
    BACKWARD,
    FORWARD,
    Compared,
    KnownRounding,
    MayDiffer,
    differentiated,
    judged,
    look_closer,
    undecided,
    zeros_for_none,
)
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
            with self._named(FORWARD):
                run = self._run_target(call)
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

    def _run_target(self, call: GraphCall) -> GraphRun:
        started = time.perf_counter()
        try:
            return call.run(self.compiled)
        finally:
            self.counts.spend(call.number, target=time.perf_counter() - started)

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
        compared = Compared(self.eager, self.compiled, self.target.contract, self._compile_wide)
        with self._named(FORWARD if tangents is None else BACKWARD):
            look = look_closer(compared, call, tangents)
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

    def _compile_wide(self, given: Sequence[object]) -> tuple[GraphFunction, GraphFunction]:
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
