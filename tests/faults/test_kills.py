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
from tests.short_programs import lifted_in, programs_in

pytestmark = pytest.mark.filterwarnings("ignore")  # of torch, about odd programs

# A head has the name of a fault, all oracles that kill it, and the inputs.
KILLED_ON = lifted_in("""
last piece starts too early, by inputs equivalence: [5]
    x.split(2)[2].zero_()
transpose is not undone, by inputs equivalence: [2, 2] [2, 2]
    x.t().sub_(y)
masked write counts as overwrite, by inputs equivalence: [3] bool[3]
    x.add_(1).masked_fill_(y, 5)
tensor is always the base, by inputs equivalence: [2] offset 2
    x.as_strided((4,), (1,), 0).add_(1)
view is not regenerated, by values equivalence /
reads ignore queued writes, by values equivalence: [3]
    view = x[1:]
    first = view.neg()
    x.mul_(2)
    return first, view.neg()
base has another layout, by metadata: [3, 1]
    a = x.neg()
    a.expand(3, 4).fill_(5)
    return a
offset in elements of the base, by values equivalence: [6] strides [2] float64[2] offset 1 storage 0
    x.add_(1)
    return y.neg()
new tensor is made contiguous, by metadata: [2, 3]
    return x.t().neg().add_(1)
without same size and dtype, by metadata: int8[4]
    return x.neg() >= -1
without same location, by values equivalence: [8]
    a = x.neg()
    return (a[2:] * 2).as_strided((2,), (1,), 0).neg()
without not repeated, by errors: [4]
    a = x.neg()
    return a.index_add(0, x.argsort(), a)
without no overlapping operand, by errors: [4]
    a = x.neg()
    return (a[1:3] - a[:2]).sum()
without source is at destination, by values equivalence: [4]
    a = x.neg()
    return a.slice_scatter(a[2:], 0, 0, 2)
without not an input, by inputs equivalence clobbers: [4]
    return x.neg().sum()
without no later use, by values equivalence clobbers: [4]
    a = x.neg()
    return a * 2, a.sum()
without dead before epilogue, by inputs equivalence clobbers: [4] [4]
    a = x * 2
    x.copy_(y)
    y.copy_(a)
without no new alias, by aliasing objects: [4] [4]
    a = y.flip(0)
    x.copy_(a)
    return a
without no self overlap, by errors: [1]
    return (x.neg().expand(4) + 1).amax(0)
without same stride, by metadata: [2, 2]
    return x + x.neg().t()
view of an output is that output, by objects: [2, 2]
    a = x.neg()
    return a, a.view(2, 2)
copy is dropped before it is stored elsewhere, by errors: [4]
    x[:3].copy_(x[1:].clone())
result is computed into an overlapping view, by clobbers: [4]
    x[:3].copy_(torch.ops.aten.add.Scalar(x[1:], 1))
    return x
unused random op is left out, by values equivalence /
equal random ops are merged, by values equivalence: [4]
    torch.rand_like(x)
    return torch.rand_like(x)
operator gets another layout, by values: [4, 4]
    return torch.ops.aliasproof.strides(x[:, 1:3].mul_(2))
operators see no layout, by values: [4, 4]
    return torch.ops.aliasproof.location(x[1:3].clone())
each part is stored into the empty buffer, by values equivalence /
repeated part is stored once, by values equivalence: [4]
    a = x.neg()
    return torch.cat([a, x + 1, a])
stack ignores the dimension, by values equivalence: [2]
    return torch.stack([x.neg(), x + 1], 1)
pads begin with the first dimension, by values equivalence /
part is stored by the pad behind it, by values equivalence /
around a part is zero, by values /
around a part is old memory, by values equivalence: [2, 2]
    return torch.constant_pad_nd(x.neg(), (0, 1, 1, 0), 5)
part starts one element early, by values equivalence /
every part is stored at the start, by values equivalence /
copied parts are forgotten, by values equivalence: [4]
    return torch.cat([x.neg(), x])
buffer is contiguous, by metadata: [2, 2, 3, 2]
    view = x.permute(0, 3, 1, 2)
    return torch.cat([view.neg(), view + 1], 1)
memory may be made after the result, by errors: [4] [2]
    a = y.neg()
    return x.neg().slice_scatter(a, 0, 0, 2)
free memory is counted in elements, by errors: [4] [8]
    return (y + x.double().sum()).sum()
reads of views are forgotten, by values equivalence: [2, 2]
    return x.neg().t().sum(0)
planned without no overlapping operand, by errors: [4]
    a = x.neg()
    return a.slice_scatter(a[:3].cumsum(0), 0, 1, 4)
planned without not an input, by inputs equivalence clobbers: [16] [2]
    a = y.neg()
    return y.repeat(40).sum(), x.slice_scatter(a, 0, 0, 2)
planned without no later use, by values equivalence clobbers: [16] [2]
    a, b = x.neg(), y.neg()
    return y.repeat(40).sum(), a.slice_scatter(b, 0, 0, 2), a + 1
planned without dead before epilogue, by inputs equivalence clobbers: [4, 2] [2, 2]
    a = y.cumsum(0)
    x.copy_(x.slice_scatter(a, 0, 0, 2) + 1)
    y.copy_(a.t())
planned dtype is not compared, by metadata invariants: [4] [2]
    a, b = x.neg(), y != 1
    return a.slice_scatter(b, 0, 0, 2), b.sum()
storage is taken over while it is read, by values clobbers /
result is over what is read, by values clobbers: [3, 4] [32]
    return y.neg().sum(), x.neg().sum(1).sum()
uses of views are missed, by values equivalence clobbers: [4] [2, 4]
    view = x.neg()[1:]
    return y.sum(0), view + 1
storage of an output is taken over, by values aliasing objects equivalence clobbers: [4] [2, 4]
    return x.neg(), y.sum(0)
storage of an input is taken over, by inputs aliasing objects equivalence clobbers: [4] [2, 4]
    return y.sum(0)
two joins share a buffer, by values equivalence: [4]
    return torch.cat([x.neg(), x + 1]), torch.cat([x + 2, x + 3])
size of free storages is ignored, by errors: [2] [2, 4]
    return x.neg().sum(), y.sum(0)
""") | programs_in("""
without same bits, by values: [8] float16[4]
    v0 = aten.mul.Scalar(x0, 2)
    v1 = aten._neg_view.default(x1)
    v2 = aten.slice_scatter.default(v0, v1, 0, 0, 4)
    return (v2,)

guards are not checked, by inputs equivalence: [4, 1]
    v0 = aten.t.default(x0)
    v1 = aten.reshape.default(v0, [-1])
    v2 = aten.add_.Scalar(v1, 1)
    return ()

random results are not drawn, by errors: [4]
    v0 = aten.bernoulli.default(x0)
    v1 = aten.new_ones.default(v0, [4])
    v2 = aten.rand_like.default(x0)
    v3 = aten.add.Tensor(v2, v1)
    return (v3,)
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
