"""Which functions are defined in eager, and which are not: two tables."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from _pytest.mark.structures import ParameterSet
from torch import Tensor

from aliasproof.eager import definedness
from aliasproof.eager.definedness import Undefined
from aliasproof.ir.errors import InternalError, Rejected
from aliasproof.ir.execution import ProgramFunction
from aliasproof.ir.program import Input, Instruction, Program, Ref, Storage
from aliasproof.ir.values import input_tensors
from aliasproof.oracles.observation import observe_eager

NAN = float("nan")
Function = Callable[..., object]


def vector(count: int = 4, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.arange(1, count + 1).to(dtype)


def matrix(rows: int = 3) -> Tensor:
    return vector(rows * rows).view(rows, rows)


def indices(*values: int) -> Tensor:
    return torch.tensor(values)


def floats(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float32)


def half_filled() -> Tensor:
    buffer = torch.empty(4)
    buffer[:2].zero_()
    return buffer


def case(name: str, function: Function, *inputs: Tensor) -> ParameterSet:
    return pytest.param(function, inputs, id=name)


DEFINED = [
    case(
        "a mask that it fills itself",
        lambda x: x.masked_fill_(x, torch.tensor(True)),
        vector(dtype=torch.bool),
    ),
    case(
        "one element as all three operands",
        lambda x: x[0].masked_fill_(x[0], x[0]),
        vector(dtype=torch.bool),
    ),
    case("one value through expand", lambda x: x.expand(3, 4).zero_(), vector()),
    case("one value through unfold", lambda x: x.unfold(0, 2, 1).fill_(7), vector()),
    case(
        "one value through as_strided",
        lambda x: x.as_strided((2, 2), (1, 1)).copy_(torch.ones(2, 2)),
        vector(),
    ),
    case(
        "equal where it overlaps",
        lambda x: x.as_strided((2, 2), (1, 1)).copy_(matrix(3)[:2, :2] * 0),
        vector(),
    ),
    case(
        "different values, equal where they meet",
        lambda x: x.as_strided((2, 2), (1, 1)).copy_(torch.tensor([[1.0, 2.0], [2.0, 3.0]])),
        vector(),
    ),
    case(
        "NaN in both places",
        lambda x: x.as_strided((2, 2), (1, 1)).copy_(torch.full((2, 2), NAN)),
        vector(),
    ),
    case("add to itself", lambda x: x.add_(x), vector()),
    case("multiply its own transpose view", lambda x: x.t().mul_(x.t()), matrix()),
    case("set to a part of itself", lambda x: x.set_(x[1:]).add_(1), vector()),
    case("turned, though it overlaps itself", lambda x: x.expand(3, 4).t_() + 1, vector()),
    case("copy onto itself", lambda x: x.copy_(x), vector()),
    case("disjoint halves", lambda x: x[:2].add_(x[2:]), vector()),
    case("interleaved, not overlapping", lambda x: x[::2].copy_(x[1::2]), vector()),
    case("out= is the operand", lambda x: torch.add(x, 1, out=x), vector()),
    case("out= beside the operand", lambda x: torch.add(x[:2], 1, out=x[2:]), vector()),
    case("reads an overlapping operand", lambda x: x.expand(2, 4) + x.unfold(0, 4, 1), vector()),
    case(
        "index_put_, different indices",
        lambda x: x.index_put_((indices(0, 1),), floats(1, 2)),
        vector(),
    ),
    case(
        "index_put_, equal indices added",
        lambda x: x.index_put_((indices(0, 0),), floats(1, 2), True),
        vector(),
    ),
    case("index_put_ by mask", lambda x: x.index_put_((x > 2,), torch.tensor(9.0)), vector()),
    case(
        "scatter_, different indices",
        lambda x: x.scatter_(0, indices(2, 0), floats(1, 2)),
        vector(),
    ),
    case(
        "scatter_, equal only across columns",
        lambda x: x.scatter_(0, indices(0, 0, 0)[None], matrix()),
        matrix(),
    ),
    case("scatter_ of one value", lambda x: x.scatter_(0, indices(1, 1), 5.0), vector()),
    case(
        "index_add_, equal indices",
        lambda x: x.index_add_(0, indices(0, 0), floats(1, 2)),
        vector(),
    ),
    case("empty, filled before it is read", lambda x: torch.empty(4).fill_(1) + x, vector()),
    case("empty, only the filled part is read", lambda x: half_filled()[:2] + x[:2], vector()),
    case(
        "empty, filled in two parts",
        lambda x: (half := half_filled(), half[2:].copy_(x[2:]), half + 1)[2],
        vector(),
    ),
    case("empty as out=", lambda x: torch.add(x, 1, out=torch.empty(4)), vector()),
    case("empty as out= of another size", lambda x: torch.add(x, 1, out=torch.empty(0)), vector()),
    case(
        "empty, filled with random values",
        lambda x: (torch.empty(4).uniform_(), torch.dropout(x, 0.5, True)),
        vector(),
    ),
    case(
        "empty, lengthened, then filled", lambda x: torch.empty(2).resize_(4).fill_(1) + x, vector()
    ),
    case("a shorter copy", lambda x: torch.ops.aten.resize_as.default(x, x[:2]).neg(), vector()),
    case("fill with its own element", lambda x: x.fill_(x[1]), vector()),
    case("empty, never used", lambda x: (torch.empty(4), x + 1)[1], vector()),
    case("empty, without elements", lambda x: torch.empty(0, 3), vector()),
    case("fraction to int", lambda x: x.to(torch.int64), floats(2.5, -2.5)),
    case("fraction above -1 to uint8", lambda x: x.to(torch.uint8), floats(-0.5, 254.5)),
    case("NaN to bool", lambda x: x.to(torch.bool), floats(NAN)),
    case("large int to uint8", lambda x: x.to(torch.uint8), indices(300, -1)),
    case(
        "bytes 0 and 1 as bool",
        lambda x: x.view(torch.bool).logical_not(),
        torch.tensor([0, 1], dtype=torch.uint8),
    ),
    case(
        "other bytes as bool, overwritten",
        lambda x: x.view(torch.bool).zero_(),
        torch.tensor([7], dtype=torch.uint8),
    ),
    case(
        "other bytes as bool, copied onto themselves",
        lambda x: (flags := x.view(torch.bool)).copy_(flags),
        torch.tensor([7], dtype=torch.uint8),
    ),
    case("rrelu does not read its noise", lambda x: torch.rrelu(x, training=True), vector()),
    case("rrelu in place", lambda x: torch.rrelu_(x, training=True), vector()),
    case(
        "foreach onto itself",
        lambda x: torch._foreach_mul_([x[:2], x[2:]], [x[:2], x[2:]]),
        vector(),
    ),
    case("foreach, disjoint targets", lambda x: torch._foreach_add_([x[:2], x[2:]], 1), vector()),
    case(
        "two out= side by side",
        lambda x, b: torch.aminmax(x, dim=0, out=(b[:3], b[3:])),
        matrix(),
        vector(6),
    ),
]

UNDEFINED = [
    (
        "aten.{op} writes through a region that overlaps itself",
        [
            case("add_.Tensor", lambda x: x.expand(3, 4).add_(1), vector()),
            case("mul_.Tensor", lambda x: x.unfold(0, 2, 1).mul_(2), vector()),
            case("add.out", lambda x: torch.add(x, 1, out=x[:1].expand(4)), vector()),
        ],
    ),
    (
        "aten.{op} scatters into a tensor that overlaps itself",
        [
            case(
                "select_scatter.default", lambda x: x.expand(2, 4).select_scatter(x, 0, 0), vector()
            )
        ],
    ),
    (
        "aten.{op} scatters through a view that overlaps itself",
        [
            case(
                "as_strided_scatter.default",
                lambda x: x.as_strided_scatter(matrix(2), (2, 2), (1, 1)),
                vector(),
            )
        ],
    ),
    (
        "aten.{op} writes different values to one position",
        [
            case(
                "copy_.default", lambda x: x.as_strided((2, 2), (1, 1)).copy_(matrix(2)), vector()
            ),
            case(
                "copy_.default",
                lambda x: x.as_strided((2, 2), (1, 1)).copy_(floats(1, NAN)),
                vector(),
            ),
        ],
    ),
    (
        "aten.{op} reads memory that it is writing at other positions",
        [
            case("copy_.default", lambda x: x[1:].copy_(x[:-1]), vector()),
            case("add_.Tensor", lambda x: x.add_(x.t()), matrix()),
            case("add_.Tensor", lambda x: x.add_(x[0]), matrix()),
            case(
                "add_.Tensor",
                lambda x: x.view(torch.int32)[1:].add_(x.view(torch.int32)[:-1]),
                vector(),
            ),
            case("add.out", lambda x: torch.add(x[1:], 1, out=x[:-1]), vector()),
            case(
                "masked_fill_.Tensor",
                lambda x: x.masked_fill_(x[1, 1], torch.tensor(True)),
                matrix().bool(),
            ),
            case("cumsum.out", lambda x: torch.cumsum(x, 0, out=x), vector()),
            case("mm.out", lambda x: torch.mm(x, x, out=x), matrix()),
            case("index_put_.default", lambda x: x.index_put_((indices(0, 1),), x[1:3]), vector()),
            case(
                "_foreach_add_.List",
                lambda x: torch._foreach_add_([x[:3].clone(), x[:3]], [x[1:], x[1:]]),
                vector(),
            ),
        ],
    ),
    (
        "aten.{op} writes the same memory through two arguments",
        [
            case(
                "aminmax.out",
                lambda x, b: torch.aminmax(x, dim=0, out=(b[:3], b[2:])),
                matrix(),
                vector(5),
            ),
        ],
    ),
    (
        "aten.{op} stores twice at the same index",
        [
            case(
                "index_put_.default",
                lambda x: x.index_put_((indices(0, 0),), floats(1, 2)),
                vector(),
            ),
            case(
                "index_put_.default",
                lambda x: x.index_put_((indices(0, -4),), floats(1, 2)),
                vector(),
            ),
            case(
                "index_put.default",
                lambda x: x.index_put((indices(3, 3),), floats(1, 2)),
                vector(),
            ),
            case("scatter_.src", lambda x: x.scatter_(0, indices(1, 1), floats(1, 2)), vector()),
            case(
                "scatter_.src", lambda x: x.scatter_(1, indices(0, 2, 0)[None], matrix()), matrix()
            ),
            case("scatter.src", lambda x: x.scatter(0, indices(1, 1), floats(1, 2)), vector()),
            case(
                "index_copy_.default",
                lambda x: x.index_copy_(0, indices(2, 2), floats(1, 2)),
                vector(),
            ),
            case("put_.default", lambda x: x.put_(indices(0, 0), floats(1, 2)), vector()),
        ],
    ),
    (
        "aten.{op} converts a value that the integer dtype cannot represent",
        [
            case(
                "copy_.default", lambda x: x.copy_(torch.full((4,), NAN)), vector(dtype=torch.int64)
            ),
            case("_to_copy.default", lambda x: x.to(torch.int64), floats(1, NAN)),
            case("_to_copy.default", lambda x: x.to(torch.int32), floats(1, 1e30)),
            case("_to_copy.default", lambda x: x.to(torch.uint8), floats(256)),
            case("_to_copy.default", lambda x: x.to(torch.uint8), floats(-1)),
            case("_to_copy.default", lambda x: x.to(torch.int64), floats(float("inf"))),
        ],
    ),
    (
        "aten.{op} reads a bool that is neither 0 nor 1",
        [
            case(
                "logical_not.default",
                lambda x: x.view(torch.bool).logical_not(),
                torch.tensor([7], dtype=torch.uint8),
            ),
            case(
                "clone.default",
                lambda x: x.view(torch.bool).clone(),
                torch.tensor([1, 2], dtype=torch.uint8),
            ),
            case(
                "bitwise_not_.default",
                lambda x: x.view(torch.bool).bitwise_not_(),
                torch.tensor([2], dtype=torch.uint8),
            ),
        ],
    ),
    (
        "aten.{op} reads memory that was never written",
        [
            case("add.Tensor", lambda x: torch.empty(4) + x, vector()),
            case("add.Tensor", lambda x: half_filled() + x, vector()),
            case("add_.Tensor", lambda x: torch.empty_like(x).add_(1), vector()),
            case("copy_.default", lambda x: x.copy_(x.new_empty(4)), vector()),
            case("add.Tensor", lambda x: x[:2].clone().resize_(4) + x, vector()),
            case("neg.default", lambda x: x[:2].clone().resize_(2, 2).t_().neg(), vector()),
            case("neg.default", lambda x: torch.ops.aten.resize.default(x, [6]).neg(), vector()),
            case(
                "clone.default",
                lambda x: torch.empty_strided((2, 2), (1, 2)).t()[1].clone(),
                vector(),
            ),
        ],
    ),
    (
        "returns memory that was never written",
        [
            case("empty", lambda x: torch.empty(4), vector()),
            case("half filled", lambda x: half_filled(), vector()),
            case("the other half", lambda x: half_filled()[2:], vector()),
        ],
    ),
]
BY_REASON = [
    pytest.param(reason.format(op=call.id), *call.values, id=f"{call.id}-{index}-{reason[-16:]}")
    for reason, cases in UNDEFINED
    for index, call in enumerate(cases)
]


@pytest.mark.parametrize(("function", "inputs"), DEFINED)
def test_defined(function: Function, inputs: tuple[Tensor, ...]) -> None:
    observed, trace = observe_eager(function, [tensor.clone() for tensor in inputs])
    assert observed.error is None
    assert trace.unspecified is None


@pytest.mark.parametrize(("reason", "function", "inputs"), BY_REASON)
def test_undefined(reason: str, function: Function, inputs: tuple[Tensor, ...]) -> None:
    with pytest.raises(Undefined) as raised:
        observe_eager(function, [tensor.clone() for tensor in inputs])
    assert reason == str(raised.value)


def test_nothing_runs_once_a_call_is_undefined() -> None:
    x = vector()
    with pytest.raises(Undefined):
        observe_eager(lambda x: x[1:].copy_(x[:-1]), [x])
    assert x.tolist() == [1, 2, 3, 4]


def test_undefined_asks_for_another_program() -> None:
    assert issubclass(Undefined, Rejected)


def test_an_error_of_eager_is_an_observation() -> None:
    observed, _ = observe_eager(lambda x: x.view(5), [vector()])
    assert isinstance(observed.error, RuntimeError)
    assert "shape '[5]' is invalid" in str(observed.error)


def test_programs_are_watched_like_functions() -> None:
    program = Program(
        (Storage(torch.float32, 1),),
        (Input("x", 0, torch.float32, (2,), (0,)),),
        (Instruction("aten.add_.Tensor", (Ref("x"), Ref("x"))),),
        (),
    )
    with pytest.raises(Undefined, match="overlaps itself"):
        observe_eager(ProgramFunction(program), input_tensors(program))


def test_a_mistake_in_the_watch_is_not_an_error_of_eager(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(call: object) -> str | None:
        raise RuntimeError("planted")

    monkeypatch.setattr(definedness, "RULES", (broken,))
    with pytest.raises(InternalError, match="planted"):
        observe_eager(lambda x: x + 1, [vector()])
