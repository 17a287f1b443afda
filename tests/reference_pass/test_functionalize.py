"""Functionalization agrees with eager, for every way in which a program can write.

Each program goes through both targets (with views, and with view copies), whose contract is the
strongest: outputs, inputs, aliasing, identity, metadata.
"""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from aliasproof.reference_pass import checked, functionalize, pipeline
from aliasproof.reference_pass.calls.invariants import is_functional
from tests.reference_pass.programs import PROGRAMS
from tests.reference_pass.scene import (
    afresh,
    assert_alike,
    assert_right,
    counted,
    names,
    programs_of,
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


# --- items of a list that overlap -----------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_overlapping_items_whose_scalar_is_rounded(dtype):
    """Such a call runs on copies; each item is written before the next one is read."""

    def program(x):
        torch._foreach_mul_([x[1:], x[:2]], 0.3)
        return x + 2

    x = counted(3).to(dtype)
    assert_alike(functionalize(program, x.clone()), program, x)


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
