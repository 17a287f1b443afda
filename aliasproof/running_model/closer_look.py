"""A closer look at a call on which eager and target differ: which differences count.

Eager runs again, watched, and once more unwatched: it must be defined, and equal to itself. The
target runs again: a difference counts only if both runs show it. A control in float64 decides what
is rounding (`aliasproof/judge/rounding_control.py`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import torch

from aliasproof.eager.definedness import Watch
from aliasproof.eager.trace import EXACT, InputLocation, Tolerance, Trace
from aliasproof.ir.errors import InternalError, Rejected
from aliasproof.judge.rounding_control import Control, widened, without_rounding
from aliasproof.oracles.contract import EVERYTHING, Contract
from aliasproof.oracles.judge import Judgement, judge
from aliasproof.oracles.observation import Observation
from aliasproof.oracles.verdict import Verdict, Violation
from aliasproof.running_model.graph_call import GraphCall, GraphFunction, GraphRun, Tangents

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


# --- closer look ----------------------------------------------------------------------------------


FORWARD, BACKWARD = "forward", "backward"


@dataclass(frozen=True, slots=True)
class Compared:
    """The functions to compare. `wide` compiles the graph for a call with float64 inputs."""

    eager: GraphFunction
    target: GraphFunction
    contract: Contract
    wide: Callable[[Sequence[object]], tuple[GraphFunction, GraphFunction]]


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


def look_closer(compared: Compared, call: GraphCall, tangents: Tangents | None = None) -> Look:
    """Run both sides again. With `tangents`, each run is followed by a backward pass to judge."""
    try:
        expected, trace = _watched(compared.eager, call, tangents)
        alone = _observed(compared.eager, call, tangents)
        actual = _observed(compared.target, call, tangents)
    except Rejected as reason:
        return Look(unjudged=f"undefined in eager: {reason}")
    except InternalError as mistake:
        return Look(unjudged=f"aliasproof cannot watch it: {mistake}")
    failed = next((it.error for it in expected.values() if it.error is not None), None)
    if failed is not None:
        raised = f"{type(failed).__name__}: {' '.join(str(failed).split())[:100]}"
        return Look(unjudged=f"eager raises if it is watched: {raised}")
    if _raises_later(compared.eager, call, actual[FORWARD].error):
        return Look(unjudged="eager raises in the backward pass, what the target raises before it")
    for name, run in expected.items():
        for own in judged(EVERYTHING, run, alone[name], trace).violations[:1]:
            return Look(unjudged=f"two runs in eager differ: {own.describe()}")

    @functools.cache
    def in_float64() -> tuple[Mapping[str, Observation], Mapping[str, Observation]]:
        # This may be called during a backward pass, which disables gradients.
        with call.modes.entered():
            eager, target = compared.wide(call.given)
        exact = _observed(eager, call, tangents, wide=True)
        return exact, _observed(target, call, tangents, wide=True)

    def control(name: str) -> Control:
        def watched() -> tuple[Observation, Trace]:
            eager, _ = compared.wide(call.given)
            observed, trace = _watched(eager, call, tangents, wide=True)
            return observed[name], trace

        return Control(lambda: in_float64()[0][name], watched, lambda: in_float64()[1][name])

    violations, rounding, unknown = {}, {}, {}
    for name, run in expected.items():
        runs = run, actual[name]
        again = partial(judged, compared.contract, *runs)
        judgement, rounding[name] = without_rounding(
            again(trace),
            again,
            runs,
            trace,
            [control(name)],
            partial(_observed_in, name, compared.eager, call, tangents),
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
