"""The kill matrix: a right pass survives, and each oracle kills the faults that it is made for."""

import pytest

from aliasproof.faults import matrix
from aliasproof.faults.matrix import (
    FaultRow,
    Matrix,
    PreparedCase,
    kill_matrix,
    row_of,
    row_of_target,
)
from aliasproof.judge.trial import Case, run_eager
from aliasproof.oracles.judge import EVERY_ORACLE
from aliasproof.targets.reference import REFERENCE
from aliasproof.targets.target import Target
from tests.short_programs import programs_in

pytestmark = pytest.mark.filterwarnings("ignore")  # of torch, about odd programs

# For each oracle, a fault that no other oracle kills on these programs.
KILLED_BY = {
    "repeated last output is left out": "values",
    "returned input is another object": "objects",
    "clamps are dropped": "equivalence",
    "in place call keeps its metadata": "invariants",
}

SEEDS = {"clamps are dropped": 2}  # of others, few of the first programs show it

# Such faults, with a program that shows them: few drawn programs do.
KILLED_ON = programs_in("""
without no self overlap, by errors: [1]
    v0 = aten.neg.default(x0)
    v1 = aten.expand.default(v0, [4])
    v2 = aten.add.Scalar(v1, 1)
    v3 = aten.amax.default(v2, [0])
    return (v3,)

without same stride, by metadata: [2, 2]
    v0 = aten.neg.default(x0)
    v1 = aten.transpose.int(v0, 0, 1)
    v2 = aten.add.Tensor(x0, v1)
    return (v2,)

view of an output is that output, by objects: [2, 2]
    v0 = aten.neg.default(x0)
    v1 = aten.view.default(v0, [2, 2])
    return v0, v1

copy is dropped before it is stored elsewhere, by errors: [4]
    v0 = aten.slice.Tensor(x0, 0, 0, 3)
    v1 = aten.slice.Tensor(x0, 0, 1, 4)
    v2 = aten.clone.default(v1)
    aten.copy_.default(v0, v2)
    return ()

result is computed into an overlapping view, by clobbers: [4]
    v0 = aten.slice.Tensor(x0, 0, 0, 3)
    v1 = aten.slice.Tensor(x0, 0, 1, 4)
    v2 = aten.add.Scalar(v1, 1)
    aten.copy_.default(v0, v2)
    return (x0,)

unused random op is left out, by values equivalence: [4]
    v0 = aten.rand_like.default(x0)
    v1 = aten.rand_like.default(x0)
    return (v1,)

equal random ops are merged, by values equivalence: [4]
    v0 = aten.rand_like.default(x0)
    v1 = aten.rand_like.default(x0)
    v2 = aten.sub.Tensor(v0, v1)
    return (v2,)

operator gets another layout, by values: [4, 4]
    v0 = aten.slice.Tensor(x0, 1, 1, 3, 1)
    v1 = aten.mul_.Scalar(v0, 2)
    v2 = torch.ops.aliasproof.strides.default(v0)
    return (v2,)

operators see no layout, by values: [4, 4]
    v0 = aten.slice.Tensor(x0, 0, 1, 3, 1)
    v1 = aten.clone.default(v0)
    v2 = torch.ops.aliasproof.location.default(v1)
    return (v2,)

guards are not checked, by inputs equivalence: [4, 1]
    v0 = aten.t.default(x0)
    v1 = aten.reshape.default(v0, [-1])
    v2 = aten.add_.Scalar(v1, 1)
    return ()
""")


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


@pytest.mark.parametrize("named", KILLED_ON)
def test_a_fault_that_few_programs_show_is_killed_on_one(monkeypatch, named: str) -> None:
    fault, oracles = named.split(", by ")
    case = Case.of(KILLED_ON[named])
    prepared = PreparedCase(case, run_eager(case))
    monkeypatch.setattr(matrix, "_cases", lambda seed, rules: iter([prepared]))
    assert row_of(fault, seed=0, most_programs=1, further=0).first == dict.fromkeys(
        oracles.split(), 1
    )
    assert row_of_target(REFERENCE, seed=0, most_programs=1, further=0).first == {}


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
