"""Properties of a healthy harness: for this program and this compiler, this is the verdict.

These are small end-to-end tests. With a mistake planted in the harness
(`test_planted_mistakes.py`), the checks that are listed with the mistake must fail.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from unittest import mock

import torch
from torch import Tensor

from aliasproof.campaigns.failure import failure, reduction
from aliasproof.ir.errors import Rejected
from aliasproof.ir.execution import ProgramFunction
from aliasproof.ir.parsing import parse_source
from aliasproof.ir.program import Input, Program, Storage
from aliasproof.judge import attribution
from aliasproof.judge.attribution import Symptom
from aliasproof.judge.trial import Case, run_trial
from aliasproof.oracles.contract import Contract, Promise, Waiver
from aliasproof.oracles.verdict import Violation
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


def noticed(function: Function, wrong: Function, *inputs: Tensor) -> list[str]:
    """Which oracles notice that `function` became `wrong`."""
    subject = Case.of_function(function, inputs)
    return [each.oracle for each in violations(subject, becomes(wrong, NO_IDENTITY))]


def vector() -> Tensor:
    return torch.arange(1.0, 5)


# --- properties of a healthy harness --------------------------------------------------------------


def a_right_compiler_is_not_blamed() -> None:
    for function in (
        lambda x: x.add_(1),
        lambda x: x[1:],
        lambda x: x * float("nan"),
        lambda x: x.expand(2, 4).zero_(),
    ):
        assert violations(Case.of_function(function, [vector()]), RIGHT) == []


def a_nan_of_other_bits_is_not_blamed() -> None:
    assert noticed(lambda x: x * float("nan"), lambda x: -(x * float("nan")), vector()) == []


def interleaved_outputs_are_no_alias() -> None:
    assert (
        noticed(
            lambda x: (x[::2] + 0, x[1::2] + 0), lambda x: ((y := x + 0)[::2], y[1::2]), vector()
        )
        == ["metadata"] * 2
    )


def a_wrong_value_is_noticed() -> None:
    assert noticed(lambda x: x + 1, lambda x: x + 2, vector()) == ["values"]


def permuted_values_are_noticed() -> None:
    assert noticed(lambda x: x + 1, lambda x: (x + 1).flip(0), vector()) == ["values"]


def the_next_float_is_noticed() -> None:
    assert noticed(lambda x: x + 1, lambda x: torch.nextafter(x + 1, x + 9), vector()) == ["values"]


def the_sign_of_a_zero_is_noticed() -> None:
    assert noticed(lambda x: x - x, lambda x: -(x - x), vector()) == ["values"]


def a_number_in_place_of_nan_is_noticed() -> None:
    assert noticed(lambda x: x * float("nan"), lambda x: x + 0, vector()) == ["values"]


def a_lost_mutation_is_noticed() -> None:
    assert noticed(lambda x: (x.add_(1), None)[1], lambda x: None, vector()) == ["inputs"]


def a_byte_beside_the_input_is_noticed() -> None:
    assert noticed(
        lambda x: None, lambda x: (x.as_strided((1,), (1,), 0).zero_(), None)[1], vector()[1:]
    ) == ["inputs"]


def a_new_alias_is_noticed() -> None:
    assert noticed(lambda x: x + 0, lambda x: x.view(4), vector()) == ["aliasing"]


def an_alias_of_one_byte_is_noticed() -> None:
    """The first element as a float, and the bytes from the last byte of this element on."""
    eager = lambda x: ((x + 0)[:1], (x + 0).view(torch.uint8)[3:6])  # noqa: E731
    target = lambda x: ((y := x + 0)[:1], y.view(torch.uint8)[3:6])  # noqa: E731
    assert noticed(eager, target, vector()) == ["aliasing"]


def a_wrong_stride_is_noticed() -> None:
    assert noticed(
        lambda x: x.view(2, 2) + 0, lambda x: x.view(2, 2).t().contiguous().t(), vector()
    ) == ["metadata"]


def a_crash_is_noticed() -> None:
    assert noticed(lambda x: x + 1, crashing, vector()) == ["errors"]


def a_missing_error_is_noticed() -> None:
    assert noticed(crashing, lambda x: x + 1, vector()) == ["errors"]


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
