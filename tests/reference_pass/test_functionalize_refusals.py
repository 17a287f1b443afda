"""Programs that functionalization refuses, and tensors that it does not write."""

import pytest
import torch
from torch import fx, nn
from torch._ops import HigherOrderOperator

from aliasproof.reference_pass import Refused, functionalize, pipeline
from aliasproof.reference_pass.exceptions import DataDependent
from tests.reference_pass.graphs import calls_of
from tests.reference_pass.scene import assert_alike, counted

aten = torch.ops.aten


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
    captured = torch.ones(3)
    with pytest.raises(Refused, match="did not get as an argument"):
        functionalize(lambda x: captured.add_(x) + 1, counted(3))
    assert torch.equal(captured, torch.ones(3))


def test_a_loss_of_one_number_that_fakes_refuse_is_refused():
    values, label = torch.tensor([11.0]), torch.tensor([0])
    assert aten.nll_loss_nd.default(values, label) == -11
    with pytest.raises(Refused, match="not in eager: Index tensor must have the same number"):
        pipeline(aten.nll_loss_nd.default, values, label)


def test_an_error_of_eager_stays_what_it_is():
    with pytest.raises(RuntimeError, match="broadcast shape"):
        pipeline(lambda x, y: x.add_(y), torch.ones(3), torch.ones(2, 3))


class Unknown(HigherOrderOperator):
    def __init__(self):
        super().__init__("unknown")
        self.fallthrough(torch._C.DispatchKey.AutogradCPU)

    def __call__(self, x):
        return super().__call__(x)


def swaps_data(x, y):
    x.data = y
    return x.add_(1)


TWICE = counted(2, 3)
MASKED, BROADCAST = (counted(2), torch.tensor([True])), "a size is data-dependent"
BATCHES = torch.ones(3), torch.ones(2, 4, 5), torch.ones(2, 5, 3)


@pytest.mark.parametrize(
    ("program", "inputs", "reason"),
    [
        (swaps_data, (counted(3), counted(2)), "goes past the dispatcher"),
        (
            lambda x, y: x.set_(y.untyped_storage(), 0, (2,), (1,)),
            (counted(3), counted(3)),
            "cannot be traced",
        ),
        (lambda x, a, b: x.addbmm_(a, b), BATCHES, "not in eager"),
        (
            fx.symbolic_trace(lambda x, a, b: (aten.addbmm_.default(x, a, b),)),
            BATCHES,
            "not in eager",
        ),
        (Unknown(), (counted(3),), "unknown is a higher-order operator"),
        (lambda x, y: (x.t_(), y + 0), (TWICE, TWICE), "passed twice, and its metadata is mutated"),
        (
            lambda x: aten.frexp.Tensor_out(x, mantissa=x, exponent=x.view(torch.int32)),
            (counted(4),),
            "writes the same memory",
        ),
        (lambda x, mask: x.masked_scatter_(mask[mask], x.clone()), MASKED, BROADCAST),
        (lambda x, mask: torch.where(mask[mask], x, 0), MASKED, BROADCAST),
    ],
)
def test_a_program_is_refused(program, inputs, reason):
    with pytest.raises(Refused, match=reason):
        functionalize(program, *inputs)


def test_an_operand_that_addbmm_resizes_is_refused_with_symbolic_sizes():
    with pytest.raises(Refused, match="not in eager"):
        pipeline(lambda x, a, b: x.addbmm_(a, b), *BATCHES, sizes="symbolic")


def test_an_unknown_kind_of_views_is_refused():
    with pytest.raises(Refused, match="neither 'alias' nor 'copy'"):
        functionalize(lambda x: x, counted(3), views="both")  # type: ignore[arg-type]


def test_a_wrong_number_of_sample_arguments_is_refused():
    graph_module = functionalize(lambda x: x + 1, counted(3))
    with pytest.raises(Refused, match="takes 1 inputs, but 2"):
        functionalize(graph_module, counted(3), counted(3))


@pytest.mark.parametrize(
    "program",
    [
        lambda x: x[x].masked_scatter_(x, x),
        lambda x: x[x].resize_(2),
        lambda x: torch.geqrf(torch.ones(2, 2)[:, x[:1].nonzero().view(-1)]),
    ],
    ids=["masked_scatter", "resize", "geqrf"],
)
def test_a_kernel_that_takes_no_data_dependent_size_is_refused_as_such(program):
    with pytest.raises(DataDependent, match="data-dependent"):
        functionalize(program, torch.tensor([False]))


def two_parameters_are_updated(x, y):
    rates = {"lr": 1.0, "beta1": 0.0, "beta2": 0.0, "weight_decay": 0.0, "eps": 1.0}
    flags = {"amsgrad": True, "maximize": False}
    states = [x * 1], [x * 1], [x[0] * 1]
    aten._fused_adam_.default([x], [x * 2], [y], *states, **rates, **flags)


LINE, GROWS = counted(5), "a resize_ of input 1 past its storage"


@pytest.mark.parametrize(
    ("program", "inputs", "reason"),
    [
        (two_parameters_are_updated, (LINE[3:4], LINE[4:5]), "trace it with fixed sizes"),
        (lambda x, y: torch.add(x, 1, out=y), (LINE, counted(0)), GROWS),
        (lambda x, y: y.resize_(5).copy_(x), (LINE, counted(0)), GROWS),
    ],
)
def test_a_program_is_refused_with_symbolic_sizes_alone(program, inputs, reason):
    functionalize(program, *inputs)
    with pytest.raises(Refused, match=reason):
        functionalize(program, *inputs, sizes="symbolic")


def test_a_tensor_is_set_to_a_view_of_symbolic_size():
    op, x = aten.set_.source_Tensor_storage_offset, counted(4)
    compiled = functionalize(lambda x: op(x, x, 0, []), x[3:], sizes="symbolic")
    assert compiled(x[2:3]).tolist() == 2


def test_a_write_that_is_never_read_is_not_in_the_graph():
    def program(x):
        x.fill_(1)
        x.fill_(2)
        return x

    assert calls_of(functionalize(program, counted(3))) == ["fill.Scalar", "copy_.default"]


# --- with `strict`, calls that are undefined in eager are refused; others are not -----------------


SQUARE, OTHER = torch.arange(1.0, 10).view(3, 3), torch.ones(3, 3)

UNDEFINED = {
    "reads at other positions": lambda x, y: x.diagonal().add_(x.view(-1)[0]),
    "a part of itself": lambda x, y: x[1:].add_(x[:-1]),
    "overlaps itself": lambda x, y: x.as_strided((3, 2), (1, 1)).add_(1),
    "reads all that it writes": lambda x, y: x.addmm_(x, y),
    "into its operand": lambda x, y: torch.mm(x, y, out=x),
    "another pair of a foreach": lambda x, y: torch._foreach_add_([x, y], [y, x]),
    "twice in a foreach": lambda x, y: torch._foreach_add_([x, x[0]], 1),
}
DEFINED = {
    "the same elements": lambda x, y: x.mul_(x),
    "other elements": lambda x, y: x[1:].add_(y[:-1]),
    "disjoint parts": lambda x, y: x[0].add_(x[1]),
    "a fill": lambda x, y: x.as_strided((3, 2), (1, 1)).zero_(),
    "another op": lambda x, y: x.addmm_(y, y),
    "the same pair of a foreach": lambda x, y: torch._foreach_add_([x, y], [x, y]),
    "metadata": lambda x, y: x.t_(),
}


@pytest.mark.parametrize("name", UNDEFINED)
def test_an_undefined_call_is_refused(name):
    with pytest.raises(Refused, match="undefined in eager"):
        functionalize(UNDEFINED[name], SQUARE, OTHER, strict=True)


@pytest.mark.parametrize("name", DEFINED)
def test_a_defined_call_is_compiled(name):
    program = DEFINED[name]
    assert_alike(pipeline(program, SQUARE, OTHER, strict=True), program, SQUARE, OTHER)


def test_the_backend_is_strict_by_an_option():
    overlapping = lambda x: x.as_strided((3, 2), (1, 1)).add_(1) * 1  # noqa: E731
    torch.compile(overlapping, backend="aliasproof", options={"strict": False})(torch.ones(6))
    torch._dynamo.reset()
    strict = torch.compile(overlapping, backend="aliasproof", options={"strict": True})
    with pytest.raises(Exception, match="undefined in eager"):
        strict(torch.ones(6))
