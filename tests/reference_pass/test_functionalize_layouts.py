"""Layouts after functionalization: strides, lazy bits, and storages, as in eager."""

import itertools

import pytest
import torch
from torch import fx

from aliasproof.reference_pass import pipeline
from tests.reference_pass.scene import (
    afresh,
    assert_alike,
    complex_counted,
    counted,
    names,
    programs_of,
)

aten = torch.ops.aten
VIEWS = ("alias", "copy")
BITS = [aten._neg_view.default, aten._conj.default]
MASK = torch.ones(2, dtype=torch.bool).as_strided((1, 2), (1, 1))
ODD = counted(3)  # of an odd number of elements; the whole storage is visible
TWO = torch.tensor([-1.0, 2.0])


def assert_as_in_eager(program, inputs, views="alias") -> None:
    compiled = pipeline(fx.symbolic_trace(program), *afresh(inputs), views=views)
    assert_alike(compiled, program, *inputs)


# As graphs: a trace would resolve lazy bits.
PROGRAMS = programs_of(
    """
# --- strides of dimensions of size one do not forbid a view as another dtype ----------------------

a_view_without_elements(x): torch.empty(0).as_strided((1, 0), (0, 1))
    return aten.view.dtype(aten.view.default(x, [1, 0]), torch.float64)

a_sum(x): torch.arange(8.0).as_strided((1, 4), (2, 1))
    return aten.view.dtype(aten.add.Scalar(x, 1), torch.complex64)

a_negative(x): torch.arange(4.0).as_strided((2, 1, 2), (2, 7, 1))
    return aten.view.dtype(aten.neg.default(x), torch.float64)

what_is_clamped(x): torch.arange(4).as_strided((2, 1), (1, 7))
    return aten.view.dtype(aten.clamp.default(x, -1), torch.int32)

what_is_filled(x, mask): counted(), MASK
    return aten.view.dtype(aten.masked_fill.Scalar(x, mask, 0), torch.complex64)

# --- storages -------------------------------------------------------------------------------------

a_reshape_that_copies_in_eager_is_a_copy(x): counted(2)
    fresh = aten.add.Scalar(x, 0)
    wide = aten.expand.default(fresh, [3, 2])
    aten.zero_.default(wide)
    return aten.reshape.default(wide, [6]), fresh

a_scatter_by_as_strided_has_the_memory_behind_its_operand(x): complex_counted(2)
    real = aten.real.default(x)
    scatter = aten.as_strided_scatter.default(real, real, [2], [2], 1)
    # What this composite does is not known, so all of the storage must be as in eager.
    aten.feature_alpha_dropout.default(scatter, 0.0, False)
    return scatter

a_scatter_by_as_strided_has_the_memory_that_its_operand_had(x): counted(2)
    scattered = x.as_strided_scatter(x[:1] + 5, [1], [0])
    aten.set_.default(x)  # it shows another storage from here on, which has no bytes
    return scattered

the_result_of_a_scatter_by_as_strided_may_be_set_to_another_storage(x): counted(2)
    part = aten.slice.Tensor(x, 0, 1)
    made = aten.as_strided_scatter.default(part, x, [2], [1], 0)
    around = aten.as_strided.default(made, [2], [1], 0)
    aten.set_.default(made)
    return made, around

# An input at an odd offset is dead once its new contents are stored elsewhere. What is seen as a
# larger dtype is not put there.

seen_as_complex(x, y): ODD[1:], ODD[:1].view(())
    x[1:].add_(1)
    more = x + 1
    return torch.view_as_complex(more) + 1

seen_as_int64(x, y): ODD[1:], ODD[:1].view(())
    x[1:].add_(1)
    more = x + 1
    return more.view(torch.int64) + 1

# --- lazy bits ------------------------------------------------------------------------------------

an_as_strided_copy_of_a_conjugated_view(x): complex_counted(6)
    view = aten._conj.default(aten.slice.Tensor(x, 0, 2, 5))
    return [aten.as_strided_copy.default(view, [2], [1], *offset) for offset in ((), (1,))]

an_as_strided_copy_of_a_conjugated_view_that_was_written(x): complex_counted(6)
    view = aten._conj.default(aten.slice.Tensor(x, 0, 2, 5))
    aten.mul_.Tensor(view, 3)
    return [aten.as_strided_copy.default(view, [2], [1], *offset) for offset in ((), (1,))]

a_tensor_and_a_lazily_negative_view_of_it_are_written(x, operand): torch.tensor(-3.0), TWO
    negative = aten._neg_view.default(x)
    aten.aminmax.out(operand, dim=0, min=negative, max=x)
    return negative, aten.mul.Tensor(x, 2)

noise_for_a_lazily_negative_view_of_it(x): torch.tensor(-3.0)
    negative = aten._neg_view.default(x)
    aten.rrelu_with_noise_.default(negative, x, 0.1, 0.3, False)
    return negative, aten.mul.Tensor(x, 2)

drawn_noise_for_a_lazily_negative_view_of_it(x): torch.tensor(-3.0)
    negative = aten._neg_view.default(x)
    aten.rrelu_with_noise_.default(negative, x, 0.1, 0.3, True)
    return negative, aten.mul.Tensor(x, 2)

a_result_that_does_not_become_a_conjugate_view(x): complex_counted(2)
    conjugate = aten._conj.default(aten.mul.Tensor(x, 2))
    return aten.view_as_real.default(aten.add.Tensor(conjugate, 1))

# There is no kernel that negates float8.
the_bits_are_resolved_in_the_dtype_of_the_source(x, y): counted(3), counted(3).to(torch.float8_e5m2)
    aten._foreach_copy_.default([y], [aten._neg_view.default(x)])
    return aten._to_copy.default(y, dtype=torch.float32)
""",
    globals(),
    lambda *inputs: inputs,
)


@pytest.mark.parametrize("views", VIEWS)
@pytest.mark.parametrize(("program", "inputs"), PROGRAMS, ids=names(PROGRAMS))
def test_layouts_are_as_in_eager(program, inputs, views) -> None:
    assert_as_in_eager(program, inputs, views)


def test_a_scatter_of_a_data_dependent_size_is_reinplaced_or_refused() -> None:
    def program(mask):
        part = aten.slice.Tensor(aten.index.Tensor(mask, [mask]), 0, 1, 2)
        return aten.slice_scatter.default(aten.add.Scalar(mask, 0), part, 0, 2)

    assert_as_in_eager(program, (torch.tensor([False, True, True]),))


@pytest.mark.parametrize(
    "op", [aten.conj, aten.adjoint, aten.real, aten.imag, aten.resolve_conj], ids=str
)
def test_composite_views_of_lazy_bits_are_as_in_eager(op, subtests) -> None:
    x = complex_counted(2, 3)
    operands = ((x, None), (x, aten._conj), (x.conj(), None), (x.conj(), aten._neg_view))
    for (given, bit), written, views in itertools.product(operands, (False, True), VIEWS):
        with subtests.test(bit=bit, conjugated=given.is_conj(), written=written, views=views):
            assert_as_in_eager(composite_view(op, bit, written), (given,), views)


def composite_view(op, bit, written):
    def program(operand):
        operand = operand if bit is None else bit.default(operand)
        view = op.default(operand)
        if written:
            aten.mul_.Tensor(view, 3)
        return view, aten.mul.Tensor(view, 2), operand

    return program


# --- calls on tensors with lazy bits: eager resolves the bits before the kernel runs --------------


@pytest.mark.parametrize("views", VIEWS)
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

    assert_as_in_eager(program, (complex_counted(3), complex_counted(3) * 5), views)


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
    for bit, offset, views in itertools.product([*BITS, None], [(), (1,)], VIEWS):
        with subtests.test(bit=bit, offset=offset, views=views):
            assert_as_in_eager(scatters(operand, offset, bit), (complex_counted(9),), views)


def scatters(operand, offset, bit):
    def program(x):
        base = operand(x) if bit is None else bit(operand(x))
        made = aten.as_strided_scatter.default(
            base, aten.slice.Tensor(x, 0, 0, 2), [2], [1], *offset
        )
        return made, aten.as_strided.default(made, [3], [1], 0)

    return program


DTYPES = [(torch.float16, torch.float32), (torch.float32, torch.float16)]


@pytest.mark.parametrize("views", VIEWS)
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
    """`copy_` between these dtypes ignores the lazy negative bit. `copy` resolves it."""

    def program(x, y):
        return call(aten.clone.default(x), aten._neg_view.default(y))

    to, source = (counted(3).to(dtype) for dtype in dtypes)
    assert_as_in_eager(program, (to, source), views)
