"""A graph with symbolic sizes is right for the inputs that meet its guards, and refuses others."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

import aliasproof.ir.custom_operators  # noqa: F401 - it registers them
from aliasproof.reference_pass import Refused, functionalize, pipeline, reinplace, remove_noops
from tests.reference_pass.scene import refused_before

aten = torch.ops.aten


def numbers(*sizes: int) -> Tensor:
    return torch.arange(float(torch.Size(sizes).numel())).view(sizes)


def writes_a_reshape(x):
    x.t().reshape(-1).add_(1)  # a copy, but for one column
    return x * 1


def branches(x):
    return x + 1 if x.shape[0] > 3 else x * 2


def loops(x):
    return sum((part.sum() for part in x.split(2)), x.sum())


@pytest.mark.parametrize(
    ("function", "other", "guard"),
    [
        (writes_a_reshape, numbers(4, 1), "2 <= .*size"),
        (branches, numbers(2, 3), "4 <= .*size"),
        (loops, numbers(8, 3), "// 2.* == 2"),
        (lambda x: x.contiguous().add_(1), numbers(3, 4).t(), "stride"),
        (lambda x: x + 1, numbers(4), "1 dimensions"),
    ],
)
def test_a_graph_refuses_inputs_that_break_a_guard(function, other, guard):
    def named(x):
        return function(x)

    compiled = pipeline(named, numbers(4, 3), sizes="symbolic")
    inputs = numbers(4, 5), numbers(4, 5)
    assert torch.equal(compiled(inputs[0]), function(inputs[1]))
    assert torch.equal(*inputs)
    with pytest.raises(Refused, match=guard):
        compiled(other)


def test_guards_stay_when_they_replace_symbols_by_numbers():
    def specialised(x):
        return x + 1 if len(x) == 4 else x

    def compares(x, y):
        larger = x.shape[0] > y.shape[0]
        return x + 1 if larger and x.shape[0] == 8 else x

    with pytest.raises(Refused, match=r"size\(\)\[0\] == 4"):
        pipeline(specialised, numbers(4), sizes="symbolic")(numbers(5))
    # One symbol is left, and a guard on both was noted before the other was replaced.
    compiled = pipeline(compares, numbers(8), numbers(5), sizes="symbolic")
    assert torch.equal(compiled(numbers(8), numbers(4)), numbers(8) + 1)
    with pytest.raises(Refused, match="size"):
        compiled(numbers(8), numbers(9))


def test_a_fake_kernel_that_takes_no_symbols_in_cpp():
    def draws(x):
        return x.to(torch.bfloat16).normal_(-2, 0.5)

    results = []
    for run in (pipeline(draws, numbers(4, 3), sizes="symbolic"), draws):
        torch.manual_seed(0)
        results.append(run(numbers(6, 5)))
    assert torch.equal(*results)


def test_copies_of_several_views_of_symbolic_size():
    def unbinds(x):
        return torch.unbind_copy(x.t())

    compiled = pipeline(unbinds, numbers(4, 3), sizes="symbolic")
    assert all(map(torch.equal, compiled(numbers(5, 3)), unbinds(numbers(5, 3))))


def test_calls_without_a_fake_kernel_for_symbols_are_refused():
    with pytest.raises(Refused, match=r"geqrf.* has no kernel for tensors without data"):
        pipeline(torch.geqrf, numbers(3, 3), sizes="symbolic")
    with refused_before("2.14", r"a resize_ cannot be traced for a tensor of symbolic size"):
        resized = pipeline(lambda x: x.resize_(2, 2), numbers(4, 3), sizes="symbolic")
        assert torch.equal(resized(numbers(5, 3)), numbers(5, 3).resize_(2, 2))


def copies_to_itself(x):
    x.copy_(x)
    return x + 1


def scatters_around(x):
    return x.as_strided_scatter(x.as_strided((9,), (1,), 0) * 2, (9,), (1,), 0)


@pytest.mark.parametrize(
    ("program", "layout"),
    [
        (copies_to_itself, numbers(3).expand(2, 3)),
        (scatters_around, numbers(9)[3:].view(2, 3)),
        (scatters_around, numbers(9)[:1]),
    ],
)
def test_fake_kernels_for_symbols_accept_what_eager_accepts(program, layout):
    compiled = pipeline(program, layout, sizes="symbolic")
    assert torch.equal(compiled(layout), program(layout))


def test_a_tensor_is_set_to_a_part_of_a_storage_of_symbolic_size():
    def program(x):
        y = x * 1
        set_to_part = torch.ops.aten.set_.source_Tensor_storage_offset
        return set_to_part(y, x, 2, [2, 2], [2, 1]) + 1

    compiled = pipeline(program, numbers(2, 4, 3, 3), sizes="symbolic")
    assert torch.equal(compiled(numbers(2, 4, 3, 3)), program(numbers(2, 4, 3, 3)))


def test_a_graph_in_which_a_tensor_is_copied_to_itself_has_symbols_too():
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.output(graph.call_function(torch.ops.aten.copy_.default, (x, x)))
    mode = FakeTensorMode(shape_env=ShapeEnv())
    compiled = pipeline(fx.GraphModule({}, graph), mode.from_tensor(numbers(3).expand(2, 3)))
    given = numbers(3).expand(2, 3)
    assert torch.equal(compiled(given), given)


def test_a_copy_of_a_graph_has_its_guards_after_the_next_pass():
    functional = functionalize(branches, numbers(4, 3), sizes="symbolic")
    compiled = reinplace(copy.deepcopy(remove_noops(copy.deepcopy(functional))))
    for graph_module in (functional, compiled):
        assert torch.equal(graph_module(numbers(7, 2)), numbers(7, 2) + 1)
        with pytest.raises(Refused, match="4 <= "):
            graph_module(numbers(2, 3))


def writes_around(x):
    x.as_strided((6,), (1,)).add_(1)
    return x * 2


def test_a_graph_that_uses_the_memory_around_an_input_is_for_storages_of_one_size():
    compiled = pipeline(writes_around, numbers(10)[:4], sizes="symbolic")
    ours, eager = numbers(10), numbers(10)
    assert torch.equal(compiled(ours[:5]), writes_around(eager[:5]))
    assert torch.equal(ours, eager)
    with pytest.raises(Refused, match=r"storage of 48 bytes, .* was traced for storages of 40"):
        compiled(numbers(12)[:4])

    # The storage of the sample ends where the sample ends.
    compiled = pipeline(writes_around, numbers(6), sizes="symbolic")
    assert torch.equal(compiled(numbers(7)), writes_around(numbers(7)))
    with pytest.raises(Refused, match=r"storage of 32 bytes, .* was traced for storages of 28"):
        compiled(numbers(8)[:7])


def test_a_base_that_is_flattened_is_for_storages_of_one_size():
    def writes(x):
        x.add_(1)
        return x * 2

    # Whether these dims overlap each other is not known for all sizes.
    compiled = pipeline(writes, torch.zeros(13).as_strided((2, 2, 2), (6, 3, 1)), sizes="symbolic")
    with pytest.raises(Refused, match="uses memory around it"):
        compiled(torch.zeros(37).as_strided((3, 3, 3), (12, 4, 1)))


def test_inputs_that_share_a_storage_end_where_it_ends():
    def program(x, y):
        torch.ops.aliasproof.double(x)
        return y * 2

    compiled = pipeline(program, *slices(numbers(5)), sizes="symbolic")
    assert torch.equal(compiled(*slices(numbers(7))), program(*slices(numbers(7))))
    with pytest.raises(Refused, match=r"storage of 36 bytes, .* was traced for storages of 28"):
        compiled(*slices(numbers(9)[:7]))


def slices(x):
    return x[:-1], x[1:]


def test_other_graphs_are_for_storages_of_all_sizes():
    compiled = pipeline(lambda x: x * 2, numbers(10)[:4], sizes="symbolic")
    for storage in (numbers(9), numbers(12)):
        assert torch.equal(compiled(storage[:5]), storage[:5] * 2)


def test_a_graph_of_fixed_sizes_checks_nothing():
    assert not pipeline(branches, numbers(4, 3))._forward_pre_hooks


def test_the_storage_of_an_input_stays_as_it_is_where_a_view_is_tried_out():
    def program(x):
        y = x + 1
        y.view(torch.int64)
        return y.add_(1)

    x = torch.arange(3.0).as_strided((2, 2, 2), (0, 1, 1))
    assert torch.equal(pipeline(program, x, sizes="symbolic")(x), x + 2)


def test_inputs_of_two_dtypes_in_a_storage_of_symbolic_size_that_is_no_multiple_of_either():
    def program(x, y):
        y.add_(1)
        return x + 1

    def inputs():
        x = torch.arange(3).bfloat16()
        y = torch.empty(0, dtype=torch.int32).set_(x.untyped_storage(), 0, (), ())
        return x[::2], y

    compiled, given, expected = pipeline(program, *inputs(), sizes="symbolic"), inputs(), inputs()
    assert torch.equal(compiled(*given), program(*expected))
    assert all(map(torch.equal, given, expected))


def test_a_symbol_that_a_guard_has_made_a_number_is_that_number_in_the_graph():
    def program(x, y):
        y.add_(1)
        torch.ops.aliasproof.add_twice(y, x)
        x.resize_as_(y)

    def inputs():
        return torch.tensor([1.0, 2.0]), torch.arange(11.0, 45.0)[32:34]

    compiled, given, expected = pipeline(program, *inputs(), sizes="symbolic"), inputs(), inputs()
    compiled(*given)
    program(*expected)
    assert all(map(torch.equal, given, expected))


def adds_to_the_second(x, y):
    y.add_(1)
    return x * 2


SHARED = torch.ones(3)


@pytest.mark.parametrize(
    ("program", "traced", "given", "reason"),
    [
        (adds_to_the_second, (SHARED, SHARED), (torch.ones(3), torch.ones(3)), "shared a storage"),
        (adds_to_the_second, (torch.ones(3), torch.ones(3)), (SHARED, SHARED), "shares a storage"),
        (lambda x: x.float().add_(1), (SHARED.double(),), (SHARED,), "is torch.float32"),
        (lambda x: x.resolve_conj().mul_(2), (SHARED + 0j,), ((SHARED + 0j).conj(),), "conjugate"),
        (lambda x, s: x * s, (SHARED, 0.5), (SHARED, 0.25), "is 0.25, .* traced for 0.5"),
        (lambda x, s: x if s is None else -x, (SHARED, None), (SHARED, 1), "is 1, .* for None"),
    ],
)
def test_inputs_of_another_kind_than_in_the_trace_are_refused(program, traced, given, reason):
    compiled = pipeline(program, *traced, sizes="symbolic")
    with pytest.raises(Refused, match=reason):
        compiled(*given)


@pytest.mark.parametrize("constant", [0.5, -0.0, True, None, "sum", torch.float64])
@pytest.mark.parametrize("build", [pipeline, functionalize])
def test_arguments_that_are_constants_of_the_graph(build, constant):
    compiled = build(lambda x, _: x + 1, SHARED, constant, sizes="symbolic")
    assert torch.equal(compiled(torch.ones(5), constant), torch.ones(5) + 1)


def test_a_graph_that_writes_no_input_takes_one_tensor_for_two():
    compiled = pipeline(lambda x, y: x + y, torch.ones(3), torch.ones(3), sizes="symbolic")
    assert torch.equal(compiled(SHARED, SHARED), SHARED * 2)


@pytest.mark.parametrize("build", [pipeline, functionalize])
def test_a_graph_of_aten_calls_is_traced_for_other_sizes(build):
    """`reshape` is a view for some sizes only, which a graph of ATen calls may leave open."""

    def flattened(x, y):
        aten.add_.Tensor(aten.reshape.default(aten.t.default(x), [-1]), 1)
        return aten.add.Tensor(x, y)

    done = build(fx.symbolic_trace(flattened), numbers(4, 3), numbers(4, 3), sizes="symbolic")
    assert torch.equal(done(numbers(5, 2), numbers(5, 2)), flattened(numbers(5, 2), numbers(5, 2)))
    with pytest.raises(Refused, match=r"2 <= .*size"):
        done(numbers(4, 1), numbers(4, 1))


def test_a_size_of_zero_breaks_a_guard_that_divides_by_it():
    graph = pipeline(lambda x: x.chunk(2)[0] * 2, torch.ones(6, 2), sizes="symbolic")
    assert graph(torch.ones(4, 2)).shape == (2, 2)
    with pytest.raises(Refused, match="traced for inputs with"):
        graph(torch.ones(0, 2))


def test_view_copy_copies_what_no_view_shows():
    def program(x):
        return aten.view_copy.default(x.t(), [2, -1])

    compiled = pipeline(program, numbers(2, 5), sizes="symbolic")
    for x in (numbers(2, 5), numbers(4, 3)):
        assert torch.equal(compiled(x), program(x))
