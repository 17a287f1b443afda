"""Layouts after functionalization: strides, lazy bits, and storages, as in eager."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import fx

from aliasproof.reference_pass import functionalize, pipeline
from tests.reference_pass.scene import afresh, complex_counted, counted, seen_at_end

aten = torch.ops.aten


def test_the_stride_of_a_dimension_of_size_one_of_a_masked_fill_is_as_in_eager() -> None:
    graph = fx.Graph()
    x, mask = graph.placeholder("x"), graph.placeholder("mask")
    filled = graph.call_function(aten.masked_fill.Scalar, (x, mask, 0))
    graph.output(graph.call_function(aten.view.dtype, (filled, torch.complex64)))
    inputs = counted(), torch.ones(2, dtype=torch.bool).as_strided((1, 2), (1, 1))
    done = functionalize(fx.GraphModule(torch.nn.Module(), graph), *inputs)
    assert torch.equal(done(*inputs), torch.zeros(1, 1, dtype=torch.complex64))


@pytest.mark.parametrize(
    ("op", "args", "dtype", "given"),
    [
        (aten.view.default, ([1, 0],), torch.float64, torch.empty(0).as_strided((1, 0), (0, 1))),
        (aten.add.Scalar, (1,), torch.complex64, torch.arange(8.0).as_strided((1, 4), (2, 1))),
        (aten.neg.default, (), torch.float64, torch.arange(4.0).as_strided((2, 1, 2), (2, 7, 1))),
        (aten.clamp.default, (-1,), torch.int32, torch.arange(4).as_strided((2, 1), (1, 7))),
    ],
)
def test_strides_of_dimensions_of_size_one_do_not_forbid_a_view_as_another_dtype(
    op, args, dtype, given
) -> None:
    graph = fx.Graph()
    value = graph.call_function(op, (graph.placeholder("x"), *args))
    graph.output(graph.call_function(aten.view.dtype, (value, dtype)))
    module = fx.GraphModule(torch.nn.Module(), graph)
    assert torch.equal(pipeline(module, given)(given), module(given))


def test_a_reshape_that_copies_in_eager_is_a_copy() -> None:
    graph = fx.Graph()
    fresh = graph.call_function(aten.add.Scalar, (graph.placeholder("x"), 0))
    wide = graph.call_function(aten.expand.default, (fresh, [3, 2]))
    graph.call_function(aten.zero_.default, (wide,))
    graph.output((graph.call_function(aten.reshape.default, (wide, [6])), fresh))
    copied, original = pipeline(fx.GraphModule(torch.nn.Module(), graph), counted(2))(counted(2))
    assert copied.untyped_storage()._cdata != original.untyped_storage()._cdata


def test_a_scatter_of_a_data_dependent_size_is_reinplaced_or_refused() -> None:
    graph = fx.Graph()
    mask = graph.placeholder("mask")
    base = graph.call_function(aten.add.Scalar, (mask, 0))
    chosen = graph.call_function(aten.index.Tensor, (mask, [mask]))
    part = graph.call_function(aten.slice.Tensor, (chosen, 0, 1, 2))
    graph.output(graph.call_function(aten.slice_scatter.default, (base, part, 0, 2)))
    module, given = fx.GraphModule(torch.nn.Module(), graph), torch.tensor([False, True, True])
    assert torch.equal(pipeline(module, given)(given.clone()), module(given))


@pytest.mark.parametrize(
    "op", [aten.conj, aten.adjoint, aten.real, aten.imag, aten.resolve_conj], ids=str
)
def test_composite_views_of_lazy_bits_are_as_in_eager(op, subtests) -> None:
    cases = itertools.product(
        ([], [aten._conj], [aten._neg_view], [aten._conj, aten._neg_view]),
        (complex_counted(2, 3), complex_counted(2, 3).conj()),
        (False, True),
        ("alias", "copy"),
    )
    for bits, given, written, views in cases:
        with subtests.test(bits=bits, conjugated=given.is_conj(), written=written, views=views):
            check_composite_view(op, bits, given, written, views)


def check_composite_view(op, bits, given, written, views) -> None:
    graph = fx.Graph()
    operand = graph.placeholder("x")
    for bit in bits:
        operand = graph.call_function(bit.default, (operand,))
    view = graph.call_function(op.default, (operand,))
    if written:
        graph.call_function(aten.mul_.Tensor, (view, 3))
    graph.output((view, graph.call_function(aten.mul.Tensor, (view, 2)), operand))
    module = fx.GraphModule(torch.nn.Module(), graph)
    compiled = pipeline(module, *afresh((given,)), views=views)
    assert seen_at_end(compiled, afresh((given,))) == seen_at_end(module, afresh((given,)))


@pytest.mark.parametrize("views", ["alias", "copy"])
@pytest.mark.parametrize("written", [False, True])
def test_an_as_strided_copy_of_a_conjugated_view_is_as_in_eager(written, views) -> None:
    graph = fx.Graph()
    part = graph.call_function(aten.slice.Tensor, (graph.placeholder("x"), 0, 2, 5))
    view = graph.call_function(aten._conj.default, (part,))
    if written:
        graph.call_function(aten.mul_.Tensor, (view, 3))
    graph.output(
        [
            graph.call_function(aten.as_strided_copy.default, (view, [2], [1], *offset))
            for offset in ((), (1,))
        ]
    )
    module = fx.GraphModule(torch.nn.Module(), graph)
    compiled = pipeline(module, complex_counted(6), views=views)
    for actual, expected in zip(
        compiled(complex_counted(6)), module(complex_counted(6)), strict=True
    ):
        assert torch.equal(actual, expected)


@pytest.mark.parametrize("views", ["alias", "copy"])
def test_a_scatter_by_as_strided_has_the_memory_behind_its_operand(views) -> None:
    graph = fx.Graph()
    real = graph.call_function(aten.real.default, (graph.placeholder("x"),))
    scatter = graph.call_function(aten.as_strided_scatter.default, (real, real, [2], [2], 1))
    # What this composite does is not known, so all of the storage must be as in eager.
    graph.call_function(aten.feature_alpha_dropout.default, (scatter, 0.0, False))
    graph.output(scatter)
    module = fx.GraphModule(torch.nn.Module(), graph)
    compiled = pipeline(module, complex_counted(2), views=views)
    assert torch.equal(compiled(complex_counted(2)), module(complex_counted(2)))


@pytest.mark.parametrize("views", ["alias", "copy"])
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
    graph = fx.Graph()
    x, operand = graph.placeholder("x"), graph.placeholder("operand")
    negative = graph.call_function(aten._neg_view.default, (x,))
    if op is aten.aminmax.out:
        graph.call_function(op, (operand,), {"dim": 0, "min": negative, "max": x})
    else:
        graph.call_function(op, (negative, x, *options))
    graph.output((negative, graph.call_function(aten.mul.Tensor, (x, 2))))
    module = fx.GraphModule(torch.nn.Module(), graph)
    inputs = torch.tensor(-3.0), torch.tensor([-1.0, 2.0])
    ends = []
    for program in (module, pipeline(module, *inputs)):
        torch.manual_seed(0)
        ends.append(seen_at_end(program, [each.clone() for each in inputs]))
    assert ends[0] == ends[1]


@pytest.mark.parametrize("views", ["alias", "copy"])
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
