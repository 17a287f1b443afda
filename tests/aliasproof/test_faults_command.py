"""`aliasproof faults`, and the kill matrix that it prints."""

import io

import pytest
from rich.console import Console

from aliasproof.faults.catalogue import EVERY_FAULT
from aliasproof.faults.matrix import FaultRow, Matrix
from aliasproof.oracles.judge import EVERY_ORACLE
from aliasproof.reports.listings import print_kill_matrix

pytestmark = pytest.mark.filterwarnings("ignore")  # warnings of torch about odd programs

KILLED = ("--fault", "epilogue is dead code", "--programs", 10, "--workers", 1)
SURVIVES = ("--fault", "expand-is-summed", "--programs", 1, "--workers", 1)


def test_the_catalogue_is_listed_without_a_run(call):
    outcome = call("faults", "--list")
    assert outcome.code == 0
    lines = outcome.out.splitlines()
    assert len(lines) == len(EVERY_FAULT)
    for line, fault in zip(lines, EVERY_FAULT.values(), strict=True):
        assert line == f"{fault.name}: {fault.summary} ({fault.source})"
    one = call("faults", "--list", "--fault", "epilogue-is-swapped")
    assert one.out.startswith("epilogue is swapped: ")


def test_a_wrong_compiler_of_python_programs_is_killed(call):
    given = ("--fault", "copied outputs", "--programs", 40, "--workers", 1, "--json")
    found = call("faults", *given).json()
    assert found["faults"][0]["by oracle"]
    assert set(found["only killer of"]) == set(EVERY_ORACLE)


def test_a_survivor_is_an_exit_code(call):
    outcome = call("faults", *SURVIVES)
    assert outcome.code == 1
    head, row, *_ = outcome.out.splitlines()
    assert head.split() == ["fault", "killed", *EVERY_ORACLE]
    assert row.split()[-1] == "survives"


def test_the_matrix_as_json(call):
    found = call("faults", *KILLED, "--json").json()
    (row,) = found["faults"]
    assert row["fault"] == "epilogue is dead code"
    assert row["source"] == "pytorch/pytorch#68301"
    assert row["programs until killed"] == row["by oracle"]["inputs"] == 1
    assert found["survivors"] == []
    assert set(found["only killer of"]) == set(EVERY_ORACLE)


def test_an_unknown_fault_is_refused(call):
    refusal = call("faults", "--fault", "expand is sumed").refusal
    assert "did you mean 'expand is summed'" in refusal


# --- the table ------------------------------------------------------------------------------------


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
