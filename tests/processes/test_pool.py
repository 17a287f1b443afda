"""A pool of isolated processes: the programs that ran at a death, renewal, and leftovers."""

import importlib
import os
import signal
from collections.abc import Iterator, Sequence

import pytest

from aliasproof.campaigns.run.inductor_import import NEEDED
from aliasproof.campaigns.run.worker_server import PRELOADED, PRELOADED_FOR_INDUCTOR
from aliasproof.processes.isolation import Limits, begin_programs, step, tell_programs_alone
from aliasproof.processes.outcome import Death, Returned
from aliasproof.processes.pool import Pool, RemoteCall

HERE = "tests.processes.test_pool"


@pytest.fixture
def pool() -> Iterator[Pool]:
    subject = Pool(RemoteCall("", "os:getpid"), Limits(60.0, 2**30), 1, patience=0.0, renewal=3)
    with subject.at_work():
        yield subject


def run_programs(groups: Sequence[Sequence[int]], end: int) -> None:
    """Run groups of programs, the last of which gets a signal."""
    tell_programs_alone()
    for group in groups:
        begin_programs(group)
        step("not reported")
    os.kill(os.getpid(), end)


@pytest.mark.parametrize("end", [signal.SIGSEGV, signal.SIGKILL])
def test_a_death_names_the_programs_that_ran(end: int, pool: Pool) -> None:
    death = pool.call(f"{HERE}:run_programs", [[7], [0, 2, 5]], end)
    assert isinstance(death, Death)
    assert (death.programs, death.status, death.violation) == (
        range(6),
        -end,
        f"dies of signal {end:d}",
    )
    again = pool.call(f"{HERE}:run_programs", [], end)
    assert isinstance(again, Death)
    assert not again.programs, "those of an earlier call are not at fault"


def test_a_process_that_is_killed_while_it_is_idle_costs_one_call(pool: Pool) -> None:
    first = pool.call("os:getpid")
    assert isinstance(first, Returned)
    os.kill(first.value, signal.SIGKILL)
    death = pool.call("os:getpid")
    assert isinstance(death, Death)
    assert death.status == -signal.SIGKILL
    assert isinstance(pool.call("os:getpid"), Returned)


def test_a_process_is_renewed_after_some_calls(pool: Pool) -> None:
    processes = [pool.call("os:getpid") for _ in range(7)]
    numbers = [processes.index(process) for process in processes]
    assert numbers == [0, 0, 0, 3, 3, 3, 6]


def test_an_idle_pool_has_no_outcome(pool: Pool) -> None:
    assert not pool.pending
    assert list(pool.outcomes()) == []


def test_what_the_server_imports_exists() -> None:
    # The server skips modules that cannot be imported.
    for module in (*PRELOADED, *PRELOADED_FOR_INDUCTOR, *NEEDED):
        importlib.import_module(module)
