"""Each rule of functionalization is needed: with a wrong rule, a program is compiled wrongly."""

from dataclasses import fields, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from aliasproof.reference_pass.calls.regions import contiguous_strides  # noqa: F401 - a rule calls it
from aliasproof.reference_pass.pipeline import functionalize
from aliasproof.reference_pass.rules import RULES, Rules
from aliasproof.reference_pass.views import INVERSES, VIEW_STEPS  # noqa: F401 - two rules have them
from tests.reference_pass.scene import afresh, counted, names, programs_of, seen_at_end

aten = torch.ops.aten

BUFFER = counted(16)


def first_slice(call):
    """A slice from the start of its operand, of the right length."""
    return [(call.op, (call.given["dim"], 0, call.sizes[call.given["dim"]], 1))]


def unchanged(emit, parent, new, args):
    return new


def in_other_elements(geometry, start):
    return geometry.offset * geometry.dtype.itemsize // start.itemsize


def by_a_wrong_rule(rule: Any, *inputs: Tensor) -> tuple[Any, tuple[Tensor, ...]]:
    return rule, inputs


# Each program is named after a rule, and is compiled wrongly with the given wrong rule.
EXAMPLES = programs_of(
    """
view_steps(x): {**VIEW_STEPS, aten.slice.Tensor: first_slice}, counted(4)
    x[1:3].zero_()
    return x

inverses(x, y): {**INVERSES, aten.t.default: unchanged}, counted(2, 2), counted(2, 2)
    x.t().sub_(y)
    return x

overwrites(x): lambda op: True, counted(3)
    x.add_(1)
    x.mul_(2)
    return x

is_base(x, around): lambda uses, geometry: True, BUFFER[2:4], counted(6)
    x.as_strided((6,), (1,), 0).add_(1)
    return around + 0

is_current(x): lambda noted, version: True, counted(3)
    view = x[1:]
    before = view + 0
    x.add_(1)
    return before, x.clone(), view + 0

must_apply(x): lambda queued, value: value is None, counted(3)
    view = x[1:]
    before = view + 0
    x.mul_(2)
    return before, view + 0

base_strides(x): lambda geometry, value: value.stride(), counted(3, 1)
    local = x + 1
    local.expand(3, 4).fill_(5)
    return local

as_strided_offset(x, y): in_other_elements, BUFFER[:8], BUFFER.view(torch.float64)[1:3]
    x.add_(1)
    return y * 1

result_strides(x): lambda geometry: contiguous_strides(geometry.sizes), counted(2, 3)
    return (x.t() + 1).add_(1)  # a program that writes nothing would stay as it is
""",
    globals(),
    by_a_wrong_rule,
)


def test_each_rule_has_an_example():
    of_training = {"functional_form", "detaches"}  # see test_training
    assert names(EXAMPLES) == [rule.name for rule in fields(Rules) if rule.name not in of_training]


@pytest.mark.parametrize(("program", "given"), EXAMPLES, ids=names(EXAMPLES))
def test_by_a_wrong_rule_a_program_comes_out_wrong_that_is_right_by_the_right_one(program, given):
    wrong, examples = given

    def compiled(rules):
        return functionalize(program, *afresh(examples), rules=rules)

    def seen(function):
        inputs = afresh(examples)
        storages = [tensor.untyped_storage() for tensor in inputs]
        return seen_at_end(function, inputs), [storage.tolist() for storage in storages]

    assert seen(compiled(RULES)) == seen(program)
    assert seen(compiled(replace(RULES, **{program.__name__: wrong}))) != seen(program)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_overlapping_items_whose_scalar_is_rounded(dtype):
    """Such a call runs on copies; each item is written before the next one is read."""

    def program(x):
        torch._foreach_mul_([x[1:], x[:2]], 0.3)
        return x + 2

    x, y = (torch.arange(3.0).to(dtype) for _ in range(2))
    assert torch.equal(functionalize(program, x.clone())(x), program(y))
    assert torch.equal(x, y)
