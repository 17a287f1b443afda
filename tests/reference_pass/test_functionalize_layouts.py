"""Layouts after functionalization: strides, lazy bits, and storages, as in eager."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import fx

from aliasproof.reference_pass import pipeline
from tests.reference_pass.scene import afresh, complex_counted, counted, seen_at_end

aten = torch.ops.aten
VIEWS = ("alias", "copy")


def filled_as_complex(x, mask):
    return aten.view.dtype(aten.masked_fill.Scalar(x, mask, 0), torch.complex64)


@pytest.mark.parametrize(
    ("program", "given"),
    [
        (
            lambda x: aten.view.dtype(aten.view.default(x, [1, 0]), torch.float64),
            (torch.empty(0).as_strided((1, 0), (0, 1)),),
        ),
        (
            lambda x: aten.view.dtype(aten.add.Scalar(x, 1), torch.complex64),
            (torch.arange(8.0).as_strided((1, 4), (2, 1)),),
        ),
        (
            lambda x: aten.view.dtype(aten.neg.default(x), torch.float64),
            (torch.arange(4.0).as_strided((2, 1, 2), (2, 7, 1)),),
        ),
        (
            lambda x: aten.view.dtype(aten.clamp.default(x, -1), torch.int32),
            (torch.arange(4).as_strided((2, 1), (1, 7)),),
        ),
        (
            filled_as_complex,
            (counted(), torch.ones(2, dtype=torch.bool).as_strided((1, 2), (1, 1))),
        ),
    ],
)
def test_strides_of_dimensions_of_size_one_do_not_forbid_a_view_as_another_dtype(
    program, given
) -> None:
    module = fx.symbolic_trace(program)
    assert torch.equal(pipeline(module, *given)(*given), module(*given))


def test_a_reshape_that_copies_in_eager_is_a_copy() -> None:
    def program(x):
        fresh = aten.add.Scalar(x, 0)
        wide = aten.expand.default(fresh, [3, 2])
        aten.zero_.default(wide)
        return aten.reshape.default(wide, [6]), fresh

    copied, original = pipeline(fx.symbolic_trace(program), counted(2))(counted(2))
    assert copied.untyped_storage()._cdata != original.untyped_storage()._cdata


def test_a_scatter_of_a_data_dependent_size_is_reinplaced_or_refused() -> None:
    def program(mask):
        part = aten.slice.Tensor(aten.index.Tensor(mask, [mask]), 0, 1, 2)
        return aten.slice_scatter.default(aten.add.Scalar(mask, 0), part, 0, 2)

    given = torch.tensor([False, True, True])
    assert torch.equal(pipeline(fx.symbolic_trace(program), given)(given.clone()), program(given))


@pytest.mark.parametrize(
    "op", [aten.conj, aten.adjoint, aten.real, aten.imag, aten.resolve_conj], ids=str
)
def test_composite_views_of_lazy_bits_are_as_in_eager(op, subtests) -> None:
    x = complex_counted(2, 3)
    operands = ((x, None), (x, aten._conj), (x.conj(), None), (x.conj(), aten._neg_view))
    for (given, bit), written, views in itertools.product(operands, (False, True), VIEWS):
        with subtests.test(bit=bit, conjugated=given.is_conj(), written=written, views=views):
            check_composite_view(op, bit, given, written, views)


def check_composite_view(op, bit, given, written, views) -> None:
    def program(operand):
        operand = operand if bit is None else bit.default(operand)
        view = op.default(operand)
        if written:
            aten.mul_.Tensor(view, 3)
        return view, aten.mul.Tensor(view, 2), operand

    assert_as_in_eager(program, (given,), views)


def assert_as_in_eager(program, inputs, views="alias") -> None:
    compiled = pipeline(fx.symbolic_trace(program), *afresh(inputs), views=views)
    assert seen_at_end(compiled, afresh(inputs)) == seen_at_end(program, afresh(inputs))


@pytest.mark.parametrize("views", VIEWS)
@pytest.mark.parametrize("written", [False, True])
def test_an_as_strided_copy_of_a_conjugated_view_is_as_in_eager(written, views) -> None:
    def program(x):
        view = aten._conj.default(aten.slice.Tensor(x, 0, 2, 5))
        if written:
            aten.mul_.Tensor(view, 3)
        return [aten.as_strided_copy.default(view, [2], [1], *offset) for offset in ((), (1,))]

    assert_as_in_eager(program, (complex_counted(6),), views)


@pytest.mark.parametrize("views", VIEWS)
def test_a_scatter_by_as_strided_has_the_memory_behind_its_operand(views) -> None:
    def program(x):
        real = aten.real.default(x)
        scatter = aten.as_strided_scatter.default(real, real, [2], [2], 1)
        # What this composite does is not known, so all of the storage must be as in eager.
        aten.feature_alpha_dropout.default(scatter, 0.0, False)
        return scatter

    assert_as_in_eager(program, (complex_counted(2),), views)


@pytest.mark.parametrize("views", VIEWS)
def test_a_scatter_by_as_strided_has_the_memory_that_its_operand_had(views) -> None:
    """The operand shows another storage afterwards, which has no bytes."""

    def program(x: torch.Tensor) -> torch.Tensor:
        scattered = x.as_strided_scatter(x[:1] + 5, [1], [0])
        aten.set_.default(x)
        return scattered

    compiled = pipeline(program, counted(2), views=views)
    assert torch.equal(compiled(counted(2)), program(counted(2)))


@pytest.mark.parametrize(
    ("op", "options"),
    [
        (aten.rrelu_with_noise_.default, (0.1, 0.3, False)),
        (aten.rrelu_with_noise_.default, (0.1, 0.3, True)),
        (aten.aminmax.out, ()),
    ],
)
def test_a_call_may_write_a_tensor_and_a_lazily_negative_view_of_it(op, options) -> None:
    def program(x, operand):
        negative = aten._neg_view.default(x)
        if op is aten.aminmax.out:
            op(operand, dim=0, min=negative, max=x)
        else:
            op(negative, x, *options)
        return negative, aten.mul.Tensor(x, 2)

    inputs = torch.tensor(-3.0), torch.tensor([-1.0, 2.0])
    ends = []
    for compiled in (program, pipeline(fx.symbolic_trace(program), *inputs)):
        torch.manual_seed(0)
        ends.append(seen_at_end(compiled, [each.clone() for each in inputs]))
    assert ends[0] == ends[1]


@pytest.mark.parametrize("views", VIEWS)
@pytest.mark.parametrize("as_complex", [False, True])
def test_what_is_seen_as_a_larger_dtype_is_not_put_at_an_offset(as_complex, views) -> None:
    """An input at an odd offset is dead once its new contents are stored elsewhere."""

    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x[1:].add_(1)
        more = x + 1
        return torch.view_as_complex(more) + 1 if as_complex else more.view(torch.int64) + 1

    def inputs() -> tuple[torch.Tensor, torch.Tensor]:
        base = counted(3)
        return base[1:], base[:1].view(())  # the whole storage is seen

    compiled = pipeline(program, *inputs(), views=views)
    assert torch.equal(compiled(*inputs()), program(*inputs()))


# --- calls on tensors with lazy bits: eager resolves the bits before the kernel runs --------------


aten = torch.ops.aten
BITS = [aten._neg_view.default, aten._conj.default]


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


@pytest.mark.parametrize("views", VIEWS)
def test_the_bits_are_resolved_in_the_dtype_of_the_source(views) -> None:
    def program(x, y):
        aten._foreach_copy_.default([y], [aten._neg_view.default(x)])
        return aten._to_copy.default(y, dtype=torch.float32)

    # There is no kernel that negates float8.
    inputs = counted(3), torch.ones(3).to(torch.float8_e5m2)
    assert_as_in_eager(program, inputs, views)


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


@pytest.mark.parametrize("views", VIEWS)
def test_the_result_of_a_scatter_by_as_strided_may_be_set_to_another_storage(views) -> None:
    def program(x):
        part = aten.slice.Tensor(x, 0, 1)
        made = aten.as_strided_scatter.default(part, x, [2], [1], 0)
        around = aten.as_strided.default(made, [2], [1], 0)
        aten.set_.default(made)
        return made, around

    assert_as_in_eager(program, (counted(2),), views)


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
    """`copy_` between these dtypes does not ask for the lazy negative bit. `copy` resolves it."""

    def program(x, y):
        return call(aten.clone.default(x), aten._neg_view.default(y))

    to, source = (counted(3).to(dtype) for dtype in dtypes)
    assert_as_in_eager(program, (to, source), views)
