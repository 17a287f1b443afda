"""Calls on lazily negated and conjugated tensors: eager resolves the bits before the kernel runs.

The programs are graphs of ATen calls. A trace would have the resolved tensors as calls.
"""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import fx

from aliasproof.reference_pass import pipeline
from tests.reference_pass.scene import afresh, complex_counted, counted, seen_at_end

aten = torch.ops.aten
BITS = [aten._neg_view.default, aten._conj.default]
VIEWS = pytest.mark.parametrize("views", ["alias", "copy"])


def is_as_in_eager(program, inputs, views) -> bool:
    graph = fx.symbolic_trace(program)
    compiled = pipeline(graph, *afresh(inputs), views=views)
    return seen_at_end(compiled, afresh(inputs)) == seen_at_end(program, afresh(inputs))


@VIEWS
@pytest.mark.parametrize("bit", BITS, ids=str)
@pytest.mark.parametrize(
    "call",
    [
        lambda x, y, lazy: aten._foreach_mul_.List([x, y], [lazy, lazy]),
        lambda x, y, lazy: aten._foreach_add_.List([y, x], [lazy, lazy]),
        lambda x, y, lazy: aten._foreach_copy_.default([x, y], [y, lazy]),
    ],
)
def test_a_foreach_call_resolves_lazy_bits_before_its_first_item(call, bit, views) -> None:
    def program(x, y):
        lazy = bit(x)
        call(x, y, lazy)
        return lazy, aten.add.Tensor(x, y)

    assert is_as_in_eager(program, (complex_counted(3), complex_counted(3) * 5), views)


@VIEWS
def test_the_bits_are_resolved_in_the_dtype_of_the_source(views) -> None:
    def program(x, y):
        aten._foreach_copy_.default([y], [aten._neg_view.default(x)])
        return aten._to_copy.default(y, dtype=torch.float32)

    # There is no kernel that negates float8.
    inputs = counted(3), torch.ones(3).to(torch.float8_e5m2)
    assert is_as_in_eager(program, inputs, views)


@pytest.mark.parametrize(
    "operand",
    [
        lambda x: aten.as_strided.default(x, [3], [0], 1),
        lambda x: aten.slice.Tensor(x, 0, 1, 9, 2),
        lambda x: aten.slice.Tensor(x, 0, 1),
        lambda x: x,
    ],
    ids=["repeats", "gaps", "offset", "whole"],
)
def test_a_scatter_by_as_strided_is_into_a_copy_of_the_operand(operand, subtests) -> None:
    for bit, offset, views in itertools.product([*BITS, None], [(), (1,)], ["alias", "copy"]):
        with subtests.test(bit=bit, offset=offset, views=views):
            assert is_as_in_eager(scatters(operand, offset, bit), (complex_counted(9),), views)


def scatters(operand, offset, bit):
    def program(x):
        base = operand(x) if bit is None else bit(operand(x))
        made = aten.as_strided_scatter.default(
            base, aten.slice.Tensor(x, 0, 0, 2), [2], [1], *offset
        )
        return made, aten.as_strided.default(made, [3], [1], 0)

    return program


@VIEWS
def test_the_result_of_a_scatter_by_as_strided_may_be_set_to_another_storage(views) -> None:
    def program(x):
        part = aten.slice.Tensor(x, 0, 1)
        made = aten.as_strided_scatter.default(part, x, [2], [1], 0)
        around = aten.as_strided.default(made, [2], [1], 0)
        aten.set_.default(made)
        return made, around

    assert is_as_in_eager(program, (counted(2),), views)


DTYPES = [(torch.float16, torch.float32), (torch.float32, torch.float16)]


@VIEWS
@pytest.mark.parametrize("dtypes", DTYPES)
@pytest.mark.parametrize(
    "call",
    [
        aten.copy.default,
        aten.slice_scatter.default,
        lambda x, source: aten.as_strided_scatter.default(x, source, [3], [1]),
    ],
    ids=["copy", "slice_scatter", "as_strided_scatter"],
)
def test_a_copy_that_would_lose_the_sign_in_place_is_not_in_place(call, dtypes, views) -> None:
    """`copy_` between these dtypes does not ask for the lazy negative bit. `copy` resolves it."""

    def program(x, y):
        return call(aten.clone.default(x), aten._neg_view.default(y))

    to, source = (counted(3).to(dtype) for dtype in dtypes)
    assert is_as_in_eager(program, (to, source), views)
