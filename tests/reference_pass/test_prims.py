"""Pointwise prims are put in place by the ATen operators that they call in eager."""

import pytest
import torch
import torch._inductor.inductor_prims  # registers `fma`
from torch import Tensor, fx
from torch._ops import OpOverload
from torch.fx.experimental.proxy_tensor import make_fx

from aliasproof.reference_pass import How, decisions, pipeline, reinplace
from aliasproof.reference_pass.calls.operator_forms import in_place_form
from aliasproof.reference_pass.eager.other_names import aten_of_prim
from tests.reference_pass.graphs import calls_of
from tests.reference_pass.scene import assert_alike, names, programs_of

aten, prims = torch.ops.aten, torch.ops.prims


def all_prims() -> list[OpOverload]:
    packets = (getattr(prims, name) for name in dir(torch._prims) if hasattr(prims, name))
    return [packet.default for packet in packets if hasattr(packet, "default")]


IN_PLACE = [op for op in all_prims() if in_place_form(aten_of_prim(op)) is not None]


def of_a_new_tensor(op: OpOverload) -> fx.GraphModule:
    """A call on a copy of the first input that no other call reads."""
    graph = fx.Graph()
    inputs = [graph.placeholder(name) for name in "xyz"[: len(op._schema.arguments)]]
    copied = graph.call_function(aten.clone.default, (inputs[0],))
    graph.output(graph.call_function(op, (copied, *inputs[1:])))
    return fx.GraphModule(torch.nn.Module(), graph)


def operands(op: OpOverload, dtype: torch.dtype) -> list[Tensor]:
    values = torch.tensor([0.5, -1.5, 3.0, 0.0, 2.0, 7.25, -3.0, 1.0, 12.0]) * 2
    given = [values, values.flip(0).abs() + 1, values * 2]
    return [each.to(dtype) for each in given[: len(op._schema.arguments)]]


def accepts(op: OpOverload, dtype: torch.dtype) -> bool:
    try:
        op(*operands(op, dtype))
    except (RuntimeError, TypeError, ValueError):
        return False
    return True


DTYPES = (torch.float32, torch.int64, torch.bool, torch.complex64)
CASES = [(op, dtype) for op in IN_PLACE for dtype in DTYPES if accepts(op, dtype)]


def test_a_prim_in_place_has_the_bits_of_eager(subtests: pytest.Subtests) -> None:
    for op, dtype in CASES:
        with subtests.test(f"{op}, {dtype}"):
            check_in_place(op, dtype)


def check_in_place(op: OpOverload, dtype: torch.dtype) -> None:
    given = operands(op, dtype)
    expected = of_a_new_tensor(op)(*given)
    compiled = of_a_new_tensor(op)
    found = decisions(reinplace(compiled, *given))
    assert compiled(*given).dtype == expected.dtype
    assert torch.equal(compiled(*given).nan_to_num(), expected.nan_to_num())
    # A product of complex numbers may round differently in place.
    rounds = dtype.is_complex and op is prims.mul.default
    is_in_place = any(decision.how is How.IN_PLACE for decision in found)
    assert is_in_place == (expected.dtype == dtype and not rounds)


def test_most_pointwise_prims_have_an_in_place_form() -> None:
    assert len(IN_PLACE) > 40
    assert len(CASES) > 3 * len(IN_PLACE)
    assert {prims.add.default, prims.exp.default, prims.pow.default} <= set(IN_PLACE)


@pytest.mark.parametrize("op", [prims.fma.default, prims.div.default, prims.sum.default], ids=str)
def test_a_prim_that_is_no_single_call_in_eager_stays(op: OpOverload) -> None:
    """`fma` rounds once in a compiled program; two in-place calls would round twice."""
    assert aten_of_prim(op) is op


def test_the_other_operand_may_hold_the_result() -> None:
    def program(x: Tensor, y: Tensor) -> Tensor:
        doubled = prims.mul(y, y)
        result: Tensor = prims.sub(x, doubled)
        return result

    given = [torch.arange(3.0), torch.arange(3.0) + 5]
    compiled = pipeline(program, *given)
    assert_alike(compiled, program, *given)
    assert calls_of(compiled)[1:] == ["sub.out"]


def test_a_prim_by_name_stays() -> None:
    compiled = fx.symbolic_trace(lambda x: prims.exp.default(self=aten.clone.default(x)))
    reinplace(compiled, torch.ones(2))
    assert torch.equal(compiled(torch.zeros(2)), torch.ones(2))


COMPLEX = torch.tensor([1 + 2j, 3 + 4j, 5 + 6j, 7 + 8j])
VIEWS = programs_of(
    """
added_to_real(z): COMPLEX
    return prims.real(z).add_(1)

added_to_imag(z): COMPLEX
    return prims.imag(z * 1).add_(1)

read_after_a_write(z): COMPLEX
    real = prims.real(z)
    z.mul_(2)
    return real * 1

every_other(z): COMPLEX
    return prims.as_strided(z, [2], [2], 1).add_(1)
""",
    globals(),
    lambda z: z,
)


@pytest.mark.parametrize("views", ["alias", "copy"])
@pytest.mark.parametrize(("program", "z"), VIEWS, ids=names(VIEWS))
@pytest.mark.filterwarnings("ignore:TypedStorage")  # of the prim itself
@pytest.mark.parametrize("given_as", ["a function", "a graph of packets", "a graph of ATen calls"])
def test_views_by_prims_are_those_of_eager(program, z, views, given_as: str) -> None:
    """The fakes of `prims.real` have other strides; the schema of `as_strided` says it writes."""
    function = program
    if given_as == "a graph of packets":
        function = fx.symbolic_trace(program)
    elif given_as == "a graph of ATen calls":
        function = make_fx(program, tracing_mode="fake")(z.clone())
    assert_alike(pipeline(function, z.clone(), views=views), program, z)
