"""`aliasproof.processes.interrupts`: Ctrl-C is not lost, whenever it comes."""

import signal
import subprocess
import sys

import pytest

from aliasproof.processes.interrupts import sigint_deferred, sigint_ignored_by_children


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
