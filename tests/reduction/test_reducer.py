"""The reducer ends, is deterministic, and accepts only smaller programs that fail."""

import itertools
import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import torch

from aliasproof.generators.features import swarm
from aliasproof.generators.strategies import sample
from aliasproof.ir.errors import InternalError, UserError
from aliasproof.ir.execution import run
from aliasproof.ir.program import Instruction, Program, Ref
from aliasproof.ir.values import input_tensors
from aliasproof.reduction.edits import simplicity
from aliasproof.reduction.instruction_steps import keep_window
from aliasproof.reduction.program_steps import PROGRAM, STEPS, ReductionStep, tidy_candidates
from aliasproof.reduction.reducer import Problem, Reducer, evaluate_ahead


def ops(program: Program) -> list[str]:
    return [instruction.op.removeprefix("aten.") for instruction in program.instructions]


def contains(*names: str) -> Callable[[Program], bool]:
    """True of programs that contain these ops."""
    return lambda program: set(names) <= set(ops(program))


# --- a whole reduction ----------------------------------------------------------------------------


def test_the_same_program_reduces_to_the_same_result(noisy) -> None:
    program = noisy("    y = aten.neg.default(x2)\n    aten.zero_.default(y)")

    def run() -> Reducer:
        job = Reducer(PROGRAM, program, contains("zero_.default", "add.Tensor"))
        job.run()
        return job

    one, other = run(), run()
    assert one.current == other.current
    assert asked_by_step(one) == asked_by_step(other)


def asked_by_step(job: Reducer) -> dict[str, tuple[int, int]]:
    return {name: (spent.candidates, spent.accepted) for name, spent in job.passes.items()}


def test_each_accepted_candidate_is_simpler_and_interesting(noisy) -> None:
    start = noisy("    y = aten.neg.default(x2)\n    aten.zero_.default(y)")
    interesting = contains("zero_.default")
    accepted = [start]

    def predicate(candidate: Program) -> bool:
        if interesting(candidate):
            accepted.append(candidate)  # the first that is interesting is accepted
            return True
        return False

    job = Reducer(PROGRAM, start, predicate)
    job.run()
    assert all(
        simplicity(after) < simplicity(before) for before, after in itertools.pairwise(accepted)
    )
    assert job.accepted == len(accepted) - 1
    assert job.current == accepted[-1]


def test_a_fixpoint_is_left_as_it_is(noisy) -> None:
    interesting = contains("zero_.default")
    result = Reducer(
        PROGRAM, noisy("    y = aten.neg.default(x2)\n    aten.zero_.default(y)"), interesting
    ).run()
    again = Reducer(PROGRAM, result, interesting)
    assert again.run() == result
    assert again.accepted == 0


# --- which candidates are accepted ----------------------------------------------------------------


@pytest.fixture
def two(program: Callable[..., Program]) -> Program:
    return program("v0 = aten.neg.default(x0)\naten.zero_.default(v0)\nreturn (v0,)", (4,))


def stepping(*steps: ReductionStep) -> Problem[Program]:
    """The problem whose programs are reduced by these steps."""
    return replace(PROGRAM, groups=(tuple(map(tidy_candidates, steps)),))


def offering(*candidates: Program) -> Problem[Program]:
    """The problem whose programs are reduced by one step with these candidates."""

    def offer(program: Program) -> Iterator[Program]:
        yield from candidates

    return stepping(offer)


def test_a_candidate_is_asked_about_once(two: Program) -> None:
    asked: list[Program] = []

    def predicate(program: Program) -> bool:
        asked.append(program)
        return False

    smaller = replace(two, instructions=two.instructions[:1])
    job = Reducer(offering(smaller, smaller.renamed(), smaller), two, predicate)
    job.run()
    assert asked == [smaller]
    assert job.tried == 1


def test_a_candidate_that_is_not_simpler_is_not_asked_about(two: Program) -> None:
    longer = replace(
        two, instructions=(*two.instructions, Instruction("aten.zero_.default", (Ref("x0"),)))
    )
    job = Reducer(offering(two, two.renamed(), longer), two, lambda program: pytest.fail("asked"))
    assert job.run() == two
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
    job = Reducer(offering(change(two)), two, lambda program: pytest.fail("asked"))
    assert job.run() == two


def test_an_accepted_candidate_becomes_current(two: Program) -> None:
    smaller = replace(two, instructions=two.instructions[:1])
    job = Reducer(offering(smaller), two, lambda program: True)
    job.run()
    assert job.current == smaller
    assert (job.tried, job.accepted) == (1, 1)


def test_a_better_failure_is_not_given_up_for_a_simpler_one(two: Program) -> None:
    """Grade 2 is better. A candidate of grade 1 is simpler, but is rejected."""
    better = replace(two, instructions=two.instructions[:1])
    simpler = replace(two, instructions=(), outputs=())

    def graded(candidate: Program) -> int:
        return 2 if len(candidate) == 1 else 1

    problem = offering(better, simpler)
    job = Reducer(problem, two, graded)
    job.run()
    assert (job.current, job.grade) == (better, 2)
    assert len(Reducer(problem, two, lambda candidate: 1).run()) == 0


def test_a_step_goes_on_at_its_last_success(program) -> None:
    """Every second one of eight writes may be removed. The others are checked once per round."""
    start = program(
        "\n".join(["aten.neg_.default(x0)", "aten.abs_.default(x0)"] * 4 + ["return ()"]), (2,)
    )
    asked: list[int] = []

    def one_by_one(candidate: Program) -> Iterator[Program]:
        for index in range(len(candidate)):
            yield replace(
                candidate,
                instructions=candidate.instructions[:index] + candidate.instructions[index + 1 :],
            )

    def keeps_abs(candidate: Program) -> bool:
        asked.append(len(candidate))
        return ops(candidate).count("abs_.default") == 4

    job = Reducer(stepping(one_by_one), start, keeps_abs)
    assert ops(job.run()) == ["abs_.default"] * 4
    assert job.tried == 4 + 4


@pytest.mark.parametrize(
    "error",
    [ValueError("a"), UserError("b"), InternalError("c"), RuntimeError("d"), KeyboardInterrupt()],
)
def test_errors_of_the_predicate_are_not_swallowed(two: Program, error: BaseException) -> None:
    def predicate(program: Program) -> bool:
        raise error

    with pytest.raises(type(error)):
        Reducer(PROGRAM, two, predicate).run()


# --- it ends --------------------------------------------------------------------------------------


def test_if_everything_is_interesting_nothing_is_left() -> None:
    for program in sample(swarm(1), 1, 20):
        result = Reducer(PROGRAM, program, lambda candidate: True).run()
        assert (len(result), result.inputs, result.outputs, result.storages) == (0, (), (), ())


def test_if_nothing_is_interesting_all_is_left() -> None:
    for program in sample(swarm(2), 2, 5):
        assert Reducer(PROGRAM, program, lambda candidate: False).run() == program.renamed()


def test_it_ends_for_any_predicate() -> None:
    for program in sample(swarm(3), 3, 10):
        job = Reducer(PROGRAM, program, lambda candidate: sum(map(ord, repr(candidate))) % 3 == 0)
        result = job.run()
        assert simplicity(result) <= simplicity(program)


@pytest.mark.parametrize("answer", [True, False])
@pytest.mark.parametrize("most", [0, 1, 10])
def test_no_more_candidates_are_tried_than_allowed(noisy, most: int, answer: bool) -> None:
    asked: list[Program] = []

    def predicate(program: Program) -> bool:
        asked.append(program)
        return answer

    start = noisy("    y = aten.neg.default(x2)")
    by_count = Reducer(replace(PROGRAM, most=most), start, predicate)
    until = Reducer(PROGRAM, start, predicate, is_over=lambda: len(asked) >= most)
    for job in (by_count, until):
        asked.clear()
        job.run()
        assert len(asked) == job.tried <= most
        assert answer or job.tried == most


def test_a_step_that_never_ends_is_stopped(two: Program) -> None:
    def endless(program: Program) -> Iterator[Program]:
        for seed in itertools.count():
            if seed > 1000:
                pytest.fail("goes on")
            yield replace(program, instructions=program.instructions[:1], outputs=(), seed=seed)

    job = Reducer(replace(stepping(endless), most=50), two, lambda program: False)
    job.run()
    assert job.tried == 50


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
    assert ops(Reducer(PROGRAM, start, contains("zero_.default")).run()) == ["zero_.default"]


def test_steps_are_asked_in_order(two: Program) -> None:
    asked: list[str] = []

    def recording(name: str):
        def step(program: Program) -> Iterator[Program]:
            asked.append(name)
            return iter(())

        return step

    problem = stepping(*(recording(step.__name__) for step in STEPS))
    Reducer(problem, two, lambda program: False).run()
    assert asked == [step.__name__ for step in STEPS]


# --- halves of a program on values that eager computed before them --------------------------------

BODY = """
    v0 = aten.select.int(x0, 0, 1)
    v1 = aten.add.Scalar(v0, 3)
    aten.mul_.Tensor(v0, v1)
    v2 = aten.view.default(x0, [9])
    v3 = aten.sum.default(v2)
    v4 = aten.mul.Tensor(v2, v3)
    v5 = aten.cumsum.default(v4, 0)
    v6 = aten.neg.default(v1)
    aten.add_.Tensor(v2, v5)
    v7 = aten.add.Tensor(v6, v0)
    v8 = aten.mul_.Scalar(v7, 2)
    v9 = aten.clone.default(v8)
    aten.zero_.default(v0)
    v10 = aten.add.Tensor(v9, v0)
    v11 = aten.sin.default(v10)
    v12 = aten.exp.default(v9)
    return v11, x0
"""


def test_a_window_computes_what_the_program_computes(program: Callable[..., Program]) -> None:
    whole = program(BODY, (3, 3))
    windows = list(keep_window(whole))
    assert [len(window) for window in windows] == [8] * 6
    head, tail = windows[1], windows[3]
    # Values that are used later are returned: v1, v2 and v5, v6 of the head.
    assert len(head.outputs) == 5
    # The last half with the values of eager: it has the output of the whole, and v2 shares its
    # storage with v0 and x0, which are inputs now.
    (expected, left), (computed, *_) = (run(it, input_tensors(it)) for it in (whole, tail))
    torch.testing.assert_close(computed, expected)
    assert left[1].count_nonzero() == 0
    shared = [view.storage for view in tail.inputs]
    assert len(set(shared)) < len(shared)


def test_a_short_program_has_no_windows(program: Callable[..., Program]) -> None:
    assert not list(keep_window(program("v0 = aten.neg.default(x0)\nreturn (v0,)", (4,))))


def test_one_cause_in_2000_instructions_costs_few_questions_about_long_programs(program):
    chain = [
        Instruction("aten.add.Tensor", (Ref(f"v{index}"), Ref("x0")), (), (f"v{index + 1}",))
        for index in range(2000)
    ]
    chain[1234] = replace(chain[1234], op="aten.sub.Tensor")
    first = Instruction("aten.neg.default", (Ref("x0"),), (), ("v0",))
    start = program("return (x0,)", (4,))
    long = replace(start, instructions=(first, *chain), outputs=("v2000",))
    asked: list[int] = []

    def wrong(candidate: Program) -> int:
        asked.append(len(candidate))
        return int(any(call.op == "aten.sub.Tensor" for call in candidate.instructions))

    assert len(Reducer(PROGRAM, long, wrong).run()) == 1
    assert len(asked) < 80
    assert sum(asked) < 3 * len(long)


# --- a reduction that checks ahead, with grades in any order --------------------------------------


@pytest.mark.parametrize("count", [1, 2, 5])
def test_the_result_is_that_of_a_sequential_reduction(noisy, count: int) -> None:
    start = noisy("    y = aten.neg.default(x2)\n    aten.zero_.default(y)")
    sequential = Reducer(PROGRAM, start, contains("zero_.default", "add.Tensor"))
    sequential.run()
    delays = random.Random(count)

    def late(program: Program) -> bool:
        time.sleep(delays.random() / 500)
        return contains("zero_.default", "add.Tensor")(program)

    with ThreadPoolExecutor(count) as executor:
        job = Reducer(PROGRAM, start, late, evaluate_ahead(executor, count))
        job.run()
    assert job.current == sequential.current
    assert asked_by_step(job) == asked_by_step(sequential)


def test_an_error_of_the_predicate_ends_it(noisy) -> None:
    def broken(program: Program) -> bool:
        raise KeyError("planted")

    with ThreadPoolExecutor(2) as executor, pytest.raises(KeyError, match="planted"):
        Reducer(
            PROGRAM, noisy("    y = aten.neg.default(x2)"), broken, evaluate_ahead(executor, 2)
        ).run()
