"""Is a difference in values rounding? A control decides: both sides run again in float64.

Correct kernels round differently, and a decomposition may overflow where eager's kernel does not.
Such a difference vanishes in float64, and a miscompile does not.

The control runs only where rounding can cause a difference of that size. Code that is wrong for
only one dtype is right in float64, too. What float64 itself rounds is decided by eager: whether its
own values differ as much if the last bits of what its sums read are others.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_map

from aliasproof.corpus.patches.dynamo import write_to_float64_number
from aliasproof.eager.rounding import FusedRounding, any_is, is_inexact, rounds_alike
from aliasproof.eager.trace import Trace
from aliasproof.ir.eager_call import BATCH_NORMS, batch_norm_with_true_schema, tensors_in
from aliasproof.ir.errors import InternalError, Rejected
from aliasproof.ir.program import Instruction, Program
from aliasproof.ir.schemas import facts
from aliasproof.ir.values import StorageSet, bytes_of, move_to_storage
from aliasproof.oracles.judge import Judgement
from aliasproof.oracles.observation import Observation
from aliasproof.oracles.verdict import ON_VALUES, Report, Verdict, Violation, with_differences

_PLACE = re.compile(r"(?:input|output) \d+")
SAME = 1e-7  # relative to the largest number of a tensor: two float64 algorithms for one result
CANCELLED = 1e-12  # relative to the largest input: the rest of numbers that should cancel
MARGIN = 10.0  # how many times the error of eager a correct kernel may have
HUGE = 2.0**26  # relative to the largest input: the square root of what float64 can tell apart
UNKNOWN = 0.1  # relative to itself: how far apart two values are of which no digit is known


def suspects(judgement: Judgement, eager: Observation, trace: Trace) -> list[str]:
    """The locations of wrong floating-point values that come from ops that may round differently.

    A Python function that reads tensor data can compute with Python numbers where a compiler
    computes with tensors: no op shows that.
    """
    tensors = eager.tensors()
    in_python = trace.data_dependent is not None and not trace.is_program
    places = [
        violation.place
        for name in ON_VALUES
        for violation in judgement.reports[name].violations
        if _PLACE.fullmatch(violation.place)
    ]
    return [
        place
        for place in places
        if (tensor := tensors.get(place)) is not None
        and is_inexact(tensor)
        and (in_python or trace.tolerance(tensor).rounds)
    ]


def widened(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor] | None:
    """The inputs as float64, with the same layouts and sharing; None if that is impossible.

    It is if no input is less precise, or one storage is read as two dtypes.
    """
    dtypes: dict[int, torch.dtype] = {}
    for tensor in tensors:
        storage = tensor.untyped_storage()
        read_otherwise = dtypes.setdefault(storage._cdata, tensor.dtype) != tensor.dtype
        if read_otherwise or tensor.is_conj() or tensor.is_neg():
            return None
    if not any(map(is_inexact, tensors)):
        return None
    buffers: dict[int, torch.Tensor] = {}
    made = []
    for tensor in tensors:
        storage = tensor.untyped_storage()
        if storage._cdata not in buffers:
            whole = storage.nbytes() // tensor.itemsize * tensor.itemsize
            with _disable_current_modes():  # a watch would take these bytes for unwritten memory
                # As bytes: integers of few bits have no kernel to copy them.
                numbers = bytes_of(storage)[:whole].clone().view(tensor.dtype)
                if (wide := wide_dtype(tensor.dtype)) != tensor.dtype:
                    numbers = numbers.to(wide)
                buffers[storage._cdata] = numbers
        buffer = buffers[storage._cdata]
        made.append(move_to_storage(buffer.untyped_storage(), tensor, buffer.dtype))
    return made


@contextmanager
def wide_factories() -> Iterator[None]:
    """Make float64 the default dtype, which the state of an optimizer gets.

    A float64 number of the optimizer then meets a bug of Dynamo, which loses its writes. That bug
    is patched here: where the user meets it, the lost write shows in the number itself, and is not
    rounding.
    """
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with write_to_float64_number():
            yield
    finally:
        torch.set_default_dtype(before)


def without_narrow_conversions(program: Program) -> Program:
    """The program with float64 instead of the floating-point dtypes that its calls name.

    Calls that reinterpret bits as another dtype stay as they are.
    """
    return replace(program, instructions=tuple(map(_wide_call, program.instructions)))


def _wide_call(call: Instruction) -> Instruction:
    if call.op == "aten.view.dtype":
        return call
    kwargs = tuple((name, wide_argument(value)) for name, value in call.kwargs)
    return replace(call, args=tuple(map(wide_argument, call.args)), kwargs=kwargs)


def wide_argument(value: Any) -> Any:
    """The dtype that replaces a dtype; any other value unchanged."""
    return wide_dtype(value) if isinstance(value, torch.dtype) else value


class Control(NamedTuple):
    """Both sides in float64, run on demand. Each raises `Rejected` if that is impossible.

    `exact` returns eager's observation, `watched` the same with a trace of the run, and `target`
    the target's observation.
    """

    exact: Callable[[], Observation]
    watched: Callable[[], tuple[Observation, Trace]]
    target: Callable[[], Observation]


def without_rounding(
    judgement: Judgement,
    judged: Callable[[Trace], Judgement],
    runs: tuple[Observation, Observation],
    trace: Trace,
    controls: Sequence[Control],
    run_eager: Callable[[], Observation],
) -> tuple[Judgement, list[str]]:
    """The judgement of two runs without differences that vanish in float64, and their locations.

    What is open because eager's dtypes round is a violation if it differs in float64, too. `judged`
    returns the judgement for a trace. The first control that can decide does so. `run_eager` runs
    eager once more.
    """
    rounding = []
    open_ = _open_differences(judgement, judged, trace)
    if open_ and (wrong := _wrong(controls, [*open_])) is not None:
        wrong += _stale([place for place in open_ if place not in wrong], runs[0], run_eager)
        judgement = _decided(judgement, [open_[place] for place in wrong])
        rounding += [place for place in open_ if place not in wrong]
    places = [place for place in suspects(judgement, runs[0], trace) if place not in open_]
    stale = _stale(places, runs[0], run_eager)
    if places and not stale:
        if _rounds_alone(controls, places, *runs):
            reason = "rounding alone, since both sides agree in float64"
        else:
            places = _ill_conditioned(places, *runs, run_eager)
            reason = "rounding alone, since the last bits of operands change eager as much"
        judgement = excused(judgement, places, reason)
        rounding += places
    return judgement, rounding


def _open_differences(
    judgement: Judgement, judged: Callable[[Trace], Judgement], trace: Trace
) -> dict[str, Violation]:
    """The differences in values that the judgement leaves open, by location.

    None of them if one is in no input or output.
    """
    if all(judgement.reports[name].verdict is Verdict.HOLDS for name in ON_VALUES):
        return {}
    rounding = replace(trace.rounding, bits=StorageSet())
    all_of_them = judged(replace(trace, rounding=rounding, fused=FusedRounding())).violations
    named = [*judgement.violations, *(entry.difference for entry in judgement.documented)]
    known = {difference.place for difference in named}
    new = [it for it in all_of_them if it.oracle in ON_VALUES and it.place not in known]
    # No control compares the bytes of a storage around its inputs.
    return {it.place: it for it in new} if all(_PLACE.fullmatch(it.place) for it in new) else {}


def _decided(judgement: Judgement, wrong: Sequence[Violation]) -> Judgement:
    """The judgement with these violations, and no open difference in values."""
    reports = dict(judgement.reports)
    for name in ON_VALUES:
        report = reports[name]
        more = [*report.violations, *(it for it in wrong if it.oracle == name)]
        reports[name] = with_differences(more, report.documented, report.notes)
    return Judgement(reports)


def _wrong(controls: Sequence[Control], places: Sequence[str]) -> list[str] | None:
    """The locations that differ in float64, too; None if float64 does not decide."""
    for control in controls:
        try:
            exact = control.exact()
            watched, trace = control.watched()
            left = [watched.tensors().get(place) for place in places]
            if exact.error or any(trace.bits_open(it) or _rounds_here(trace, it) for it in left):
                continue
            target = control.target()
        except (Rejected, InternalError):
            continue
        if target.error is None:
            return [place for place in places if not agree([place], exact, target)]
    return None


def _stale(
    places: Sequence[str], eager: Observation, run_eager: Callable[[], Observation]
) -> list[str]:
    """The locations that eager computes from a parameter as it was before a write.

    Autocast converts a parameter once, and keeps the result. In float64 it converts nothing.
    """
    if not places:
        return []
    cached = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(False)
    try:
        again = run_eager().tensors()
    finally:
        torch.set_autocast_cache_enabled(cached)
    precision = torch.finfo(torch.bfloat16).eps ** 0.5
    stale = []
    for place in places:
        if place not in again:
            return [*places]  # without this state of autocast, it raises
        one, other = _as_wide(eager.tensors()[place]), _as_wide(again[place])
        most = precision * _scale([one, other])
        if not torch.allclose(one, other, rtol=0, atol=most, equal_nan=True):
            stale.append(place)
    return stale


def _rounds_here(trace: Trace, value: torch.Tensor | None) -> bool:
    """Whether rounding may decide about a value in this control, too.

    Where the function itself converts to a narrow dtype, only eager rounds to it between two ops
    that a compiler fuses. Then one side may overflow, or be cut to another integer.
    """
    if value is None or not trace.rounds_between(value):
        return False
    return not is_inexact(value) or any_is(value, lambda numbers: ~numbers.isfinite())


def _rounds_alone(
    controls: Sequence[Control], places: Sequence[str], eager: Observation, target: Observation
) -> bool:
    """Whether the differences at these locations are only rounding."""
    if target.error is not None:
        return False
    for control in controls:
        try:
            exact = control.exact()
            if exact.error is not None:
                continue
            if not may_round(places, eager, target, exact):
                return False
            controlled = control.target()
        except Rejected:
            return False
        return controlled.error is None and agree(places, exact, controlled)
    return False


class _OtherLastBits(TorchDispatchMode):
    """Changes the last bits that an op reads if kernels for it may round differently.

    A stable kernel returns the exact result for such operands, so each result is one that some
    kernel may return.
    """

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._generator = torch.Generator().manual_seed(seed)

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if isinstance(op, OpOverload) and not rounds_alike(op, [*tensors_in((args, kwargs))]):
            if op in BATCH_NORMS:
                op, args, kwargs = batch_norm_with_true_schema(op, args, kwargs)
            writes = facts(op).writes
            args = tuple(
                it if index in writes else tree_map(self._changed, it)
                for index, it in enumerate(args)
            )
        return op(*args, **kwargs)

    def _changed(self, value: Any) -> Any:
        if not (isinstance(value, torch.Tensor) and value.is_floating_point()):
            return value
        kind = torch.finfo(value.dtype)
        random = torch.rand(value.shape, generator=self._generator, dtype=torch.float64)
        return value + (value * (random * 2 - 1).to(value) * kind.eps)


def _ill_conditioned(
    places: Sequence[str],
    eager: Observation,
    target: Observation,
    run_eager: Callable[[], Observation],
) -> list[str]:
    """The locations in float64 where eager's own values differ as much with other last bits."""
    places = [it for it in places if torch.finfo(eager.tensors()[it].dtype).bits == 64]
    if not places:
        return []
    changed: list[Observation] = []
    for seed in range(3):
        with _OtherLastBits(seed):
            changed.append(run_eager())
    if any(run.error is not None for run in (target, *changed)):
        return []
    scale = _scale(eager.before or [*eager.tensors().values()])
    return [
        place
        for place in places
        if _as_far_apart(
            eager.tensors()[place],
            target.tensors()[place],
            [run.tensors()[place] for run in changed],
            scale,
        )
    ]


def _as_far_apart(
    own: torch.Tensor, other: torch.Tensor, changed: Sequence[torch.Tensor], scale: float
) -> bool:
    """Whether each number is as near to eager's as eager's is to those with changed last bits.

    A quotient by numbers that cancel has no last bits: it is huge, and may be any huge number.
    """
    if any(it.shape != own.shape for it in (other, *changed)):
        return False
    apart = torch.stack([_distances(own, it) for it in changed]).amax(0)
    huge = torch.stack([~(it.abs() <= HUGE * scale) for it in (own, *changed)]).any(0)
    anything = huge & ~(apart <= UNKNOWN * own.abs())
    return bool(((_distances(own, other) <= MARGIN * apart) | anything).all())


def _distances(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Of each pair of numbers. It is infinite if one of two different numbers is not finite."""
    apart = (one - other).abs().nan_to_num(torch.inf, posinf=torch.inf)
    return apart.masked_fill((one == other) | (one.isnan() & other.isnan()), 0.0)


def may_round(
    places: Sequence[str], eager: Observation, target: Observation, exact: Observation
) -> bool:
    """Whether rounding can cause differences of this size. `exact` is eager in float64."""
    scale = _scale(eager.before or [*eager.tensors().values()])
    ours, theirs, references = (run.tensors() for run in (eager, target, exact))
    return all(_may_round(ours[place], theirs[place], references[place], scale) for place in places)


def _may_round(
    one: torch.Tensor, other: torch.Tensor, reference: torch.Tensor, scale: float
) -> bool:
    kind = torch.finfo(one.dtype)
    one, other, reference = map(_as_wide, (one, other, reference))
    if not one.shape == other.shape == reference.shape:
        return False
    largest = max(_scale([one, other]), scale)
    finite = one.isfinite() & other.isfinite()
    # Without finite values, an intermediate result may have overflowed, as a square under a root.
    if not bool(finite.all()) and largest < kind.max**0.5:
        return False
    own = (one - reference)[finite & reference.isfinite()].abs()
    limit = max(kind.eps**0.5 * largest, MARGIN * float(own.max()) if own.numel() else 0.0)
    return bool(((one - other)[finite].abs() <= limit).all())


def agree(places: Sequence[str], eager: Observation, target: Observation) -> bool:
    """Whether two runs in float64 have the same values at these locations."""
    scale = _scale(eager.before or [*eager.tensors().values()])
    ours, theirs = eager.tensors(), target.tensors()
    return all(_agree(ours[place], theirs.get(place), scale) for place in places)


def _agree(one: torch.Tensor, other: torch.Tensor | None, scale: float) -> bool:
    if other is None or one.shape != other.shape or one.dtype != other.dtype:
        return False
    # A function may convert to another dtype itself, as with `.float()` after autocast.
    kind = torch.finfo(one.dtype if is_inexact(one) else torch.float64)
    same = max(SAME, MARGIN * kind.eps)
    cancelled = max(CANCELLED, kind.eps) if kind.bits >= 32 else CANCELLED
    one, other = _as_wide(one), _as_wide(other)
    atol = same * _scale([one, other]) + cancelled * scale
    return torch.allclose(one, other, rtol=0, atol=atol, equal_nan=True)


def excused(judgement: Judgement, places: Sequence[str], why: str) -> Judgement:
    """The judgement without the violations at these locations, for this reason."""
    reports = dict(judgement.reports)
    for name in ON_VALUES:
        report = reports[name]
        left = [violation for violation in report.violations if violation.place not in places]
        if len(left) < len(report.violations):
            holds = Report(Verdict.HOLDS, reason=f"{', '.join(places)}: {why}")
            reports[name] = with_differences(left, report.documented, report.notes, holds)
    return Judgement(reports)


def _scale(tensors: Sequence[torch.Tensor]) -> float:
    """The largest finite number in the floating-point tensors."""
    numbers = [_as_wide(tensor).abs() for tensor in tensors if is_inexact(tensor)]
    finite = [number[number.isfinite()] for number in numbers]
    return max((float(values.max()) for values in finite if values.numel()), default=0.0)


def wide_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype that replaces this one in a control."""
    if dtype.is_complex:
        return torch.complex128
    return torch.float64 if dtype.is_floating_point else dtype


def _as_wide(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().to(wide_dtype(tensor.dtype))
