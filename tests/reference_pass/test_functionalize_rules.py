"""Each rule of functionalization is needed: by another one, a program comes out wrong."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import pytest
import torch
from torch import Tensor

from aliasproof.reference_pass.calls.regions import contiguous_strides
from aliasproof.reference_pass.pipeline import functionalize
from aliasproof.reference_pass.rules import RULES, Rules
from aliasproof.reference_pass.views import INVERSES, VIEW_STEPS
from tests.reference_pass.scene import Program, afresh, counted, seen_at_end

aten = torch.ops.aten

BUFFER = counted(16)


@dataclass(frozen=True)
class Example:
    """A program that comes out wrong if a rule is replaced by a wrong one."""

    wrong: Rules
    program: Program
    inputs: tuple[Tensor, ...]


def slice_is_written(x):
    x[1:3].zero_()
    return x


def transpose_is_written(x, y):
    x.t().sub_(y)
    return x


def tensor_is_written_twice(x):
    x.add_(1)
    x.mul_(2)
    return x


def memory_around_an_input_is_written(x, around):
    x.as_strided((6,), (1,), 0).add_(1)
    return around + 0


def view_is_read_before_and_after_a_write(x):
    view = x[1:]
    before = view + 0
    x.add_(1)
    return before, x.clone(), view + 0


def view_is_read_after_a_write(x):
    view = x[1:]
    before = view + 0
    x.mul_(2)
    return before, view + 0


def expanded_tensor_is_filled(x):
    local = x + 1
    local.expand(3, 4).fill_(5)
    return local


def inputs_of_two_dtypes(x, y):
    x.add_(1)
    return y * 1


def transpose_is_added(x):
    # A program that writes nothing stays as it is.
    return (x.t() + 1).add_(1)


def first_slice(call):
    """A slice from the start of its operand, of the right length."""
    return [(call.op, (call.given["dim"], 0, call.sizes[call.given["dim"]], 1))]


def unchanged(emit, parent, new, args):
    return new


EXAMPLES = {
    "view_steps": Example(
        replace(RULES, view_steps={**VIEW_STEPS, aten.slice.Tensor: first_slice}),
        slice_is_written,
        (counted(4),),
    ),
    "inverses": Example(
        replace(RULES, inverses={**INVERSES, aten.t.default: unchanged}),
        transpose_is_written,
        (counted(2, 2), counted(2, 2)),
    ),
    "overwrites": Example(
        replace(RULES, overwrites=lambda op: True), tensor_is_written_twice, (counted(3),)
    ),
    "is_base": Example(
        replace(RULES, is_base=lambda uses, geometry: True),
        memory_around_an_input_is_written,
        (BUFFER[2:4], counted(6)),
    ),
    "is_current": Example(
        replace(RULES, is_current=lambda noted, version: True),
        view_is_read_before_and_after_a_write,
        (counted(3),),
    ),
    "must_apply": Example(
        replace(RULES, must_apply=lambda queued, value: value is None),
        view_is_read_after_a_write,
        (counted(3),),
    ),
    "base_strides": Example(
        replace(RULES, base_strides=lambda geometry, value: value.stride()),
        expanded_tensor_is_filled,
        (counted(3, 1),),
    ),
    "as_strided_offset": Example(
        replace(
            RULES,
            as_strided_offset=lambda geometry, start: (
                geometry.offset * geometry.dtype.itemsize // start.itemsize
            ),
        ),
        inputs_of_two_dtypes,
        (BUFFER[:8], BUFFER.view(torch.float64)[1:3]),
    ),
    "result_strides": Example(
        replace(RULES, result_strides=lambda geometry: contiguous_strides(geometry.sizes)),
        transpose_is_added,
        (counted(2, 3),),
    ),
}


def test_each_rule_has_an_example():
    of_training = {"functional_form", "detaches"}  # see test_training
    assert list(EXAMPLES) == [rule.name for rule in fields(Rules) if rule.name not in of_training]


@pytest.mark.parametrize("rule", EXAMPLES)
def test_by_a_wrong_rule_a_program_comes_out_wrong_that_is_right_by_the_right_one(rule):
    example = EXAMPLES[rule]

    def compiled(rules):
        return functionalize(example.program, *afresh(example.inputs), rules=rules)

    def seen(program):
        inputs = afresh(example.inputs)
        storages = [tensor.untyped_storage() for tensor in inputs]
        return seen_at_end(program, inputs), [storage.tolist() for storage in storages]

    assert seen(compiled(RULES)) == seen(example.program)
    assert seen(compiled(example.wrong)) != seen(example.program)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_overlapping_items_whose_scalar_is_rounded(dtype):
    """Such a call is made on copies; each item is written before the next is read."""

    def program(x):
        torch._foreach_mul_([x[1:], x[:2]], 0.3)
        return x + 2

    x, y = (torch.arange(3.0).to(dtype) for _ in range(2))
    assert torch.equal(functionalize(program, x.clone())(x), program(y))
    assert torch.equal(x, y)
