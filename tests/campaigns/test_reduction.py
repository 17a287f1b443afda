"""Failures are reduced to findings, also latent ones and those that end their process."""

import functools
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor, fx
from torch._inductor import config

from aliasproof.campaigns.failure import failure, reduction
from aliasproof.campaigns.failure.failure import Failure, Kept, pass_at_fault
from aliasproof.campaigns.failure.finding import Finding
from aliasproof.campaigns.failure.reduction import (
    Runner,
    evaluate_in_groups,
    reduce_failure,
    shown_by_reduced,
)
from aliasproof.campaigns.publish.confirmation import run_text
from aliasproof.campaigns.publish.reproducer import render
from aliasproof.campaigns.run.campaign import Campaign
from aliasproof.campaigns.run.confirmations import Confirmations
from aliasproof.campaigns.run.executor import REDUCE, IsolatedReduction, Reduction, start_pool
from aliasproof.campaigns.run.scheduler import FoundFailure
from aliasproof.campaigns.store.plan import Plan
from aliasproof.campaigns.store.run_folder import RunFolder, read_finding
from aliasproof.campaigns.store.run_lock import SUSPICIONS
from aliasproof.campaigns.store.store import Store
from aliasproof.eager import definedness
from aliasproof.eager.definedness_rules import RULES
from aliasproof.ir.eager_call import EagerCall
from aliasproof.ir.errors import OutOfMemory
from aliasproof.ir.execution import ProgramFunction, as_graph
from aliasproof.ir.program import Program
from aliasproof.judge.attribution import Symptom, grade
from aliasproof.judge.examination import examine
from aliasproof.judge.trial import Case
from aliasproof.oracles.contract import Contract
from aliasproof.oracles.stage import Stage
from aliasproof.oracles.values import OTHER_ZERO
from aliasproof.oracles.verdict import Violation
from aliasproof.processes.outcome import Death, Raised, Returned, outcome_here
from aliasproof.processes.pool import Pool
from aliasproof.reduction.program_steps import PROGRAM
from aliasproof.reduction.reducer import Reducer
from aliasproof.targets.registry import TARGETS
from aliasproof.targets.target import Build, Function, Target
from tests.campaigns.test_recognition import symptom_of
from tests.judge.test_passes import swap_operands
from tests.scripts_here import confirm_here
from tests.short_programs import of_vectors


def double_products(graph: fx.Graph) -> None:
    """A wrong pass."""
    node: Any
    for node in graph.find_nodes(op="call_function", target=torch.ops.aten.mul.Tensor):
        node.target = torch.ops.aten.add.Tensor


def test_a_reduction_stays_with_the_pass(program) -> None:
    product = program("v0 = aten.mul.Tensor(x0, x1)\nreturn (v0,)", (4,), (4,))
    difference = program("v0 = aten.sub.Tensor(x0, x1)\nreturn (v0,)", (4,), (4,))
    symptom = Symptom("inductor-fx", "values", "wrong value")
    with config.patch(
        joint_custom_post_pass=double_products, post_grad_custom_pre_pass=swap_operands
    ):
        kept = Kept(symptom, pass_at_fault(product, symptom))
        assert kept.wrong_part == "joint_graph: joint_custom_post_pass (double_products)"
        assert kept.grade(product) == 1
        assert kept.grade(difference) == 0
        assert Kept(symptom).grade(difference) == 1


def test_a_finding_names_the_pass_at_fault(program, monkeypatch) -> None:
    drawn = program(
        "v0 = aten.neg.default(x0)\nv1 = aten.sub.Tensor(v0, x1)\nreturn v1, v0", (4,), (4,)
    )
    with config.patch(post_grad_custom_pre_pass=swap_operands):
        symptom = symptom_of(drawn, "inductor-fx")
        reduced = reduce_failure(Failure(symptom, drawn, seed=0))
        monkeypatch.setattr(reduction, "SECONDS", 0)
        early = reduce_failure(Failure(symptom, drawn, seed=0))
    assert reduced is not None
    assert len(reduced.program) == 1
    assert reduced.wrong_part == "post_grad: post_grad_custom_pre_pass (swap_operands)"
    # Without time, the program as it was drawn is the finding.
    assert early is not None
    assert early.program == drawn


@pytest.mark.parametrize("forks", [False, True])
def test_a_candidate_on_which_aliasproof_fails_ends_no_reduction(program, monkeypatch, forks):
    drawn = program(
        "v0 = aten.abs.default(x1)\nv1 = aten.sub.Tensor(x0, v0)\nreturn v1, v0", (4,), (4,)
    )

    def fails_on_one_tensor(call: EagerCall) -> str | None:
        if call.op is torch.ops.aten.sub.Tensor and len(set(map(id, call.only_read))) == 1:
            raise IndexError("a defect of the watch")
        return None

    with config.patch(post_grad_custom_pre_pass=swap_operands):
        symptom = symptom_of(drawn, "inductor-fx")
        monkeypatch.setattr(definedness, "RULES", (*RULES, fails_on_one_tensor))
        runner = Runner(forks)
        reduced = reduce_failure(Failure(symptom, drawn, seed=0), runner)
    assert reduced is not None
    assert len(reduced.program) == 1
    mistake = "watching aten.sub.Tensor failed: IndexError: a defect of the watch"
    assert runner.mistakes == [mistake]


def test_what_is_right_when_it_runs_again_shows_nothing(program) -> None:
    negated = program("v0 = aten.neg.default(x0)\nreturn (v0,)", (4,))
    assert shown_by_reduced(Symptom("identity", "values", "wrong value"), negated, negated) is None


# --- candidates in groups -------------------------------------------------------------------------


SYMPTOM = Symptom("planted", "values", "wrong value")


@pytest.fixture
def failing(program: Callable[..., Program]) -> Program:
    return program(
        """
        v0 = aten.neg.default(x0)
        v1 = aten.add.Tensor(v0, x1)
        v2 = aten.mul.Tensor(v1, v1)
        v3 = aten.abs.default(v2)
        v4 = aten.relu.default(v3)
        v5 = aten.sub.Tensor(v4, v0)
        return (v1, v5, v3)
        """,
        (4,),
        (4,),
    )


def planted(builds: list[int]) -> Target:
    """A target that computes `relu` wrongly, and counts its builds."""

    def build(function: Function, inputs: Sequence[Tensor]) -> Build:
        assert isinstance(function, ProgramFunction)
        builds.append(len(function.program))
        wrong = any(call.op == "aten.relu.default" for call in function.program.instructions)

        def run(*tensors: Tensor) -> object:
            outputs = function(*tensors)
            return [output + wrong for output in outputs]

        return Build(run, [], "this target shows no graphs")

    return Target("planted", "a compiler with a planted bug", Contract(), build, recipe="")


def test_the_result_is_that_of_single_questions(failing: Program) -> None:
    single: list[int] = []
    predicate = functools.partial(grade, target=planted(single), symptom=SYMPTOM)
    expected = Reducer(PROGRAM, failing, predicate).run()
    together: list[int] = []
    target = planted(together)
    predicate = functools.partial(grade, target=target, symptom=SYMPTOM)
    reducer = Reducer(PROGRAM, failing, predicate, evaluate_in_groups(target))
    assert reducer.run() == expected
    assert len(expected) == 1
    assert reducer.accepted > 0


def test_candidates_that_are_right_in_a_group_are_not_asked_about(program):
    right = program("v0 = aten.neg.default(x0)\nreturn (v0,)", (4,))
    wrong = program("v0 = aten.relu.default(x0)\nreturn (v0,)", (4,))
    undefined = program(
        "v0 = aten.expand.default(x0, [3, 4])\naten.add_.Scalar(v0, 1)\nreturn (v0,)", (4,)
    )
    asked: list[Program] = []

    def predicate(candidate: Program) -> int:
        asked.append(candidate)
        return int(candidate == wrong)

    builds: list[int] = []
    candidates = [right, right, right, undefined, right, right, right]
    assert list(evaluate_in_groups(planted(builds))(predicate, candidates)) == [0] * 7
    assert asked == [right]  # the first group has one member
    assert builds == [2, 3]
    asked.clear()
    answers = list(evaluate_in_groups(planted(builds))(predicate, [right, wrong, wrong]))
    assert answers == [0, 1, 1]


def test_a_candidate_on_which_aliasproof_fails_is_asked_about_alone(program, monkeypatch):
    def fails_on_cosine(call: EagerCall) -> str | None:
        if call.op is torch.ops.aten.cos.default:
            raise IndexError("a defect of the watch")
        return None

    monkeypatch.setattr(definedness, "RULES", (*RULES, fails_on_cosine))
    right = program("v0 = aten.neg.default(x0)\nreturn (v0,)", (4,))
    failing = program("v0 = aten.cos.default(x0)\nreturn (v0,)", (4,))
    asked: list[Program] = []

    def predicate(candidate: Program) -> int:
        asked.append(candidate)
        return 0

    candidates = [right, right, right, right, failing, right, right]
    assert list(evaluate_in_groups(planted([]))(predicate, candidates)) == [0] * 7
    assert asked == [right, failing]  # the first group has one member


# --- special values -------------------------------------------------------------------------------


COPY = """
    v0 = aten.expand.default(x0, [1, 4])
    v1 = aten.add.Scalar(x1, 1)
    aten.copy_.default(v0, v1)
    return x0, v1
"""


def test_the_inverse_of_expand_fails_for_infinity(program, monkeypatch):
    """Torch writes `base + (new - base)`, which is NaN. No overlap is needed."""
    plain, target = program(COPY, (4,), (1, 4)), TARGETS["functionalize"]
    assert not examine(Case.of(plain), target).failed
    special = replace(plain, fill="special")
    failure = Failure.of(symptom_of(special, "functionalize"), special, 0, past_known=False)
    assert failure.known == "expand-inverse"
    # Otherwise the finding would be the minimal program of the known bug.
    monkeypatch.setattr(reduction, "_minimal", lambda failure, bug: None)
    reduced = reduce_failure(failure)
    assert reduced is not None
    assert reduced.program.fill == "plain"
    assert [len(storage.values) for storage in reduced.program.storages] == [1]
    text = render(reduced.program, target, reduced.violation, exact=reduced.exact)
    assert run_text(text, confirm_here).shown


@pytest.mark.parametrize(
    ("oracle", "place", "wrong"),
    [("values", "output 0", True), ("inputs", "input 0", True), ("values", "output 0", False)],
)
def test_a_reproducer_sees_the_sign_of_a_zero(program, oracle, place, wrong):
    cleared = program("aten.zero_.default(x0)\nreturn (x0,)", (4,))
    returned = "lambda x: program(x).neg_()" if wrong else "program"
    recipe = f"def compiled(program, inputs):\n    return {returned}"
    target = replace(TARGETS["identity"], recipe=recipe)
    text = render(cleared, target, Violation(oracle, OTHER_ZERO, place), exact=True)
    assert run_text(text, confirm_here).shown == wrong


# --- latent failures ------------------------------------------------------------------------------


LATENT = Symptom("planted", "equivalence", "wrong symbolic value")
TEXT = """
    v0 = aten.neg.default(x1)
    v1 = aten.add.Scalar(x0, 1)
    v2 = aten.bitwise_and.Scalar(v1, {mask})
    aten.copy_.default(x1, v0)
    v3 = aten.add.Tensor(v2, v0)
    return v2, v3, x1
"""


def add_two(function: Function, inputs: Sequence[Tensor]) -> Build:
    """Adds 2 where the program adds 1."""
    assert isinstance(function, ProgramFunction)
    graph = torch.fx.GraphModule({}, as_graph(function.program))
    for node in graph.graph.nodes:
        if node.target is torch.ops.aten.add.Scalar and node.args[1] == 1:
            node.args = (node.args[0], 2)
    graph.recompile()
    return Build(graph, [Stage("planted", graph, functional=False)])


@pytest.fixture
def adds_two(monkeypatch: pytest.MonkeyPatch) -> Target:
    target = Target("planted", "for this test", Contract(), add_two, "")
    for module in (failure, reduction):
        monkeypatch.setattr(module, "target_named", lambda name: target)
    return target


def written(mask: int) -> Program:
    """The bits of integers under a mask. Under the mask 0, no values show the sum before it."""
    return of_vectors(TEXT.format(mask=mask), 0, 1, dtypes=(torch.int64, torch.int64))


def test_a_latent_failure_is_reduced_and_explained(adds_two) -> None:
    drawn = Failure.latent(LATENT, written(0), 7)
    assert drawn == Failure(LATENT, written(0), 7)
    reduced = reduce_failure(drawn)
    assert reduced is not None
    assert [call.op for call in reduced.program.instructions] == [
        "aten.add.Scalar",
        "aten.bitwise_and.Scalar",
    ]
    evidence = reduced.violation.evidence
    assert evidence["eager"] == "bitwise_and[other=0](add[other=1](x0))"
    assert evidence["target"] == "bitwise_and[other=0](add[other=2](x0))"
    assert "latent" in str(evidence["values that show it"])


def test_what_results_show_is_not_latent(adds_two) -> None:
    assert Failure.latent(LATENT, written(3), 7) is None
    assert reduce_failure(Failure(LATENT, written(3), 7)) is None


def test_it_is_stored_without_a_reproducer(adds_two, tmp_path: Path) -> None:
    reduced = reduce_failure(Failure(LATENT, written(0), 7))
    assert reduced is not None
    files, campaign = RunFolder.create(tmp_path / "run"), Campaign(Plan(("aot",)), tmp_path / "run")
    store = Store.open(files.folder)
    confirmations = Confirmations(campaign, store, files)
    for task in ("one", "another"):
        failure = store.keep_failure(task, Failure(LATENT, reduced.original, reduced.seed))
        confirmations.add(FoundFailure(reduced, failure, 0))
    confirmations.stop()
    assert not confirmations.pending
    assert not campaign.findings
    (finding,) = campaign.latent.values()
    assert (finding.latent, finding.count) == (True, 2)
    stored = read_finding(files.path(SUSPICIONS, finding.identifier))
    assert stored == replace(reduced, count=1)


# --- programs that end their process --------------------------------------------------------------


TARGET = "deadly_pass.py:cleanup"


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    """Workers that do one reduction each, with five seconds and 1 GiB per program."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(Path(__file__).parent)
        folder = tmp_path_factory.mktemp("compiled")
        pool = start_pool(1, folder, [TARGET], memory=1.0, limit=5.0, renewal=1)
        with pool.at_work():
            yield pool


@pytest.fixture
def drawn(program: Callable[..., Program]) -> Program:
    """A program with all ops at which the pass kills its process, and one that it gets wrong."""
    return program(
        "v0 = aten.neg.default(x0)\n"
        "v1 = aten.cos.default(v0)\n"
        "v2 = aten.sin.default(v0)\n"
        "v3 = aten.abs.default(v0)\n"
        "v4 = aten.add.Tensor(v0, v0)\n"
        "v5 = aten.tan.default(v0)\n"
        "return v0, v1, v2, v3, v4, v5",
        (4,),
    )


def without(program: Program, *ops: str) -> Program:
    kept = [call for call in program.instructions if call.op.split(".")[1] not in ops]
    results = {name for call in kept for name in call.results}
    outputs = tuple(output for output in program.outputs if output in results)
    return replace(program, instructions=tuple(kept), outputs=outputs)


def reduced(pool: Pool, program: Program, symptom: Symptom) -> Finding[Program] | None:
    outcome = pool.call(REDUCE, IsolatedReduction(Failure(symptom, program, 0)))
    assert isinstance(outcome, Returned), outcome
    result: Reduction = outcome.value
    assert result.seconds > 0
    return result.reduced  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("kind", "others", "op"),
    [
        (f"dies of signal {signal.SIGSEGV:d}", ("cos", "abs", "tan"), "sin"),
        ("dies with exit status 3", ("sin", "abs", "tan"), "cos"),
        ("hangs", ("cos", "sin", "add", "tan"), "abs"),
        ("runs out of memory", ("cos", "sin", "abs"), "tan"),
    ],
)
def test_a_program_that_ends_its_process_is_reduced_to_the_op_that_does(
    kind: str, others: tuple[str, ...], op: str, drawn: Program, pool: Pool
) -> None:
    start = without(drawn, *others)
    found = reduced(pool, start, Symptom(TARGET, "errors", kind))
    assert found is not None
    assert [call.op.split(".")[1] for call in found.program.instructions] == [op]
    assert found.original == start
    assert found.violation.kind == kind
    assert "not reduced" not in found.violation.evidence
    if op == "sin":  # which of its frames ended it
        assert "deadly_pass.py" in str(found.violation.evidence["in"])


def test_one_that_ends_in_another_way_is_no_candidate(drawn: Program, pool: Pool) -> None:
    """The first op at which the pass dies decides, and it is not the op of the failure."""
    assert reduced(pool, drawn, Symptom(TARGET, "errors", "dies of signal 6")) is None


def test_candidates_that_end_their_process_are_left_out(drawn: Program, pool: Pool) -> None:
    start = without(drawn, "cos", "sin", "abs", "tan")
    found = reduced(pool, start, Symptom(TARGET, "values", "wrong value"))
    assert found is not None
    assert "not reduced" not in found.violation.evidence
    # Without `neg`, the process would die.
    assert [call.op.split(".")[1] for call in found.program.instructions] == ["neg", "add"]


def test_whatever_a_target_does_the_campaign_sees_an_end_or_a_mistake() -> None:
    for error, kind in (
        (SystemExit(3), "dies with exit status 3"),
        (SystemExit(None), "dies with exit status 0"),
        (SystemExit("a message"), "dies with exit status 1"),
        (KeyboardInterrupt(), "dies with exit status 1"),
        (MemoryError(), "runs out of memory"),
        (RuntimeError("can't allocate memory"), "runs out of memory"),
        (OutOfMemory(), "runs out of memory"),
    ):
        death = outcome_here(mock.Mock(side_effect=error))
        assert isinstance(death, Death)
        assert death.violation == kind
    mistake = outcome_here(mock.Mock(side_effect=IndexError("none")))
    assert isinstance(mistake, Raised)
    assert "IndexError: none" in str(mistake.error)


def test_a_worker_that_ends_with_status_0_dies(pool: Pool) -> None:
    death = pool.call("os:_exit", 0)
    assert isinstance(death, Death)
    assert death.violation == "dies with exit status 0"
