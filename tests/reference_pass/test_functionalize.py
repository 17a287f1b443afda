"""Functionalization agrees with eager, for every way in which a program can write.

Each program goes through both targets (with views, and with view copies), whose contract is the
strongest: outputs, inputs, aliasing, identity, metadata.
"""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from aliasproof.reference_pass import Refused, checked, functionalize, pipeline
from aliasproof.reference_pass.calls.invariants import is_functional
from tests.reference_pass.programs import PROGRAMS
from tests.reference_pass.scene import (
    afresh,
    assert_alike,
    assert_right,
    counted,
    names,
    programs_of,
    refused_before,
)

aten = torch.ops.aten
LAZY = [
    (program, inputs)
    for program, inputs in PROGRAMS
    if any(tensor.is_conj() or tensor.is_neg() for tensor in inputs)
]


@pytest.mark.parametrize("name", ["reference", "reference-copy", "reference-planned"])
@pytest.mark.parametrize(("program", "inputs"), PROGRAMS, ids=names(PROGRAMS))
def test_it_does_what_eager_does(program, inputs, name):
    with checked():
        assert_right(program, inputs, name)


@pytest.mark.parametrize("views", ["alias", "copy"])
@pytest.mark.parametrize(("program", "inputs"), LAZY, ids=names(LAZY))
def test_on_inputs_with_lazy_bits_it_does_what_eager_does(program, inputs, views):
    with checked():
        compiled = pipeline(program, *afresh(inputs), views=views)
    assert_alike(compiled, program, *inputs)


# --- view copies ----------------------------------------------------------------------------------


def test_with_view_copies_nothing_aliases_before_the_epilogue(subtests):
    for program, inputs in PROGRAMS:
        with subtests.test(program.__name__):
            check_nothing_aliases(program, inputs)


def check_nothing_aliases(program, inputs):
    graph_module = functionalize(program, *inputs, views="copy")
    assert is_functional(graph_module) is None
    values = {}
    for node in graph_module.graph.nodes:
        if node.target in _AT_END or node.op == "output":
            break
        if isinstance(node.meta["val"], Tensor):
            values[node] = node.meta["val"].untyped_storage()._cdata
    at_end = {node for node in values if any(_is_alias(node)) and not _is_at_start(node)}
    # Only the epilogue uses these values.
    assert all(user in at_end or user not in values for node in at_end for user in node.users)


_AT_END = {aten.copy_.default, aten.set_.source_Tensor, aten.resize_.default}


def _is_at_start(node):
    """True if a node only leads to a copy of the whole storage of an input.

    The copy clears lazy bits, or shows as bytes a storage that ends within an element.
    """
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
    for operand in node.all_input_nodes:
        value = operand.meta["val"]
        yield isinstance(value, Tensor) and value.untyped_storage()._cdata == own


# --- custom operators -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def demo():
    library = torch.library.Library("reference_pass_demo", "DEF")

    def define(schema: str, kernel: Callable[..., object]) -> None:
        library.define(schema)
        library.impl(schema.partition("(")[0], kernel, "CompositeExplicitAutograd")

    def bump(x: Tensor, y: Tensor) -> Tensor:
        x.add_(y.clone())  # they may overlap
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


DEMO = torch.ops.reference_pass_demo
CUSTOM = programs_of(
    """
bumps_a_view(x, y): counted(4), counted(3)
    result = DEMO.bump(x[1:], y)
    result.add_(1)
    return result, x

reads_what_it_writes(x): counted(4)
    DEMO.bump(x[:3], x[1:])
    return x + 1

pours_into_several(x, y): counted(4), counted(3)
    local = y + 1
    DEMO.pour(x[:3], [y, local])
    return local

writes_through_a_custom_view(x): counted(4)
    DEMO.half(x).zero_()
    return x

writes_through_a_view_that_the_schema_hides(x): counted(4)
    DEMO.opaque(x).zero_()
    return x

sees_another_dtype(x, y): counted(4), counted(3)
    view = DEMO.recast(x)
    return view, view + 1, x + y[0]
""",
    globals(),
    lambda *inputs: inputs,
)


@pytest.mark.usefixtures("demo")
@pytest.mark.parametrize("name", ["reference", "reference-copy", "reference-planned"])
@pytest.mark.parametrize(("program", "inputs"), CUSTOM, ids=names(CUSTOM))
def test_custom_operators_do_what_they_do_in_eager(program, inputs, name):
    assert_right(program, inputs, name)


# --- symbolic sizes -------------------------------------------------------------------------------


def test_dropout_of_nothing_is_its_operand():
    def program(x):
        y = x + 1
        torch.ops.aten.dropout.default(y, 0.5, False).add_(1)
        return y

    assert_alike(pipeline(program, counted(4), sizes="symbolic"), program, counted(5))


def test_an_operator_that_needs_numbers_is_refused_for_symbolic_sizes():
    with pytest.raises(Refused, match="trace it with fixed sizes"):
        pipeline(lambda x: torch.abs(x, out=x), counted(3) * 1j, sizes="symbolic")
    index = torch.zeros(3, dtype=torch.int64)

    def program(x, out):
        return torch.scatter_add(x, 0, index, x, out=out)

    with refused_before("2.14", "trace it with fixed sizes"):
        compiled = pipeline(program, counted(3), counted(3), sizes="symbolic")
        assert_alike(compiled, program, counted(3), counted(3))


def test_strides_and_offsets_of_inputs_are_symbols():
    def program(x, y):
        y.add_(1)
        return x + 1

    def overlapping(start):
        base = counted(64)
        return base.as_strided((2, 3), (5, 1)), base[start : start + 6].view(2, 3)

    compiled = pipeline(program, *overlapping(7), sizes="symbolic", views="copy")
    for start in (3, 7, 30):
        assert_alike(compiled, program, *overlapping(start))


FOR_ALL_SIZES = programs_of(
    """
slices(x): counted(4, 4)
    view = x[1:]
    view.add_(1)
    x.view(-1)[::2].mul_(2)
    return view, x.t().contiguous()

halves(x): counted(4, 4)
    low, high = x.split(x.shape[0] // 2)
    low.add_(high)
    turned = x.transpose(0, 1)
    turned[0].zero_()
    return turned

diagonal_and_expand(x): counted(4, 4)
    x.diagonal().fill_(3)
    fresh = torch.zeros(x.shape[0], x.shape[1])
    fresh[:, 1:].copy_(x[:, 1:])
    x.expand(2, *x.shape).zero_()
    return fresh, x.select(1, -1)

windows(x): counted(4, 4)
    x.unfold(0, 2, 1).zero_()
    return x.reshape(-1)

transposed_in_place(x): counted(4, 4)
    x.t_()
    return x + 1

asked_after_a_change(x): counted(4, 4)
    x.unsqueeze_(0)
    return x.new_zeros(x.shape[1], 1), x.squeeze_(0).sum(1)

scaled_sizes(x): counted(4, 4)
    return torch.nn.functional.interpolate(x[None], scale_factor=1.5)  # truncates a size
""",
    globals(),
    lambda x: x,
)


@pytest.mark.parametrize("views", ["alias", "copy"])
@pytest.mark.parametrize(("program", "sample"), FOR_ALL_SIZES, ids=names(FOR_ALL_SIZES))
def test_one_graph_serves_all_sizes(program, sample, views):
    compiled = pipeline(program, sample, views=views, sizes="symbolic")
    for size in (4, 6, 10):
        assert_alike(compiled, program, counted(size, size))
