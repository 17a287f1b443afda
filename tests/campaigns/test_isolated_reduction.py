"""Programs that kill their process are reduced; other reductions survive candidates that do."""

import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest

from aliasproof.campaigns.failure.failure import Failure
from aliasproof.campaigns.failure.finding import Finding
from aliasproof.campaigns.run.executor import REDUCE, IsolatedReduction, Reduction, start_pool
from aliasproof.ir.errors import OutOfMemory
from aliasproof.ir.program import Program
from aliasproof.judge.attribution import Symptom
from aliasproof.processes.outcome import Death, Raised, Returned, outcome_here
from aliasproof.processes.pool import Pool

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
