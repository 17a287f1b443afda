"""What planning knows of single calls: other names, results that nobody reads, other dtypes."""

from __future__ import annotations

import contextlib
import itertools

import pytest
import torch
from torch import fx
from torch._subclasses import FakeTensorMode
from torch.nn import functional as F
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._python_dispatch import TorchDispatchMode

from aliasproof.reference_pass import functionalize, plan_memory
from aliasproof.reference_pass.calls.operator_forms import is_pointwise, out_form
from aliasproof.reference_pass.eager.other_names import _is_composite, replace_names
from aliasproof.reference_pass.planning.destinations import kernel_into
from aliasproof.reference_pass.planning.timeline import peaks
from tests.reference_pass.test_planning import Cost, costs

aten = torch.ops.aten
ROW, SQUARE = 32 * 4, 32 * 32 * 4  # bytes


def numbers(*sizes, dtype=torch.float32):
    return (torch.arange(1, torch.Size(sizes).numel() + 1).view(sizes) / 8).to(dtype)


@pytest.fixture
def one():
    return numbers(32, 32)


# --- other names ----------------------------------------------------------------------------------


def test_another_name_of_a_pointwise_operator_is_in_place():
    def program(x):
        a = x + 1
        return torch.subtract(a, a)

    assert costs(program, numbers(32, 32))[1] == Cost(SQUARE, 1)


def test_an_operator_whose_out_form_is_generated_is_computed_as_a_part(one):
    def program(x):
        return torch.cat([aten.mul.Scalar(x, 2), aten.add.Scalar(x, 3)])

    assert costs(program, one)[1] == Cost(2 * SQUARE, 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.complex64])
def test_other_names_have_the_same_bits(dtype):
    x, y = numbers(33, dtype=dtype).sub(2), numbers(33, dtype=dtype).flip(0)
    renamed = 0
    for op, args in itertools.product(operators(), ((x, 3), (x, 2.5), (x, y), (x,))):
        try:
            expected = op(*args)
        except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError):
            continue  # eager does not accept it
        target, args, kwargs = renamed_call(op, args)
        if isinstance(expected, torch.Tensor) and target is not op:
            result = target(*args, **kwargs)
            assert (result.dtype, result.stride()) == (expected.dtype, expected.stride()), op
            assert bits(result) == bits(expected), op
            renamed += 1
    assert renamed >= 10


def operators():
    """The functional operators of torch that may be other calls."""
    for name in sorted(torch._C._dispatch_get_all_op_names()):
        if name.startswith("aten::"):
            packet, _, overload = name.removeprefix("aten::").partition(".")
            op = getattr(getattr(aten, packet), overload or "default", None)
            if op is not None and (_is_composite(op) or overload == "Scalar"):
                writes = any(argument.alias_info for argument in op._schema.arguments)
                if not writes and torch.Tag.nondeterministic_seeded not in op.tags:
                    yield op


def renamed_call(op, args):
    """The call that takes the place of another one, with its arguments."""
    graph, real = fx.Graph(), {}
    with FakeTensorMode() as mode:
        nodes = []
        for arg in args:
            nodes.append(graph.placeholder("x") if isinstance(arg, torch.Tensor) else arg)
            if isinstance(arg, torch.Tensor):
                nodes[-1].meta["val"] = mode.from_tensor(arg)
                real[nodes[-1]] = arg
        call = graph.call_function(op, tuple(nodes))
        replace_names(graph)
    return call.target, *fx.node.map_arg((call.args, call.kwargs), real.__getitem__)


def bits(tensor):
    """The bytes of a tensor: NaN is equal to itself."""
    return bytes(tensor.contiguous().untyped_storage())


@pytest.mark.parametrize("op", [aten._add_relu, aten.floor_divide, aten.gcd, aten.lcm])
def test_untagged_operators_write_over_operands_with_the_same_bits(op):
    dtype = torch.int64 if op in (aten.gcd, aten.lcm) else torch.float32
    overload = getattr(op, op.overloads()[0])
    assert is_pointwise(overload)
    x, y = numbers(67, dtype=dtype).mul(8), numbers(67, dtype=dtype).mul(8).flip(0)
    overload = next(getattr(op, n) for n in op.overloads() if n in ("Tensor", "default"))
    form = out_form(overload)
    assert form is not None
    for args in ((x, y), (x, x)):
        for at, _ in enumerate(args):
            copies = [arg.clone() for arg in args]
            copies = copies if args[0] is not args[1] else [copies[0], copies[0]]
            form(*copies, out=copies[at])
            assert torch.equal(copies[at], overload(*args))


# --- results that nobody reads --------------------------------------------------------------------


def test_a_result_whose_contents_nobody_reads_is_not_computed(one):
    def program(x):
        a = (x + 1) @ x  # for its size alone
        return a.new_ones(2, 32)

    assert costs(program, one)[1] == Cost(SQUARE + 2 * ROW, 2)


def test_a_base_that_is_stored_over_is_not_computed(one):
    def program(x):
        base = torch.cat([x[:16], x[16:] * 2])
        return torch.slice_scatter(base, x.cos(), 0, 0, 32)

    assert costs(program, one)[1] == Cost(SQUARE, 1)


def test_a_result_that_a_view_shows_is_read(one):
    def program(x):
        a = x + 1
        return a.new_ones(2), a.t()[0].sum()

    assert costs(program, one)[1].allocations == 3


def test_a_random_call_that_nobody_reads_is_drawn(one):
    def program(x):
        a = torch.rand_like(x)
        return a.new_ones(2), torch.rand_like(x)

    assert costs(program, one)[1].allocations == 3


def test_a_returned_result_without_elements_is_no_input():
    def program(x):
        return torch.diagonal_scatter(x, -x.diagonal(1))

    x = torch.ones(2, 0)
    planned = plan_memory(functionalize(program, x), x)
    assert planned(x) is not x


# --- where results are ----------------------------------------------------------------------------


def test_a_scatter_into_a_part_of_an_input_has_a_buffer_like_it():
    def program(x):
        rows = x[1:]
        return torch.diagonal_scatter(rows, rows.diagonal() * 2)

    reinplaced, planned = costs(program, numbers(33, 32))
    assert planned == Cost(SQUARE + ROW, 1)
    assert reinplaced.allocations == 2


def test_a_result_is_over_an_operand_of_another_dtype(one):
    def program(x):
        return (x * 8).to(torch.int32)

    reinplaced, planned = costs(program, one)
    assert (reinplaced.peak, planned.peak) == (2 * SQUARE, SQUARE)


def test_a_result_is_not_over_an_operand_of_another_size(one):
    def program(x):
        return (x * 8).to(torch.int16)

    assert costs(program, one)[1].peak == SQUARE + SQUARE // 2


def test_a_copy_is_the_original_unless_it_is_stored_into(one):
    def program(x):
        a = x + 1
        b = a.clone()  # returned, so no other pass drops it
        return b, a.sum()

    assert costs(program, one)[1] == Cost(SQUARE + 4, 2)


def test_a_copy_of_what_a_call_keeps_stays_a_copy(one):
    kept: list[torch.Tensor] = []

    @torch.library.custom_op("planned_calls::keep", mutates_args=())
    def keep(x: torch.Tensor) -> torch.Tensor:
        kept[:] = [x]
        return x.sum()

    keep.register_fake(lambda x: x.new_empty(()))

    def program(x):
        a = x + 1
        total = keep(a)
        return a.clone(), total

    planned = plan_memory(functionalize(program, one), one)
    result, _ = planned(one)
    assert result.data_ptr() != kept[0].data_ptr()


def test_a_small_result_does_not_keep_a_large_operand_where_the_peak_rises():
    def program(x):
        row = -(x[0] + 1)
        return (row * 2, row.cos(), row.sin(), row.exp())

    def widened(x):
        a = x * 2
        row = a[0] + 1
        b = torch.cat([row, row, row])
        return b.cos(), row.sum()

    for function in (program, widened):
        functional = functionalize(function, numbers(4, 32))
        before = peaks(functional.graph)
        assert peaks(plan_memory(functional, numbers(4, 32)).graph)[0] <= before[0]


def test_a_result_is_computed_in_an_input_of_which_the_view_is_made_later(one):
    def program(x, y):
        a = y @ y  # before the view that it is stored to
        x.view(torch.int32).view(torch.float32).copy_(a)

    reinplaced, planned = costs(program, one, numbers(32, 32))
    assert (reinplaced.allocations, planned.allocations) == (1, 0)


def test_what_a_view_is_made_with_is_read(one):
    def program(x):
        start = torch.zeros((), dtype=torch.int64)
        return aten.narrow.Tensor(x, 1, start, 1)

    assert plan_memory(functionalize(program, one), one)(one).equal(one[:, :1])


def test_memory_that_is_stored_to_twice_is_made_before_both(one):
    def program(x):
        x.add_(1)
        a = x + 1
        b = torch.cat([a, x + 1])
        return torch.cat([b, b], 1), a

    assert costs(program, one)[1].allocations <= 3


# --- `out=` kernels -------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", [F.huber_loss, F.mse_loss, F.binary_cross_entropy])
def test_a_loss_is_not_computed_in_a_part(loss):
    """Its kernel resizes its `out=`, and writes all losses there before it reduces them."""

    def program(log, a, b):
        log[0] = loss(a, b)
        return torch.stack([loss(a, b), loss(b, a)])

    def given():
        return torch.arange(4.0), numbers(16) / 2, numbers(16).flip(0) / 2

    expected, actual = given(), given()
    wanted = program(*expected)
    planned = plan_memory(functionalize(program, *given()))
    assert torch.equal(planned(*actual), wanted)
    assert torch.equal(actual[0], expected[0])
    assert actual[0].untyped_storage().nbytes() == 16


class InParts(TorchDispatchMode):
    """Compute each result in a part of a storage as well; `wrong` has the operators that differ."""

    def __init__(self):
        super().__init__()
        self.asked, self.wrong = set(), set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        kernel = kernel_into(func) if isinstance(result, torch.Tensor) else None
        if kernel is not None and result.layout is torch.strided:
            self.asked.add(func)
            count = result.numel()
            memory = torch.ones(count + 32, dtype=result.dtype)
            size = memory.untyped_storage().nbytes()
            part = memory[16 : 16 + count].view(result.shape)
            kernel(*args, **kwargs, out=part)
            same = torch.equal(part.nan_to_num(), result.nan_to_num())
            around = [*memory[:16].tolist(), *memory[16 + count : count + 32].tolist()]
            if not same or set(around) != {1} or memory.untyped_storage().nbytes() != size:
                self.wrong.add(func)
        return result


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore")
def test_kernels_write_what_they_are_given_and_nothing_around():
    mode = InParts()
    for info in op_db:
        if torch.float32 in info.dtypes and not info.name.startswith("jiterator"):  # of CUDA
            for sample in itertools.islice(info.sample_inputs("cpu", torch.float32), 5):
                # Some samples are not for a mode, or have sparse tensors.
                with contextlib.suppress(RuntimeError, TypeError, NotImplementedError), mode:
                    info(sample.input, *sample.args, **sample.kwargs)
    assert len(mode.asked) > 200
    assert mode.wrong == set()


def test_an_index_out_of_range_raises_also_if_nobody_reads_the_row(one):
    def program(x, index):
        return torch.zeros_like(x.index_select(0, index))

    planned = plan_memory(functionalize(program, one, torch.tensor([0])))
    with pytest.raises(IndexError, match="out of range"):
        planned(one, torch.tensor([32]))
