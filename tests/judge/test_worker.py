"""What a worker measures."""

from __future__ import annotations

import subprocess
import sys

from aliasproof.judge.trial import processor_seconds


def test_the_time_of_a_compiler_that_a_worker_calls_counts() -> None:
    before = processor_seconds()
    subprocess.run([sys.executable, "-c", "sum(range(3_000_000))"], check=True)
    assert processor_seconds() - before > 0.03
