"""Programs that end their process are reduced; other reductions survive candidates that do."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from pebble import ProcessPool

from aliasproof.campaigns.failure.failure import Failure, ReducedFailure
from aliasproof.campaigns.run.pool import start_pool
from aliasproof.campaigns.run.worker_calls import reduce_in_forks, whose_end_is_told
from aliasproof.programs.errors import InternalError, OutOfMemory
from aliasproof.programs.program import Program
from aliasproof.trials.attribution import Symptom
from aliasproof.trials.forked import NO_MEMORY, ZERO

TARGET = "deadly_pass.py:cleanup"


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessPool]:
    """Workers that do one reduction each, with five seconds and 1 GiB per program."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(Path(__file__).parent)
        folder = tmp_path_factory.mktemp("compiled")
        pool = start_pool(1, folder, [TARGET], memory=1.0, limit=5.0, tasks=1)
        yield pool
        pool.stop()
        pool.join()


@pytest.fixture
def drawn(program: Callable[..., Program]) -> Program:
    """A program with all ops at which the pass ends its process, and one that it gets wrong."""
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


def reduced(pool: ProcessPool, program: Program, symptom: Symptom) -> ReducedFailure | None:
    found, seconds = pool.schedule(reduce_in_forks, args=(Failure(symptom, program, 0),)).result()
    assert seconds > 0
    return found


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
    kind: str, others: tuple[str, ...], op: str, drawn: Program, pool: ProcessPool
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


def test_one_that_ends_in_another_way_is_no_candidate(drawn: Program, pool: ProcessPool) -> None:
    """The first op at which the pass ends decides, and it is not the one that is asked for."""
    assert reduced(pool, drawn, Symptom(TARGET, "errors", "dies of signal 6")) is None


def test_candidates_that_end_their_process_are_left_out(drawn: Program, pool: ProcessPool) -> None:
    start = without(drawn, "cos", "sin", "abs", "tan")
    found = reduced(pool, start, Symptom(TARGET, "values", "wrong value"))
    assert found is not None
    assert "not reduced" not in found.violation.evidence
    # Without `neg`, its process would end.
    assert [call.op.split(".")[1] for call in found.program.instructions] == ["neg", "add"]


def end(how: Callable[[], None]) -> None:
    with whose_end_is_told():
        how()


def raises(error: BaseException) -> Callable[[], None]:
    def raise_it() -> None:
        raise error

    return raise_it


def test_whatever_a_target_does_the_campaign_sees_an_end_or_a_mistake(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ends: list[int] = []
    monkeypatch.setattr(os, "_exit", ends.append)
    for how in (
        raises(SystemExit(3)),
        raises(SystemExit(None)),
        raises(SystemExit("a message")),
        raises(KeyboardInterrupt()),
        lambda: os._exit(0),
    ):
        end(how)
    assert ends == [3, ZERO, 1, 1, ZERO]
    del ends[:]
    for error in (MemoryError(), RuntimeError("can't allocate memory"), OutOfMemory()):
        with suppress(InternalError):  # raised after the end, which a real one prevents
            end(raises(error))
    assert ends == [NO_MEMORY] * 3
    with pytest.raises(InternalError, match="IndexError: none"):
        end(raises(IndexError("none")))
