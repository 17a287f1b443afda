"""A function that ran in eager, to be compared with targets: on its tensors, and as it is called.

On its tensors, the function is compiled for inference, and the detached tensors that it leaves are
compared. As the user calls it, gradients are enabled, the inputs are unchanged, and all that the
caller can reach is compared. If the function does not call `backward`, a backward pass follows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import torch

from aliasproof.eager.definedness import why_unjudged
from aliasproof.eager.definedness_rules import Fill
from aliasproof.eager.trace import InputLocation, Trace
from aliasproof.ir.devices import CPU, on_device, require_device
from aliasproof.ir.errors import Rejected, UserError
from aliasproof.ir.execution import ProgramFunction, seed_generators
from aliasproof.ir.program import Program
from aliasproof.ir.values import clone_inputs, input_tensors
from aliasproof.judge.python_case import FloatState, PythonCase, layers, run_python
from aliasproof.judge.trial import Case, EagerRun, Subject, run_eager
from aliasproof.oracles.check_result import EagerResult
from aliasproof.oracles.contract import EVERYTHING
from aliasproof.oracles.judge import judge
from aliasproof.oracles.observation import Observation, observe
from aliasproof.processes.isolation import step
from aliasproof.reports.console import listed
from aliasproof.reports.side_by_side import value_text
from aliasproof.targets import aot, aot_eager
from aliasproof.targets.target import Function, Target
from aliasproof.targets.user_targets import LATER_CALLS, is_plain_backend
from aliasproof.targets.variants import KEPT_BUFFERS
from aliasproof.user_code.comparable import NO_BACKWARD, Comparable
from aliasproof.user_code.user_call import RETURNED, SECOND, GradientUse, UserCall
from aliasproof.user_code.user_file import check_arguments, raised_text

AS_CALLED = " as called"  # suffix of a target's name in the name of a row
MOST_NAMED = 8  # captured tensors named in a note
_NO_LIMIT = 0.0  # seconds: the process of a check has its own limit


@dataclass(frozen=True, slots=True)
class Prepared:
    """A function that ran in eager, to be compared with targets. `eager` says if that is possible.

    `notes` say what was done to make it comparable. `opaque` are the types of outputs that cannot
    be compared. `called` is the function as the user calls it, and `twice` has a second call; None
    if that is not judged. `rows` are what is judged, by name.
    """

    case: Subject
    eager: EagerResult
    notes: tuple[str, ...] = ()
    opaque: frozenset[str] = frozenset()
    called: Prepared | None = None
    twice: Prepared | None = None
    rows: Mapping[str, JudgedRow] = field(default_factory=dict)


class JudgedRow(NamedTuple):
    """A target, and what it is judged on; `after` is the row that it builds on."""

    prepared: Prepared
    target: Target
    after: str | None


def prepare_rows(
    function: Program | Function,
    inputs: object = None,
    second_inputs: object = None,
    *,
    targets: Sequence[Target],
    file: Path | None = None,
    device: str | None = None,
    grad: bool | None = None,
) -> Prepared:
    """Run a function in eager, without gradients, and as the user calls it. See `check`.

    The latter only for targets that are a form of `torch.compile`, if the function uses gradients.
    With `grad` true, for any function, and only this; with `grad` false, not at all. Raises
    `UserError` like `check`.
    """
    called = None
    through = any(target.backend is not None for target in targets)
    if through and grad is not False and inputs is not None and not isinstance(function, Program):
        check_arguments(inputs, "inputs")
        always = grad is True
        called = prepare_as_called(function, inputs, file=file, device=device, always=always)
        step("the function in eager, without gradients")  # restarts the time limit
    if grad and called is None:
        raise UserError(
            "with gradients, a function is judged through forms of torch.compile: give such a"
            " target, as aot-eager"
        )
    prepared = prepare(function, inputs, second_inputs, file=file, device=device)
    if called is not None:
        prepared = _with_called(prepared, called, alone=bool(grad))
    return replace(prepared, rows=_rows(prepared, targets))


def _with_called(prepared: Prepared, called: Prepared, *, alone: bool) -> Prepared:
    """Both eager runs, if targets can be compared with them; with `alone`, only the second."""
    without, refused = prepared.eager.unjudged, called.eager.unjudged
    if not alone and refused is not None:
        return replace(prepared, notes=(*prepared.notes, f"not judged{AS_CALLED}: {refused}"))
    note = f"rows '{AS_CALLED.strip()}': as you call it, with gradients"
    if not alone and without is None:
        notes = [text for text in prepared.notes if NO_BACKWARD not in text]
        if len(notes) < len(prepared.notes):
            note += "; the other rows compare no gradients"
        return replace(prepared, notes=(*notes, note), called=called)
    if not alone:
        note += f"; not judged without: {without}"
    return Prepared(prepared.case, called.eager, (note,), called=called)


def _after(target: Target, prepared: Prepared, targets: Sequence[Target]) -> str | None:
    """The row that a target builds on: the nearest that is checked, if any is.

    A function of a user reaches AOTAutograd through Dynamo, as in aot-eager.
    """
    earlier, through_dynamo = [layer.name for layer in target.earlier], aot_eager.TARGET.name
    case = prepared.case
    is_program = isinstance(case, Case) and isinstance(case.function, ProgramFunction)
    if aot.AOT.name in earlier and target.name != through_dynamo and not is_program:
        earlier.insert(earlier.index(aot.AOT.name) + 1, through_dynamo)
    checked = [it.name for it in targets if it.name in earlier]
    return max(checked or earlier[-1:], key=earlier.index, default=None)


def _rows(prepared: Prepared, targets: Sequence[Target]) -> dict[str, JudgedRow]:
    rows: dict[str, JudgedRow] = {}
    for target in targets:
        if prepared.called is None or prepared.eager is not prepared.called.eager:
            called_again = [KEPT_BUFFERS] if _keeps_state(prepared, target) else []
            called_again += LATER_CALLS if is_plain_backend(target) else []
            for judged in (target, *map(target.with_, called_again)):
                rows[judged.name] = JudgedRow(prepared, judged, _after(judged, prepared, targets))
    if prepared.called is not None:
        names = {f"{it.name}{AS_CALLED}": it for it in targets if it.backend is not None}
        for name, target in names.items():
            before = [f"{layer}{AS_CALLED}" for layer in layers(target.name)[:-1]]
            known = [row for row in (target.name, *before) if row in (names | rows)]
            after = known[-1] if known else None
            rows[name] = JudgedRow(prepared.called, target, after)
    return rows


def _keeps_state(prepared: Prepared, target: Target) -> bool:
    """Whether the function writes captured tensors, and the target may compile these writes in."""
    if not isinstance(prepared.case, Case):
        return False
    captured, trace = getattr(prepared.case.function, "captured", 0), prepared.eager.trace
    if not captured or trace is None or target.own(KEPT_BUFFERS) is None:
        return False
    return any(view.storage in trace.written for view in trace.inputs[-captured:])


_UNUSED_CAST = (
    "a cast meets values that its integer dtype does not have, which is undefined; the function"
    " leaves the same whatever the cast stores for them"
)


def prepare(
    function: Program | Function,
    inputs: object = None,
    second_inputs: object = None,
    *,
    file: Path | None = None,
    device: str | None = None,
) -> Prepared:
    """Run a function, or a program with its own inputs, in eager. See `check`."""
    require_device(device or CPU)
    if isinstance(function, Program):
        program = on_device(function, require_device(device or function.device))
        case = Case(ProgramFunction(program), lambda: _seeded(input_tensors(program)))
        return Prepared(case, run_eager_twice(case, file))
    if inputs is None:
        missing = "inputs are missing; only a Program brings its own"
        raise UserError(f"check(function, inputs): {missing}")
    check_arguments(inputs, "inputs")
    comparable = Comparable.of(function, inputs)
    notes = list(comparable.notes)
    if comparable.captured:
        named = listed(comparable.captured_names, MOST_NAMED)
        notes.append(f"captured tensors are passed as further inputs: {named}")
    # Each run gets fresh clones: no run sees the writes of another.
    case = Case(comparable, lambda: _seeded(clone_inputs(comparable.inputs)))
    if second_inputs is not None:
        check_arguments(second_inputs, "second_inputs")
        second = comparable.other_inputs(second_inputs)
        case.second_inputs = lambda: _seeded(clone_inputs(second))
    if device is not None:
        case = case.on(device)
    eager = run_eager_twice(case, file)
    eager = replace(eager, names=comparable.place_names())
    # The types of the outputs are only known after the runs.
    opaque = frozenset(comparable.opaque)
    if opaque:
        notes.append(opaque_reason(opaque))
    if comparable.fill is not None:
        notes.append(_UNUSED_CAST)
    if eager.trace is not None and eager.trace.unwatched:
        notes.append(
            f"what {', '.join(eager.trace.unwatched)} does was not watched: whether it is defined"
            " in eager is unknown"
        )
    return Prepared(case, eager, tuple(notes), opaque)


def _seeded(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """The inputs of the next run, after resetting torch's generator for it."""
    seed_generators()
    return tensors


def opaque_reason(opaque: frozenset[str]) -> str:
    return f"outputs of these types are compared by their types alone: {', '.join(sorted(opaque))}"


# --- the eager run --------------------------------------------------------------------------------
#
# Twice: a function whose two runs differ cannot be judged.


def run_eager_twice(case: Case, file: Path | None) -> EagerResult:
    """Run in eager twice. If two runs on equal inputs differ, no target can be compared."""
    try:
        first, trace = run_eager(case)
        again, _ = run_eager(case)
    except Rejected as rejected:
        runs = _filled_runs(case)
        if not runs:
            return eager_result(None, Trace(), why_unjudged(rejected))
        (first, trace), (again, _) = runs[:2]
    raised = None if first.error is None else raised_text(first.error, file)
    if first.error is not None:
        # Some functions raise only under the dispatch mode that watches the eager run. For example,
        # torch.cond requires that a mode supports it.
        unwatched = observe(case.function, case.fresh_inputs())
        if type(unwatched.error) is not type(first.error):
            return eager_result(None, trace, f"aliasproof cannot watch its eager run: {raised}")
    # The empty contract promises everything: any difference between the two runs counts.
    difference = next(iter(judge(EVERYTHING, first, again, trace).violations), None)
    if difference is not None:
        reason = (
            f"two eager runs on equal inputs differ: {difference.describe()}; the function keeps"
            " state outside of its inputs, or uses random numbers that torch.manual_seed does not"
            " control"
        )
        return eager_result(first, trace, reason, raised)
    return eager_result(first, trace, None, raised)


def _filled_runs(case: Case) -> list[EagerRun]:
    """Runs with other values where a cast is undefined; none if their results differ."""
    if not isinstance(case.function, Comparable):
        return []
    runs = []
    try:
        for fill in Fill:
            case.function.fill = fill
            runs.append(run_eager(case))
            differs = judge(EVERYTHING, runs[0].observation, *runs[-1]).violations
            if differs or runs[-1].observation.error is not None:
                raise Rejected("what an undefined cast leaves is used")
    except Rejected:
        case.function.fill = None
        return []
    return runs


def eager_result(
    seen: Observation | None, trace: Trace, unjudged: str | None, raised: str | None = None
) -> EagerResult:
    """The eager run with its texts."""
    return EagerResult(
        seen,
        trace,
        unjudged,
        raised,
        outputs=() if seen is None else tuple(map(value_text, seen.outputs)),
        inputs=() if seen is None else tuple(map(value_text, seen.inputs)),
        rounded=trace.rounding.first,
        unspecified=trace.unspecified,
        torch=str(torch.__version__),
    )


def prepare_as_called(
    function: Function,
    inputs: object,
    *,
    file: Path | None = None,
    device: str | None = None,
    always: bool = False,
) -> Prepared | None:
    """Run a function in eager, as the user calls it, without changing any object of the user.

    None if it does not use gradients, unless `always`.
    """
    call = UserCall.of(function, inputs, device)
    given = always or any(it.requires_grad for _, it in call.surroundings.tensors().values())
    use = GradientUse()
    try:
        with use, torch.compiler.set_stance("force_eager"):
            run = run_python(call)
        requires = any("requires grad" in kind for kind in run.kinds.values())
        if not (given or use.seen or requires):
            return None
        call = replace(call, differentiated=not use.calls_backward)
        prepared = _called(call, call, file)
    except Rejected as rejected:
        if not (given or use.seen):
            return None
        unjudged = eager_result(Observation([], []), Trace(), why_unjudged(rejected))
        return Prepared(PythonCase(call, _NO_LIMIT), unjudged)
    if prepared.eager.unjudged or prepared.eager.raised:
        return prepared
    return replace(prepared, twice=_called_twice(call))


def _called_twice(call: UserCall) -> Prepared | None:
    """The same with a second call. None if that raises, is undefined, or is flaky."""
    state = FloatState()
    call = replace(call, twice=True)
    try:
        prepared = _called(call, replace(call, between=state.keep), None)
    except Rejected:
        return None
    if prepared.eager.unjudged or prepared.eager.raised:
        return None
    return replace(prepared, case=PythonCase(replace(call, between=state.restore), _NO_LIMIT))


def _called(call: UserCall, again: UserCall, file: Path | None) -> Prepared:
    """A call that ran in eager, and once more as `again`: if these differ, it cannot be judged."""
    case = PythonCase(call, _NO_LIMIT)
    run, trace = case.run_eager()
    differing = judge(EVERYTHING, run, PythonCase(again).observe(), trace).violations
    reason = None
    if differing:
        reason = f"two eager runs with gradients differ: {differing[0].describe()}"
    # The locations of the caller's tensors, without those that were returned.
    trace.inputs = tuple(
        InputLocation.of(leaf)
        for path, leaf in run.leaves().items()
        if isinstance(leaf, torch.Tensor) and not path.startswith((RETURNED, SECOND + RETURNED))
    )
    raised = None if run.error is None else raised_text(run.error, file)
    eager = eager_result(run, trace, reason, raised)
    return Prepared(case, replace(eager, names=run.place_names()))
