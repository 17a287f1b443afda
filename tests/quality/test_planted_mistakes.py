"""Mistakes planted in the harness itself.

A verifier that misses bugs looks like one that finds none. A healthy harness passes all checks.
With a mistake planted, the checks that are listed with it must fail.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

from aliasproof.campaigns.failure import failure
from aliasproof.eager import definedness
from aliasproof.eager import trace as tracing
from aliasproof.eager.trace import Tolerance
from aliasproof.ir.errors import InternalError
from aliasproof.ir.execution import ProgramFunction
from aliasproof.ir.program import Program
from aliasproof.ir.regions import Region
from aliasproof.ir.values import input_tensors
from aliasproof.judge import attribution, trial
from aliasproof.judge.attribution import Symptom
from aliasproof.judge.trial import Case
from aliasproof.oracles import aliasing, values
from aliasproof.oracles import inputs as inputs_oracle
from aliasproof.oracles import judge as judging
from aliasproof.oracles.contract import Contract, Refusal
from aliasproof.oracles.observation import Observation, observe
from aliasproof.oracles.verdict import HOLDS, Violation
from aliasproof.targets.target import Target
from tests.quality import harness_checks as checks

# --- mistakes -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Mistake:
    """How to plant a mistake, and the checks that must fail then."""

    plant: Callable[[pytest.MonkeyPatch], None]
    caught_by: tuple[Callable[[], None], ...]


def silenced(oracle: str) -> Callable[[pytest.MonkeyPatch], None]:
    """An oracle that compares nothing."""
    table = tuple(
        replace(each, judge=lambda *_: HOLDS) if each.name == oracle else each
        for each in judging.ORACLES
    )
    return lambda patch: patch.setattr(judging, "ORACLES", table)


def replaced(owner: object, name: str, value: object) -> Callable[[pytest.MonkeyPatch], None]:
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


def equal_where_nan(expected: Tensor, actual: Tensor, tolerance: Tolerance) -> Tensor:
    return healthy_equal(expected, actual, tolerance) | expected.isnan()


def equal_but_for_zeros(expected: Tensor, actual: Tensor, tolerance: Tolerance) -> Tensor:
    return healthy_equal(expected, actual, replace(tolerance, zero_sign=True))


def inputs_apart(program: Program) -> list[Tensor]:
    return [torch.empty_like(each).copy_(each) for each in input_tensors(program)]


def same_inputs_again(program: Program) -> Case:
    tensors = input_tensors(program)
    return Case(ProgramFunction(program), lambda: tensors)


def any_failure(program: Program, target: Target, symptom: Symptom) -> bool:
    return bool(checks.violations(Case.of(program), target))


def blames_itself(
    subject: Case, target: Target, trial: object, violation: Violation
) -> tuple[Target, Violation]:
    return target, violation


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

MISTAKES: dict[str, Mistake] = {
    # An oracle that compares nothing, or too little.
    "values compares nothing": Mistake(
        silenced("values"),
        (checks.a_wrong_value_is_noticed, checks.a_stale_read_of_a_shared_input_is_noticed),
    ),
    "inputs compares nothing": Mistake(
        silenced("inputs"),
        (checks.a_lost_mutation_is_noticed, checks.a_byte_beside_the_input_is_noticed),
    ),
    "aliasing compares nothing": Mistake(
        silenced("aliasing"),
        (checks.a_new_alias_is_noticed, checks.an_alias_of_one_byte_is_noticed),
    ),
    "metadata compares nothing": Mistake(silenced("metadata"), (checks.a_wrong_stride_is_noticed,)),
    "values compares sums": Mistake(
        replaced(values, "differ", differs_in_sum), (checks.permuted_values_are_noticed,)
    ),
    "values is tolerant of everything": Mistake(
        replaced(
            values, "equal_elements", lambda a, b, _: healthy_equal(a, b, Tolerance(rounds=True))
        ),
        (checks.the_next_float_is_noticed,),
    ),
    "-0.0 equals 0.0": Mistake(
        replaced(values, "equal_elements", equal_but_for_zeros),
        (checks.the_sign_of_a_zero_is_noticed,),
    ),
    "every op counts as inexact": Mistake(
        replaced(tracing, "rounds_alike", lambda *_: False), (checks.the_next_float_is_noticed,)
    ),
    "NaN equals everything": Mistake(
        replaced(values, "equal_elements", equal_where_nan),
        (checks.a_number_in_place_of_nan_is_noticed,),
    ),
    "only the bytes of the inputs are compared": Mistake(
        replaced(inputs_oracle, "_around", lambda *_: ([], False)),
        (checks.a_byte_beside_the_input_is_noticed,),
    ),
    # Inputs that are made wrongly.
    "inputs are made without sharing": Mistake(
        replaced(trial, "input_tensors", inputs_apart),
        (checks.a_stale_read_of_a_shared_input_is_noticed,),
    ),
    "inputs are cloned without sharing": Mistake(
        replaced(trial, "clone_inputs", lambda inputs: [each.clone() for each in inputs]),
        (checks.a_stale_read_of_a_users_shared_input_is_noticed,),
    ),
    "inputs are not cloned at all": Mistake(
        replaced(trial, "clone_inputs", list), (checks.a_lost_mutation_is_noticed,)
    ),
    "inputs are used again": Mistake(
        replaced(trial.Case, "of", same_inputs_again),
        (checks.what_one_run_does_is_not_seen_by_the_next,),
    ),
    # A reduction that loses the failure.
    "the predicate ignores the signature": Mistake(
        replaced(failure, "grade", any_failure),
        (checks.a_reduced_program_shows_the_bug_that_was_found,),
    ),
    "the predicate ignores who is at fault": Mistake(
        replaced(attribution, "at_fault", blames_itself),
        (checks.a_bug_is_blamed_on_the_earliest_target,),
    ),
    # Errors that get lost.
    "errors looks at nothing": Mistake(
        silenced("errors"), (checks.a_crash_is_noticed, checks.a_missing_error_is_noticed)
    ),
    "the target's exception is swallowed": Mistake(
        replaced(trial, "observe", never_raising), (checks.a_crash_is_noticed,)
    ),
    "every error counts as a documented refusal": Mistake(
        replaced(
            Contract,
            "refusal",
            lambda self, error, trace: Refusal("", "", "whatever it is", lambda trace: True),
        ),
        (checks.a_crash_is_noticed,),
    ),
    # Aliasing and definedness by something other than exact bytes.
    "aliasing in elements": Mistake(
        lambda patch: patch.setattr(Region, "of", classmethod(in_elements)),
        (checks.an_alias_of_one_byte_is_noticed,),
    ),
    "aliasing of intervals": Mistake(
        replaced(aliasing, "overlap", intervals_meet), (checks.interleaved_outputs_are_no_alias,)
    ),
    "nothing aliases": Mistake(
        replaced(aliasing, "overlap", lambda *_: False), (checks.a_new_alias_is_noticed,)
    ),
    "everything is defined": Mistake(
        replaced(definedness, "RULES", ()), (checks.an_undefined_program_is_rejected,)
    ),
    # False alarms.
    "everything differs": Mistake(
        replaced(values, "differ", lambda *_, **__: {"different": True}),
        (checks.a_right_compiler_is_not_blamed,),
    ),
    "NaN differs from NaN": Mistake(
        replaced(values, "equal_elements", lambda a, b, _: a == b),
        (checks.a_nan_of_other_bits_is_not_blamed,),
    ),
}
CHECKS = {it.__name__: it for mistake in MISTAKES.values() for it in mistake.caught_by}
PAIRS = [
    pytest.param(mistake, check, id=f"{name}: {check.__name__}")
    for name, mistake in MISTAKES.items()
    for check in mistake.caught_by
]


@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS)
def test_a_healthy_harness_passes(check: Callable[[], None]) -> None:
    check()


@pytest.mark.parametrize(("mistake", "check"), PAIRS)
def test_a_planted_mistake_is_caught(mistake, check, monkeypatch):
    mistake.plant(monkeypatch)
    with pytest.raises((AssertionError, InternalError)):
        check()
