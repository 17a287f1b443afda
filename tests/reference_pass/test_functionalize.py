"""Functionalization: every way in which a program can write, and each must end as eager does, in both kinds of graph.

Each program goes through both targets, whose contract is the strongest: outputs, inputs, aliasing,
identity, metadata.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, fx, nn

from reference_pass import Refused, checked, functionalize, pipeline
from reference_pass.invariants import is_functional
from targets.registry import TARGETS
from trials.trial import Case, run_trial

aten = torch.ops.aten
PROGRAMS: list[tuple[Callable[..., object], tuple[Tensor, ...]]] = []


def on(*inputs: Tensor) -> Callable[[Callable[..., object]], Callable[..., object]]:
    """The function is a program to test, on these inputs."""

    def add(program: Callable[..., object]) -> Callable[..., object]:
        PROGRAMS.append((program, inputs))
        return program

    return add


def counted(*sizes: int) -> Tensor:
    return torch.arange(float(torch.Size(sizes).numel())).view(sizes)


def complex_counted(*sizes: int) -> Tensor:
    return torch.complex(counted(*sizes) + 1, counted(*sizes) * 10 + 10)


BUFFER = counted(16)
BYTES = torch.arange(7, dtype=torch.uint8)
COMPLEX = complex_counted(8)


# --- views ----------------------------------------------------------------------------------------


@on(counted(4, 4))
def chain_of_views_written_at_its_end(x):
    view = x.view(2, 8).t()[1:3].diagonal()
    view.add_(1)
    return view, x


@on(counted(4, 4))
def chain_of_views_written_at_its_base(x):
    base = x + 1
    view = base.view(16)[::3]
    base.mul_(2)
    return view, base


@on(BUFFER[:0], BUFFER[4:6])
def copy_of_a_storage_by_a_scatter_without_elements(x, y):
    copy = aten.slice_scatter.default(x, x)
    around = copy.as_strided([16], [1], 0)
    y.add_(1)
    return around


@on(counted(4, 4), torch.tensor([2, 1, 0, 3]))
def strides_of_an_index_that_is_strided(x, i):
    picked = aten.index.Tensor(x, [i.as_strided((2, 2), (1, 2))])
    i.add_(0)
    return picked, picked + 1


@on(BUFFER[1:5].view(2, 2), counted(2))
def as_strided_of_a_scatter_into_a_written_input(x, y):
    x.add_(0)
    return aten.diagonal_scatter.default(x, y).as_strided([1], [0])


@on(counted(3, 4), torch.tensor([1]))
def strides_of_an_index_fill_of_a_strided_tensor(x, i):
    return aten.index_fill.int_Scalar(x[:, ::2].t(), 0, i, 7)


@on(counted(4, 2))
def multi_output_views(x):
    first, _second = x.split(2)
    first.add_(1)
    _row, other = first.unbind()
    other.zero_()
    return x, first


@on(counted(6))
def tensor_split(x):
    first, second, third = torch.tensor_split(x, 3)
    second.zero_()
    return first, third, x


@on(counted(3))
def store_through_expand(x):
    x.expand(2, 3).fill_(5)
    return x + 1


@on(counted(3))
def slice_of_an_expanded_view(x):
    view = x.expand(2, 3)[1]
    view.add_(1)
    return x


@on(torch.tensor(3.0).expand(4))
def slice_of_an_input_that_repeats_an_element(x):
    x[1:2].mul_(3)
    return x


@on(counted(8))
def store_through_overlapping_windows(x):
    x.unfold(0, 3, 1).fill_(2)
    return x


@on(counted(2, 8))
def few_wide_windows(x):
    x.unfold(1, 6, 2).zero_()
    return x


@on(counted(9))
def windows_with_gaps_between(x):
    x.unfold(0, 2, 3).mul_(3)
    return x


@on(counted(16))
def as_strided_with_overlap(x):
    x.as_strided((3, 3), (1, 1), 2).fill_(7)
    return x


@on(BUFFER[4:8].detach())
def as_strided_beyond_the_input(x):
    x.as_strided((3,), (2,), 0).add_(1)
    return x


@on(counted(4, 4)[:, ::2].detach())
def input_with_gaps(x):
    x.add_(1)
    return x.contiguous().view(8)


@on(counted(6))
def copy_by_place_of_a_written_view(x):
    view = x[2:5]
    view.add_(1)
    return torch.as_strided_copy(view, (2,), (1,), 0), torch.as_strided_copy(view, (5,), (1,), 1)


@on(counted(6))
def copy_by_place_of_a_view(x):
    return torch.as_strided_copy(x[2:5], (2,), (1,), 0), torch.as_strided_copy(x, (6,), (1,))


@on(counted(6))
def copy_by_place_of_bools(x):
    view = (x > 3)[2:5]
    view.logical_not_()
    return torch.as_strided_copy(view, (5,), (1,), 1)


@on(BYTES[:6].view(torch.int16))
def storage_of_no_whole_number_of_elements(x):
    x.add_(1)
    return x.view(torch.uint8).as_strided((7,), (1,), 0) * 1


@on(BYTES[2:6].view(torch.int16))
def bytes_around_an_input_are_written(x):
    x.view(torch.uint8).as_strided((7,), (1,), 0)[1:].add_(1)
    return x


@on(counted(4))
def view_of_other_item_size(x):
    x.view(torch.int32)[1:3].fill_(0)
    return x


@on(counted(4) + 1j)
def real_and_imaginary_parts(x):
    x.real.mul_(2)
    x.imag[1:].zero_()
    return x


@on(counted(4) + 1j)
def lazily_conjugated_view(x):
    view = x.conj()
    view.add_(1j)
    view.imag.add_(1)
    return view, x


# --- inputs that share storage --------------------------------------------------------------------


@on(BUFFER[2:10], BUFFER[6:14])
def overlapping_inputs(x, y):
    x.add_(1)
    y.mul_(2)
    return x, y, x + y


@on(BUFFER[:8], BUFFER[8:])
def disjoint_inputs_of_one_storage(x, y):
    x.add_(1)
    y.mul_(x)
    return x


@on(BUFFER[2:10], BUFFER.view(torch.int32)[6:12])
def inputs_of_other_dtype(x, y):
    y.fill_(0)
    x.add_(1)
    return x, y


@on(torch.tensor([True, False, True, True]), torch.tensor([1, 2], dtype=torch.int16))
def bools_beside_bytes(x, y):
    bools = x.view(torch.int8).view(torch.int16)
    bools.copy_(y)
    return y, x.view(torch.int8) + 1


@on(BUFFER[2:10], BUFFER[6:14])
def copies_by_place_of_overlapping_inputs(x, y):
    before = torch.as_strided_copy(x, (4,), (2,), 1)
    y.add_(1)
    return before, torch.as_strided_copy(x, (4,), (2,), 1)


# --- lazy conjugate and negative bits -------------------------------------------------------------


@on(complex_counted(4).conj())
def conjugated_input_is_written(x):
    x.mul_(2j)
    return x


@on(complex_counted(9).conj()[::4])
def conjugated_input_with_gaps_is_written(x):
    x.mul_(2j)
    return x, x[1:]


@on(complex_counted(4).conj().imag)
def negated_input_is_written(x):
    x.mul_(2)
    return x


@on(torch._neg_view(complex_counted(4).conj()))
def conjugated_and_negated_input_is_written(x):
    x.mul_(2j)
    return x, x.real


@on(complex_counted(4), complex_counted(4).conj())
def out_into_a_conjugated_input(x, y):
    torch.add(x, 1, out=y)
    return y


@on(COMPLEX, COMPLEX.conj())
def input_and_its_conjugate(x, y):
    x.mul_(2j)
    y[1:].add_(1j)
    return x, y, x + y


@on(COMPLEX.conj(), COMPLEX)
def conjugate_of_an_input_and_the_input(x, y):
    x.mul_(2j)
    y[1:].add_(1j)
    return x, y, x + y


@on(COMPLEX.conj()[:5], COMPLEX.conj()[3:])
def conjugated_inputs_that_overlap(x, y):
    x.mul_(2j)
    return x, y + 1


@on(complex_counted(8).conj()[2:4])
def memory_around_a_conjugated_input_is_written(x):
    x.as_strided((3,), (1,), 0).mul_(2j)
    return x


@on(complex_counted(4, 2).conj(), complex_counted(2))
def conjugated_input_is_transposed_and_another_set_to_it(x, y):
    x.t_()
    y.set_(x[1:])
    return x * 1, y * 1


@on(complex_counted(4).conj()[1:])
def conjugated_input_grows(x):
    x.resize_(8)
    x.fill_(2j)
    return x[1]


@on(complex_counted(4))
def conjugated_view_by_place(x):
    part = x.conj().as_strided((2,), (1,), 1)
    return part, part * 1


@on(complex_counted(4).conj())
def conjugated_input_by_place(x):
    part = x.as_strided((2,), (1,))
    return part, part * 1, x


@on(complex_counted(4))
def negated_view_by_place(x):
    part = x.conj().imag.as_strided((2,), (2,), 3)
    return part, part * 1


# --- outputs --------------------------------------------------------------------------------------


@on(counted(4))
def outputs_that_are_inputs(x):
    x.add_(1)
    return x, x, x[:2], x.view(4), {"again": [x, None, 3]}


@on(counted(4))
def outputs_that_are_views_of_each_other(x):
    fresh = x * 2
    fresh[1:].zero_()
    return fresh, fresh[1:], fresh.view(2, 2)


@on(counted(4), counted(4) + 4)
def swap(x, y):
    saved = x.clone()
    x.copy_(y)
    y.copy_(saved)


@on(counted(4))
def the_old_contents_of_an_input(x):
    saved = x.clone()
    x.copy_(saved.flip(0))
    return saved, x


@on(counted(0, 3), counted(2))
def tensors_without_elements(x, y):
    x.add_(1)
    y[2:].zero_()
    return x, y


@on(torch.tensor(3.0))
def tensor_without_dimensions(x):
    x.add_(1)
    x.view(1).mul_(2)
    return x


# --- ops that write -------------------------------------------------------------------------------


@on(counted(4), counted(4))
def out_into_an_operand(x, y):
    torch.add(x, y, out=x)
    return x


@on(counted(4), counted(4))
def out_that_is_resized(x, y):
    place = torch.empty(0)
    torch.add(x, y, out=place)
    place.mul_(2)
    return place


@on(counted(6), counted(12), torch.arange(6))
def strided_out_of_the_right_size(x, place, indices):
    torch.sort(x, 0, True, out=(place[::2], indices))
    return place


@on(counted(3, 4))
def out_that_is_resized_to_a_permuted_layout(x):
    place = torch.empty(0)
    torch.add(x.t(), 1, out=place)
    return place.as_strided((12,), (1,)).clone(), place


@on(counted(3, 3) + torch.eye(3), counted(3, 2))
def out_that_is_resized_to_columns(x, y):
    place = torch.empty(0)
    torch.linalg.solve(x, y, out=place)
    return place


@on(counted(4, 4))
def several_outs(x):
    values, indices = torch.empty(4, 4), torch.empty(4, 4, dtype=torch.long)
    torch.sort(x, 0, True, out=(values, indices))
    values.add_(1)
    return values, indices


@on(counted(4), counted(4), counted(4))
def foreach_over_views(x, y, z):
    torch._foreach_mul_([x[:2], x[2:]], 2.0)
    torch._foreach_copy_([y, z], [x, y.clone()])
    local = [x + 1, y + 1]
    torch._foreach_addcdiv_(local, [x, y], [z + 1, z + 2], 0.5)
    return local, y[1:]


@on(counted(4, 4), torch.ones(4), torch.zeros(4), torch.zeros(4), torch.ones(4))
def several_arguments_written(x, weight, bias, mean, var):
    return nn.functional.batch_norm(x, mean, var, weight, bias, training=True)


@on(counted(4).double(), counted(4))
def store_into_a_narrower_dtype(x, y):
    y.add_(x)
    y.ge_(x)
    return y


@on(torch.tensor([100, 100], dtype=torch.int8))
def sum_in_the_dtype_of_its_destination(x):
    x.cumsum_(0)
    return x


@on(counted(3, 3), torch.tensor([0, 2]))
def stores_by_index(x, index):
    x[index] = 7
    x[:, index] += 1
    x[x > 9] = 5
    x.index_add_(0, index, torch.ones(2, 3))
    return x


@on(counted(4))
def op_without_a_functional_form(x):
    return x.square_().relu_()


@on(counted(3, 3))
def products_into_a_view(x):
    place = x.clone()
    place.addmm_(x, x)
    torch.mm(x, x, out=place[:])
    return place


# --- metadata -------------------------------------------------------------------------------------


@on(counted(2, 3))
def input_is_transposed(x):
    x.t_()
    x.add_(1)
    return x, x[0]


@on(counted(1, 3))
def input_is_squeezed_and_unsqueezed(x):
    x.squeeze_().mul_(2)
    x.unsqueeze_(1)
    return x + 1


@on(counted(4, 4))
def input_becomes_another_view_of_its_storage(x):
    x.as_strided_((2, 2), (5, 1), 1)
    x.zero_()
    return x


@on(counted(2, 3))
def local_tensor_is_transposed(x):
    local = x + 1
    row = local[0]
    local.transpose_(0, 1)
    local[0].zero_()
    return local, row


@on(counted(4), counted(3))
def input_is_set_to_another(x, y):
    x.set_(y)
    x.add_(1)
    return x, y


@on(counted(4))
def input_is_set_to_a_result(x):
    result = x * 2
    x.set_(result)
    x.add_(1)
    return result


@on(counted(4))
def local_tensor_is_set_to_a_view(x):
    local = torch.zeros(5)
    local.set_(x[1:3])
    local.zero_()
    return local


@on(counted(4))
def input_is_resized_to_fewer(x):
    x.resize_(2)
    x.add_(1)
    return x


@on(counted(4))
def input_grows(x):
    view = x[1:]
    x.resize_(8)
    x.fill_(3)
    return view


@on(counted(4)[1:].detach())
def input_at_an_offset_grows(x):
    x.resize_(8)
    x.fill_(3)
    return x[1]


@on(counted(4))
def local_tensor_grows(x):
    local = x + 1
    local.resize_(8)
    local[:].fill_(2)
    return local


# --- random numbers -------------------------------------------------------------------------------


@on(counted(40))
def random_numbers_in_place(x):
    x.uniform_()
    return x + 1, torch.rand(2)


@on(counted(40))
def random_numbers_through_a_strided_view(x):
    x[::2].normal_()
    return torch.rand(2)


@on(counted(4, 40))
def random_numbers_in_the_order_of_memory(x):
    x.t().normal_()
    x[0].bernoulli_(0.5)
    x[1].exponential_()
    x[2].random_(5)
    return torch.randn(3)


@on(counted(5, 40))
def dropout_in_place(x):
    return nn.functional.dropout(x.t(), 0.5, training=True, inplace=True)


# --- sizes that depend on numbers -----------------------------------------------------------------


@on(counted(4))
def elements_chosen_by_a_mask(x):
    chosen = x[x > 1]
    chosen.add_(1)
    return chosen, x.nonzero()


# --- strides that place nothing, which views as another dtype go by -------------------------------


@on(torch.ones(2, 1, dtype=torch.int64))
def result_of_one_element(x):
    local = x + 3
    negative = local.diagonal().neg()
    return negative.view(torch.float32), torch.diagonal_scatter(local, negative)


@on(torch.ones(2, 1, dtype=torch.int64))
def result_of_a_result_of_one_element(x):
    local = x + 3
    twice = local.diagonal().neg().neg()
    return twice.view(torch.float32)


@on(torch.ones(0))
def no_elements_as_another_dtype(x):
    view = (x - x).unsqueeze(0)
    other = view.view(torch.complex64)
    other.zero_()
    return view, torch.view_as_real(other)


@on(BUFFER[:2].as_strided((1,), (2,)), BUFFER[:2].as_strided((1,), (1,)))
def inputs_that_differ_in_a_stride_of_no_meaning(x, y):
    view = y.view(torch.float16)
    view.add_(1)
    return view, x


# --- and each must end as in eager ----------------------------------------------------------------


@pytest.mark.parametrize("name", ["reference", "reference-copy"])
@pytest.mark.parametrize(
    ("program", "inputs"), PROGRAMS, ids=[program.__name__ for program, _ in PROGRAMS]
)
def test_it_does_what_eager_does(program, inputs, name):
    with checked():
        trial = run_trial(Case.of_function(program, inputs), TARGETS[name])
    assert trial.eager.error is None
    assert trial.judgement.refused is None
    assert trial.judgement.violations == []


@pytest.mark.parametrize("views", ["alias", "copy"])
@pytest.mark.parametrize(
    ("program", "inputs"), PROGRAMS, ids=[program.__name__ for program, _ in PROGRAMS]
)
def test_its_passes_keep_what_they_require_and_ensure(program, inputs, views):
    with checked():
        pipeline(program, *inputs, views=views)


def afresh(inputs: tuple[Tensor, ...]) -> list[Tensor]:
    """Copies of inputs that share storage as these do, with their lazy bits, which a trial does not keep."""
    storages = {each.untyped_storage()._cdata: each.untyped_storage().clone() for each in inputs}
    copies = []
    for each in inputs:
        place = each.storage_offset(), each.shape, each.stride()
        copy = torch.empty(0, dtype=each.dtype).set_(
            storages[each.untyped_storage()._cdata], *place
        )
        copy = copy.conj() if each.is_conj() else copy
        copies.append(torch._neg_view(copy) if each.is_neg() else copy)
    return copies


def placing(tensor: Tensor) -> list[int]:
    """The strides of a tensor that place something."""
    return [stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if size > 1]


def seen_at_end(program: Callable[..., object], inputs: list[Tensor]) -> list[object]:
    """What the caller sees: of each output and input its numbers, bits, strides, and the first that shares its storage."""
    result = program(*inputs)
    tensors = [*(result if isinstance(result, (list, tuple)) else [result]), *inputs]
    storages = [each.untyped_storage()._cdata for each in tensors]
    return [
        (
            each.tolist(),
            each.dtype,
            placing(each),
            each.is_conj(),
            each.is_neg(),
            storages.index(storage),
        )
        for each, storage in zip(tensors, storages, strict=True)
    ]


LAZY = [
    (program, inputs)
    for program, inputs in PROGRAMS
    if any(each.is_conj() or each.is_neg() for each in inputs)
]


@pytest.mark.parametrize("views", ["alias", "copy"])
@pytest.mark.parametrize(("program", "inputs"), LAZY, ids=[program.__name__ for program, _ in LAZY])
def test_on_inputs_with_lazy_bits_it_does_what_eager_does(program, inputs, views):
    compiled = pipeline(program, *afresh(inputs), views=views)
    assert seen_at_end(compiled, afresh(inputs)) == seen_at_end(program, afresh(inputs))


# --- custom operators -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def demo():
    library = torch.library.Library("reference_pass_demo", "DEF")

    def define(schema: str, kernel: Callable[..., object]) -> None:
        library.define(schema)
        library.impl(schema.partition("(")[0], kernel, "CompositeExplicitAutograd")

    def bump(x: Tensor, y: Tensor) -> Tensor:
        x.add_(y)
        return x * 2

    def pour(x: Tensor, ys: list[Tensor]) -> None:
        for y in ys:
            y.add_(x)
        x.zero_()

    define("bump(Tensor(a!) x, Tensor y) -> Tensor", bump)
    define("pour(Tensor(a!) x, Tensor(b!)[] ys) -> ()", pour)
    define("half(Tensor(a) x) -> Tensor(a)", lambda x: x[::2])
    define("opaque(Tensor x) -> Tensor", lambda x: x.view(-1))
    define("recast(Tensor(a) x) -> Tensor(a)", lambda x: x.view(torch.int32)[1:])
    yield torch.ops.reference_pass_demo
    library._destroy()


def bumps_a_view(demo, x, y):
    result = demo.bump(x[1:], y)
    result.add_(1)
    return result, x


def pours_into_several(demo, x, y):
    local = y + 1
    demo.pour(x[:3], [y, local])
    return local


def writes_through_a_custom_view(demo, x, y):
    demo.half(x).zero_()
    return x


def writes_through_a_view_that_the_schema_hides(demo, x, y):
    demo.opaque(x).zero_()
    return x


def sees_another_dtype(demo, x, y):
    view = demo.recast(x)
    return view, view + 1, x + y[0]


@pytest.mark.parametrize("name", ["reference", "reference-copy"])
@pytest.mark.parametrize(
    "program",
    [
        bumps_a_view,
        pours_into_several,
        writes_through_a_custom_view,
        writes_through_a_view_that_the_schema_hides,
        sees_another_dtype,
    ],
)
def test_custom_operators_do_what_they_do_in_eager(demo, program, name):
    subject = Case.of_function(lambda x, y: program(demo, x, y), (counted(4), counted(3)))
    trial = run_trial(subject, TARGETS[name])
    assert trial.eager.error is None
    assert trial.judgement.refused is None
    assert trial.judgement.violations == []


def test_a_custom_operator_that_reads_what_it_writes_is_refused(demo):
    with pytest.raises(Refused, match=r"reads memory that it writes"):
        functionalize(lambda x: demo.bump(x[:3], x[1:]), counted(4))


# --- symbolic sizes -------------------------------------------------------------------------------


def slices(x):
    view = x[1:]
    view.add_(1)
    x.view(-1)[::2].mul_(2)
    return view, x.t().contiguous()


def halves(x):
    low, high = x.split(x.shape[0] // 2)
    low.add_(high)
    turned = x.transpose(0, 1)
    turned[0].zero_()
    return turned


def diagonal_and_expand(x):
    x.diagonal().fill_(3)
    fresh = torch.zeros(x.shape[0], x.shape[1])
    fresh[:, 1:].copy_(x[:, 1:])
    x.expand(2, *x.shape).zero_()
    return fresh, x.select(1, -1)


def windows(x):
    x.unfold(0, 2, 1).zero_()
    return x.reshape(-1)


def transposed_in_place(x):
    x.t_()
    return x + 1


@pytest.mark.parametrize("views", ["alias", "copy"])
@pytest.mark.parametrize(
    "program", [slices, halves, diagonal_and_expand, windows, transposed_in_place]
)
def test_one_graph_serves_all_sizes(program, views):
    compiled = pipeline(program, counted(4, 4), views=views, sizes="symbolic")
    for size in (4, 6, 10):
        expected_input, actual_input = counted(size, size), counted(size, size)
        torch.testing.assert_close(compiled(actual_input), program(expected_input), rtol=0, atol=0)
        assert torch.equal(actual_input, expected_input)


# --- what it leaves alone, and what it says -------------------------------------------------------


@pytest.mark.parametrize(
    ("program", "inputs"), PROGRAMS, ids=[program.__name__ for program, _ in PROGRAMS]
)
def test_with_view_copies_nothing_aliases_before_the_epilogue(program, inputs):
    graph_module = functionalize(program, *inputs, views="copy")
    assert is_functional(graph_module) is None
    values = {}
    for node in graph_module.graph.nodes:
        if node.target in _AT_END or node.op == "output":
            break
        if isinstance(node.meta["val"], Tensor):
            values[node] = node.meta["val"].untyped_storage()._cdata
    at_end = {node for node in values if any(_is_alias(node)) and not _is_at_start(node)}
    assert all(
        user in at_end or user not in values for node in at_end for user in node.users
    )  # for the epilogue alone


_AT_END = {aten.copy_.default, aten.set_.source_Tensor, aten.resize_.default}


def _is_at_start(node):
    """True on the way to all memory of an input: without its lazy bits, or as bytes that are no whole number of elements."""
    on_the_way = node.target in (
        aten._conj.default,
        aten._neg_view.default,
        aten.as_strided.default,
        aten.view.dtype,
    )
    ends = (
        user.target is aten.as_strided_copy.default or _is_at_start(user) for user in node.users
    )
    return on_the_way and len(node.users) > 0 and all(ends)


def _is_alias(node):
    own = node.meta["val"].untyped_storage()._cdata
    for each in node.all_input_nodes:
        yield (
            isinstance(each.meta["val"], Tensor)
            and each.meta["val"].untyped_storage()._cdata == own
        )


def test_sample_arguments_are_not_written():
    sample = counted(4)
    functionalize(lambda x: x.add_(1).resize_(8), sample)
    assert torch.equal(sample, counted(4))


def test_a_module_is_not_written_while_it_is_traced_and_is_when_it_runs():
    module = nn.BatchNorm1d(4)
    compiled = pipeline(module, torch.ones(3, 4))
    assert module.num_batches_tracked == 0
    with torch.no_grad():
        compiled(torch.ones(3, 4))
    assert module.num_batches_tracked == 1


def test_a_write_to_a_captured_tensor_is_refused():
    held = torch.ones(3)
    with pytest.raises(Refused, match="did not get as an argument"):
        functionalize(lambda x: held.add_(x) + 1, counted(3))
    assert torch.equal(held, torch.ones(3))


def test_data_of_an_input_that_is_swapped_is_refused():
    def program(x, y):
        x.data = y
        return x.add_(1)

    with pytest.raises(Refused, match="goes past the dispatcher"):
        functionalize(program, counted(3), counted(2))


def test_a_storage_as_an_argument_is_refused():
    with pytest.raises(Refused, match="cannot be traced"):
        functionalize(
            lambda x, y: x.set_(y.untyped_storage(), 0, (2,), (1,)), counted(3), counted(3)
        )


def test_a_higher_order_operator_is_refused():
    def program(x):
        return torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))

    with pytest.raises(Refused, match="higher-order"):
        functionalize(program, counted(3))


def test_an_unknown_kind_of_views_is_refused():
    with pytest.raises(Refused, match="neither 'alias' nor 'copy'"):
        functionalize(lambda x: x, counted(3), views="both")  # type: ignore[arg-type]


def test_a_tensor_that_is_passed_twice_and_moved_is_refused():
    twice = counted(2, 3)
    with pytest.raises(Refused, match="passed twice, and its metadata is mutated"):
        functionalize(lambda x, y: (x.t_(), y + 0), twice, twice)


def test_a_tensor_that_is_passed_twice_may_be_written():
    def program(x, y):
        x.add_(1)
        return x * y

    twice = counted(2, 3)
    compiled = pipeline(program, twice, twice)
    assert torch.equal(compiled(twice, twice), (counted(2, 3) + 1) ** 2)
    assert torch.equal(twice, counted(2, 3) + 1)


def test_a_wrong_number_of_sample_arguments_is_refused():
    graph_module = functionalize(lambda x: x + 1, counted(3))
    with pytest.raises(Refused, match="takes 1 inputs, but 2"):
        functionalize(graph_module, counted(3), counted(3))


def test_writes_to_one_place_through_two_arguments_are_refused():
    with pytest.raises(Refused, match="writes the same memory"):
        functionalize(lambda x: torch._foreach_add_([x, x[1:]], 1), counted(4))


def test_a_store_that_nobody_reads_is_not_in_the_graph():
    def program(x):
        x.fill_(1)
        x.fill_(2)
        return x

    calls = [
        node.target
        for node in functionalize(program, counted(3)).graph.nodes
        if node.op == "call_function"
    ]
    assert calls == [aten.fill.Scalar, aten.copy_.default]


def test_a_stride_that_places_nothing_of_a_masked_fill_is_as_in_eager() -> None:
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
def test_no_stride_that_places_nothing_forbids_a_view_as_another_dtype(
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


def test_a_scatter_of_a_size_that_depends_on_numbers_is_reinplaced_or_refused() -> None:
    graph = fx.Graph()
    mask = graph.placeholder("mask")
    base = graph.call_function(aten.add.Scalar, (mask, 0))
    chosen = graph.call_function(aten.index.Tensor, (mask, [mask]))
    part = graph.call_function(aten.slice.Tensor, (chosen, 0, 1, 2))
    graph.output(graph.call_function(aten.slice_scatter.default, (base, part, 0, 2)))
    module, given = fx.GraphModule(torch.nn.Module(), graph), torch.tensor([False, True, True])
    assert torch.equal(pipeline(module, given)(given.clone()), module(given))


def _named(ops):
    return "".join(each.__name__ for each in ops) or "none"


@pytest.mark.parametrize("views", ["alias", "copy"])
@pytest.mark.parametrize("written", [False, True])
@pytest.mark.parametrize(
    "given", [complex_counted(2, 3), complex_counted(2, 3).conj()], ids=["plain", "conjugated"]
)
@pytest.mark.parametrize(
    "bits", [[], [aten._conj], [aten._neg_view], [aten._conj, aten._neg_view]], ids=_named
)
@pytest.mark.parametrize(
    "op", [aten.conj, aten.adjoint, aten.real, aten.imag, aten.resolve_conj], ids=str
)
def test_composite_views_of_lazy_bits_are_as_in_eager(op, bits, given, written, views) -> None:
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
def test_a_copy_by_place_of_a_conjugated_view_goes_by_what_eager_makes_of_it(
    written, views
) -> None:
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
