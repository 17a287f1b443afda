"""What `check` costs on large inputs and on long functions: peak memory and CPU seconds.

Each row is a process of its own, so its peak (`ru_maxrss`) is that of one check. The same check
on small inputs is subtracted: it has torch, and little else.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks.tables import Table

LARGE, SMALL = 4096, 4  # inputs are square float32 matrices
BODIES = {
    "writes its input": "x.add_(1)\nreturn x * 2",
    "writes a view": "y = x.t()[1:]\ny.mul_(2)\nreturn y",
    "fills new memory": "y = torch.empty_like(x)\ny.copy_(x)\nreturn y",
    "40 new tensors": "for _ in range(20):\n    x = torch.sigmoid(x) * 2\nreturn x",
    "wrong through expand": "x[0].expand(3, len(x)).zero_()\nreturn x + 0",
    "1,000 writes": "for i in range(1000):\n    x[i % 4].add_(i)\nreturn x * 2",
}
TARGETS = ("functionalize", "aot")
# Runs a command, whose exit status does not matter, and prints its peak memory and CPU seconds.
_MEASURED = """
import json, os, subprocess, sys
process = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL)
_, _, used = os.wait4(process.pid, 0)
print(json.dumps([used.ru_maxrss, used.ru_utime + used.ru_stime]))
"""
LONG = ("1,000 writes",)  # their cost is time, so their inputs are small


@dataclass(frozen=True, slots=True)
class Cost:
    """Peak memory in bytes per input byte (None for small inputs), and CPU seconds."""

    body: str
    target: str
    memory: float | None
    seconds: float


@dataclass(frozen=True, slots=True)
class CheckCosts:
    """The costs of all bodies through all targets."""

    costs: tuple[Cost, ...]

    def tables(self) -> list[Table]:
        """The costs for people."""
        rows = [
            (
                cost.body,
                cost.target,
                "" if cost.memory is None else f"{cost.memory:.1f}",
                f"{cost.seconds:.1f}",
            )
            for cost in self.costs
        ]
        title = f"check of {LARGE} x {LARGE} float32, one process each"
        return [Table(title, ("function", "target", "bytes per input byte", "CPU s"), rows)]


def measure() -> CheckCosts:
    """Check each body through each target."""
    with tempfile.TemporaryDirectory() as folder:
        costs = tuple(_cost(Path(folder), body, target) for body in BODIES for target in TARGETS)
    return CheckCosts(costs)


def _cost(folder: Path, body: str, target: str) -> Cost:
    least, seconds = _run(folder, body, target, SMALL)
    if body in LONG:
        return Cost(body, target, None, seconds)
    most, seconds = _run(folder, body, target, LARGE)
    return Cost(body, target, (most - least) / (4 * LARGE**2), seconds)


def _run(folder: Path, body: str, target: str, size: int) -> tuple[int, float]:
    """The peak memory in bytes and the CPU seconds of one check."""
    file = folder / "mine.py"
    lines = "\n    ".join(BODIES[body].splitlines())
    file.write_text(
        f"import torch\ndef program(x):\n    {lines}\n"
        f"def inputs():\n    return torch.rand({size}, {size})\n"
    )
    command = [sys.executable, "-m", "aliasproof", "check", "--in-process", str(file), "-t", target]
    # Of a process that was forked from this one, the peak would be at least that of this one.
    done = subprocess.run(
        [sys.executable, "-c", _MEASURED, *command], capture_output=True, text=True, check=True
    )
    peak, seconds = json.loads(done.stdout)
    # In kilobytes on Linux, in bytes on macOS.
    unit = 1 if sys.platform == "darwin" else 1024
    return int(peak) * unit, float(seconds)
