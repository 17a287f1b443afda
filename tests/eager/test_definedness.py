"""Which functions are defined in eager, and which are not: tables of expressions."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from aliasproof.eager import definedness
from aliasproof.eager.definedness import Undefined, Watch
from aliasproof.ir.devices import cpu_capability
from aliasproof.ir.errors import InternalError
from aliasproof.oracles.observation import observe_eager

aten = torch.ops.aten
NAN = math.nan
Function = Callable[..., object]


def vector(count: int = 4, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.arange(1, count + 1).to(dtype)


def matrix(rows: int = 3) -> Tensor:
    return vector(rows * rows).view(rows, rows)


def bools() -> Tensor:
    return vector(dtype=torch.bool)


def indices(*values: int) -> Tensor:
    return torch.tensor(values)


def floats(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float32)


def as_bools(*values: int) -> Tensor:
    return torch.tensor(values, dtype=torch.uint8).view(torch.bool)


def half_filled() -> Tensor:
    buffer = torch.empty(4)
    buffer[:2].zero_()
    return buffer


# Each line: an expression of x, which is the tensor before the lines.
DEFINED = {
    "vector()": """
        x.expand(3, 4).zero_()  # one value through expand
        x.unfold(0, 2, 1).fill_(7)  # one value through unfold
        x.as_strided((2, 2), (1, 1)).copy_(torch.ones(2, 2))  # one value through as_strided
        x.as_strided((2, 2), (1, 1)).copy_(matrix(3)[:2, :2] * 0)  # equal where it overlaps
        x.as_strided((2, 2), (1, 1)).copy_(floats(1, 2, 2, 3).view(2, 2))  # equal where they meet
        x.as_strided((2, 2), (1, 1)).copy_(torch.full((2, 2), math.nan))  # NaN in both places
        x.add_(x)
        x.set_(x[1:]).add_(1)  # set to a part of itself
        x.expand(3, 4).t_() + 1  # turned, though it overlaps itself
        x.copy_(x)
        x[:2].add_(x[2:])  # disjoint halves
        x[::2].copy_(x[1::2])  # interleaved, not overlapping
        torch.add(x, 1, out=x)  # out= is the operand
        torch.add(x[:2], 1, out=x[2:])  # out= beside the operand
        x.expand(2, 4) + x.unfold(0, 4, 1)  # reads an overlapping operand
        x.index_put_((indices(0, 1),), floats(1, 2))
        x.index_put_((indices(0, 0),), floats(1, 2), True)  # equal indices, added
        x.index_put_((indices(0, -4),), torch.tensor(5.0))  # one value
        x.index_put_((indices(0, 1, 0),), floats(1, math.nan, 1))  # equal values at equal indices
        x.scatter_(0, indices(1, 1), floats(3, 3, 4))  # the third is not stored
        x.index_copy_(0, indices(2, 2), floats(3, 3))
        x.put_(indices(0, -4), floats(3, 3))
        x.index_put_((x > 2,), torch.tensor(9.0))  # by a mask
        x.scatter_(0, indices(2, 0), floats(1, 2))
        x.scatter_(0, indices(1, 1), 5.0)  # one value
        x.index_add_(0, indices(0, 0), floats(1, 2))
        torch.empty(4).fill_(1) + x  # empty, filled before it is read
        half_filled()[:2] + x[:2]  # empty, only the filled part is read
        (half := half_filled(), half[2:].copy_(x[2:]), half + 1)[2]  # empty, filled in two parts
        torch.add(x, 1, out=torch.empty(4))
        torch.add(x, 1, out=torch.empty(0))  # empty as out= of another size
        (torch.empty(4).uniform_(), torch.dropout(x, 0.5, True))  # filled with random values
        torch.empty(2).resize_(4).fill_(1) + x  # lengthened, then filled
        aten.resize_as.default(x, x[:2]).neg()  # a shorter copy
        x.fill_(x[1])  # fill with its own element
        (torch.empty(4), x + 1)[1]  # empty, never used
        torch.empty(0, 3)
        torch.rrelu(x, training=True)  # does not read its noise
        torch.rrelu_(x, training=True)
        torch._foreach_mul_([x[:2], x[2:]], [x[:2], x[2:]])  # foreach onto itself
        torch._foreach_add_([x[:2], x[2:]], 1)  # foreach, disjoint targets
        torch.aminmax(matrix(), dim=0, out=((b := vector(6))[:3], b[3:]))  # two out= side by side
        """,
    "matrix()": """
        x.t().mul_(x.t())  # multiply its own transpose view
        x.scatter_(0, indices(0, 0, 0)[None], matrix())  # equal only across columns
        """,
    "bools()": """
        x.masked_fill_(x, torch.tensor(True))  # a mask that it fills itself
        x[0].masked_fill_(x[0], x[0])  # one element as all three operands
        """,
    "floats(2.5, -2.5)": "x.to(torch.int64)",
    "floats(-0.5, 254.5)": "x.to(torch.uint8)",
    "floats(math.nan)": "x.to(torch.bool)",
    "indices(300, -1)": "x.to(torch.uint8)",
    "as_bools(0, 1)": "x.logical_not()",
    "as_bools(7)": """
        x.zero_()  # other bytes as bool, overwritten
        x.copy_(x)  # copied onto themselves
        """,
    "lowest(torch.int32)": "(x + 1) // -1",
    "lowest(torch.int64)": "(x + 1).gcd(indices(6))",
    "lowest(torch.uint8)": "x.lcm(x)",
    "indices(1)": "x << 63",
    "floats(-128.5)": "x.to(torch.int8)",
    "torch.tensor([1 + 0j, 2 - 1j])": "x.rsqrt()",
    "torch.tensor([2 + 0j])": "x.acosh()",
    "floats(-math.inf, 1e38)": "torch.nn.functional.gelu(x)",
    "floats(math.inf, 7)": "x.fmod(2)",
    "torch.ones(2)": """
        draws(x, torch.zeros(2), training=True)
        draws(x, torch.zeros(4)[::2], training=False)  # it does not write the noise
        """,
    "torch.ones(3, 2).t()": "updated(x, torch.ones(3, 2).t(), torch.ones(3, 2).t())",
    "torch.ones(2, 1) * 1j": "x.conj().squeeze_()",  # all dimensions
    "indices(7)": "x.fmod(2)",
    "grid()": """
        aten.grid_sampler_2d(GRID, x, 2, 0, False)
        aten.grid_sampler_2d(GRID, x, 0, 2, False)
        """,
}

OVERLAPS = "aten.{op} writes through a region that overlaps itself"
DIFFERENT = "aten.{op} writes different values to one position"
READS = "aten.{op} reads memory that it is writing at other positions"
TWICE = "aten.{op} stores different values at the same index"
CONVERTS = "aten.{op} converts a value that the integer dtype cannot represent"
BROKEN_BOOL = "aten.{op} reads a bool that is neither 0 nor 1"
NEVER = "aten.{op} reads memory that was never written"
RETURNS = "returns memory that was never written"
LOWEST = "aten.{op} divides the lowest integer by -1"
DIVISOR = "aten.{op} takes a common divisor of the lowest integer"
SHIFT = "aten.{op} shifts by a number of bits that is out of range"
MODE = "aten.{op} samples in a mode that is none"
CUT = "aten.{op} is called on its branch cut, where the sign of a zero decides"
# Each line: the operator that the error names, and the expression.
UNDEFINED = [
    (OVERLAPS, "vector()", "add_.Tensor: x.expand(3, 4).add_(1)"),
    (OVERLAPS, "vector()", "mul_.Tensor: x.unfold(0, 2, 1).mul_(2)"),
    (OVERLAPS, "vector()", "add.out: torch.add(x, 1, out=x[:1].expand(4))"),
    (
        "aten.{op} scatters into a tensor that overlaps itself",
        "vector()",
        "select_scatter.default: x.expand(2, 4).select_scatter(x, 0, 0)",
    ),
    (
        "aten.{op} scatters through a view that overlaps itself",
        "vector()",
        "as_strided_scatter.default: x.as_strided_scatter(matrix(2), (2, 2), (1, 1))",
    ),
    (DIFFERENT, "vector()", "copy_.default: x.as_strided((2, 2), (1, 1)).copy_(matrix(2))"),
    (DIFFERENT, "vector()", "copy_.default: x.as_strided((2, 2), (1, 1)).copy_(floats(1, NAN))"),
    (READS, "vector()", "copy_.default: x[1:].copy_(x[:-1])"),
    (READS, "matrix()", "add_.Tensor: x.add_(x.t())"),
    (READS, "matrix()", "add_.Tensor: x.add_(x[0])"),
    (READS, "vector()", "add_.Tensor: (y := x.view(torch.int32))[1:].add_(y[:-1])"),
    (READS, "vector()", "add.out: torch.add(x[1:], 1, out=x[:-1])"),
    (READS, "matrix().bool()", "masked_fill_.Tensor: x.masked_fill_(x[1, 1], torch.tensor(True))"),
    (READS, "vector()", "cumsum.out: torch.cumsum(x, 0, out=x)"),
    (READS, "matrix()", "mm.out: torch.mm(x, x, out=x)"),
    (READS, "vector()", "index_put_.default: x.index_put_((indices(0, 1),), x[1:3])"),
    (
        READS,
        "vector()",
        "_foreach_add_.List: torch._foreach_add_([x[3:] * 1, x[:3]], [x[3:], x[1:]])",
    ),
    (
        "aten.{op} writes the same memory through two arguments",
        "vector(5)",
        "aminmax.out: torch.aminmax(matrix(), dim=0, out=(x[:3], x[2:]))",
    ),
    (TWICE, "vector()", "index_put_.default: x.index_put_((indices(0, 0),), floats(1, 2))"),
    (TWICE, "vector()", "index_put_.default: x.index_put_((indices(0, -4),), floats(1, 2))"),
    (TWICE, "vector()", "index_put.default: x.index_put((indices(3, 3),), floats(1, 2))"),
    (TWICE, "vector()", "scatter_.src: x.scatter_(0, indices(1, 1), floats(1, 2))"),
    (TWICE, "matrix()", "scatter_.src: x.scatter_(1, indices(0, 2, 0)[None], matrix())"),
    (TWICE, "vector()", "scatter.src: x.scatter(0, indices(1, 1), floats(1, 2))"),
    (TWICE, "vector()", "index_copy_.default: x.index_copy_(0, indices(2, 2), floats(1, 2))"),
    (TWICE, "vector()", "put_.default: x.put_(indices(0, 0), floats(1, 2))"),
    (TWICE, "vector()", "put_.default: x.put_(indices(0, 0), floats(0.0, -0.0))"),
    (
        TWICE,
        "matrix(3)",
        "index_copy_.default: x.index_copy_(1, indices(2, 2, 0), torch.eye(3)[[0, 0, 1]])",
    ),
    (CONVERTS, "vector(dtype=torch.int64)", "copy_.default: x.copy_(torch.full((4,), math.nan))"),
    (CONVERTS, "floats(1, math.nan)", "_to_copy.default: x.to(torch.int64)"),
    (CONVERTS, "floats(1, 1e30)", "_to_copy.default: x.to(torch.int32)"),
    (CONVERTS, "floats(128)", "_to_copy.default: x.to(torch.int8)"),
    (CONVERTS, "floats(256)", "_to_copy.default: x.to(torch.uint8)"),
    (CONVERTS, "floats(-1)", "_to_copy.default: x.to(torch.uint8)"),
    (CONVERTS, "floats(math.inf)", "_to_copy.default: x.to(torch.int64)"),
    (
        CONVERTS.replace("aten", "prims"),
        "floats(math.inf)",
        "convert_element_type.default: torch.ops.prims.convert_element_type(x, torch.int64)",
    ),
    (BROKEN_BOOL, "as_bools(7)", "logical_not.default: x.logical_not()"),
    (BROKEN_BOOL, "as_bools(1, 2)", "clone.default: x.clone()"),
    (BROKEN_BOOL, "as_bools(2)", "bitwise_not_.default: x.bitwise_not_()"),
    (NEVER, "vector()", "add.Tensor: torch.empty(4) + x"),
    (NEVER, "vector()", "add.Tensor: half_filled() + x"),
    (NEVER, "vector()", "add_.Tensor: torch.empty_like(x).add_(1)"),
    (NEVER, "vector()", "copy_.default: x.copy_(x.new_empty(4))"),
    (NEVER, "vector()", "add.Tensor: x[:2].clone().resize_(4) + x"),
    (NEVER, "vector()", "neg.default: x[:2].clone().resize_(2, 2).t_().neg()"),
    (NEVER, "vector()", "neg.default: aten.resize.default(x, [6]).neg()"),
    (NEVER, "vector()", "clone.default: torch.empty_strided((2, 2), (1, 2)).t()[1].clone()"),
    (
        NEVER,
        "ORDER",
        "index_put_.default: torch.empty(3).index_put_((x,), vector(3), True)",
    ),  # a sum
    (RETURNS, "vector()", "empty: torch.empty(4)"),
    (RETURNS, "vector()", "half filled: half_filled()"),
    (RETURNS, "vector()", "the other half: half_filled()[2:]"),
    (LOWEST, "lowest(torch.int32)", "floor_divide.default: x // -1"),
    (LOWEST, "lowest(torch.int64)", "remainder.Tensor: x.remainder(indices(-1))"),
    (DIVISOR, "lowest(torch.int64)", "gcd.default: x.gcd(indices(6))"),
    (DIVISOR, "lowest(torch.int32)", "lcm_.default: x.lcm_(x.new_tensor([6]))"),
    (DIVISOR, "lowest(torch.int64)", "lcm.default: indices(7).lcm(x)"),
    (SHIFT, "indices(1)", "__lshift__.Scalar: x << 64"),
    (SHIFT, "indices(-1)", "__rshift__.Tensor: x >> x"),
    (CUT, "torch.ones(9) + 0j", "rsqrt.default: (-x).rsqrt()"),
    (CUT, "torch.ones(9) + 0j", "_foreach_log.default: torch._foreach_log([-x])[0]"),
    (CUT, "torch.tensor([2j])", "atan_.default: x.atan_()"),
    (CUT, "torch.tensor([0j])", "acosh.default: x.acosh()"),
    (MODE, "grid()", "grid_sampler_2d.default: aten.grid_sampler_2d(GRID, x, 3, 0, False)"),
    (MODE, "grid()", "grid_sampler_2d.default: aten.grid_sampler_2d(GRID, x, 0, -1, False)"),
]
GRID = torch.ones(1, 1, 4, 4)


def grid() -> Tensor:
    return torch.zeros(1, 4, 4, 2)


def lowest(dtype: torch.dtype) -> Tensor:
    return torch.tensor([torch.iinfo(dtype).min], dtype=dtype)


def evaluated(expression: str, **names: object) -> Tensor:
    """The value of an expression of the tables."""
    value: Tensor = eval(expression, {**globals(), **names})  # noqa: S307 - our own text
    return value


EXPRESSIONS = [
    (given, line.strip()) for given, lines in DEFINED.items() for line in lines.strip().splitlines()
]


@pytest.mark.parametrize(("given", "expression"), EXPRESSIONS)
def test_defined(given: str, expression: str) -> None:
    observed, trace = observe_eager(lambda x: evaluated(expression, x=x), [evaluated(given)])
    assert observed.error is None
    assert trace.unspecified is None


@pytest.mark.vectors
@pytest.mark.parametrize(("reason", "given", "line"), UNDEFINED)
def test_undefined(reason: str, given: str, line: str) -> None:
    op, _, expression = line.partition(": ")
    with pytest.raises(Undefined) as raised:
        observe_eager(lambda x: evaluated(expression, x=x), [evaluated(given)])
    assert reason.format(op=op) == str(raised.value).partition(", and eager raises ")[0]


def test_an_undefined_call_that_eager_refuses_has_its_error() -> None:
    with pytest.raises(Undefined, match="and eager raises RuntimeError: unsupported operation"):
        observe_eager(lambda x: x.expand(3, 4).add_(1), [vector()])


def test_nothing_runs_once_a_call_is_undefined() -> None:
    x = vector()
    with pytest.raises(Undefined):
        observe_eager(lambda x: x[1:].copy_(x[:-1]), [x])
    assert x.tolist() == [1, 2, 3, 4]


def test_a_mistake_in_the_watch_is_not_an_error_of_eager(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(call: object) -> str | None:
        raise RuntimeError("planted")

    monkeypatch.setattr(definedness, "RULES", (broken,))
    with pytest.raises(InternalError, match="planted"):
        observe_eager(lambda x: x + 1, [vector()])


# --- kernels that disagree ------------------------------------------------------------------------

# With the vector instructions of processors on which the kernels disagree. A call that is undefined
# on one of them is undefined everywhere.
DISAGREEMENTS = [
    (torch.nn.functional.gelu, torch.full((64,), math.inf), ("AVX512",)),
    (lambda x: x.fmod(0.5), torch.full((64,), 3e38), ("AVX2", "AVX512")),
    (lambda x: x.remainder(torch.full_like(x, 1e-38)), torch.full((64,), 1e20), ("AVX2", "AVX512")),
    (
        lambda x: torch.ops.aten.logit_backward(torch.ones_like(x), x),
        torch.full((64,), -0.0),
        ("DEFAULT", "AVX2", "AVX512"),
    ),
]


@pytest.mark.vectors
@pytest.mark.parametrize(("function", "x", "capabilities"), DISAGREEMENTS)
def test_kernels_disagree(function, x, capabilities):
    if cpu_capability() not in capabilities:
        pytest.skip(f"they may agree with the instructions of this processor: {cpu_capability()}")
    apart = torch.stack([x, x], 1)[:, 0]
    assert not torch.equal(function(x).nan_to_num(5), function(apart).nan_to_num(5))


@pytest.mark.vectors
@pytest.mark.parametrize(("function", "x", "capabilities"), DISAGREEMENTS)
def test_a_call_on_which_kernels_disagree_is_undefined(function, x, capabilities):
    with pytest.raises(Undefined, match=r" depends on the layout: its kernels disagree$"):
        observe_eager(function, [x])


def test_a_number_is_copied_as_a_tensor():
    """`copy_` takes a number where its schema has a tensor."""
    x, whole = torch.ones(2), torch.ones(2, dtype=torch.int64)
    with Watch([x, whole]):
        x.copy_(1.5)  # type: ignore[arg-type]
    assert x.tolist() == [1.5, 1.5]
    with Watch([x, whole]), pytest.raises(Undefined, match="cannot represent"):
        whole.copy_(math.nan)  # type: ignore[arg-type]


# --- calls that eager refuses did not run; `except` does not hide an undefined call ---------------


Call = Callable[[Tensor], object]


def caught(call: Call, *errors: type[Exception]) -> Call:
    def function(x: Tensor) -> Tensor:
        try:
            call(x)
        except errors:
            return x + 1
        return x

    return function


REFUSED: dict[str, Call] = {
    "overlap": lambda x: x.expand(3, 4).add_(1),
    "partial overlap": lambda x: x[1:].copy_(x[:-1]),
    "index": lambda x: x.index_put_((torch.tensor([9, 9]),), torch.ones(2)),
    "shapes": lambda x: torch.ones(2, dtype=torch.int32).copy_(torch.full((3,), torch.nan)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_eager_refuses_did_not_run(name: str) -> None:
    function = caught(REFUSED[name], RuntimeError, IndexError)
    observed, trace = observe_eager(function, [torch.arange(4.0)])
    (output,) = observed.outputs
    assert isinstance(output, Tensor)
    assert output.tolist() == [1, 2, 3, 4]
    assert trace.overlap_error is ("overlap" in name)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x.index_put_((torch.tensor([1, 1]),), torch.arange(2.0)),
        lambda x: torch.full((4,), -(2**31), dtype=torch.int32).floor_divide_(-1),
    ],
)
def test_what_is_undefined_cannot_be_caught(call: Call) -> None:
    with pytest.raises(Undefined):
        observe_eager(caught(call, Exception), [torch.arange(4.0)])


def test_kernels_disagree_on_copies_of_a_broken_bool() -> None:
    x = torch.tensor([2], dtype=torch.uint8).view(torch.bool)
    assert [x.clone().view(torch.uint8).item(), torch.cat([x]).view(torch.uint8).item()] == [1, 2]


# --- calls that are defined on this device, though torch does not specify them --------------------


@torch.library.custom_op("unspecified_test::fold", mutates_args=("x",))
def fold(x: Tensor, y: Tensor) -> None:
    for one, other in zip(x, y, strict=True):
        one.add_(other)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch._foreach_add_([x[:3], x[1:]], 1),  # slices that overlap
        lambda x: torch._foreach_add_([x, x], 1),
        lambda x: torch._foreach_add_([x[:2], x[2:]], [x[2:], x[:2]]),  # read and written
        lambda x: torch.ops.unspecified_test.fold(x[1:], x[:-1]),  # a Python operator
    ],
)
def test_unspecified(function: Callable[..., object]) -> None:
    observed, trace = observe_eager(function, [torch.arange(1.0, 5)])
    assert observed.error is None
    assert trace.unspecified is not None


# --- memory that no call has written: resized storages, and losses of empty inputs ----------------


aten = torch.ops.aten
NOTHING, NO_LABELS = torch.empty(0, 3), torch.empty(0, 3, dtype=torch.int64)


@pytest.mark.parametrize("written", ["x[:2].fill_(1)", "x.fill_(1)"])
def test_a_storage_that_shrank_and_grew_has_memory_that_was_never_written(written: str) -> None:
    storage = (x := torch.ones(4)).untyped_storage()
    with Watch() as watch:
        storage.resize_(0)
        storage.resize_(16)
        with pytest.raises(Undefined, match="reads memory that was never written"):
            x.add(1)
        exec(written, {"x": x})
    assert watch.shows_unwritten(x) is ("[" in written)
    assert not watch.shows_unwritten(x[:2])
    assert "noting" not in torch.UntypedStorage.resize_.__qualname__


@pytest.mark.parametrize(
    "loss",
    [
        lambda: aten.soft_margin_loss(NOTHING, NOTHING, -1),
        lambda: aten.multi_margin_loss(NOTHING, NO_LABELS[:, 0]),
        lambda: aten.multilabel_margin_loss(NOTHING, NO_LABELS),
    ],
)
def test_a_loss_of_nothing_may_be_memory_that_was_never_written(loss: Callable[[], Tensor]) -> None:
    with Watch() as watch:
        result = loss()
    assert watch.shows_unwritten(result)


# --- stores by index write element by element, and read none --------------------------------------


ORDER = torch.tensor([2, 0, 1])
STORES: dict[str, Callable[[Tensor, Tensor], object]] = {
    "index_put_": lambda empty, order: empty.index_put_((order,), torch.arange(len(order))),
    "scatter_": lambda empty, order: empty.scatter_(0, order, torch.arange(len(order))),
    "scatter_ of a number": lambda empty, order: empty.scatter_(0, order, 7),
    "index_copy_": lambda empty, order: empty.index_copy_(0, order, torch.arange(len(order))),
    "index_fill_": lambda empty, order: empty.index_fill_(0, order, 7),
    "put_": lambda empty, order: empty.put_(order, torch.arange(len(order))),
    "masked_fill_": lambda empty, order: empty.masked_fill_(
        torch.zeros(3, dtype=torch.bool).index_fill_(0, order, True), 7
    ),
}


@pytest.mark.parametrize("store", STORES.values(), ids=STORES)
def test_what_is_stored_at_is_written_and_the_rest_is_not(store):
    def filled(order: Tensor) -> Tensor:
        empty = torch.empty(3, dtype=torch.int64)
        store(empty, order)
        return empty

    assert observe_eager(filled, [ORDER])[0].error is None
    with pytest.raises(Undefined, match="returns memory that was never written"):
        observe_eager(filled, [ORDER[:2]])


def test_one_row_of_a_loop_after_another() -> None:
    def stacked(x: Tensor) -> Tensor:
        rows = torch.empty(3, 2)
        for number in range(3):
            rows.index_copy_(0, torch.tensor([number]), x[None] + number)
        return rows

    assert observe_eager(stacked, [torch.ones(2)])[0].error is None


def test_a_mask_without_dimensions_stores_everywhere_or_nowhere() -> None:
    """`index_put_` fills with such a mask, and `index` has no kernel for it (torch 2.13)."""

    def stores(x: Tensor) -> Tensor:
        return x.index_put_((x.sum() > 2,), torch.tensor(7.0))

    for x, stored in ((torch.ones(3), 7.0), (torch.zeros(3), 0.0)):
        [output] = observe_eager(stores, [x])[0].outputs
        torch.testing.assert_close(output, torch.full((3,), stored))


# --- inference mode -------------------------------------------------------------------------------


def test_what_vmap_calls_is_watched():
    with Watch(), torch.inference_mode():
        doubled = torch.vmap(lambda row: row * 2)(torch.arange(4.0))
    assert doubled.tolist() == [0, 2, 4, 6]


# --- eager itself is wrong, so there is nothing to compare ----------------------------------------


aten = torch.ops.aten


def draws(x: Tensor, noise: Tensor, *, training: bool) -> Tensor:
    result: Tensor = aten.rrelu_with_noise.default(x, noise, 0.1, 0.1, training)
    return result


def test_the_kernel_takes_the_noise_for_contiguous() -> None:
    noise = torch.zeros(4)
    draws(torch.ones(2), noise[::2], training=True)
    assert noise[1], "no element of the noise: fixed in this torch, and the rule can go"


def test_a_noise_with_gaps_is_undefined_in_training() -> None:
    noise = torch.zeros(4)
    with pytest.raises(Undefined, match="takes its noise for contiguous"):
        observe_eager(lambda x: draws(x, noise[::2], training=True), [torch.ones(2)])
    assert not noise.any()


def updated(parameter: Tensor, gradient: Tensor, momentum: Tensor) -> Tensor:
    sgd = {"weight_decay": 0.0, "momentum": 0.5, "lr": 1.0, "dampening": 0.0}
    flags = dict.fromkeys(("nesterov", "maximize", "is_first_step"), False)
    aten._fused_sgd_.default([parameter], [gradient], [momentum], **sgd, **flags)
    return parameter


def test_a_fused_optimizer_takes_a_parameter_for_one_row() -> None:
    around = torch.zeros(8)
    updated(around[::2], torch.ones(4), torch.zeros(4))
    assert around[1] == -1, "no element of the parameter: fixed in this torch, the rule can go"


@pytest.mark.parametrize(
    ("momentum", "reason"), [(torch.zeros(3), "of its size"), (torch.zeros(8)[::2], "without gaps")]
)
def test_a_fused_optimizer_on_states_of_another_layout_is_undefined(momentum, reason):
    """It read past the end of the storage, and ended the process."""
    with pytest.raises(Undefined, match=reason):
        observe_eager(updated, [torch.zeros(4), torch.ones(4), momentum])


def squeezed_conjugate(x: Tensor) -> Tensor:
    with torch.no_grad():
        x.conj().squeeze_(1)
    return x


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
def test_a_squeeze_of_a_conjugate_writes_memory() -> None:
    memory = torch.tensor([1j, 2j, 3j, 4j])
    squeezed_conjugate(memory.as_strided((2, 1, 2), (1, 1, 2)))
    assert memory[1] == 3j, "no element was moved: fixed in this torch, and the rule can go"


def test_a_squeeze_of_a_conjugate_is_undefined() -> None:
    with pytest.raises(Undefined, match="should only view"):
        observe_eager(squeezed_conjugate, [torch.tensor([[1j, 2j], [3j, 4j]]).unsqueeze(1)])


def copied(to: Tensor, source: Tensor, *, lazy: str) -> Tensor:
    negative = aten._neg_view.default
    if lazy == "source":
        to.copy_(negative(source))
    elif lazy == "destination":
        negative(to).copy_(source)
    else:
        negative(to).copy_(negative(source))
    return to


DTYPES = [(torch.float16, torch.float32), (torch.float32, torch.float16)]


@pytest.mark.parametrize("lazy", ["source", "destination"])
@pytest.mark.parametrize("dtypes", DTYPES)
def test_a_copy_between_half_and_float_loses_the_sign(dtypes, lazy):
    to, source = (torch.ones(4, dtype=dtype) for dtype in dtypes)
    assert copied(to, source, lazy=lazy)[0] == 1, "fixed in this torch, and the rule can go"
    with pytest.raises(Undefined, match="loses the sign"):
        observe_eager(lambda *args: copied(*args, lazy=lazy), [to, source])


@pytest.mark.parametrize(
    ("dtypes", "lazy"), [(DTYPES[0], "both"), ((torch.bfloat16, torch.float32), "source")]
)
def test_a_copy_that_keeps_the_sign_is_defined(dtypes, lazy):
    to, source = (torch.ones(4, dtype=dtype) for dtype in dtypes)
    observed, _ = observe_eager(lambda *args: copied(*args, lazy=lazy), [to, source])
    assert observed.error is None
    (output,) = observed.outputs
    assert isinstance(output, Tensor)
    assert output[0] == (1 if lazy == "both" else -1)
