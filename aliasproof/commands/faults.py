"""The command `faults`: the kill matrix of planted faults."""

from __future__ import annotations

import os
from collections.abc import Sequence

from aliasproof.faults.catalogue import FAULTS
from aliasproof.faults.matrix import FURTHER, MOST_PROGRAMS, WAIVED, FaultRow, kill_matrix
from aliasproof.programs.errors import UserError
from aliasproof.reports.console import notes, results, write_json
from aliasproof.reports.kill_matrix_table import print_kill, print_kill_matrix
from aliasproof.trials.worker import quiet_torch


def show_faults(
    names: Sequence[str], programs: int | None, seed: int, workers: int | None, *, as_json: bool
) -> bool:
    """Measure the kill matrix, and print it. True if a fault survives.

    Raises `UserError` for options out of range.
    """
    for option, number in (("programs", programs), ("workers", workers)):
        if number is not None and number < 1:
            raise UserError(f"--{option} {number}: give at least 1")
    quiet_torch()
    most = programs or MOST_PROGRAMS
    chosen = list(dict.fromkeys(names)) or list(FAULTS)
    count = min(workers or len(os.sched_getaffinity(0)), len(chosen))
    console = notes()

    def progress(row: FaultRow) -> None:
        # The matrix is printed at the end; in a file, these lines would only repeat it.
        if console.is_terminal:
            print_kill(console, row)

    matrix = kill_matrix(chosen, seed, most, min(FURTHER, most), count, progress)
    if as_json:
        write_json(matrix.to_json())
    else:
        print_kill_matrix(results(), matrix, WAIVED)
    return bool(matrix.survivors)
