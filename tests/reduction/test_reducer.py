"""The reducer ends, gives the same result each time, and `consider` alone accepts candidates."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from generators.features import swarm
from generators.strategies import sample
from programs.errors import InternalError, UserError
from programs.program import Instruction, Program, Ref
from reduction import reducer
from reduction.reducer import Reducer
from reduction.simplicity import simplicity
from reduction.steps import STEPS


def ops(program: Program) -> list[str]:
    return [instruction.op.removeprefix("aten.") for instruction in program.instructions]


def contains(*names: str) -> Callable[[Program], bool]:
    """True of programs that contain these ops."""
    return lambda program: set(names) <= set(ops(program))


# --- a whole reduction ----------------------------------------------------------------------------


def test_the_same_program_reduces_to_the_same_result(noisy) -> None:
    program = noisy("    y = aten.neg.default(x2)\n    aten.zero_.default(y)")

    def run() -> Reducer:
        job = Reducer(program, contains("zero_.default", "add.Tensor"))
        job.run()
        return job

    one, other = run(), run()
    assert one.current == other.current
    assert (one.tried, one.accepted, one.accepted_by) == (
        other.tried,
        other.accepted,
        other.accepted_by,
    )


def test_each_accepted_candidate_is_simpler_and_interesting(noisy) -> None:
    interesting = contains("zero_.default")
    accepted = [noisy("    y = aten.neg.default(x2)\n    aten.zero_.default(y)")]

    class Recorder(Reducer):
        def consider(self, candidate: Program) -> bool:
            if super().consider(candidate):
                accepted.append(self.current)
                return True
            return False

    job = Recorder(accepted[0], interesting)
    job.run()
    assert all(
        simplicity(after) < simplicity(before) for before, after in itertools.pairwise(accepted)
    )
    assert all(map(interesting, accepted))
    assert job.accepted == len(accepted) - 1 == sum(job.accepted_by.values())


def test_a_fixpoint_is_left_as_it_is(noisy) -> None:
    interesting = contains("zero_.default")
    result = Reducer(
        noisy("    y = aten.neg.default(x2)\n    aten.zero_.default(y)"), interesting
    ).run()
    again = Reducer(result, interesting)
    assert again.run() == result
    assert again.accepted == 0


# --- the law of consider --------------------------------------------------------------------------


@pytest.fixture
def two(program: Callable[..., Program]) -> Program:
    return program("v0 = aten.neg.default(x0)\naten.zero_.default(v0)\nreturn (v0,)", (4,))


def test_a_candidate_is_asked_about_once(two: Program) -> None:
    asked: list[Program] = []

    def predicate(program: Program) -> bool:
        asked.append(program)
        return False

    job = Reducer(two, predicate)
    smaller = replace(two, instructions=two.instructions[:1])
    assert not job.consider(smaller)
    assert not job.consider(smaller)
    assert asked == [smaller]
    assert job.tried == 1


def test_a_candidate_that_is_not_simpler_is_not_asked_about(two: Program) -> None:
    job = Reducer(two, lambda program: pytest.fail("asked"))
    longer = replace(
        two, instructions=(*two.instructions, Instruction("aten.zero_.default", (Ref("x0"),)))
    )
    assert not job.consider(two)
    assert not job.consider(longer)
    assert job.tried == 0


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(
            lambda two: replace(two, instructions=two.instructions[1:]),
            id="a value that is not defined",
        ),
        pytest.param(
            lambda two: replace(two, instructions=(), outputs=("v0",)),
            id="an output that is not defined",
        ),
        pytest.param(lambda two: replace(two, storages=()), id="no storage"),
        pytest.param(
            lambda two: replace(
                two, instructions=(Instruction("aten.neg.default", (), (), ("v0",)),)
            ),
            id="no argument",
        ),
    ],
)
def test_a_candidate_that_is_not_well_formed_is_not_asked_about(change, two: Program) -> None:
    job = Reducer(two, lambda program: pytest.fail("asked"))
    assert not job.consider(change(two))
    assert job.current == two


def test_an_accepted_candidate_becomes_current(two: Program) -> None:
    job = Reducer(two, lambda program: True)
    smaller = replace(two, instructions=two.instructions[:1])
    assert job.consider(smaller)
    assert job.current is smaller
    assert (job.tried, job.accepted) == (1, 1)


@pytest.mark.parametrize(
    "error",
    [ValueError("a"), UserError("b"), InternalError("c"), RuntimeError("d"), KeyboardInterrupt()],
)
def test_errors_of_the_predicate_are_not_swallowed(two: Program, error: BaseException) -> None:
    def predicate(program: Program) -> bool:
        raise error

    with pytest.raises(type(error)):
        Reducer(two, predicate).run()


# --- it ends --------------------------------------------------------------------------------------


def test_if_everything_is_interesting_nothing_is_left() -> None:
    for program in sample(swarm(1), 1, 20):
        result = Reducer(program, lambda candidate: True).run()
        assert (len(result), result.inputs, result.outputs, result.storages) == (0, (), (), ())


def test_if_nothing_is_interesting_all_is_left() -> None:
    for program in sample(swarm(2), 2, 5):
        assert Reducer(program, lambda candidate: False).run() == program.renamed()


def test_it_ends_for_any_predicate() -> None:
    for program in sample(swarm(3), 3, 10):
        job = Reducer(program, lambda candidate: sum(map(ord, repr(candidate))) % 3 == 0)
        result = job.run()
        assert simplicity(result) <= simplicity(program)


@pytest.mark.parametrize("answer", [True, False])
@pytest.mark.parametrize("most", [0, 1, 10])
def test_no_more_candidates_are_tried_than_allowed(
    monkeypatch: pytest.MonkeyPatch, noisy, most: int, answer: bool
) -> None:
    monkeypatch.setattr(reducer, "MOST_CANDIDATES", most)
    asked: list[Program] = []

    def predicate(program: Program) -> bool:
        asked.append(program)
        return answer

    job = Reducer(noisy("    y = aten.neg.default(x2)"), predicate)
    job.run()
    assert len(asked) == job.tried <= most
    assert answer or job.tried == most


def test_a_step_that_never_ends_is_stopped(monkeypatch: pytest.MonkeyPatch, two: Program) -> None:
    monkeypatch.setattr(reducer, "MOST_CANDIDATES", 50)

    def endless(program: Program) -> Iterator[Program]:
        for seed in itertools.count():
            if seed > 1000:
                pytest.fail("goes on")
            yield replace(program, instructions=program.instructions[:1], outputs=(), seed=seed)

    job = Reducer(two, lambda program: False)
    job.run((endless,))
    assert job.tried == 50


def test_a_step_that_offers_the_same_again_and_again_ends(two: Program) -> None:
    job = Reducer(two, lambda program: True)
    assert job.run((lambda program: iter([program, two, program.renamed()]),)) == two
    assert job.tried == 0


def test_programs_that_make_their_own_tensors_reduce_too(program) -> None:
    start = program(
        """
        v0 = aten.full.default([4], 2)
        v1 = aten.mul.Tensor(v0, x0)
        aten.zero_.default(v1)
        return v0, v1
        """,
        (4,),
    )
    assert ops(Reducer(start, contains("zero_.default")).run()) == ["zero_.default"]


def test_steps_are_asked_in_order(two: Program) -> None:
    asked: list[str] = []

    def recording(name: str):
        def step(program: Program) -> Iterator[Program]:
            asked.append(name)
            return iter(())

        return step

    Reducer(two, lambda program: False).run(tuple(recording(step.__name__) for step in STEPS))
    assert asked == [step.__name__ for step in STEPS]
