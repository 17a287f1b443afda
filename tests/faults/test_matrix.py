"""The kill matrix: a right pass survives, and each oracle kills the faults that it is made for."""

import pytest

from aliasproof.faults.matrix import (
    FaultRow,
    Matrix,
    kill_matrix,
    row_of,
    row_of_target,
)
from aliasproof.oracles.judge import EVERY_ORACLE
from aliasproof.targets.reference import REFERENCE
from aliasproof.targets.target import Target

pytestmark = pytest.mark.filterwarnings("ignore")  # of torch, about odd programs

# For each oracle, a fault that no other oracle kills on these programs.
KILLED_BY = {
    "repeated last output is left out": "values",
    "returned input is another object": "objects",
    "clamps are dropped": "equivalence",
    "in place call keeps its metadata": "invariants",
}

SEEDS = {"clamps are dropped": 2}  # of others, few of the first programs show it


def test_no_oracle_kills_the_reference() -> None:
    assert row_of_target(REFERENCE, seed=0, most_programs=100, further=0) == FaultRow(
        "reference", 100, 0
    )


def test_a_target_of_the_right_graphs_is_not_judged() -> None:
    equal = Target("equal", "", REFERENCE.contract, REFERENCE.build, "")
    assert row_of_target(equal, seed=0, most_programs=5, further=0, right=REFERENCE).killed is None


@pytest.mark.parametrize(("fault", "oracle"), KILLED_BY.items())
def test_a_fault_is_killed_by_its_oracle(fault: str, oracle: str) -> None:
    row = row_of(fault, seed=SEEDS.get(fault, 0), most_programs=300, further=0)
    assert row.killed == row.first[oracle]
    assert set(row.first) == {oracle}


def test_a_lost_mutation_is_killed_by_inputs_and_by_equivalence() -> None:
    row = row_of("epilogue is dead code", seed=0, most_programs=20, further=20)
    assert row.first["inputs"] == row.first["equivalence"] == row.killed
    assert row.tried <= row.killed + 20


def test_a_row_is_the_same_again_and_in_other_processes() -> None:
    names = ["epilogue is dead code", "without not an input"]
    alone = kill_matrix(names, seed=1, most_programs=10, further=3)
    assert kill_matrix(names, seed=1, most_programs=10, further=3, workers=2) == alone


def test_programs_from_rules_are_other_programs() -> None:
    fault = "epilogue is dead code"
    row = row_of(fault, seed=0, most_programs=4, further=0, rules=100)
    assert row.killed is not None
    assert row_of_target(REFERENCE, seed=0, most_programs=4, further=0, rules=100).first == {}


def test_a_matrix_counts_kills_by_oracle() -> None:
    rows = (
        FaultRow("without same stride", 9, 0, {"metadata": 4}),
        FaultRow("imag is real", 9, 1, {"values": 2, "equivalence": 7}),
    )
    found = Matrix(0, EVERY_ORACLE, (*rows, FaultRow("expand is summed", 9, 0)))
    assert found.survivors == ["expand is summed"]
    assert found.median == 3
    assert found.only_killer_of("metadata") == ["without same stride"]
    assert found.only_killer_of("equivalence") == found.only_killer_of("values") == []
    assert found.only_killer_of("values", without=["equivalence"]) == ["imag is real"]
    assert found.to_json()["most"] == 4
