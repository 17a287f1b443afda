"""Memory planning: programs (some are in docs/planning.md), their peaks and allocations."""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn
from torch._subclasses import FakeTensorMode
from torch.nn import functional as F
from torch.nn.functional import pad, silu  # noqa: F401 - the programs call them
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._python_dispatch import TorchDispatchMode

from aliasproof.reference_pass import (
    functionalize,
    pipeline,
    plan_memory,
    reinplace,
    update_metadata,
)
from aliasproof.reference_pass.backend.compiled import Compiled
from aliasproof.reference_pass.backend.observed_run import Observed
from aliasproof.reference_pass.calls.operator_forms import is_pointwise, out_form
from aliasproof.reference_pass.capture.function_trace import capture
from aliasproof.reference_pass.eager.other_names import _is_composite, replace_names
from aliasproof.reference_pass.pipeline import PipelineOptions, metadata_is_true
from aliasproof.reference_pass.planning.offers import kernel_into
from aliasproof.reference_pass.planning.timeline import (
    Footprint,
    footprint,
    lifetimes,
    live_bytes,
)
from benchmarks.models import bytes_of
from tests.reference_pass.conftest import KEPT
from tests.reference_pass.graphs import calling
from tests.reference_pass.scene import assert_alike, assert_right, names, programs_of, violations

aten = torch.ops.aten
SCRATCH = 200  # bytes that kernels may allocate for themselves, such as a number as a tensor


@dataclass(frozen=True, slots=True)
class Cost:
    """The most bytes that are live at once, and the number of allocations."""

    peak: int
    allocations: int

    @classmethod
    def of(cls, graph_module: fx.GraphModule) -> Cost:
        graph = graph_module.graph
        lives = [life for life in lifetimes(graph).values() if life.nbytes]
        return cls(max(live_bytes(lives, len(graph.nodes)), default=0), len(lives))


def costs(program: Callable[..., object], *inputs: Tensor, kept: int = 0) -> tuple[Cost, Cost]:
    """The costs of a reinplaced and of a planned program, which agrees with eager.

    Neither reinplacing nor planning raises the peak. The program itself keeps `kept` bytes alive,
    outside its graph.
    """
    functional = functionalize(program, *inputs)
    peak = Cost.of(functional).peak
    reinplaced = reinplace(copy.deepcopy(functional), *inputs)
    planned = plan_memory(functional, *inputs)
    assert Cost.of(planned).peak <= Cost.of(reinplaced).peak <= peak
    assert violations(program, inputs, lambda *_: planned) == []
    cost = Cost.of(planned)
    peak, _ = bytes_of(lambda: planned(*inputs))  # bytes of the allocator
    assert cost.peak <= peak <= cost.peak + kept + SCRATCH
    return Cost.of(reinplaced), cost


def numbers(*sizes: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return (torch.arange(1, torch.Size(sizes).numel() + 1).view(sizes) / 8).to(dtype)


SQUARE = 32 * 32 * 4  # bytes
ROW = 32 * 4
ONE, OTHER, LINE = numbers(32, 32), numbers(32, 32).cos(), numbers(1, 32)


def expected(
    *inputs: Tensor, planned: Cost | None, reinplaced: Cost | None = None
) -> tuple[tuple[Tensor, ...], Cost | None, Cost | None]:
    """Inputs, and the costs of a program; None if they do not matter."""
    return inputs, planned, reinplaced


PROGRAMS = programs_of(
    """
either_operand_may_hold_the_result(a, b): ONE, OTHER, planned=TWO, reinplaced=TWO
    c = a * 2
    d = b + 1
    return c - d, c / 3

a_live_alias_bars_it(x): ONE, planned=Cost(2 * SQUARE + 4, 4)
    y = x + 1
    row = y[0]
    z = y * 2  # not in place of y, which `row` shows
    return z.amax(), row.amax()

a_larger_storage(x, w, v): ONE, OTHER, numbers(32, 8), planned=Cost(2 * SQUARE, 3), reinplaced=FOUR
    h = (x @ w).sin()
    h = (h @ w).sin()
    return (h @ v).softmax(1)  # `h @ v` in the first hidden layer

another_dtype(x): ONE.double(), planned=Cost(ROWS, 2), reinplaced=Cost(ROWS, 3)
    p = x.softmax(1)
    p = p / p.sum(1, keepdim=True)
    return p.argmax(1) + 1  # integers in place of the sums

a_split_without_copies(x, w, v): ONE, OTHER, OTHER, planned=HALF, reinplaced=HALF
    gate, up = (x @ w).chunk(2)
    return (silu(gate) * up) @ v

a_concatenation_without_copies(a, b): ONE, OTHER, planned=ONE_BUFFER, reinplaced=Cost(4 * SQUARE, 3)
    left = a * 2
    right = b + 1
    return torch.cat([left, right])

one_in_another(a, b): ONE, OTHER, planned=Cost(4 * SQUARE, 1), reinplaced=Cost(8 * SQUARE, 5)
    inner = torch.cat([a * 2, b * 3])
    return torch.stack([inner, inner + 1])

a_pad_without_a_copy(x): ONE, planned=Cost(PADDED, 1), reinplaced=Cost(SQUARE + PADDED, 2)
    return pad(x * 2, (1, 1, 1, 1))

key_value_cache(keys, values, at, k, v, q): ONE, OTHER, AT, *[LINE] * 3, planned=Cost(2 * ROW, 2)
    keys.copy_(keys.index_copy(0, at, k))
    values.copy_(values.index_copy(0, at, v))
    return (q @ keys.t()).softmax(1) @ values

a_cache_that_the_caller_still_sees(keys, at, k): ONE, AT, LINE, planned=Cost(SQUARE, 1)
    return keys.index_copy(0, at, k)

from_a_prompt(prompt, w, k): ONE, OTHER, LINE, planned=LONG, reinplaced=Cost(48 * ROW + SQUARE, 2)
    cache = torch.zeros(48, 32)
    cache = torch.slice_scatter(cache, prompt @ w, 0, 0, 32)
    return torch.slice_scatter(cache, k, 0, 32, 33)

a_rolling_window(xs): ONE, planned=Cost(SQUARE, 2), reinplaced=Cost(SQUARE, 5)
    window = torch.zeros(16, 32)
    for x in xs.split(8):
        window = torch.cat([window[8:], x])
    return window

a_double_buffer(x, w): ONE, OTHER, planned=TWO, reinplaced=FOUR
    for _ in range(4):
        x = x @ w
    return x

halves_in_their_place(x): ONE, planned=Cost(SQUARE, 1)
    p, q = (x * 2).chunk(2)
    return torch.cat([p.exp(), q.sin()])

halves_that_are_exchanged(x): ONE, planned=TWO
    p, q = (x * 2).chunk(2)
    return torch.cat([q.exp(), p.sin()])

one_half_twice(x): ONE, planned=Cost(SQUARE, 1)
    p, _ = (x * 2).chunk(2)
    p = p.exp()
    return torch.cat([p, p])

# --- other names, results that nobody reads, other dtypes -----------------------------------------

another_name_of_a_pointwise_operator_is_in_place(x): ONE, planned=Cost(SQUARE, 1)
    a = x + 1
    return torch.subtract(a, a)

an_operator_whose_out_form_is_generated(x): ONE, planned=Cost(2 * SQUARE, 1)
    return torch.cat([aten.mul.Scalar(x, 2), aten.add.Scalar(x, 3)])

contents_that_nobody_reads(x): ONE, planned=Cost(SQUARE + 2 * ROW, 2)
    a = (x + 1) @ x  # for its size alone
    return a.new_ones(2, 32)

a_base_that_is_stored_over_is_not_computed(x): ONE, planned=Cost(SQUARE, 1)
    base = torch.cat([x[:16], x[16:] * 2])
    return torch.slice_scatter(base, x.cos(), 0, 0, 32)

a_result_that_a_view_shows_is_read(x): ONE, planned=Cost(SQUARE + 12, 3)
    a = x + 1
    return a.new_ones(2), a.t()[0].sum()

a_random_call_that_nobody_reads_is_drawn(x): ONE, planned=Cost(SQUARE + 8, 3)
    a = torch.rand_like(x)
    return a.new_ones(2), torch.rand_like(x)

an_input_that_is_overwritten_later(a, b): ONE, OTHER, planned=Cost(4, 1), reinplaced=SCALED
    scale = (b @ b).sin().sum()  # held by `a` until then
    torch.add(b, scale, out=a)
    return scale * 2

an_input_that_is_read_before_it_is_overwritten(a, b): ONE, OTHER, planned=SCALED, reinplaced=SCALED
    scale = (b @ b).sin().sum()  # not held by `a`
    a.add_(scale)
    return scale * 2

beside_the_rows_that_are_read(a): ONE, planned=Cost(SQUARE + 1, 2), reinplaced=Cost(SQUARE + 32, 3)
    h = a.exp()
    return (h[:1] > h[1:2]).any()  # bools: they cannot be over the rows

memory_that_is_stored_to_twice_is_made_before_both(x): ONE, planned=Cost(7 * SQUARE, 3)
    x.add_(1)
    a = x + 1
    b = torch.cat([a, x + 1])
    return torch.cat([b, b], 1), a

into_a_part_of_an_input(x): numbers(33, 32), planned=Cost(SQUARE + ROW, 1), reinplaced=DIAGONAL
    rows = x[1:]
    return torch.diagonal_scatter(rows, rows.diagonal() * 2)  # in a buffer like the input

over_an_operand_of_another_dtype(x): ONE, planned=Cost(SQUARE, 1), reinplaced=TWO
    return (x * 8).to(torch.int32)

not_over_an_operand_of_another_size(x): ONE, planned=Cost(SQUARE + SQUARE // 2, 2)
    return (x * 8).to(torch.int16)

a_copy_is_the_original_unless_it_is_stored_into(x): ONE, planned=Cost(SQUARE + 4, 2)
    a = x + 1
    b = a.clone()  # returned, so no other pass drops it
    return b, a.sum()

in_an_input_that_is_viewed_later(x, y): ONE, OTHER, planned=Cost(0, 0), reinplaced=Cost(SQUARE, 1)
    a = y @ y  # before the view that it is stored to
    x.view(torch.int32).view(torch.float32).copy_(a)

not_in_an_input_that_the_product_reads(x, y): ONE, OTHER, planned=None
    x.copy_(x @ y)
    return y + 1

not_in_inputs_that_are_rounded(x, y): ONE, OTHER, planned=None
    x.copy_(x.double() + 1)
    y.copy_(y.half())
    return x + y

where_a_view_is_made_is_read(x): ONE, planned=None
    return aten.narrow.Tensor(x, 1, torch.zeros((), dtype=torch.int64), 1)

a_returned_result_without_elements_is_no_input(x): torch.ones(2, 0), planned=None
    return torch.diagonal_scatter(x, -x.diagonal(1))

# --- no more than reinplaced ----------------------------------------------------------------------

parts_of_a_concatenation_that_is_stored_in_its_parts(x): ONE, planned=None
    rotated = x * 2
    for _ in range(3):  # the second one finds the storage of the first one gone: that of `x * 2`
        rotated = torch.cat([rotated[1:], rotated[:1] + 1])
    return rotated

in_place_of_a_part_the_exponential_would_keep_all_of_the_concatenation(x): ONE, planned=None
    p, q = torch.cat([x * 2, x * 3]).chunk(2)
    p = p.exp()
    return (torch.cat([q, q]).sin() * torch.cat([p, p])).sum()

a_part_that_is_computed_early_and_joined_late(x): numbers(4, 4), planned=None
    small = x[:1] * 2  # in a buffer, which would be live from here on
    big = x.repeat(8, 1)
    total = (big.exp() + big).sum()
    return torch.cat([small, x.repeat(4, 1)]) * total

rows_that_would_keep_a_large_operand(x): numbers(4, 32), planned=None
    row = -(x[0] + 1)
    return row * 2, row.cos(), row.sin(), row.exp()

rows_that_would_keep_a_large_operand_and_are_joined(x): numbers(4, 32), planned=None
    a = x * 2
    row = a[0] + 1
    b = torch.cat([row, row, row])
    return b.cos(), row.sum()

a_store_into_a_concatenation_that_is_returned_too(a, b): ONE, OTHER, planned=None
    c = torch.cat([a, a * 2])
    return torch.select_scatter(c, b[0] + 1, 0, 0), c
""",
    {
        **globals(),
        "TWO": Cost(2 * SQUARE, 2),
        "FOUR": Cost(2 * SQUARE, 4),
        "SCALED": Cost(SQUARE + 4, 2),
        "ONE_BUFFER": Cost(2 * SQUARE, 1),
        "HALF": Cost(SQUARE + SQUARE // 2, 2),
        "LONG": Cost(48 * ROW, 1),
        "ROWS": 2 * SQUARE + 2 * ROW,
        "PADDED": 34 * 34 * 4,
        "DIAGONAL": Cost(SQUARE + ROW + ROW, 2),
        "AT": torch.tensor([2]),
    },
    expected,
)


@pytest.mark.parametrize(("program", "given"), PROGRAMS, ids=names(PROGRAMS))
def test_what_a_program_needs(program, given):
    inputs, planned, reinplaced = given
    found = costs(program, *inputs)
    assert reinplaced in (None, found[0])
    assert planned in (None, found[1])


def test_an_opaque_call(keeping):
    def program(x):
        a = x * 2
        total = keeping.store(a)
        b = a + 1  # not in place of a, which `load` reads
        return keeping.load(b) * total

    assert costs(program, ONE, kept=SQUARE) == (Cost(2 * SQUARE + 4, 5),) * 2
    stated = [keeping.store.default, keeping.load.default]
    for last in (reinplace, plan_memory):
        graph_module = last(functionalize(program, ONE), non_aliasing=stated)
        assert Cost.of(graph_module) == Cost(2 * SQUARE + 4, 3)


def test_no_more_is_live_where_inputs_are_dropped():
    """As in a backward graph, which drops saved tensors after their last use."""

    def program(saved, x, w):
        first = x @ w  # would be kept while `saved` is live, for `c`
        s = first.sum(0) + (saved @ w).sum(0)
        c = x @ w
        d = c @ w
        e = d @ w
        f = e @ w
        g = f @ w
        return c @ d @ e @ f @ g, s

    inputs = torch.cat([ONE, ONE, ONE]), ONE, OTHER
    functional = functionalize(program, *inputs)
    reinplaced, planned = reinplace(copy.deepcopy(functional)), plan_memory(functional)

    def peak(graph_module):
        run = fx.Interpreter(graph_module).boxed_run
        return bytes_of(lambda: run([tensor.clone() for tensor in inputs]))[0]

    assert peak(planned) <= peak(reinplaced)
    assert Cost.of(planned).allocations < Cost.of(reinplaced).allocations


# --- other names ----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.complex64])
def test_other_names_have_the_same_bits(dtype):
    x, y = numbers(33, dtype=dtype).sub(2), numbers(33, dtype=dtype).flip(0)
    renamed = 0
    for op, args in itertools.product(operators(), ((x, 3), (x, 2.5), (x, y), (x,))):
        try:
            expected = op(*args)
        except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError):
            continue  # eager refuses it
        target, args, kwargs = renamed_call(op, args)
        if isinstance(expected, torch.Tensor) and target is not op:
            result = target(*args, **kwargs)
            assert (result.dtype, result.stride()) == (expected.dtype, expected.stride()), op
            assert bits(result) == bits(expected), op
            renamed += 1
    assert renamed >= 10


def operators():
    """The functional operators of torch that other calls can replace."""
    for name in sorted(torch._C._dispatch_get_all_op_names()):
        if name.startswith("aten::"):
            packet, _, overload = name.removeprefix("aten::").partition(".")
            op = getattr(getattr(aten, packet), overload or "default", None)
            if op is not None and (_is_composite(op) or overload == "Scalar"):
                writes = any(argument.alias_info for argument in op._schema.arguments)
                if not writes and torch.Tag.nondeterministic_seeded not in op.tags:
                    yield op


def renamed_call(op, args):
    """The call that replaces another one, with its arguments."""
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
    x, y = numbers(67, dtype=dtype).mul(8), numbers(67, dtype=dtype).mul(8).flip(0)
    overload = next(getattr(op, n) for n in op.overloads() if n in ("Tensor", "default"))
    assert is_pointwise(overload)
    form = out_form(overload)
    assert form is not None
    for args in ((x, y), (x, x)):
        for at, _ in enumerate(args):
            copies = [arg.clone() for arg in args]
            copies = copies if args[0] is not args[1] else [copies[0], copies[0]]
            form(*copies, out=copies[at])
            assert torch.equal(copies[at], overload(*args))


# --- locations of results -------------------------------------------------------------------------


def test_a_copy_of_what_a_call_keeps_stays_a_copy(keeping):
    def program(x):
        a = x + 1
        total = keeping.store(a)
        return a.clone(), total

    planned = plan_memory(functionalize(program, ONE), ONE)
    result, _ = planned(ONE)
    assert result.data_ptr() != KEPT[0].data_ptr()


# --- `out=` kernels -------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", [F.huber_loss, F.mse_loss, F.binary_cross_entropy])
def test_a_loss_is_not_computed_in_a_part(loss):
    """Its kernel resizes its `out=`, and writes all losses there before it reduces them."""

    def program(log, a, b):
        log[0] = loss(a, b)
        return torch.stack([loss(a, b), loss(b, a)])

    given = torch.arange(4.0), numbers(16) / 2, numbers(16).flip(0) / 2
    planned = plan_memory(functionalize(program, *given))
    assert_alike(planned, program, *given)
    planned(*given)
    assert given[0].untyped_storage().nbytes() == 16


class InParts(TorchDispatchMode):
    """Compute each result in a part of a storage as well; `wrong` collects differing operators."""

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


@pytest.mark.filterwarnings("ignore")
def test_kernels_write_what_they_are_given_and_nothing_around(monkeypatch):
    # Both format the stack, which took 150 of 155 seconds.
    monkeypatch.setattr(torch, "manual_seed", torch.default_generator.manual_seed)
    monkeypatch.setattr(inspect, "stack", list)
    mode = InParts()
    for info in op_db:
        if torch.float32 in info.dtypes and not info.name.startswith("jiterator"):  # of CUDA
            for sample in itertools.islice(info.sample_inputs("cpu", torch.float32), 5):
                # Some samples do not run under a mode, or have sparse tensors.
                with contextlib.suppress(RuntimeError, TypeError, NotImplementedError), mode:
                    info(sample.input, *sample.args, **sample.kwargs)
    assert len(mode.asked) > 200
    assert mode.wrong == set()


def test_an_index_out_of_range_raises_also_if_nobody_reads_the_row():
    def program(x, index):
        return torch.zeros_like(x.index_select(0, index))

    planned = plan_memory(functionalize(program, ONE, torch.tensor([0])))
    with pytest.raises(IndexError, match="out of range"):
        planned(ONE, torch.tensor([32]))


# --- joins of memory planning: a buffer contains all that eager has there -------------------------


@pytest.mark.parametrize("start", [0, 2])
def test_a_scatter_copies_the_whole_storage_of_its_base(start):
    """A clone of the base would have a smaller storage, or another offset."""

    def program(x, y):
        scattered = aten.select_scatter(x, y + y, 0, 0)
        return aten.as_strided_scatter(scattered, y, [], [], 3)

    inputs = (torch.arange(8.0)[start : start + 2], torch.tensor(11.0))
    assert_right(program, inputs, "reference-planned")


def test_what_is_written_to_a_moved_part_is_noted_there():
    """Two stacks are in one buffer, so the part that contains the sum has moved."""

    def program(x):
        pair = torch.stack([x + 1, x])
        total = pair[0] + (x + 1)
        total.add_(1)
        return torch.ops.aliasproof.double(torch.stack([x + 1, total]))

    assert metadata_is_true(pipeline(program, torch.ones(2), planned=True)) is None


# --- planned memory under `torch.compile`: bits, gradients, symbols, control flow, and the peak ---


PLANNED: dict[str, Any] = {"plan_memory": True}


def compiled(function, **options):
    return torch.compile(function, backend="aliasproof", options=PLANNED, **options)


class Gate(nn.Module):
    """Two branches, joined, with a buffer that is written."""

    def __init__(self):
        super().__init__()
        self.left, self.right = nn.Linear(4, 4), nn.Linear(4, 4)
        self.seen: torch.Tensor
        self.register_buffer("seen", torch.zeros(2, 4))

    def forward(self, x):
        joined = torch.cat([self.left(x) * 2, self.right(x).sigmoid()], 1)
        self.seen.add_(joined[:, :4].detach())
        return joined.relu()


def test_training_is_that_of_eager():
    torch.manual_seed(0)
    ours, eager = Gate(), Gate()
    eager.load_state_dict(ours.state_dict())
    run, x = compiled(ours), torch.randn(2, 4)
    for _ in range(2):
        for module in (run, eager):
            module(x).square().sum().backward()
    for one, other in zip(ours.parameters(), eager.parameters(), strict=True):
        assert one.grad is not None
        assert other.grad is not None
        assert torch.equal(one.grad, other.grad)
    assert torch.equal(ours.seen, eager.seen)


def joins(x):
    p, q = x * 2, x + 1
    return torch.cat([p, q]).cos()


def called_by_backend(function: Callable[..., object], *inputs: Tensor, **options: Any) -> set[Any]:
    """The operators of the graph that the backend makes of a call, which runs once."""
    compiled = Compiled(calling(function, len(inputs)), inputs, PipelineOptions(**options))
    compiled(*inputs)
    (found,) = compiled.graphs.values()
    assert isinstance(found, Observed)
    assert isinstance(found.compiled, fx.GraphModule)
    return {node.target for node in found.compiled.graph.nodes}


def test_the_backend_has_buffers_as_the_pass_has():
    """Its fakes are at unlikely offsets in large storages; these bytes are not in the graph."""
    called = called_by_backend(joins, torch.ones(2, 3), **PLANNED)
    assert aten.cat.default not in called
    assert aten.mul.out in called


def test_a_graph_for_all_sizes_is_planned():
    run = compiled(joins, dynamic=True)
    for size in (3, 5, 8):
        x = torch.randn(size, 2)
        assert torch.equal(run(x), joins(x))


def test_a_planned_symbolic_pipeline_needs_no_more_than_a_reinplaced_one():
    x = torch.randn(4, 3)
    planned = pipeline(joins, x, sizes="symbolic", planned=True)
    reinplaced = pipeline(joins, x, sizes="symbolic")
    assert footprint(planned.graph).peak <= footprint(reinplaced.graph).peak
    assert torch.equal(planned(torch.ones(6, 3)), joins(torch.ones(6, 3)))


def branches(x):
    a = x * 2
    b = torch.cond(x.sum() > 0, lambda t: t + 1, lambda t: t - 1, (a,))
    return a + b


@pytest.mark.parametrize("sign", [1, -1])
def test_an_operand_of_control_flow_is_kept_while_it_is_read(sign):
    x = torch.ones(3) * sign
    assert torch.equal(compiled(branches)(x), branches(x))


# --- memory that a graph allocates, and that the passes let none hold more than the program does --


def chain(*ops):
    """A graph that applies each op to the result of the previous one, and returns the last."""
    return fx.symbolic_trace(lambda x: functools.reduce(lambda value, op: op(value), ops, x))


@pytest.mark.parametrize(
    ("ops", "size", "expected"),
    [
        ([aten.neg.default] * 5, 4, Footprint(5, 32)),
        ([aten.neg.default, aten.neg_.default, aten.t.default], 4, Footprint(1, 16)),
        ([aten.neg_.default], 4, Footprint(0, 0)),
        ([aten.neg.default], 0, Footprint(0, 0)),
    ],
)
def test_a_footprint_counts_calls_and_bytes(ops, size, expected):
    module = chain(*ops)
    update_metadata(module, torch.ones(size))
    assert footprint(module.graph) == expected


def eliminates(a):
    a = a.clone()
    for row in range(1, 4):
        a[row] -= a[row - 1] * (a[row, row - 1] / a[row - 1, row - 1])
    return a


def test_a_copy_that_is_stored_into_stays_so_that_no_store_copies_its_original():
    matrix = torch.randn(6, 6)
    captured = capture(eliminates, [matrix])
    update_metadata(captured, matrix)
    allowed, compiled = footprint(captured.graph), pipeline(eliminates, matrix)
    found = footprint(compiled.graph)
    assert found.calls <= allowed.calls
    assert found.peak <= allowed.peak
    assert torch.equal(compiled(matrix), eliminates(matrix))


def writes_between(x, y):
    torch._foreach_neg_([x, y])


def test_the_backend_holds_no_more_than_the_captured_graph():
    memory = torch.arange(8.0)
    inputs = memory[::2], memory[1::2]
    assert footprint(pipeline(writes_between, *inputs).graph).peak == 2 * 16
    assert aten._foreach_neg_.default in called_by_backend(writes_between, *inputs)
    assert memory.tolist() == (-torch.arange(8.0)).tolist()
