"""The kill matrix, printed."""

import io

from rich.console import Console

from aliasproof.faults.matrix import FaultRow, Matrix
from aliasproof.reports.listings import print_kill_matrix


def printed(*rows: FaultRow) -> list[str]:
    file = io.StringIO()
    matrix = Matrix(7, ("values", "inputs", "equivalence"), rows)
    print_kill_matrix(Console(file=file, width=100), matrix, ("equivalence",))
    return file.getvalue().splitlines()


def test_what_an_oracle_kills_alone_is_named():
    lines = printed(
        FaultRow("one", 10, 0, {"values": 3}),
        FaultRow("two", 10, 0, {"inputs": 4, "equivalence": 5}),
    )
    assert "2 of 2 faults killed. Programs until the first kill: median 3.5, maximum 4." in lines
    assert "killed by values alone: 1: one" in lines
    at = lines.index("killed by inputs alone: none")
    assert lines[at + 1] == "  and if equivalence is waived: 1: two"


def test_a_fault_that_survives():
    lines = printed(FaultRow("one", 10, 0))
    assert lines[1].split() == ["one", "survives"]
    assert "0 of 1 faults killed." in lines
