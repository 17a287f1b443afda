"""`trials.interrupts`: Ctrl-C is not lost, whenever it comes."""

from __future__ import annotations

import signal

import pytest

from trials.interrupts import sigint_deferred


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


def test_without_ctrl_c_nothing_is_raised() -> None:
    with sigint_deferred():
        pass
