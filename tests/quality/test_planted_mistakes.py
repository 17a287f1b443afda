"""Mistakes planted in the harness itself.

A verifier that misses bugs looks like one that finds none. A healthy harness passes all checks.
With a mistake planted, the checks that are listed with it must fail.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias
from unittest import mock

import pytest
import torch
from torch import Tensor

from aliasproof.campaigns.failure import failure, reduction
from aliasproof.eager import definedness
from aliasproof.eager import trace as tracing
from aliasproof.eager.trace import Tolerance
from aliasproof.ir.errors import InternalError, Rejected
from aliasproof.ir.execution import ProgramFunction
from aliasproof.ir.parsing import parse_source
from aliasproof.ir.program import Input, Program, Storage
from aliasproof.ir.regions import Region
from aliasproof.ir.values import input_tensors
from aliasproof.judge import attribution, trial
from aliasproof.judge.attribution import Symptom
from aliasproof.judge.trial import Case, run_trial
from aliasproof.oracles import aliasing, values
from aliasproof.oracles import inputs as inputs_oracle
from aliasproof.oracles import judge as judging
from aliasproof.oracles.contract import Contract, Promise, Refusal, Waiver
from aliasproof.oracles.observation import Observation, observe
from aliasproof.oracles.verdict import HOLDS, Violation
from aliasproof.targets.registry import TARGETS
from aliasproof.targets.target import Build, Function, Target

# --- planted compilers ----------------------------------------------------------------------------

ALL = Contract()
NO_IDENTITY = Contract(waivers=(Waiver(Promise.IDENTITY, "for this test"),))


def compiler(
    rewrite: Callable[[Function], Function], contract: Contract = ALL, after: Target | None = None
) -> Target:
    """A target that runs `rewrite(function)` instead of the function."""

    def build(function: Function, inputs: Sequence[Tensor]) -> Build:
        return Build(rewrite(function), [])

    return Target(
        "planted", "a compiler with a planted bug", contract, build, recipe="", after=after
    )


def becomes(function: Function, contract: Contract = ALL) -> Target:
    return compiler(lambda _: function, contract)


RIGHT = compiler(lambda function: function)


def crashing(*inputs: Tensor) -> object:
    raise RuntimeError("planted")


def violations(subject: Case, target: Target) -> list[Violation]:
    return run_trial(subject, target).judgement.violations


def vector() -> Tensor:
    return torch.arange(1.0, 5)


# --- properties of a healthy harness: for this program and compiler, this is the verdict ----------

NAN = float("nan")
# Which oracles notice it, a function, and what it became. The input is four floats.
NOTICED: dict[str, tuple[list[str], Function, Function]] = {
    "a NaN of other bits": ([], lambda x: x * NAN, lambda x: -(x * NAN)),
    "interleaved outputs": (
        ["metadata"] * 2,  # no alias
        lambda x: (x[::2] + 0, x[1::2] + 0),
        lambda x: ((y := x + 0)[::2], y[1::2]),
    ),
    "a wrong value": (["values"], lambda x: x + 1, lambda x: x + 2),
    "permuted values": (["values"], lambda x: x + 1, lambda x: (x + 1).flip(0)),
    "the next float": (["values"], lambda x: x + 1, lambda x: torch.nextafter(x + 1, x + 9)),
    "the sign of a zero": (["values"], lambda x: x - x, lambda x: -(x - x)),
    "a number in place of NaN": (["values"], lambda x: x * NAN, lambda x: x + 0),
    "a lost mutation": (["inputs"], lambda x: (x.add_(1), None)[1], lambda x: None),
    "a byte beside the input": (
        ["inputs"],
        lambda x: None,
        lambda x: (x.as_strided((1,), (1,), 0).zero_(), None)[1],
    ),
    "a new alias": (["aliasing"], lambda x: x + 0, lambda x: x.view(4)),
    # The first element as a float, and the bytes from the last byte of this element on.
    "an alias of one byte": (
        ["aliasing"],
        lambda x: ((x + 0)[:1], (x + 0).view(torch.uint8)[3:6]),
        lambda x: ((y := x + 0)[:1], y.view(torch.uint8)[3:6]),
    ),
    "a wrong stride": (
        ["metadata"],
        lambda x: x.view(2, 2) + 0,
        lambda x: x.view(2, 2).t().contiguous().t(),
    ),
    "a crash": (["errors"], lambda x: x + 1, crashing),
    "a missing error": (["errors"], crashing, lambda x: x + 1),
}


def check_noticed(name: str) -> None:
    oracles, function, wrong = NOTICED[name]
    x = vector()[1:] if name == "a byte beside the input" else vector()
    found = violations(Case.of_function(function, [x]), becomes(wrong, NO_IDENTITY))
    assert [each.oracle for each in found] == oracles


def a_right_compiler_is_not_blamed() -> None:
    for function in (
        lambda x: x.add_(1),
        lambda x: x[1:],
        lambda x: x * float("nan"),
        lambda x: x.expand(2, 4).zero_(),
    ):
        assert violations(Case.of_function(function, [vector()]), RIGHT) == []


def written(body: str, inputs: int = 1) -> Program:
    """A program on inputs x0, x1, ... of four elements, each in its own storage."""
    views = [Input(f"x{index}", index, torch.float32, (4,), (1,)) for index in range(inputs)]
    text = (
        f"def program({', '.join(each.name for each in views)}):\n    "
        + body.replace("; ", "\n    ")
        + "\n"
    )
    return parse_source(text, [Storage(torch.float32, 4)] * inputs, views)


def a_stale_read_of_a_shared_input_is_noticed() -> None:
    apart = written("aten.zero_.default(x0); v0 = aten.neg.default(x1); return (v0,)", inputs=2)
    shared = replace(
        apart,
        inputs=(apart.inputs[0], replace(apart.inputs[1], storage=0)),
        storages=apart.storages[:1],
    )
    late = compiler(lambda function: lambda x, y: (before := -y, function(x, y), before)[2:])
    assert [each.oracle for each in violations(Case.of(shared), late)] == ["values"]
    assert violations(Case.of(apart), late) == []


def a_stale_read_of_a_users_shared_input_is_noticed() -> None:
    base = vector()
    function: Function = lambda x, y: (x.zero_(), -y)[1:]  # noqa: E731
    late = becomes(lambda x, y: (before := -y, x.zero_(), before)[2:])
    assert [
        each.oracle for each in violations(Case.of_function(function, [base[:3], base[1:]]), late)
    ] == ["values"]


def what_one_run_does_is_not_seen_by_the_next() -> None:
    """The compiler drops writes. Inputs that eager has already mutated would hide that."""
    program = written("aten.zero_.default(x0); return ()")
    forgetful = becomes(lambda x: ())
    assert [each.oracle for each in violations(Case.of(program), forgetful)] == ["inputs"]


def an_undefined_program_is_rejected() -> None:
    subject = Case.of_function(lambda x: x[1:].copy_(x[:-1]), [vector()])
    try:
        run_trial(subject, becomes(lambda x: x))
    except Rejected:
        return
    raise AssertionError("judged a program that is undefined in eager")


def ops(program: Program) -> list[str]:
    return [each.op for each in program.instructions]


def two_bugs(function: Function) -> Function:
    """A compiler that crashes on programs without `mul_`, and forgets `zero_` in those with it."""
    assert isinstance(function, ProgramFunction)
    program = function.program
    if "aten.mul_.Scalar" not in ops(program):
        raise RuntimeError("planted")
    kept = tuple(each for each in program.instructions if each.op != "aten.zero_.default")
    return ProgramFunction(replace(program, instructions=kept))


def a_reduced_program_shows_the_bug_that_was_found() -> None:
    start = written(
        "v0 = aten.neg.default(x0); aten.mul_.Scalar(v0, 2);"
        " v1 = aten.neg.default(x1); aten.zero_.default(v1); return v0, v1",
        inputs=2,
    )
    found = Symptom("planted", "values", "wrong value")
    with mock.patch.dict(TARGETS, planted=compiler(two_bugs)):
        reduced = reduction.reduce_failure(failure.Failure(found, start, seed=0))
    assert reduced is not None
    assert sorted(ops(reduced.program)) == ["aten.mul_.Scalar", "aten.zero_.default"]


def a_bug_is_blamed_on_the_earliest_target() -> None:
    """The later target is right about what it is given."""
    earlier = replace(becomes(lambda x: (x + 2,)), name="earlier")
    later = replace(becomes(lambda x: (x + 2,)), after=earlier)
    program = written("v0 = aten.add.Scalar(x0, 1); return (v0,)")
    assert attribution.shows(program, later, Symptom("earlier", "values", "wrong value"))
    assert not attribution.shows(program, later, Symptom("planted", "values", "wrong value"))


# --- mistakes -------------------------------------------------------------------------------------


Check: TypeAlias = str | Callable[[], None]  # a name in NOTICED, or a function
Plant: TypeAlias = Callable[[pytest.MonkeyPatch], None]


def silenced(oracle: str) -> Plant:
    """An oracle that compares nothing."""
    table = tuple(
        replace(each, judge=lambda *_: HOLDS) if each.name == oracle else each
        for each in judging.ORACLES
    )
    return lambda patch: patch.setattr(judging, "ORACLES", table)


def replaced(owner: object, name: str, value: object) -> Plant:
    return lambda patch: patch.setattr(owner, name, value)


healthy_equal = values.equal_elements


def differs_in_sum(
    expected: object, actual: object, tolerance: Tolerance
) -> dict[str, object] | None:
    if (
        isinstance(expected, Tensor)
        and isinstance(actual, Tensor)
        and expected.sum() == actual.sum()
    ):
        return None
    return {"different": True}


def same_inputs_again(program: Program) -> Case:
    tensors = input_tensors(program)
    return Case(ProgramFunction(program), lambda: tensors)


def never_raising(function: Callable[..., object], inputs: Sequence[Tensor]) -> Observation:
    seen = observe(function, inputs)
    if seen.error is not None:  # falls back to eager, as many compilers do
        return Observation(inputs, seen.before, [each + 1 for each in inputs])
    return seen


def in_elements(cls: type[Region], tensor: Tensor) -> Region:
    start = tensor.data_ptr() // tensor.element_size()
    return cls(start, tuple(tensor.shape), tensor.stride(), 1)


def intervals_meet(one: Region, other: Region) -> bool:
    (low, end), (other_low, other_end) = one.interval, other.interval
    return low < other_end and other_low < end


WHATEVER_IT_IS = Refusal("", "", "whatever it is", when=lambda trace: True)

# How to plant a mistake, and the checks that must fail then.
MISTAKES: dict[str, tuple[Any, ...]] = {
    # An oracle that compares nothing, or too little.
    "values compares nothing": (
        silenced("values"),
        "a wrong value",
        a_stale_read_of_a_shared_input_is_noticed,
    ),
    "inputs compares nothing": (silenced("inputs"), "a lost mutation", "a byte beside the input"),
    "aliasing compares nothing": (silenced("aliasing"), "a new alias", "an alias of one byte"),
    "metadata compares nothing": (silenced("metadata"), "a wrong stride"),
    "values compares sums": (replaced(values, "differ", differs_in_sum), "permuted values"),
    "values is tolerant of everything": (
        replaced(
            values, "equal_elements", lambda a, b, _: healthy_equal(a, b, Tolerance(rounds=True))
        ),
        "the next float",
    ),
    "-0.0 equals 0.0": (
        replaced(
            values,
            "equal_elements",
            lambda a, b, it: healthy_equal(a, b, replace(it, zero_sign=True)),
        ),
        "the sign of a zero",
    ),
    "every op counts as inexact": (
        replaced(tracing, "rounds_alike", lambda *_: False),
        "the next float",
    ),
    "NaN equals everything": (
        replaced(
            values,
            "equal_elements",
            lambda a, b, tolerance: healthy_equal(a, b, tolerance) | a.isnan(),
        ),
        "a number in place of NaN",
    ),
    "only the bytes of the inputs are compared": (
        replaced(inputs_oracle, "_around", lambda *_: ([], False)),
        "a byte beside the input",
    ),
    # Inputs that are made wrongly.
    "inputs are made without sharing": (
        replaced(
            trial,
            "input_tensors",
            lambda it: [torch.empty_like(x).copy_(x) for x in input_tensors(it)],
        ),
        a_stale_read_of_a_shared_input_is_noticed,
    ),
    "inputs are cloned without sharing": (
        replaced(trial, "clone_inputs", lambda inputs: [each.clone() for each in inputs]),
        a_stale_read_of_a_users_shared_input_is_noticed,
    ),
    "inputs are not cloned at all": (replaced(trial, "clone_inputs", list), "a lost mutation"),
    "inputs are used again": (
        replaced(trial.Case, "of", same_inputs_again),
        what_one_run_does_is_not_seen_by_the_next,
    ),
    # A reduction that loses the failure.
    "the predicate ignores the signature": (
        replaced(failure, "grade", lambda it, target, _: bool(violations(Case.of(it), target))),
        a_reduced_program_shows_the_bug_that_was_found,
    ),
    "the predicate ignores who is at fault": (
        replaced(attribution, "at_fault", lambda _, target, __, violation: (target, violation)),
        a_bug_is_blamed_on_the_earliest_target,
    ),
    # Errors that get lost.
    "errors looks at nothing": (silenced("errors"), "a crash", "a missing error"),
    "the target's exception is swallowed": (replaced(trial, "observe", never_raising), "a crash"),
    "every error counts as a documented refusal": (
        replaced(Contract, "refusal", lambda *_: WHATEVER_IT_IS),
        "a crash",
    ),
    # Aliasing and definedness by something other than exact bytes.
    "aliasing in elements": (
        lambda patch: patch.setattr(Region, "of", classmethod(in_elements)),
        "an alias of one byte",
    ),
    "aliasing of intervals": (replaced(aliasing, "overlap", intervals_meet), "interleaved outputs"),
    "nothing aliases": (replaced(aliasing, "overlap", lambda *_: False), "a new alias"),
    "everything is defined": (replaced(definedness, "RULES", ()), an_undefined_program_is_rejected),
    # False alarms.
    "everything differs": (
        replaced(values, "differ", lambda *_, **__: {"different": True}),
        a_right_compiler_is_not_blamed,
    ),
    "NaN differs from NaN": (
        replaced(values, "equal_elements", lambda a, b, _: a == b),
        "a NaN of other bits",
    ),
}
CHECKS: dict[str, Check] = {
    getattr(it, "__name__", it): it for _, *checks in MISTAKES.values() for it in checks
}
PAIRS = [
    pytest.param(plant, check, id=f"{name}: {getattr(check, '__name__', check)}")
    for name, (plant, *checks) in MISTAKES.items()
    for check in checks
]


def run(check: Check) -> None:
    check_noticed(check) if isinstance(check, str) else check()


@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS)
def test_a_healthy_harness_passes(check: Check) -> None:
    run(check)


@pytest.mark.parametrize(("plant", "check"), PAIRS)
def test_a_planted_mistake_is_caught(plant, check, monkeypatch):
    plant(monkeypatch)
    with pytest.raises((AssertionError, InternalError)):
        run(check)
