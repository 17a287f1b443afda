"""The command `faults`: the kill matrix of planted faults."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

from aliasproof.commands.options import Json, Workers, flag, option, whole_number
from aliasproof.reports.console import notes, results, write_json
from aliasproof.reports.listings import print_kill, print_kill_matrix

if TYPE_CHECKING:  # it imports torch
    from aliasproof.faults.matrix import FaultRow

Faults = Annotated[
    list[str] | None,
    option("NAME", "A planted fault. Repeat the option for more faults. Default: all.", "--fault"),
]
Programs = Annotated[
    int | None, whole_number("A fault survives after this many programs. Default: 5,000.", 1)
]
Rules = Annotated[
    int, whole_number("Of a hundred programs, how many are derived from rules, as for fuzz.", 0)
]
Listed = Annotated[bool, flag("--list", "Print what is wrong in each fault, and where it is from.")]
Seed = Annotated[int, option("NUMBER", "The same seed gives the same matrix.")]


def faults(
    fault: Faults = None,
    listed: Listed = False,
    programs: Programs = None,
    seed: Seed = 0,
    rules: Rules = 0,
    workers: Workers = None,
    json: Json = False,
) -> int:
    """Plant wrong passes and compilers, and show the kill matrix.

    The matrix shows, for each fault and oracle, the first program on which the oracle reports a
    violation.

    Exit status: 0 if all faults are killed, 1 if a fault survives, 2 for bad input, 3 if the code
    of a fault raises.
    """
    from aliasproof.faults.catalogue import EVERY_FAULT, fault_named
    from aliasproof.faults.matrix import FURTHER, MOST_PROGRAMS, WAIVED, kill_matrix
    from aliasproof.judge.trial import quiet_torch

    if listed:
        for wrong in [fault_named(name) for name in fault or EVERY_FAULT]:
            results().out(f"{wrong.name}: {wrong.summary} ({wrong.source})")
        return 0
    quiet_torch()
    most, console = programs or MOST_PROGRAMS, notes()
    chosen = list(dict.fromkeys(fault or EVERY_FAULT))
    count = min(workers or len(os.sched_getaffinity(0)), len(chosen))

    def progress(row: FaultRow) -> None:
        # The matrix is printed at the end; in a file, these lines would only repeat it.
        if console.is_terminal:
            print_kill(console, row)

    matrix = kill_matrix(chosen, seed, most, min(FURTHER, most), count, progress, rules)
    if json:
        write_json(matrix.to_json())
    else:
        print_kill_matrix(results(), matrix, WAIVED)
    return int(bool(matrix.survivors))
