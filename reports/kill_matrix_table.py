"""The kill matrix of planted faults: a table, and what each oracle kills alone."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from rich.console import Console

from aliasproof.reports.console import print_lines, print_table, table_of

# Only the public face may import `faults`, so these protocols say what is printed of a matrix.

MATRIX_WIDTH = 140  # columns in a file: the longest name of a fault and all oracles


class KillRow(Protocol):
    """A fault, and by oracle the number of the first program that killed it."""

    @property
    def fault(self) -> str: ...
    @property
    def killed(self) -> int | None: ...
    @property
    def first(self) -> Mapping[str, int]: ...


class KillMatrix(Protocol):
    """The rows of all faults. `programs` are the numbers of the first kills."""

    @property
    def seed(self) -> int: ...
    @property
    def oracles(self) -> Sequence[str]: ...
    @property
    def rows(self) -> Sequence[KillRow]: ...
    @property
    def programs(self) -> Sequence[int]: ...
    @property
    def median(self) -> float | None: ...

    def only_killer_of(self, oracle: str, *, without: Collection[str] = ()) -> list[str]: ...


def print_kill(console: Console, row: KillRow) -> None:
    """Print the result for one fault, while the others are being tried."""
    result = "survives" if row.killed is None else f"killed by program {row.killed}"
    console.print(f"{row.fault}: {result}")


def print_kill_matrix(console: Console, matrix: KillMatrix, waived: Collection[str]) -> None:
    """Print a row per fault and a column per oracle, then the totals.

    `waived` are the oracles of promises that some targets do not make.
    """
    if not console.is_terminal:
        console.width = max(console.width, MATRIX_WIDTH)
    rows = (
        (
            row.fault,
            "survives" if row.killed is None else str(row.killed),
            *(str(row.first.get(oracle, "")) for oracle in matrix.oracles),
        )
        for row in matrix.rows
    )
    print_table(console, table_of(("fault", "killed", *matrix.oracles), rows, fold=True))
    console.print()
    for line in _summary(matrix, waived):
        print_lines(console, line)


def _summary(matrix: KillMatrix, waived: Collection[str]) -> list[str]:
    programs, rows = matrix.programs, matrix.rows
    killed = f"{len(programs)} of {len(rows)} faults killed."
    if programs:
        killed += (
            f" Programs until the first kill: median {matrix.median:g}, maximum {max(programs)}."
        )
    lines = [
        f"A number is the first program on which the oracle kills the fault (seed {matrix.seed}).",
        killed,
    ]
    for oracle in matrix.oracles:
        alone = matrix.only_killer_of(oracle)
        lines.append(f"killed by {oracle} alone: {_fault_list(alone)}")
        # Targets that waive a promise do without its oracle: which faults does that expose?
        more = [] if oracle in waived else matrix.only_killer_of(oracle, without=waived)
        more = [name for name in more if name not in alone]
        if more:
            lines.append(f"  and if {', '.join(waived)} is waived: {_fault_list(more)}")
    return lines


def _fault_list(faults: Sequence[str]) -> str:
    return f"{len(faults)}: {', '.join(faults)}" if faults else "none"
