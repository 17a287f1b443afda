"""Programs that run as a group are judged one by one; joint effects belong to the group."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from aliasproof.ir.program import Program
from aliasproof.judge.attribution import Symptom
from aliasproof.judge.examination import examine
from aliasproof.judge.groups import GroupExamination, examine_group
from aliasproof.judge.trial import Case
from aliasproof.oracles.contract import Contract, Promise, Waiver
from aliasproof.targets.target import Build, Function, Target

OPAQUE = "this target shows no graphs"
ALL = Contract()
OF_WRITERS = Waiver(
    Promise.VALUES, "of programs that write, for this test", unless=lambda run: not run.written
)
DOCUMENTED = Contract(waivers=(OF_WRITERS,))


@pytest.fixture
def members(program: Callable[..., Program]) -> list[Program]:
    """Three programs with one input and one output each; the second one writes its input."""
    return [
        program("v0 = aten.add.Scalar(x0, 1)\nreturn (v0,)", (4,)),
        program("aten.mul_.Scalar(x0, 2)\nv0 = aten.neg.default(x0)\nreturn (v0,)", (3,)),
        program("v0 = aten.add.Scalar(x0, 1)\nreturn (v0,)", (4,)),
    ]


def target(rewrite: Callable[[Function], Function], contract: Contract = ALL) -> Target:
    """A target that runs `rewrite(function)` and shows no graphs."""

    def build(function: Function, inputs: Sequence[Tensor]) -> Build:
        return Build(rewrite(function), [], OPAQUE)

    return Target("planted", "a compiler with a planted bug", contract, build, recipe="")


def changing(change: Callable[[list[Tensor]], object], contract: Contract = ALL) -> Target:
    """A target that changes the outputs."""

    def rewrite(function: Function) -> Function:
        def run(*inputs: Tensor) -> object:
            change(outputs := [output.clone() for output in function(*inputs)])  # type: ignore[attr-defined]
            return outputs

        return run

    return target(rewrite, contract)


def refusing(refused: Callable[[Sequence[Tensor]], bool]) -> Target:
    """A target that raises for some inputs."""

    def rewrite(function: Function) -> Function:
        def run(*inputs: Tensor) -> object:
            if refused(inputs):
                raise RuntimeError("planted")
            return function(*inputs)

        return run

    return target(rewrite)


def increase(outputs: list[Tensor], size: int) -> None:
    """Make the outputs of this size wrong."""
    for output in outputs:
        if output.numel() == size:
            output += 1


def group(programs: Sequence[Program], subject: Target) -> GroupExamination:
    return examine_group([Case.of(each) for each in programs], subject)


def symptoms(found: GroupExamination) -> list[Symptom | None]:
    return [each.symptom for each in found.examinations]


WRONG = Symptom("planted", "values", "wrong value")


def test_right_members_run_once(members: list[Program]) -> None:
    runs: list[int] = []
    found = group(members, changing(lambda outputs: runs.append(len(outputs))))
    assert runs == [3]
    assert symptoms(found) == [None] * 3
    assert not found.failures


@pytest.mark.parametrize(
    "subject",
    [
        changing(lambda outputs: increase(outputs, 3)),
        changing(lambda outputs: increase(outputs, 4)),
        refusing(lambda inputs: any(each.numel() == 3 for each in inputs)),
        changing(lambda outputs: increase(outputs, 3), DOCUMENTED),
    ],
)
def test_each_member_shows_what_it_shows_alone(members: list[Program], subject: Target) -> None:
    found = group(members, subject)
    for program, each in zip(members, found.examinations, strict=True):
        alone = examine(Case.of(program), subject)
        assert each.symptom == alone.symptom
        assert each.violations == alone.violations
        assert each.documented == alone.documented
    assert not found.failures


def test_members_that_eager_rejects_leave_the_group(members, program):
    body = "v0 = aten.expand.default(x0, [3, 4])\naten.add_.Scalar(v0, 1)\nreturn (v0,)"
    found = group([program(body, (4,)), *members], changing(lambda outputs: None))
    rejected = [each.rejected is not None for each in found.examinations]
    assert rejected == [True, False, False, False]


@pytest.mark.parametrize(
    ("subject", "symptom"),
    [
        (changing(lambda outputs: increase(outputs, 4) if len(outputs) > 1 else None), WRONG),
        (
            refusing(lambda inputs: len(inputs) > 2),
            Symptom("planted", "errors", "raises RuntimeError"),
        ),
        (
            changing(lambda outputs: outputs.__setitem__(-1, outputs[0])),
            Symptom("planted", "aliasing", "new alias between programs"),
        ),
    ],
)
def test_what_no_member_shows_alone_is_a_failure_of_their_group(members, subject, symptom):
    found = group(members, subject)
    assert symptoms(found) == [None] * 3
    assert not any(each.failed for each in found.examinations)
    [failure] = found.failures
    assert failure.symptom == symptom
    assert found.companions
    # It is a normal program, and shows the failure.
    assert examine(Case.of(failure.program), subject).failed


def test_the_group_of_those_that_are_right_is_reported(members: list[Program]) -> None:
    def change(outputs: list[Tensor]) -> None:
        increase(outputs, 3)
        if len(outputs) > 1:
            increase(outputs, 4)

    found = group(members, changing(change))
    assert symptoms(found) == [None, WRONG, None]
    assert found.companions == {0, 2}
    assert [len(each.program.inputs) for each in found.failures] == [2]


def test_an_earlier_target_that_differs_in_the_same_group_is_named(members: list[Program]) -> None:
    earlier = replace(
        changing(lambda outputs: increase(outputs, 4) if len(outputs) > 1 else None), name="earlier"
    )
    later = replace(earlier, name="later", after=earlier)
    found = group(members, later)
    assert [each.symptom.target for each in found.failures] == ["earlier"]
    assert symptoms(found) == [None] * 3
    assert not any(each.failed for each in found.examinations)


def test_programs_with_random_numbers_run_alone(program: Callable[..., Program]) -> None:
    drawing = program("v0 = aten.rand_like.default(x0)\nreturn (v0,)", (4,))
    runs: list[int] = []
    found = group([drawing, drawing], changing(lambda outputs: runs.append(len(outputs))))
    assert runs == [1, 1]
    assert symptoms(found) == [None, None]
    assert torch.equal(*(each.trial.eager.outputs[0] for each in found.examinations))  # type: ignore[union-attr, arg-type]
