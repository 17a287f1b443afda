"""`faults`: the kill matrix of planted faults, as a table or as JSON."""

from __future__ import annotations

import os
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from aliasproof.console import notes, print_lines, print_table, results, write_json
from faults.catalogue import FAULTS
from faults.matrix import FURTHER, MOST_PROGRAMS, WAIVED, FaultRow, Matrix, kill_matrix
from programs.errors import UserError
from trials.worker import quiet_torch


def show_faults(
    names: Sequence[str], programs: int | None, seed: int, workers: int | None, *, as_json: bool
) -> bool:
    """Run the matrix and print it.

    True if a fault survives. Raises `UserError` for options that make no sense.
    """
    if programs is not None and programs < 1:
        raise UserError(f"--programs {programs}: at least 1")
    if workers is not None and workers < 1:
        raise UserError(f"--workers {workers}: at least 1")
    quiet_torch()
    most, chosen, aside = (
        programs or MOST_PROGRAMS,
        list(dict.fromkeys(names)) or list(FAULTS),
        notes(),
    )
    count = workers or len(os.sched_getaffinity(0))

    def progress(row: FaultRow) -> None:
        if aside.is_terminal:
            aside.print(
                f"{row.fault}: {'survives' if row.killed is None else f'killed by program {row.killed}'}"
            )

    matrix = kill_matrix(chosen, seed, most, min(FURTHER, most), min(count, len(chosen)), progress)
    if as_json:
        write_json(matrix.to_json())
    else:
        _print(results(), matrix)
    return bool(matrix.survivors)


def _print(console: Console, matrix: Matrix) -> None:
    if not console.is_terminal:  # in a file nothing need be cut: the longest name and all oracles
        console.width = max(console.width, 140)
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("fault", overflow="fold")
    for each in ("killed", *matrix.oracles):
        table.add_column(each, justify="right", no_wrap=True)
    for row in matrix.rows:
        killed = "survives" if row.killed is None else str(row.killed)
        table.add_row(row.fault, killed, *(str(row.first.get(each, "")) for each in matrix.oracles))
    print_table(console, table)
    console.print()
    for line in _summary(matrix):
        print_lines(console, line)


def _summary(matrix: Matrix) -> list[str]:
    programs, rows = matrix.programs, matrix.rows
    lines = [f"Each number: programs until the first kill by that oracle (seed {matrix.seed})."]
    lines.append(f"{len(programs)} of {len(rows)} faults killed.")
    if programs:
        lines[-1] += (
            f" Programs until the first kill: median {matrix.median:g}, most {max(programs)}."
        )
    for each in matrix.oracles:
        only = matrix.only_killer_of(each)
        lines.append(
            f"only {each} kills {len(only)}: {', '.join(only)}"
            if only
            else f"only {each} kills none"
        )
        left = (
            []
            if each in WAIVED
            else [name for name in matrix.only_killer_of(each, without=WAIVED) if name not in only]
        )
        if left:
            lines.append(
                f"  and {len(left)} where {', '.join(WAIVED)} is waived: {', '.join(left)}"
            )
    return lines
