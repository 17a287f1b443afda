"""Each fault of memory planning is killed on a short program; the right planner survives it."""

import pytest

from aliasproof.faults import matrix
from aliasproof.faults.matrix import PreparedCase, row_of, row_of_target
from aliasproof.faults.planning_faults import FAULTS
from aliasproof.judge.trial import Case, run_eager
from aliasproof.targets.reference import REFERENCE_PLANNED
from tests.short_programs import programs_in

pytestmark = pytest.mark.filterwarnings("ignore")  # of torch, about odd programs

KILLED_ON = programs_in("""
part starts one element early /
every part is stored at the start /
each part is stored into the empty buffer: [4]
    v0 = aten.neg.default(x0)
    v1 = aten.add.Tensor(x0, 1)
    v2 = aten.cat.default([v0, v1])
    return (v2,)

repeated part is stored once: [4]
    v0 = aten.neg.default(x0)
    v1 = aten.add.Tensor(x0, 1)
    v2 = aten.cat.default([v0, v1, v0])
    return (v2,)

stack ignores the dimension: [2]
    v0 = aten.neg.default(x0)
    v1 = aten.add.Tensor(x0, 1)
    v2 = aten.stack.default([v0, v1], 1)
    return (v2,)

pads begin with the first dimension /
part is stored by the pad behind it /
around a part is zero /
around a part is old memory: [2, 2]
    v0 = aten.neg.default(x0)
    v1 = aten.constant_pad_nd.default(v0, [0, 1, 1, 0], 5)
    return (v1,)

copied parts are forgotten: [4]
    v0 = aten.neg.default(x0)
    v1 = aten.cat.default([v0, x0])
    return (v1,)

buffer is contiguous: [2, 2, 3, 2]
    v0 = aten.permute.default(x0, [0, 3, 1, 2])
    v1 = aten.neg.default(v0)
    v2 = aten.add.Tensor(v0, 1)
    v3 = aten.cat.default([v1, v2], 1)
    return (v3,)

memory may be made after the result: [4] [2]
    v0 = aten.neg.default(x1)
    v1 = aten.neg.default(x0)
    v2 = aten.slice_scatter.default(v1, v0, 0, 0, 2)
    return (v2,)

free memory is counted in elements: [4] [8]
    v0 = aten._to_copy.default(x0, dtype=torch.float64)
    v1 = aten.sum.default(v0)
    v2 = aten.add.Tensor(x1, v1)
    v3 = aten.sum.default(v2)
    return (v3,)

reads of views are forgotten: [2, 2]
    v0 = aten.neg.default(x0)
    v1 = aten.t.default(v0)
    v2 = aten.sum.dim_IntList(v1, [0])
    return (v2,)

random results are not drawn: [4]
    v0 = aten.bernoulli.default(x0)
    v1 = aten.new_ones.default(v0, [4])
    v2 = aten.rand_like.default(x0)
    v3 = aten.add.Tensor(v2, v1)
    return (v3,)

planned without no overlapping operand: [4]
    v0 = aten.neg.default(x0)
    v1 = aten.slice.Tensor(v0, 0, 0, 3)
    v2 = aten.cumsum.default(v1, 0)
    v3 = aten.slice_scatter.default(v0, v2, 0, 1, 4)
    return (v3,)

planned without not an input: [16] [2]
    v0 = aten.neg.default(x1)
    v1 = aten.repeat.default(x1, [40])
    v2 = aten.sum.default(v1)
    v3 = aten.slice_scatter.default(x0, v0, 0, 0, 2)
    return v2, v3

planned without no later use: [16] [2]
    v0 = aten.neg.default(x0)
    v1 = aten.neg.default(x1)
    v2 = aten.repeat.default(x1, [40])
    v3 = aten.sum.default(v2)
    v4 = aten.slice_scatter.default(v0, v1, 0, 0, 2)
    v5 = aten.add.Tensor(v0, 1)
    return v3, v4, v5

planned without dead before epilogue: [4, 2] [2, 2]
    v0 = aten.cumsum.default(x1, 0)
    v1 = aten.slice_scatter.default(x0, v0, 0, 0, 2)
    v2 = aten.add.Tensor(v1, 1)
    v3 = aten.t.default(v0)
    aten.copy_.default(x0, v2)
    aten.copy_.default(x1, v3)
    return ()

planned dtype is not compared: [4] [2]
    v0 = aten.neg.default(x0)
    v1 = aten.ne.Scalar(x1, 1)
    v2 = aten.slice_scatter.default(v0, v1, 0, 0, 2)
    v3 = aten.sum.default(v1)
    return v2, v3

storage is taken over while it is read / result is over what is read: [3, 4] [32]
    v0 = aten.neg.default(x1)
    v1 = aten.sum.default(v0)
    v2 = aten.neg.default(x0)
    v3 = aten.sum.dim_IntList(v2, [1])
    v4 = aten.sum.default(v3)
    return v1, v4

uses of views are missed: [4] [2, 4]
    v0 = aten.neg.default(x0)
    v1 = aten.slice.Tensor(v0, 0, 1, 4)
    v2 = aten.sum.dim_IntList(x1, [0])
    v3 = aten.add.Tensor(v1, 1)
    return v2, v3

storage of an output is taken over: [4] [2, 4]
    v0 = aten.neg.default(x0)
    v1 = aten.sum.dim_IntList(x1, [0])
    return v0, v1

storage of an input is taken over: [4] [2, 4]
    v0 = aten.sum.dim_IntList(x1, [0])
    return (v0,)

two joins share a buffer: [4]
    v0 = aten.neg.default(x0)
    v1 = aten.add.Tensor(x0, 1)
    v2 = aten.cat.default([v0, v1])
    v3 = aten.add.Tensor(x0, 2)
    v4 = aten.add.Tensor(x0, 3)
    v5 = aten.cat.default([v3, v4])
    return v2, v5

size of free storages is ignored: [2] [2, 4]
    v0 = aten.neg.default(x0)
    v1 = aten.sum.default(v0)
    v2 = aten.sum.dim_IntList(x1, [0])
    return v1, v2
""")


@pytest.mark.parametrize("fault", [fault.name for fault in FAULTS])
def test_a_fault_of_planning_is_killed_on_a_short_program(monkeypatch, fault: str) -> None:
    case = Case.of(KILLED_ON[fault])
    prepared = PreparedCase(case, run_eager(case))
    monkeypatch.setattr(matrix, "_cases", lambda seed, rules: iter([prepared]))
    assert row_of(fault, seed=0, most_programs=1, further=0).killed == 1
    assert row_of_target(REFERENCE_PLANNED, seed=0, most_programs=1, further=0).first == {}
