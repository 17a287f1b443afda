"""Faults that few drawn programs show are killed on a short program; the right pass survives it.

Each rule of functionalization, each condition of reinplacing, and each decision of memory planning
has a program that needs it.
"""

from collections.abc import Iterator
from dataclasses import fields

import pytest
import torch

from aliasproof.faults import matrix
from aliasproof.faults.catalogue import FAULTS
from aliasproof.faults.fault import Make, Passes
from aliasproof.faults.matrix import PreparedCase, row_of, row_of_target
from aliasproof.faults.planning_faults import FAULTS as PLANNING_FAULTS
from aliasproof.judge.trial import Case, run_eager
from aliasproof.reference_pass.pipeline import CONDITIONS
from aliasproof.reference_pass.rules import RULES, Rules
from tests.short_programs import programs_in

pytestmark = pytest.mark.filterwarnings("ignore")  # of torch, about odd programs

# A head has the name of a fault, all oracles that kill it, and the inputs.
KILLED_ON = programs_in("""
last piece starts too early, by inputs equivalence: [5]
    v0, v1, v2 = aten.split.Tensor(x0, 2)
    v3 = aten.zero_.default(v2)
    return ()

transpose is not undone, by inputs equivalence: [2, 2] [2, 2]
    v0 = aten.t.default(x0)
    v1 = aten.sub_.Tensor(v0, x1)
    return ()

masked write counts as overwrite, by inputs equivalence: [3] bool[3]
    v0 = aten.add_.Scalar(x0, 1)
    v1 = aten.masked_fill_.Scalar(x0, x1, 5)
    return ()

tensor is always the base, by inputs equivalence: [2] offset 2
    v0 = aten.as_strided.default(x0, [4], [1], 0)
    v1 = aten.add_.Scalar(v0, 1)
    return ()

view is not regenerated, by values equivalence /
reads ignore queued writes, by values equivalence: [3]
    v0 = aten.slice.Tensor(x0, 0, 1, 3)
    v1 = aten.neg.default(v0)
    v2 = aten.mul_.Scalar(x0, 2)
    v3 = aten.neg.default(v0)
    return v1, v3

base has another layout, by metadata: [3, 1]
    v0 = aten.neg.default(x0)
    v1 = aten.expand.default(v0, [3, 4])
    v2 = aten.fill_.Scalar(v1, 5)
    return (v0,)

offset in elements of the base, by values equivalence: [6] strides [2] float64[2] offset 1 storage 0
    v0 = aten.add_.Scalar(x0, 1)
    v1 = aten.neg.default(x1)
    return (v1,)

new tensor is made contiguous, by metadata: [2, 3]
    v0 = aten.t.default(x0)
    v1 = aten.neg.default(v0)
    v2 = aten.add_.Scalar(v1, 1)
    return (v1,)

without same size and dtype, by metadata: int8[4]
    v0 = aten.neg.default(x0)
    v1 = aten.ge.Scalar(v0, -1)
    return (v1,)

without same bits, by values: [8] float16[4]
    v0 = aten.mul.Scalar(x0, 2)
    v1 = aten._neg_view.default(x1)
    v2 = aten.slice_scatter.default(v0, v1, 0, 0, 4)
    return (v2,)

without same location, by values equivalence: [8]
    v0 = aten.neg.default(x0)
    v1 = aten.slice.Tensor(v0, 0, 2, 8)
    v2 = aten.mul.Scalar(v1, 2)
    v3 = aten.as_strided.default(v2, [2], [1], 0)
    v4 = aten.neg.default(v3)
    return (v4,)

without not repeated, by errors: [4]
    v0 = aten.neg.default(x0)
    v1 = aten.argsort.default(x0)
    v2 = aten.index_add.default(v0, 0, v1, v0)
    return (v2,)

without no overlapping operand, by errors: [4]
    v0 = aten.neg.default(x0)
    v1 = aten.slice.Tensor(v0, 0, 1, 3)
    v2 = aten.slice.Tensor(v0, 0, 0, 2)
    v3 = aten.sub.Tensor(v1, v2)
    v4 = aten.sum.default(v3)
    return (v4,)

without source is at destination, by values equivalence: [4]
    v0 = aten.neg.default(x0)
    v1 = aten.slice.Tensor(v0, 0, 2, 4)
    v2 = aten.slice_scatter.default(v0, v1, 0, 0, 2)
    return (v2,)

without not an input, by inputs equivalence clobbers: [4]
    v0 = aten.neg.default(x0)
    v1 = aten.sum.default(v0)
    return (v1,)

without no later use, by values equivalence clobbers: [4]
    v0 = aten.neg.default(x0)
    v1 = aten.mul.Scalar(v0, 2)
    v2 = aten.sum.default(v0)
    return v1, v2

without dead before epilogue, by inputs equivalence clobbers: [4] [4]
    v0 = aten.mul.Scalar(x0, 2)
    aten.copy_.default(x0, x1)
    aten.copy_.default(x1, v0)
    return ()

without no new alias, by aliasing objects: [4] [4]
    v0 = aten.flip.default(x1, [0])
    aten.copy_.default(x0, v0)
    return (v0,)

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

unused random op is left out, by values equivalence /
equal random ops are merged, by values equivalence: [4]
    v0 = aten.rand_like.default(x0)
    v1 = aten.rand_like.default(x0)
    return (v1,)

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

each part is stored into the empty buffer, by values equivalence /
repeated part is stored once, by values equivalence: [4]
    v0 = aten.neg.default(x0)
    v1 = aten.add.Tensor(x0, 1)
    v2 = aten.cat.default([v0, v1, v0])
    return (v2,)

stack ignores the dimension, by values equivalence: [2]
    v0 = aten.neg.default(x0)
    v1 = aten.add.Tensor(x0, 1)
    v2 = aten.stack.default([v0, v1], 1)
    return (v2,)

pads begin with the first dimension, by values equivalence /
part is stored by the pad behind it, by values equivalence /
around a part is zero, by values /
around a part is old memory, by values equivalence: [2, 2]
    v0 = aten.neg.default(x0)
    v1 = aten.constant_pad_nd.default(v0, [0, 1, 1, 0], 5)
    return (v1,)

part starts one element early, by values equivalence /
every part is stored at the start, by values equivalence /
copied parts are forgotten, by values equivalence: [4]
    v0 = aten.neg.default(x0)
    v1 = aten.cat.default([v0, x0])
    return (v1,)

buffer is contiguous, by metadata: [2, 2, 3, 2]
    v0 = aten.permute.default(x0, [0, 3, 1, 2])
    v1 = aten.neg.default(v0)
    v2 = aten.add.Tensor(v0, 1)
    v3 = aten.cat.default([v1, v2], 1)
    return (v3,)

memory may be made after the result, by errors: [4] [2]
    v0 = aten.neg.default(x1)
    v1 = aten.neg.default(x0)
    v2 = aten.slice_scatter.default(v1, v0, 0, 0, 2)
    return (v2,)

free memory is counted in elements, by errors: [4] [8]
    v0 = aten._to_copy.default(x0, dtype=torch.float64)
    v1 = aten.sum.default(v0)
    v2 = aten.add.Tensor(x1, v1)
    v3 = aten.sum.default(v2)
    return (v3,)

reads of views are forgotten, by values equivalence: [2, 2]
    v0 = aten.neg.default(x0)
    v1 = aten.t.default(v0)
    v2 = aten.sum.dim_IntList(v1, [0])
    return (v2,)

random results are not drawn, by errors: [4]
    v0 = aten.bernoulli.default(x0)
    v1 = aten.new_ones.default(v0, [4])
    v2 = aten.rand_like.default(x0)
    v3 = aten.add.Tensor(v2, v1)
    return (v3,)

planned without no overlapping operand, by errors: [4]
    v0 = aten.neg.default(x0)
    v1 = aten.slice.Tensor(v0, 0, 0, 3)
    v2 = aten.cumsum.default(v1, 0)
    v3 = aten.slice_scatter.default(v0, v2, 0, 1, 4)
    return (v3,)

planned without not an input, by inputs equivalence clobbers: [16] [2]
    v0 = aten.neg.default(x1)
    v1 = aten.repeat.default(x1, [40])
    v2 = aten.sum.default(v1)
    v3 = aten.slice_scatter.default(x0, v0, 0, 0, 2)
    return v2, v3

planned without no later use, by values equivalence clobbers: [16] [2]
    v0 = aten.neg.default(x0)
    v1 = aten.neg.default(x1)
    v2 = aten.repeat.default(x1, [40])
    v3 = aten.sum.default(v2)
    v4 = aten.slice_scatter.default(v0, v1, 0, 0, 2)
    v5 = aten.add.Tensor(v0, 1)
    return v3, v4, v5

planned without dead before epilogue, by inputs equivalence clobbers: [4, 2] [2, 2]
    v0 = aten.cumsum.default(x1, 0)
    v1 = aten.slice_scatter.default(x0, v0, 0, 0, 2)
    v2 = aten.add.Tensor(v1, 1)
    v3 = aten.t.default(v0)
    aten.copy_.default(x0, v2)
    aten.copy_.default(x1, v3)
    return ()

planned dtype is not compared, by metadata invariants: [4] [2]
    v0 = aten.neg.default(x0)
    v1 = aten.ne.Scalar(x1, 1)
    v2 = aten.slice_scatter.default(v0, v1, 0, 0, 2)
    v3 = aten.sum.default(v1)
    return v2, v3

storage is taken over while it is read, by values clobbers /
result is over what is read, by values clobbers: [3, 4] [32]
    v0 = aten.neg.default(x1)
    v1 = aten.sum.default(v0)
    v2 = aten.neg.default(x0)
    v3 = aten.sum.dim_IntList(v2, [1])
    v4 = aten.sum.default(v3)
    return v1, v4

uses of views are missed, by values equivalence clobbers: [4] [2, 4]
    v0 = aten.neg.default(x0)
    v1 = aten.slice.Tensor(v0, 0, 1, 4)
    v2 = aten.sum.dim_IntList(x1, [0])
    v3 = aten.add.Tensor(v1, 1)
    return v2, v3

storage of an output is taken over, by values aliasing objects equivalence clobbers: [4] [2, 4]
    v0 = aten.neg.default(x0)
    v1 = aten.sum.dim_IntList(x1, [0])
    return v0, v1

storage of an input is taken over, by inputs aliasing objects equivalence clobbers: [4] [2, 4]
    v0 = aten.sum.dim_IntList(x1, [0])
    return (v0,)

two joins share a buffer, by values equivalence: [4]
    v0 = aten.neg.default(x0)
    v1 = aten.add.Tensor(x0, 1)
    v2 = aten.cat.default([v0, v1])
    v3 = aten.add.Tensor(x0, 2)
    v4 = aten.add.Tensor(x0, 3)
    v5 = aten.cat.default([v3, v4])
    return v2, v5

size of free storages is ignored, by errors: [2] [2, 4]
    v0 = aten.neg.default(x0)
    v1 = aten.sum.default(v0)
    v2 = aten.sum.dim_IntList(x1, [0])
    return v1, v2
""")


NAMES = {head.partition(", by ")[0] for head in KILLED_ON}


def test_each_rule_has_a_program() -> None:
    changed = {rule for name in NAMES for rule in changed_rules(FAULTS[name].make)}
    of_training = {"functional_form", "detaches"}  # see tests/reference_pass/test_training.py
    assert changed == {rule.name for rule in fields(Rules)} - of_training


def changed_rules(make: Make) -> Iterator[str]:
    for rule in fields(Rules):
        right = getattr(RULES, rule.name)
        if isinstance(make, Passes) and getattr(make.rules, rule.name) is not right:
            yield rule.name


def test_each_condition_and_each_fault_of_planning_has_a_program() -> None:
    needed = {f"without {condition.__name__.replace('_', ' ')}" for condition in CONDITIONS}
    needed |= {fault.name for fault in PLANNING_FAULTS}
    assert needed <= NAMES


@pytest.fixture
def filled_memory() -> Iterator[None]:
    """New memory has no contents that are right by chance: torch fills it with NaN."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.usefixtures("filled_memory")
@pytest.mark.parametrize("head", KILLED_ON)
def test_a_fault_is_killed_on_a_short_program(monkeypatch: pytest.MonkeyPatch, head: str) -> None:
    name, oracles = head.split(", by ")
    case = Case.of(KILLED_ON[head])
    prepared = PreparedCase(case, run_eager(case))
    monkeypatch.setattr(matrix, "_cases", lambda seed, rules: iter([prepared]))
    row = row_of(name, seed=0, most_programs=1, further=0)
    assert row.first == dict.fromkeys(oracles.split(), 1)
    right = row_of_target(FAULTS[name].right, seed=0, most_programs=1, further=0)
    assert right.first == {}
