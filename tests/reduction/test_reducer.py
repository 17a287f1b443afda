"""The reducer: it ends, it repeats itself, and what it leaves fails as what it was given failed."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
import torch

from generators.features import swarm
from generators.strategies import sample
from oracles.observation import observe_eager
from oracles.verdict import Violation
from programs.errors import InternalError, UserError
from programs.execution import ProgramFunction
from programs.program import Instruction, Program, Ref
from programs.validation import validate
from programs.values import input_tensors
from reduction import reducer
from reduction.reducer import Reducer
from reduction.simplicity import simplicity
from reduction.steps import STEPS
from targets.registry import target
from targets.target import Target
from trials.attribution import Symptom, shows
from trials.trial import Case, run_trial

known_bug = pytest.mark.skipif(
    not torch.__version__.startswith("2.13."), reason="a bug of torch 2.13"
)

WRONG_VALUE = Symptom("planted", "values", "wrong value")


def ops(program: Program) -> list[str]:
    return [each.op.removeprefix("aten.") for each in program.instructions]


def holds(*names: str) -> Callable[[Program], bool]:
    """True of programs that hold these ops."""
    return lambda program: set(names) <= set(ops(program))


def reduced(program: Program, accused: Target, symptom: Symptom) -> Program:
    """The reduced program; checked to be well formed, well defined, and to fail in the same way."""
    assert shows(program, accused, symptom)
    result = Reducer(program, lambda candidate: shows(candidate, accused, symptom)).run()
    validate(result)
    observed, _ = observe_eager(ProgramFunction(result), input_tensors(result))
    assert observed.error is None
    assert shows(result, accused, symptom)
    return result


def violations(program: Program, accused: Target) -> list[Violation]:
    return run_trial(Case.of(program), accused).judgement.violations


# A bit of everything around whatever a test is about.
NOISE = """
    v0 = aten.add.Tensor(x0, x1, alpha=2)
    v1 = aten.transpose.int(v0, 0, 1)
    v2 = aten.cat.default([v0, x0], 1)
    v3, v4 = aten.split.Tensor(v2, 3, 1)
    aten.mul_.Tensor(v3, v4)
"""


@pytest.fixture
def noisy(program: Callable[..., Program]) -> Callable[[str], Program]:
    """Instructions of one's own in the middle of others, with inputs that share a storage."""

    def write(body: str) -> Program:
        written = program(f"{NOISE}{body}\n    return v1, v3, v4, x1, y", (3, 3), (3, 3), (3,))
        shared = replace(written.inputs[2], storage=1, offset=2)
        wide = replace(written.inputs[0], strides=(1, 3))
        return replace(written, inputs=(wide, written.inputs[1], shared), seed=5)

    return write


# --- the result -----------------------------------------------------------------------------------


def forgets(op: str) -> Callable[[Program], Program]:
    def rewrite(program: Program) -> Program:
        return replace(
            program, instructions=tuple(each for each in program.instructions if each.op != op)
        )

    return rewrite


def test_a_lost_write_reduces_to_that_write(compiler, noisy) -> None:
    result = reduced(
        noisy("    y = aten.neg.default(x2)\n    aten.zero_.default(y)"),
        compiler(forgets("aten.zero_.default")),
        WRONG_VALUE,
    )
    assert ops(result) == ["zero_.default"]
    assert len(result.inputs) == len(result.storages) == len(result.outputs) == 1
    assert result.inputs[0].sizes in ((), (1,))
    assert result.seed == 0


def test_names_are_canonical_in_the_end(compiler, noisy) -> None:
    faulty = compiler(forgets("aten.neg_.default"))
    result = reduced(
        noisy("    y = aten.clone.default(x1)\n    aten.neg_.default(y)"), faulty, WRONG_VALUE
    )
    assert result == result.renamed()


def test_the_same_program_reduces_to_the_same_result(noisy) -> None:
    program = noisy("    y = aten.neg.default(x2)\n    aten.zero_.default(y)")

    def run() -> Reducer:
        job = Reducer(program, holds("zero_.default", "add.Tensor"))
        job.run()
        return job

    one, other = run(), run()
    assert one.current == other.current
    assert (one.tried, one.accepted, one.accepted_by) == (
        other.tried,
        other.accepted,
        other.accepted_by,
    )


def test_each_step_is_simpler_and_interesting(noisy) -> None:
    interesting = holds("zero_.default")
    taken = [noisy("    y = aten.neg.default(x2)\n    aten.zero_.default(y)")]

    class Recorder(Reducer):
        def consider(self, candidate: Program) -> bool:
            if super().consider(candidate):
                taken.append(self.current)
                return True
            return False

    job = Recorder(taken[0], interesting)
    job.run()
    assert all(
        simplicity(after) < simplicity(before) for before, after in itertools.pairwise(taken)
    )
    assert all(map(interesting, taken))
    assert job.accepted == len(taken) - 1 == sum(job.accepted_by.values())


def test_a_fixpoint_is_left_as_it_is(noisy) -> None:
    interesting = holds("zero_.default")
    result = Reducer(
        noisy("    y = aten.neg.default(x2)\n    aten.zero_.default(y)"), interesting
    ).run()
    again = Reducer(result, interesting)
    assert again.run() == result
    assert again.accepted == 0


# --- no slippage ----------------------------------------------------------------------------------


def raises_without(op: str, then: Callable[[Program], Program]) -> Callable[[Program], Program]:
    """Two bugs: the compiler cannot compile a program without this op, and does something else wrong with it."""

    def rewrite(program: Program) -> Program:
        if op not in [each.op for each in program.instructions]:
            raise RuntimeError("planted")
        return then(program)

    return rewrite


def test_a_wrong_value_does_not_slip_to_an_error(compiler, noisy) -> None:
    """The error is simpler to have: the empty program shows it."""
    faulty = compiler(raises_without("aten.mul_.Tensor", forgets("aten.zero_.default")))
    start = noisy("    y = aten.neg.default(x2)\n    aten.zero_.default(y)")
    result = reduced(start, faulty, WRONG_VALUE)
    assert sorted(ops(result)) == ["mul_.Tensor", "zero_.default"]
    # With a predicate that takes any failure, it slips.
    slipped = Reducer(start, lambda program: fails(program, faulty)).run()
    assert len(slipped) == 0


def fails(program: Program, accused: Target) -> bool:
    kinds = ("raises RuntimeError: planted", "wrong value")
    oracles = ("errors", "values")
    return any(
        shows(program, accused, Symptom("planted", *each))
        for each in zip(oracles, kinds, strict=True)
    )


def test_an_error_does_not_slip_to_another_error(compiler, noisy) -> None:
    def rewrite(program: Program) -> Program:
        raise (
            IndexError("cat")
            if "aten.cat.default" in [each.op for each in program.instructions]
            else KeyError("rest")
        )

    symptom = Symptom("planted", "errors", "raises IndexError: cat")
    result = reduced(noisy("    y = aten.neg.default(x2)"), compiler(rewrite), symptom)
    assert ops(result) == ["cat.default"]


def test_a_wrong_input_does_not_slip_to_a_wrong_value(compiler, program) -> None:
    start = program(
        "v0 = aten.neg.default(x1)\naten.zero_.default(v0)\naten.zero_.default(x0)\nreturn (v0,)",
        (4,),
        (4,),
    )

    def rewrite(candidate: Program) -> Program:  # forgets the last call alone
        return replace(candidate, instructions=candidate.instructions[:-1])

    result = reduced(start, compiler(rewrite), Symptom("planted", "inputs", "input ends wrong"))
    assert len(result) == 1
    assert result.outputs == ()


def test_the_fault_of_one_target_does_not_slip_to_the_one_before(compiler, noisy) -> None:
    """Both forget something; what the later one alone forgets is what is being reduced."""
    first = compiler(forgets("aten.zero_.default"), "first")
    both = compiler(
        lambda program: forgets("aten.neg_.default")(forgets("aten.zero_.default")(program)),
        after=first,
    )
    start = noisy(
        "    y = aten.clone.default(x1)\n    aten.mul_.Scalar(x0, 2)\n    aten.neg_.default(y)"
    )
    start = replace(start, outputs=("y",))
    assert ops(reduced(start, both, WRONG_VALUE)) == ["neg_.default"]


# --- known bugs of torch --------------------------------------------------------------------------

EXPANDED_ZERO = "    v9 = aten.expand.default(x0, [2, 3, 3])\n    aten.zero_.default(v9)\n    y = aten.neg.default(x0)"


@known_bug
@pytest.mark.parametrize("name", ["functionalize", "aot"])
def test_a_write_through_expand_reduces_to_two_instructions(name: str, noisy) -> None:
    result = reduced(noisy(EXPANDED_ZERO), target(name), Symptom(name, "values", "wrong value"))
    assert ops(result) == ["expand.default", "zero_.default"]
    assert len(result.inputs) == len(result.outputs) == 1


@known_bug
def test_square_reduces_to_one_instruction(noisy) -> None:
    start = noisy("    y = aten.neg.default(x1)\n    aten.square_.default(y)")
    subject = target("functionalize")
    (violation,) = violations(start, subject)
    assert violation.kind.startswith("raises RuntimeError: Found a custom")
    result = reduced(start, subject, Symptom("functionalize", "errors", violation.kind))
    assert ops(result) == ["square_.default"]


REINPLACED = """
    v5 = aten.logical_not.default(x0)
    v6 = aten.diagonal.default(v5)
    v7 = aten.logical_not.default(v6)
    v8 = aten.diagonal_scatter.default(v5, v7)
    v9 = aten.neg.default(x1)
    aten.zero_.default(v9)
    return v7, v8, v9
"""


@known_bug
def test_what_reinplace_breaks_stays_blamed_on_reinplace(program) -> None:
    symptom = Symptom("fx-reinplace", "aliasing", "new alias between output and output")
    result = reduced(program(REINPLACED, (3, 3), (3, 3)), target("fx-reinplace"), symptom)
    assert len(result) <= 4
    assert "diagonal_scatter.default" in ops(result)
    assert not violations(result, target("functionalize"))


@known_bug
def test_a_value_that_reinplace_breaks_does_not_slip_to_functionalize(program) -> None:
    """The program also holds the write through expand that functionalize breaks, where nobody looks."""
    start = program(
        """
        v0 = aten.slice.Tensor(x0, 0, 0, 2)
        v1 = aten.slice.Tensor(x0, 0, 2)
        aten.add_.Scalar(x0, 1)
        aten.neg.out(v0, out=v1)
        v2 = aten.neg.default(x0)
        v3 = aten.expand.default(v2, [2, 4])
        aten.zero_.default(v3)
        return (x0,)
        """,
        (4,),
    )
    result = reduced(
        start, target("fx-reinplace"), Symptom("fx-reinplace", "values", "wrong value")
    )
    assert len(result) <= 4
    assert not violations(result, target("functionalize"))


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


def test_a_taken_candidate_becomes_current(two: Program) -> None:
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


def test_a_pass_that_never_ends_is_stopped(monkeypatch: pytest.MonkeyPatch, two: Program) -> None:
    monkeypatch.setattr(reducer, "MOST_CANDIDATES", 50)

    def endless(program: Program) -> Iterator[Program]:
        for seed in itertools.count():
            if seed > 1000:
                pytest.fail("goes on")
            yield replace(program, instructions=program.instructions[:1], outputs=(), seed=seed)

    job = Reducer(two, lambda program: False)
    job.run((endless,))
    assert job.tried == 50


def test_a_pass_that_offers_the_same_again_and_again_ends(two: Program) -> None:
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
    assert ops(Reducer(start, holds("zero_.default")).run()) == ["zero_.default"]


def test_passes_are_asked_in_order(two: Program) -> None:
    asked: list[str] = []

    def recording(name: str):
        def one_pass(program: Program) -> Iterator[Program]:
            asked.append(name)
            return iter(())

        return one_pass

    Reducer(two, lambda program: False).run(tuple(recording(each.__name__) for each in STEPS))
    assert asked == [each.__name__ for each in STEPS]
