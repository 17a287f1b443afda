"""`capture` preserves the program, and its graph shows every write of the program."""

import copy
import operator
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, fx
from torch._ops import OpOverload
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional

from aliasproof.reference_pass.capture.aten_graphs import is_aten
from aliasproof.reference_pass.capture.function_trace import SizeMode, capture
from aliasproof.reference_pass.exceptions import Refused
from aliasproof.reference_pass.pipeline import pipeline
from tests.reference_pass.scene import assert_alike, violations

aten = torch.ops.aten


def numbered(*sizes: int) -> torch.Tensor:
    """1, 2, 3, ... in this shape."""
    return torch.arange(1.0, 1 + torch.Size(sizes).numel()).reshape(sizes)


def check(
    function: Callable[..., object], *inputs: torch.Tensor, sizes: SizeMode = "fixed"
) -> None:
    """The pipeline does what eager does, with views as aliases and as copies."""
    for views in ("alias", "copy"):
        compiled = partial(pipeline, views=views, sizes=sizes)
        assert violations(function, inputs, compiled) == []


def reshaped_and_written(op: Callable[..., Any]) -> Callable[..., Any]:
    """Write through a reshape of a result: to the result, if the reshape is a view of it."""

    def program(*inputs: torch.Tensor) -> Any:
        result = op(*inputs)
        result.reshape(-1).add_(1)
        return result * 1, result

    return program


TURNED = numbered(2, 3).t()
TALL = numbered(3, 1, 2)


def channels_last(*sizes: int) -> torch.Tensor:
    return numbered(*sizes).contiguous(memory_format=torch.channels_last)


WHERE_STRIDES_MATTER: list[tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = [
    (
        lambda x: functional.batch_norm(x, torch.zeros(3), torch.ones(3)),
        (numbered(2, 4, 3).transpose(1, 2),),
    ),
    (
        lambda x: functional.batch_norm(x, torch.zeros(3), torch.ones(3), training=True),
        (numbered(2, 4, 3).transpose(1, 2),),
    ),
    (lambda x, s: torch.div(x, s, rounding_mode="floor"), (TURNED, torch.tensor(2.0))),
    (lambda x, s: torch.div(x, s, rounding_mode="floor"), (TURNED.int(), torch.tensor(2).int())),
    (torch.floor_divide, (TURNED, torch.tensor(2.0))),
    (torch.copysign, (TURNED, torch.tensor(-2.0))),
    (lambda x, y: torch.logical_and(x, y).int(), (TALL, TURNED)),
    (lambda x, y: torch.logical_or(x, y).int(), (TALL, TURNED)),
    (lambda x, y: torch.logical_xor(x, y).int(), (TALL, TURNED)),
    (torch.logaddexp, (TALL, TURNED)),
    (torch.heaviside, (TALL, TURNED)),
    (torch.ldexp, (TALL, TURNED)),
    (lambda x, y: torch.lcm(x.int(), y.int()), (TALL, TURNED)),
    (lambda x: aten.native_dropout_backward.default(x, x > 2, 2.0), (numbered(2, 3, 4).mT,)),
    (lambda x: functional.one_hot(x.long(), 10), (TURNED,)),
    (lambda x: functional.channel_shuffle(x, 2), (channels_last(1, 4, 3, 3),)),
    (torch.normal, (numbered(3, 4, 2).mT, torch.zeros(3, 4, 2).mT)),
    (
        lambda x, i: functional.max_unpool2d(x, i.long(), [3, 2]),
        (channels_last(1, 2, 1, 3), channels_last(1, 2, 1, 3)),
    ),
]


@pytest.mark.parametrize(
    ("op", "inputs", "sizes"),
    [
        *((*case, "fixed") for case in WHERE_STRIDES_MATTER),
        *((*case, "symbolic") for case in WHERE_STRIDES_MATTER[1::4]),
    ],
)
def test_results_have_the_strides_of_eager_where_a_reshape_depends_on_them(op, inputs, sizes):
    check(reshaped_and_written(op), *inputs, sizes=sizes)


@pytest.mark.parametrize("sizes", ["fixed", "symbolic"])
def test_results_have_the_dtype_of_eager_where_a_conversion_depends_on_it(sizes):
    def program(x: torch.Tensor, exponent: torch.Tensor) -> Any:
        return aten.ldexp.Tensor(x, exponent).to(torch.float32)

    check(program, TURNED.long(), torch.tensor(1.0).half(), sizes=sizes)


@pytest.mark.parametrize(
    ("probability", "train"), [(0.5, False), (0.0, True), (0.0, None), (0.5, True)]
)
def test_a_dropout_that_drops_nothing_makes_a_new_tensor(probability, train):
    def program(x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = torch.native_dropout(x, probability, train)[0]
        return y.add_(1)

    check(program, numbered(2, 3))
    check(make_fx(program)(numbered(2, 3)), numbered(2, 3))


# --- out= -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "op",
    [
        lambda x, out: aten.flip.out(x, [0], out=out),
        lambda x, out: aten.clone.out(x, out=out),
        lambda x, out: aten.relu.out(x, out=out),
        lambda x, out: aten.copy.out(x, x, out=out),
        lambda x, out: aten.fill.Scalar_out(x, 2.0, out=out),
        lambda x, out: torch.take(x, (x - 1).long(), out=out),
        lambda x, out: torch.normal(x, x * 0, out=out),
        lambda x, out: torch.add(x, x, out=out),
        lambda x, out: torch.copysign(x, torch.tensor(-1.0), out=out),
        lambda x, out: torch.unbind_copy(x, out=[out, torch.zeros(0)]),
        lambda x, out: aten._foreach_add.Scalar_out([x], 1.0, out=[out]),
    ],
)
def test_an_out_of_another_size_is_laid_out_as_in_eager(op):
    def program(x: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        op(x, out)
        out.reshape(-1).add_(1)
        return out * 1

    def program_with_its_own(x: torch.Tensor) -> torch.Tensor:
        out = x.new_empty(0)
        op(x, out)
        return out

    check(program, numbered(3, 2).t(), torch.zeros(0))
    check(program_with_its_own, numbered(3, 2).t())


def test_a_tensor_with_several_names_in_a_module():
    class Tied(torch.nn.Module):
        scale: torch.Tensor

        def __init__(self):
            super().__init__()
            self.encode, self.decode = (torch.nn.Linear(3, 3, bias=False) for _ in range(2))
            self.decode.weight = self.encode.weight
            scale = torch.ones(3)
            self.register_buffer("scale", scale)
            self.register_buffer("same_scale", scale)

        def forward(self, x):
            self.scale.add_(1)
            return self.decode(self.encode(x)) * self.same_scale

    with torch.no_grad():
        eager = Tied()
        compiled = pipeline(copy.deepcopy(eager), numbered(2, 3))
        assert torch.equal(compiled(numbered(2, 3)), eager(numbered(2, 3)))


class Pair(NamedTuple):
    first: torch.Tensor
    second: torch.Tensor


def test_a_named_tuple_is_refused():
    with pytest.raises(Refused, match="returns a Pair"):
        capture(lambda x: [Pair(x + 1, x * 2)], (numbered(3),))


# --- graphs ---------------------------------------------------------------------------------------


STATISTICS = (numbered(2, 3, 4), torch.zeros(3), torch.ones(3))


def graph_of_norm(op: OpOverload, *options: Any) -> fx.GraphModule:
    return fx.symbolic_trace(lambda x, mean, var: op(x, None, None, mean, var, *options))


def test_a_graph_with_a_batch_norm_says_that_it_updates_the_statistics():
    graph_module = graph_of_norm(aten.native_batch_norm.default, True, 0.5, 1e-5)
    before = str(graph_module.graph)
    check(graph_module, *STATISTICS)
    captured = capture(graph_module, STATISTICS)
    assert aten._native_batch_norm_legit.default in [node.target for node in captured.graph.nodes]
    assert str(graph_module.graph) == before, "the graph of the caller stays as it is"


def test_a_batch_norm_that_updates_nothing_stays_as_it_is():
    graph_module = graph_of_norm(aten.native_batch_norm.default, False, 0.5, 1e-5)
    assert capture(graph_module, STATISTICS) is graph_module


def test_an_update_that_no_schema_says_is_refused():
    def program(x, mean, var):
        return torch.batch_norm_update_stats(x, mean, var, 0.1)[0] + mean

    with pytest.raises(Refused, match="updates statistics"):
        pipeline(program, *STATISTICS)
    # Without statistics, there is no update.
    check(lambda x: torch.batch_norm_update_stats(x, None, None, 0.1)[0] + 1, STATISTICS[0])


@pytest.mark.parametrize(
    "op", [aten.batch_norm.default, aten._batch_norm_impl_index.default, aten.instance_norm.default]
)
def test_a_composite_that_hides_an_update_is_traced(op: OpOverload):
    graph_module = graph_of_norm(op, True, 0.5, 1e-5, False)
    check(graph_module, *STATISTICS)
    assert op not in [node.target for node in capture(graph_module, STATISTICS).graph.nodes]


def test_a_hidden_update_without_an_honest_form_is_refused():
    graph_module = graph_of_norm(aten.cudnn_batch_norm.default, True, 0.5, 1e-5)
    with pytest.raises(Refused, match="its schema does not say so"):
        capture(graph_module, STATISTICS)


@pytest.mark.parametrize(
    ("call", "source"),
    [
        (lambda x, y: aten.select_scatter.default(self=x, src=y, dim=0, index=0), numbered(3)),
        (lambda x, y: aten.slice_scatter.default(self=x, src=y, end=1), numbered(1, 3)),
        (lambda x, y: aten.copy.default(src=y, self=x), numbered(3)),
        (lambda x, y: aten.copy_.default(src=y, self=x), numbered(3)),
        (lambda x, y: aten.add_.Tensor(other=y, self=x, alpha=2), numbered(3)),
        (lambda x, y: aten.select.int(self=x, dim=1, index=0), numbered(3)),
        (
            lambda x, y: aten.as_strided_scatter.default(self=x, src=y, size=[3], stride=[2]),
            numbered(3),
        ),
    ],
)
def test_arguments_may_be_given_by_name(call, source):
    graph_module = fx.symbolic_trace(lambda x, y: (call(x, y), x, y))
    before = str(graph_module.graph)
    check(graph_module, numbered(2, 3), source)
    assert str(graph_module.graph) == before, "the graph of the caller stays as it is"


def test_a_graph_that_has_nothing_to_change_is_taken_as_it_is():
    graph_module = make_fx(lambda x: x.t().add_(1, alpha=2))(numbered(2, 3))
    assert capture(graph_module, (numbered(2, 3),)) is graph_module


@pytest.mark.parametrize("argument", [[numbered(2)], (numbered(2),), {"x": numbered(2)}, [0]])
def test_a_list_as_an_argument_is_refused(argument) -> None:
    with pytest.raises(Refused, match="pass each tensor in it as an argument of its own"):
        capture(lambda x, y: x + 1, [numbered(2), argument])


def test_a_gradient_of_an_argument_is_refused() -> None:
    def gradient(x: torch.Tensor) -> torch.Tensor:
        return torch.autograd.grad((x * x).sum(), x)[0]

    with pytest.raises(Refused, match=r"torch\.func\.grad"):
        capture(gradient, [numbered(2).requires_grad_()])
    with pytest.raises(RuntimeError, match="does not require grad"):  # as in eager
        capture(gradient, [numbered(2)])


def test_numbers_from_zero_are_drawn_by_an_overload_with_a_python_name():
    def draws(x: torch.Tensor) -> torch.Tensor:
        return x.random_(0, 1000)

    assert_alike(pipeline(draws, torch.zeros(8)), draws, torch.zeros(8))
    with pytest.raises(Refused, match=r"random_\(from, to\) has no Python name"):
        pipeline(lambda x: x.random_(2, 9), torch.zeros(8))


def test_pieces_at_indices_in_a_tensor():
    def program(x, indices):
        first, second, _ = torch.tensor_split(x, indices)
        second.add_(1)
        return first * 2

    graph = pipeline(program, torch.arange(6.0), torch.tensor([2, 4]))
    for indices in ([2, 4], [1, 5]):
        assert_alike(graph, program, torch.arange(6.0), torch.tensor(indices))


# --- graphs of Python operators, as Dynamo and `symbolic_trace` make them: `x[1:]`, `x += 1` ------


FLOATS = (torch.arange(1.0, 5), torch.arange(4.0))
INTS = (torch.arange(1, 5), torch.arange(4))

Call = tuple[Any, ...]


def graph_of_python(*calls: Call) -> fx.GraphModule:
    """A graph on `x` and `y`: each call is (op, *args), where `z` is the result of the last one."""
    graph = fx.Graph()
    nodes = {"x": graph.placeholder("x"), "y": graph.placeholder("y")}
    for op, *args in calls:
        nodes["z"] = graph.call_function(
            op, tuple(nodes.get(each, each) if isinstance(each, str) else each for each in args)
        )
    graph.output((nodes["z"], nodes["x"]))
    return fx.GraphModule({}, graph)


@pytest.mark.parametrize(
    ("calls", "inputs"),
    [
        ([(operator.getitem, "x", slice(1, None))], FLOATS),
        ([(operator.getitem, "x", slice(1, None)), (operator.neg, "z")], FLOATS),
        ([(operator.getitem, "x", (None, 1))], FLOATS),
        ([(operator.getitem, "x", [0, 2])], FLOATS),
        ([(operator.getitem, "x", "y")], INTS),
        ([(operator.iadd, "x", 1)], FLOATS),
        (
            [(operator.getitem, "x", slice(1, None)), (operator.imul, "z", "y")],
            (FLOATS[0], INTS[0][:3]),
        ),
        ([(operator.setitem, "x", 0, 5)], FLOATS),
        ([(operator.setitem, "x", slice(1, None), "y")], (FLOATS[0], FLOATS[1][:3])),
        ([(operator.setitem, "x", 1, 7), (operator.add, "x", "y")], FLOATS),
        ([(operator.matmul, "x", "y")], FLOATS),
        ([(operator.abs, "x")], FLOATS),
        ([(operator.xor, "x", "y")], INTS),
        ([(operator.lshift, "x", 1)], INTS),
        ([(operator.invert, "x")], INTS),
    ],
)
def test_a_python_operator_on_tensors_is_traced(calls: list[Call], inputs: tuple[Tensor, ...]):
    program = graph_of_python(*calls)
    given, copies = ([each.clone() for each in inputs] for _ in range(2))
    expected, actual = program(*given), pipeline(program, *inputs)(*copies)
    assert str((expected, given)) == str((actual, copies))


@pytest.mark.parametrize(
    ("program", "aten"),
    [
        (make_fx(lambda x: x.split(2)[1] + x.shape[0])(FLOATS[0]), True),
        (make_fx(lambda x: x.view(x.shape[0] // 2, -1), tracing_mode="symbolic")(FLOATS[0]), True),
        (graph_of_python((operator.add, "x", "y")), False),
        (graph_of_python((operator.getitem, "x", 0)), False),
    ],
)
def test_arithmetic_on_sizes_and_picked_results_are_aten_calls(program, aten):
    assert is_aten(program) == aten


def transforms() -> list[Callable[[Tensor], Any]]:
    def writes_through_a_view(x: Tensor) -> Tensor:
        y = x * 1
        y[1:].mul_(3)
        return (y * x).sum()

    return [
        torch.func.grad(writes_through_a_view),
        torch.func.jacrev(lambda x: x * x),
        torch.func.hessian(lambda x: (x**3).sum()),
        torch.func.vmap(torch.func.grad(lambda x: x.sin() * x)),
        lambda x: torch.func.vjp(lambda y: y * y, x)[1](x),
        lambda x: torch.func.jvp(lambda y: y * y, (x,), (x,)),
    ]


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")  # imported by torch's jvp
@pytest.mark.parametrize("transform", transforms())
@pytest.mark.parametrize("enabled", [True, False])
def test_gradients_that_the_function_takes_are_captured(transform, enabled):
    with torch.set_grad_enabled(enabled):
        expected = transform(FLOATS[0].clone())
        assert str(pipeline(transform, FLOATS[0])(FLOATS[0].clone())) == str(expected)
