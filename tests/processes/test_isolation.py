"""Isolated processes, which are not forked for a device (here a second CPU); and Ctrl-C."""

import inspect
import multiprocessing
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from aliasproof import judge
from aliasproof.campaigns.run import shard
from aliasproof.campaigns.run.executor import start_pool
from aliasproof.processes import isolation
from aliasproof.processes.interrupts import sigint_deferred, sigint_ignored_by_children
from aliasproof.processes.isolation import Isolated, Limits
from aliasproof.processes.outcome import Frame, Returned
from tests.subprocesses import ROOT, python

OTHER_CPU, NBYTES = "cpu:0", 1 << 28


@pytest.fixture
def process() -> Iterator[Isolated]:
    started = Isolated(Limits(60.0, NBYTES), OTHER_CPU)
    yield started
    started.stop()


def test_a_process_for_a_device_is_not_forked(process: Isolated) -> None:
    assert isinstance(process.outcome_of("os:getpid"), Returned)
    loaded = process.outcome_of("aliasproof.processes.isolation:memory_available")
    assert isinstance(loaded, Returned)
    parent = process.outcome_of("os:getppid")
    assert parent == Returned(os.getpid()), "a process of a server has another parent"


def test_the_memory_that_a_device_takes_at_its_start_is_not_limited(process: Isolated) -> None:
    status = process.outcome_of("pathlib:Path.read_text", Path("/proc/self/limits"))
    assert isinstance(status, Returned)
    (limit,) = re.findall(r"Max data size\s+(\d+)", status.value)
    assert int(limit) > NBYTES


SERVED = """
from aliasproof.processes.isolation import Isolated, Limits, start_server

if __name__ == "__main__":
    start_server([])
    process = Isolated(Limits(60.0, 1 << 30))
    print(process.outcome_of("operator:add", 1, 2))
    process.stop()
"""


def test_the_path_of_the_temporary_folder_can_be_longer_than_that_of_a_socket(tmp_path):
    folder = tmp_path / ("a" * 100)
    folder.mkdir()
    served = python("-c", SERVED, TMPDIR=str(folder))
    assert (served.stdout.strip(), served.stderr) == (str(Returned(3)), "")


def test_the_server_ends_without_cleanup_as_that_takes_a_second(tmp_path: Path) -> None:
    """The run of the script includes the end of the server, which has its standard output."""
    (tmp_path / "cleaned_up.py").write_text("import atexit; atexit.register(print, 'cleaned up')")
    script = SERVED.replace("start_server([])", "start_server(['cleaned_up'])")
    served = python("-c", script, cwd=tmp_path, PYTHONPATH=f"{tmp_path}:{ROOT}")
    assert served.stdout.strip() == str(Returned(3))


def test_workers_of_a_campaign_on_a_device_are_not_forked(tmp_path: Path) -> None:
    pool = start_pool(1, tmp_path, device=OTHER_CPU)
    with pool.at_work():
        assert pool.call("os:getppid") == Returned(os.getpid())


def kept_lock() -> bool:
    """Make a lock as libraries do, and keep it."""
    kept.append(multiprocessing.RLock())
    return True


kept: list[object] = []
KILLED = f"""
from aliasproof.processes.isolation import Isolated, Limits
if __name__ == "__main__":
    process = Isolated(Limits(60.0, 1 << 30))
    assert process.outcome_of("{__name__}:kept_lock").value
    process.stop()
"""


def test_a_process_that_is_killed_leaves_no_locks_of_libraries() -> None:
    ended = python("-c", KILLED)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_frames_that_each_run_has_are_left_out_of_a_stack() -> None:
    own = [Path(inspect.getfile(module)) for module in (judge, shard, isolation)]
    stack = [Frame(str(file), 1, "f") for file in (*own, "a_pass.py")]
    assert [frame.file for frame in isolation._telling(stack)] == ["a_pass.py"]


# --- Ctrl-C ---------------------------------------------------------------------------------------


def interrupted(steps: list[str]) -> None:
    with sigint_deferred():
        signal.raise_signal(signal.SIGINT)
        steps.append("after it")


def test_ctrl_c_that_is_deferred_is_raised_at_the_end() -> None:
    steps: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        interrupted(steps)
    assert steps == ["after it"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_ctrl_c_while_a_process_starts_is_for_this_process_alone() -> None:
    with pytest.raises(KeyboardInterrupt), sigint_ignored_by_children():
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, set())
    with sigint_ignored_by_children():
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(0.5)"])
    child.send_signal(signal.SIGINT)
    assert child.wait() == 0


def test_without_ctrl_c_nothing_is_raised() -> None:
    with sigint_deferred():
        pass
