"""How much memory `check` takes in addition to its inputs."""

import json
import sys
from pathlib import Path

from tests.subprocesses import python

LARGE, SMALL = 3072, 4  # inputs are square float32 matrices
# 40 new tensors: each that is kept costs one byte per byte of the input. If none is kept, a check
# takes 8 to 13 bytes, since freed memory is not always reused.
CODE = """
import torch
def program(x):
    for _ in range(20):
        x = torch.sigmoid(x) * 2
    return x
def inputs():
    return torch.rand({size}, {size})
"""
# Measured in a new process: the peak of a forked one would be at least that of its parent.
MEASURE = """
import os, subprocess, sys
process = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL)
print(os.wait4(process.pid, 0)[2].ru_maxrss)
"""


def peak(folder: Path, size: int) -> int:
    """The peak memory of a check, in bytes."""
    file = folder / "mine.py"
    file.write_text(CODE.format(size=size))
    command = ("aliasproof", "check", "--in-process", str(file), "--target", "functionalize")
    done = python("-c", MEASURE, sys.executable, "-m", *command)
    assert done.returncode == 0, done.stderr
    # In kilobytes on Linux, in bytes on macOS.
    most: int = json.loads(done.stdout)
    return most if sys.platform == "darwin" else 1024 * most


def test_a_check_takes_a_few_bytes_per_byte_of_its_input(tmp_path: Path) -> None:
    per_byte = (peak(tmp_path, LARGE) - peak(tmp_path, SMALL)) / (4 * LARGE**2)
    assert 3 < per_byte < 20
