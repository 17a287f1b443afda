"""A graph with symbolic sizes is right for inputs that satisfy its guards, and refuses others."""

import copy

import pytest
import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

import aliasproof.ir.custom_operators  # noqa: F401 - it registers them
from aliasproof.reference_pass import Refused, functionalize, pipeline, reinplace, remove_noops
from tests.reference_pass.scene import (
    afresh,
    assert_alike,
    counted,
    names,
    programs_of,
    refused_before,
)

aten = torch.ops.aten


def writes_a_reshape(x):
    x.t().reshape(-1).add_(1)  # a copy, except for one column
    return x * 1


def branches(x):
    return x + 1 if x.shape[0] > 3 else x * 2


def loops(x):
    return sum((part.sum() for part in x.split(2)), x.sum())


@pytest.mark.parametrize(
    ("function", "other", "guard"),
    [
        (writes_a_reshape, counted(4, 1), "2 <= .*size"),
        (branches, counted(2, 3), "4 <= .*size"),
        (loops, counted(8, 3), "// 2.* == 2"),
        (lambda x: x.contiguous().add_(1), counted(3, 4).t(), "stride"),
        (lambda x: x + 1, counted(4), "1 dimensions"),
    ],
)
def test_a_graph_refuses_inputs_that_break_a_guard(function, other, guard):
    def named(x):
        return function(x)

    compiled = pipeline(named, counted(4, 3), sizes="symbolic")
    assert_alike(compiled, function, counted(4, 5))
    with pytest.raises(Refused, match=guard):
        compiled(other)


def test_guards_stay_when_they_replace_symbols_by_counted():
    def specialised(x):
        return x + 1 if len(x) == 4 else x

    def compares(x, y):
        larger = x.shape[0] > y.shape[0]
        return x + 1 if larger and x.shape[0] == 8 else x

    with pytest.raises(Refused, match=r"size\(\)\[0\] == 4"):
        pipeline(specialised, counted(4), sizes="symbolic")(counted(5))
    # One symbol remains, and a guard on both was recorded before the other symbol was replaced.
    compiled = pipeline(compares, counted(8), counted(5), sizes="symbolic")
    assert torch.equal(compiled(counted(8), counted(4)), counted(8) + 1)
    with pytest.raises(Refused, match="size"):
        compiled(counted(8), counted(9))


def test_calls_without_a_fake_kernel_for_symbols_are_refused():
    with pytest.raises(Refused, match=r"geqrf.* has no kernel for tensors without data"):
        pipeline(torch.geqrf, counted(3, 3), sizes="symbolic")
    with refused_before("2.14", r"a resize_ cannot be traced for a tensor of symbolic size"):
        resized = pipeline(lambda x: x.resize_(2, 2), counted(4, 3), sizes="symbolic")
        assert_alike(resized, lambda x: x.resize_(2, 2), counted(5, 3))


SHARED = torch.ones(3)
SQUARES = [[counted(size, size)] for size in (4, 6, 10)]
HALVES = torch.arange(3).bfloat16()
FLOATS = torch.arange(11.0, 45.0)


def overlapping(start):
    base = counted(64)
    return base.as_strided((2, 3), (5, 1)), base[start : start + 6].view(2, 3)


# Each program is traced for the first inputs, and called with all of them.
FOR_ALL_SIZES = programs_of(
    """
random_numbers_by_a_fake_kernel_that_takes_no_symbols_in_cpp(x): [counted(4, 3)], [counted(6, 5)]
    return x.to(torch.bfloat16).normal_(-2, 0.5)

copies_of_several_views(x): [counted(4, 3)], [counted(5, 3)]
    return torch.unbind_copy(x.t())

view_copy_copies_what_no_view_shows(x): [counted(2, 5)], [counted(4, 3)]
    return aten.view_copy.default(x.t(), [2, -1])

copies_to_itself(x): [counted(3).expand(2, 3)]
    x.copy_(x)
    return x + 1

scatters_around(x): [counted(9)[3:].view(2, 3)]
    return x.as_strided_scatter(x.as_strided((9,), (1,), 0) * 2, (9,), (1,), 0)

scatters_around_a_size_of_one(x): [counted(9)[:1]]
    return x.as_strided_scatter(x.as_strided((9,), (1,), 0) * 2, (9,), (1,), 0)

set_to_a_part_of_a_storage(x): [counted(2, 4, 3, 3)]
    y = x * 1
    return aten.set_.source_Tensor_storage_offset(y, x, 2, [2, 2], [2, 1]) + 1

two_dtypes_whose_sizes_do_not_divide_the_storage(x, y): [HALVES[::2], as_int32(HALVES)]
    y.add_(1)
    return x + 1

a_symbol_that_a_guard_has_made_a_number(x, y): [TWO, FLOATS[32:34]]
    y.add_(1)
    torch.ops.aliasproof.add_twice(y, x)
    return x.resize_as_(y)

one_tensor_for_two(x, y): [counted(3), counted(3)], [SHARED, SHARED]
    return x + y

of_all_offsets(x, y): overlapping(7), overlapping(3), overlapping(30)
    y.add_(1)
    return x + 1

drops_nothing(x): [counted(4)], [counted(5)]
    y = x + 1
    aten.dropout.default(y, 0.5, False).add_(1)
    return y

storages_of_all_sizes(x): [counted(10)[:4]], [counted(9)[:5]], [counted(12)[:5]]
    return x * 2

slices(x): *SQUARES
    view = x[1:]
    view.add_(1)
    x.view(-1)[::2].mul_(2)
    return view, x.t().contiguous()

halves(x): *SQUARES
    low, high = x.split(x.shape[0] // 2)
    low.add_(high)
    turned = x.transpose(0, 1)
    turned[0].zero_()
    return turned

diagonal_and_expand(x): *SQUARES
    x.diagonal().fill_(3)
    fresh = torch.zeros(x.shape[0], x.shape[1])
    fresh[:, 1:].copy_(x[:, 1:])
    x.expand(2, *x.shape).zero_()
    return fresh, x.select(1, -1)

windows(x): *SQUARES
    x.unfold(0, 2, 1).zero_()
    return x.reshape(-1)

transposed_in_place(x): *SQUARES
    x.t_()
    return x + 1

asked_after_a_change(x): *SQUARES
    x.unsqueeze_(0)
    return x.new_zeros(x.shape[1], 1), x.squeeze_(0).sum(1)

scaled_sizes(x): *SQUARES
    return torch.nn.functional.interpolate(x[None], scale_factor=1.5)  # truncates a size
""",
    {
        **globals(),
        "TWO": torch.tensor([1.0, 2.0]),
        "as_int32": lambda x: torch.empty(0, dtype=torch.int32).set_(
            x.untyped_storage(), 0, (), ()
        ),
    },
    lambda *calls: calls,
)


@pytest.mark.parametrize("views", ["alias", "copy"])
@pytest.mark.parametrize(("program", "calls"), FOR_ALL_SIZES, ids=names(FOR_ALL_SIZES))
def test_one_graph_is_right_for_all_sizes(program, calls, views):
    compiled = pipeline(program, *afresh(calls[0]), views=views, sizes="symbolic")
    for inputs in calls:
        assert_alike(compiled, program, *inputs)


def test_an_operator_that_needs_numbers_is_refused_for_symbolic_sizes():
    with pytest.raises(Refused, match="trace it with fixed sizes"):
        pipeline(lambda x: torch.abs(x, out=x), counted(3) * 1j, sizes="symbolic")
    index = torch.zeros(3, dtype=torch.int64)

    def program(x, out):
        return torch.scatter_add(x, 0, index, x, out=out)

    with refused_before("2.14", "trace it with fixed sizes"):
        compiled = pipeline(program, counted(3), counted(3), sizes="symbolic")
        assert_alike(compiled, program, counted(3), counted(3))


def test_where_a_view_is_tried_out_the_storage_stays():
    def program(x):
        y = x + 1
        y.view(torch.int64)
        return y.add_(1)

    x = counted(3).as_strided((2, 2, 2), (0, 1, 1))
    assert_alike(pipeline(program, x, sizes="symbolic"), program, x)


def test_a_graph_in_which_a_tensor_is_copied_to_itself_has_symbols_too():
    graph, given = fx.symbolic_trace(lambda x: aten.copy_.default(x, x)), counted(3).expand(2, 3)
    compiled = pipeline(graph, FakeTensorMode(shape_env=ShapeEnv()).from_tensor(given))
    assert torch.equal(compiled(given), given)


def test_a_copy_of_a_graph_has_its_guards_after_the_next_pass():
    functional = functionalize(branches, counted(4, 3), sizes="symbolic")
    compiled = reinplace(copy.deepcopy(remove_noops(copy.deepcopy(functional))))
    for graph_module in (functional, compiled):
        assert torch.equal(graph_module(counted(7, 2)), counted(7, 2) + 1)
        with pytest.raises(Refused, match="4 <= "):
            graph_module(counted(2, 3))


def writes_around(x):
    x.as_strided((6,), (1,)).add_(1)
    return x * 2


def test_a_graph_that_uses_the_memory_around_an_input_is_for_storages_of_one_size():
    compiled = pipeline(writes_around, counted(10)[:4], sizes="symbolic")
    assert_alike(compiled, writes_around, counted(10)[:5])
    with pytest.raises(Refused, match=r"storage of 48 bytes, .* was traced for storages of 40"):
        compiled(counted(12)[:4])

    # The storage of the sample ends where the sample does.
    compiled = pipeline(writes_around, counted(6), sizes="symbolic")
    assert_alike(compiled, writes_around, counted(7))
    with pytest.raises(Refused, match=r"storage of 32 bytes, .* was traced for storages of 28"):
        compiled(counted(8)[:7])


def test_a_base_that_is_flattened_is_for_storages_of_one_size():
    def writes(x):
        x.add_(1)
        return x * 2

    # For some sizes, these dims may overlap each other.
    compiled = pipeline(writes, torch.zeros(13).as_strided((2, 2, 2), (6, 3, 1)), sizes="symbolic")
    with pytest.raises(Refused, match="uses memory around it"):
        compiled(torch.zeros(37).as_strided((3, 3, 3), (12, 4, 1)))


def test_inputs_that_share_a_storage_end_where_it_ends():
    def program(x, y):
        torch.ops.aliasproof.double(x)
        return y * 2

    compiled = pipeline(program, *slices(counted(5)), sizes="symbolic")
    assert_alike(compiled, program, *slices(counted(7)))
    with pytest.raises(Refused, match=r"storage of 36 bytes, .* was traced for storages of 28"):
        compiled(*slices(counted(9)[:7]))


def slices(x):
    return x[:-1], x[1:]


def test_a_graph_of_fixed_sizes_checks_nothing():
    assert not pipeline(branches, counted(4, 3))._forward_pre_hooks


@pytest.mark.parametrize("constant", [0.5, -0.0, True, None, "sum", torch.float64])
@pytest.mark.parametrize("build", [pipeline, functionalize])
def test_arguments_that_are_constants_of_the_graph(build, constant):
    compiled = build(lambda x, _: x + 1, SHARED, constant, sizes="symbolic")
    assert torch.equal(compiled(torch.ones(5), constant), torch.ones(5) + 1)


@pytest.mark.parametrize("build", [pipeline, functionalize])
def test_a_graph_of_aten_calls_is_traced_for_other_sizes(build):
    """`reshape` is a view for some sizes only, which a graph of ATen calls may leave open."""

    def flattened(x, y):
        aten.add_.Tensor(aten.reshape.default(aten.t.default(x), [-1]), 1)
        return aten.add.Tensor(x, y)

    done = build(fx.symbolic_trace(flattened), counted(4, 3), counted(4, 3), sizes="symbolic")
    assert_alike(done, flattened, counted(5, 2), counted(5, 2))
    with pytest.raises(Refused, match=r"2 <= .*size"):
        done(counted(4, 1), counted(4, 1))


def test_a_size_of_zero_breaks_a_guard_that_divides_by_it():
    graph = pipeline(lambda x: x.chunk(2)[0] * 2, torch.ones(6, 2), sizes="symbolic")
    assert graph(torch.ones(4, 2)).shape == (2, 2)
    with pytest.raises(Refused, match="traced for inputs with"):
        graph(torch.ones(0, 2))
