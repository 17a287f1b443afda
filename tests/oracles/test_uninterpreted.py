"""Uninterpreted execution, op by op: which calls leave the same value hashes, and which do not."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._higher_order_ops.auto_functionalize import auto_functionalized
from torch._higher_order_ops.cond import cond_op  # noqa: F401 - the text calls it
from torch._inductor.decomposition import decompositions  # noqa: F401 - the text calls it

import aliasproof.ir.custom_operators  # noqa: F401 - it registers them
from aliasproof.oracles.value_hashes import of_constant
from aliasproof.oracles.verdict import Verdict
from tests.oracles.scenes import Function, pairs_in, report, same_hashes

aten = torch.ops.aten
X = torch.arange(6.0)
M = torch.arange(12.0).view(3, 4)
S = torch.arange(9.0).view(3, 3)
INDICES = torch.tensor([2, 0, 1])
NARROW = torch.arange(6, dtype=torch.int32)


def in_inference_mode(function: Function) -> object:
    with torch.inference_mode():
        return function()


# --- the same -------------------------------------------------------------------------------------

NORM = (M, torch.ones(4), torch.ones(4), torch.zeros(3, 4), torch.zeros(4), torch.zeros(4))
# With running statistics, nothing is saved. torch warns if it must resize an `out=` tensor.
RUNNING_NORM = (*NORM[:4], torch.zeros(0), torch.zeros(0))


def norm_out(training: bool) -> Function:
    def run(x: Tensor, mean: Tensor, var: Tensor, *outs: Tensor) -> None:
        names = ("out", "save_mean", "save_invstd")
        aten.native_batch_norm.out(
            x, None, None, mean, var, training, 0.1, 1e-5, **dict(zip(names, outs, strict=True))
        )

    return run


def norm_copied(training: bool) -> Function:
    def run(x: Tensor, mean: Tensor, var: Tensor, *outs: Tensor) -> None:
        made = aten.native_batch_norm.default(x, None, None, mean, var, training, 0.1, 1e-5)
        for out, each in zip(outs, made, strict=True):
            out.resize_(each.shape).copy_(each)

    return run


SAME = pairs_in(
    """
a copy of what the operand does not cover (x): NARROW
    x[:0].as_strided((2,), (1,), 1).clone()
    aten.as_strided_copy.default(x[:0], [2], [1], 1)
zeros of a complex constant, by a strided and by a dense kernel:
    torch.full((4, 4), -1 + 0j)[:, 0:3:2].neg()
    torch.full((4, 4), -1 + 0j)[:, 0:3:2].contiguous().neg()
a scatter into out= (m, x, out): M, torch.ones(4), M + 1
    aten.select_scatter.out(m, x, 0, 1, out=out)
    out.copy_(aten.select_scatter.default(m, x, 0, 1))
copy into out= (x, y, out): X, X + 1, X + 2
    aten.copy.out(x, y, out=out)
    out.copy_(y)
values made into out= (out):
    torch.arange(6.0, out=out)
    out.copy_(torch.arange(6.0))
zeros into out=, and filled (out):
    torch.zeros(6, out=out)
    out.zero_()
random numbers into out= (x, out): X, X + 1
    torch.normal(x, 1.0, out=out)
    out.copy_(torch.normal(x, 1.0))
a batch norm into out= (x, *rest): *NORM
    norm_out(training=True)(x, *rest)
    norm_copied(training=True)(x, *rest)
a batch norm by running statistics into out= (x, *rest): *RUNNING_NORM
    norm_out(training=False)(x, *rest)
    norm_copied(training=False)(x, *rest)
a random fill whose functional form has another name:
    x.normal_()
    x.copy_(aten.normal_functional.default(x))
random numbers like a tensor that is not read: torch.randn_like(x + 1) => torch.randn_like(x)
a shift in place (i): NARROW
    aten.__ilshift__.Scalar(i, 1)
    i.copy_(aten.__lshift__.Scalar(i, 1))
sums of integers, cut down afterwards (i): NARROW
    i.cumsum_(0)
    i.copy_(i.cumsum(0))
a constant converted by a store, or before it (c): torch.ones(3, dtype=torch.complex64)
    c.fill_(5).logical_not_()
    c.copy_(torch.full((3,), 5, dtype=c.dtype).logical_not().to(c.dtype))
constants of a dtype that has few kernels:
    x.new_ones(6, dtype=torch.float8_e5m2).clone()
    torch.ones(6, dtype=torch.float8_e5m2)
a view-copy of what has no such view (m): M
    aten.view_copy.default(m.t(), [12])
    m.t().reshape(12)
lists filled and copied (x, y): X, X + 1
    (aten._foreach_zero_.default([x]), aten._foreach_copy_.default([y], [x]))
    (x.zero_(), y.copy_(x), None)[2]
items of a list that overlap:
    aten._foreach_mul_.ScalarList([x[:2], x[1:]], [2, 3])
    (aten._foreach_mul_.ScalarList([x[:2]], [2]), aten._foreach_mul_.ScalarList([x[1:]], [3]))[0]
resized, whether the new bytes are read or not:
    (x.resize_(12), None)[1]
    (x.resize_(12), x.clone(), None)[2]
made smaller, in place or not (m): M
    m.resize_(2)
    aten.resize_as.default(m, aten.resize.default(m, [2]))
resized by a kernel to work in it, or not (x, y, out): X, X + 1, torch.zeros(())
    aten.mse_loss.out(x, y, 1, out=out.resize_(0))
    out.resize_(0).resize_(()).copy_(aten.mse_loss.default(x, y, 1))
in inference mode, where composites are not decomposed (m): M
    in_inference_mode(lambda: m.t().reshape(12) * 1)
    m.t().reshape(12) * 1
a branch: cond_op(x.sum() > 0, lambda x: (x + 1,), lambda x: (x - 1,), (x,)) => (x + 1,)
""",
    globals(),
)


@pytest.mark.parametrize("name", SAME)
def test_it_holds(name: str) -> None:
    eager, target, inputs = SAME[name]
    assert same_hashes(eager, target, *inputs)


# --- not the same ---------------------------------------------------------------------------------

HIDDEN = pairs_in(
    """
which dimension is indexed (s, i): S, INDICES
    s[:, i] * 0
    s[i, :] * 0
which dimension is stored to (s, i): torch.zeros(3, 3), INDICES
    aten.index_put_.default(s, [None, i], s[:1, :1] * 0)
    aten.index_put_.default(s, [i, None], s[:1, :1] * 0)
what a scatter into out= stores (m, x, out): M, torch.ones(4), M + 1
    aten.select_scatter.out(m, x, 0, 1, out=out)
    aten.select_scatter.out(m, x * 1, 0, 1, out=out)
the dtype whose sign is flipped (x): torch.zeros(2)
    x.neg_()
    (x.view(torch.int32).neg_(), x)[1]
an input that was given another storage (x, y): X, X + 1
    (x.set_((y + 1) * 0), None)[1]
    (x.set_((y + 2) * 0), None)[1]
the operand of a maximum that comes first (x, y): torch.zeros(2), torch.tensor([-0.0, -0.0])
    torch.maximum(x, y)
    torch.maximum(y, x)
an element read too early, in inference mode (m): M
    in_inference_mode(lambda: m.add_(1).t().reshape(12) * 0)
    in_inference_mode(lambda: (m.t().reshape(12) * 0, m.add_(1))[0])
""",
    globals(),
)


@pytest.mark.parametrize("name", HIDDEN)
def test_a_difference_is_seen(name: str) -> None:
    eager, target, inputs = HIDDEN[name]
    assert not same_hashes(eager, target, *inputs)


# --- custom operators -----------------------------------------------------------------------------


custom = torch.ops.aliasproof_uninterpreted


@pytest.fixture(scope="module", autouse=True)
def _custom_operators() -> Iterator[None]:
    """Operators that share only names, also of arguments, with operators of torch."""
    with torch.library._scoped_library("aliasproof_uninterpreted", "DEF") as library:
        for schema, function in (
            ("clone(Tensor x, float scale) -> Tensor", lambda x, scale: x * scale),
            ("empty(Tensor x) -> Tensor", lambda x: x * 0),
            ("zeros_like(Tensor x) -> Tensor", lambda x: x * 0),
            (
                "rounded(Tensor x, ScalarType dtype) -> Tensor",
                lambda x, dtype: x.to(dtype).to(x.dtype),
            ),
            ("first(Tensor?[] xs) -> Tensor", lambda xs: (xs[1] if xs[0] is None else xs[0]) * 0),
            ("add_more(Tensor(a!) x, Tensor y) -> Tensor", lambda x, y: (x.add_(y), y * 2)[1]),
            (
                "accumulate(Tensor x, *, Tensor(a!) out) -> ()",
                lambda x, out: (out.add_(x), None)[1],
            ),
            ("look(Tensor x) -> ()", lambda x: None),
            ("counted(Tensor x) -> (Tensor, int)", lambda x: (x + 1, int(x.count_nonzero()))),
            ("total(Tensor[] xs) -> Tensor", lambda xs: sum(xs) * 0),
        ):
            library.define(schema, tags=[torch.Tag.pointwise] if schema.startswith("total") else [])
            library.impl(schema.split("(")[0], function, "CompositeExplicitAutograd")
        yield


CUSTOM = pairs_in(
    """
an argument of `clone`: custom.clone(x, 0.0) => custom.clone(x, -0.0)
what `empty` reads: custom.empty(x * 2) => custom.empty(x + 1)
what `zeros_like` reads: custom.zeros_like(x * 2) => custom.zeros_like(x + 1)
a dtype that the result does not show:
    custom.rounded(x, torch.int32)
    custom.rounded(x, torch.float16)
the position in a list: custom.first([x, None]) => custom.first([None, x])
what a pointwise one reads in a list: custom.total([x, x]) => custom.total([x, x * 1])
what is in `out`:
    (custom.accumulate(x, out=x[:0].new_zeros(6)), custom.accumulate(x, out=x))[1]
    (b := x.new_zeros(6), custom.accumulate(x, out=b), x.copy_(b), None)[3]
""",
    globals(),
)


@pytest.mark.parametrize("name", CUSTOM)
def test_a_custom_operator_is_not_taken_for_one_of_torch(name: str) -> None:
    eager, target, inputs = CUSTOM[name]
    assert same_hashes(eager, eager, *inputs)
    assert not same_hashes(eager, target, *inputs)


def test_a_mutation_is_followed_through_auto_functionalized() -> None:
    add_more = custom.add_more.default

    def target(x: Tensor, y: Tensor) -> Any:
        made: Any
        left: Any
        made, left = auto_functionalized(add_more, x=x, y=y)
        x.copy_(left)
        return made

    assert same_hashes(add_more, target, X, X + 1)
    assert not same_hashes(add_more, lambda x, y: target(x, y * 1), X, X + 1)


# --- reads of tensor data -------------------------------------------------------------------------


def test_an_op_without_results_is_not_data_dependent() -> None:
    assert report(lambda x: (custom.look(x), x + 1)[1], lambda x: x + 1, X).reason == ""


def test_an_op_that_returns_a_number_beside_a_tensor_is_data_dependent() -> None:
    counted = lambda x: x * custom.counted(x)[1]  # noqa: E731
    assert "for these inputs only" in report(counted, counted, X).reason


def test_data_that_only_the_target_reads_are_mentioned() -> None:
    found = report(lambda x: x + 1, lambda x: x + 1 if x.sum().item() > 0 else x, X)
    assert found.verdict is Verdict.HOLDS
    assert "for these inputs only" in found.reason


def test_a_tangent_without_memory_is_a_constant_of_zeros() -> None:
    # Its address is null, and so reading it ends the process.
    none = torch._efficientzerotensor((2, 3))
    assert (of_constant(none) == of_constant(torch.zeros(2, 3))).all()


# --- which bytes the operands of an opaque call share ---------------------------------------------

ours = torch.ops.aliasproof


def together(x: Tensor) -> None:
    ours.add_both(x[:3], x[1:])


def copied_together(x: Tensor) -> None:
    copy = x.clone()
    ours.add_both(copy[:3], copy[1:])
    x.copy_(copy)


def copied_with_other_strides(x: Tensor) -> None:
    copy = torch.zeros(12).as_strided((4,), (2,), 2)
    copy.copy_(x)
    ours.add_both(copy[:3], copy[1:])
    x.copy_(copy)


def copied_apart(x: Tensor) -> None:
    low, high = x[:3].clone(), x[1:].clone()
    ours.add_both(low, high)
    x[:3].copy_(low)
    x[1:].copy_(high)


def copied_one_off(x: Tensor) -> None:
    low = x[:3].clone()
    ours.add_both(low, low)
    x[:3].copy_(low)


@pytest.mark.parametrize("target", [copied_together, copied_with_other_strides])
def test_operands_that_share_what_they_share_in_eager(target: Function) -> None:
    assert same_hashes(together, target, torch.arange(4.0))


@pytest.mark.parametrize("target", [copied_apart, copied_one_off])
def test_operands_must_share_what_they_share_in_eager(target: Function) -> None:
    assert not same_hashes(together, target, torch.arange(4.0))


def test_operands_that_are_only_read_may_be_copied() -> None:
    assert same_hashes(
        lambda x, y: ours.add_out(x, x, out=y),
        lambda x, y: ours.add_out(x, x.clone(), out=y),
        torch.arange(4.0),
        torch.ones(4),
    )


@pytest.mark.parametrize(
    ("op", "equivalent"),
    [
        (lambda x, y: ours.add_if(x, y, True), True),
        (lambda x, y: ours.add_into(y, x), True),
        (ours.add_twice, False),
        (lambda x, y: ours.running_sum([x, y]), False),
    ],
    ids=["add_if", "add_into", "add_twice", "running_sum"],
)
def test_only_an_operator_that_reads_after_it_writes_sees_what_operands_share(op, equivalent):
    shared, copied = (lambda x: op(x[1:], x[:3])), (lambda x: op(x[1:], x[:3].clone()))
    assert same_hashes(shared, copied, torch.arange(4.0)) == equivalent


# --- ops that take elements, or add some: other ways to write the same ----------------------------

ROWS, FLAT = torch.arange(1.0, 9).reshape(4, 2), torch.arange(1.0, 9)
LOWER = torch.tensor([0, 2, 3])
# Each call, another way to write it, and the operand.
CALLS = pairs_in(
    """
select_backward (g): FLAT[:2]
    aten.select_backward(g, [4, 2], 0, 1)
    torch.zeros(4, 2).select_scatter(g, 0, 1)
slice_backward (g): ROWS
    aten.slice_backward(g, [6, 2], 0, 1, 5, 1)
    aten.constant_pad_nd(g, [0, 0, 1, 1])
diagonal_backward (g): FLAT[:2]
    aten.diagonal_backward(g, [2, 2], 0, 0, 1)
    torch.zeros(2, 2).diagonal_scatter(g)
windows that touch (g): ROWS
    aten.unfold_backward(g, [8], 0, 2, 2)
    g.reshape(8).clone()
windows that overlap (g): ROWS
    aten.unfold_backward(g, [5], 0, 2, 1)
    torch.zeros(5).index_put((torch.arange(5).unfold(0, 2, 1),), g, True)
windows in the decomposition of Inductor (g): torch.arange(9.0).reshape(3, 3)
    aten.unfold_backward(g, [5], 0, 3, 1)
    decompositions[aten.unfold_backward.default](g, [5], 0, 3, 1)
rows that are added (g): ROWS
    torch.zeros(2, 2).index_add(0, torch.tensor([0, 1, 0, 1]), g)
    aten.embedding_dense_backward(g, torch.tensor([0, 1, 0, 1]), 2, -1, False)
rows in another order (x): ROWS
    x[torch.tensor([3, 2, 1, 0])]
    x.flip(0)
a triangle (x): ROWS
    x[:2].tril()
    aten.put(torch.zeros(2, 2), LOWER, x.take(LOWER))
a pad with a number (x): FLAT
    aten.constant_pad_nd(x, [1, 0], float('inf'))
    torch.cat([torch.full((1,), float('inf')), x])
""",
    globals(),
)


@pytest.mark.parametrize("name", CALLS)
def test_two_ways_to_take_the_same_elements_are_equal(name: str) -> None:
    one, other, (operand,) = CALLS[name]
    torch.testing.assert_close(one(operand), other(operand))
    assert same_hashes(one, other, operand)


@pytest.mark.parametrize("name", CALLS)
def test_another_element_shows(name: str) -> None:
    one, other, (operand,) = CALLS[name]
    assert not same_hashes(one, lambda first: other(first.flip(0)), operand)
    assert not same_hashes(one, lambda first: other(first + 1), operand)


def test_an_index_that_comes_from_an_input_decides_nothing() -> None:
    rows, order = ROWS, torch.tensor([3, 2, 1, 0])
    assert not same_hashes(lambda x, i: x[i], lambda x, i: x.flip(0), rows, order)


def test_what_is_added_twice_is_no_element() -> None:
    twice, once = torch.tensor([0, 0]), torch.tensor([0, 1])
    zeros = torch.zeros(2, 2)
    assert not same_hashes(
        lambda g: zeros.index_add(0, twice, g), lambda g: zeros.index_add(0, once, g), ROWS[:2]
    )
    assert not same_hashes(
        lambda g: zeros.index_add(0, once, g, alpha=2),
        lambda g: zeros.index_add(0, once, g),
        ROWS[:2],
    )
