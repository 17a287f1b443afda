"""Uninterpreted execution, op by op: which calls leave the same value hashes, and which do not."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._higher_order_ops.auto_functionalize import auto_functionalized
from torch._higher_order_ops.cond import cond_op
from torch._inductor.decomposition import decompositions

import aliasproof.ir.custom_operators  # noqa: F401 - it registers them
from aliasproof.oracles.value_hashes import of_constant
from aliasproof.oracles.verdict import Verdict
from tests.oracles.scenes import Function, report, same_hashes

aten = torch.ops.aten
X = torch.arange(6.0)
M = torch.arange(12.0).view(3, 4)
S = torch.arange(9.0).view(3, 3)
INDICES = torch.tensor([2, 0, 1])
NARROW = torch.arange(6, dtype=torch.int32)


def in_inference_mode(function: Function) -> Function:
    def run(*inputs: Tensor) -> object:
        with torch.inference_mode():
            return function(*inputs)

    return run


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


# The functions run on X, unless other inputs are given.
SAME: dict[str, tuple[Any, ...]] = {
    "a copy of what the operand does not cover": (
        lambda x: x[:0].as_strided((2,), (1,), 1).clone(),
        lambda x: aten.as_strided_copy.default(x[:0], [2], [1], 1),
        (NARROW,),
    ),
    "zeros of a complex constant, by a strided and by a dense kernel": (
        lambda x: torch.full((4, 4), -1 + 0j)[:, 0:3:2].neg(),
        lambda x: torch.full((4, 4), -1 + 0j)[:, 0:3:2].contiguous().neg(),
    ),
    "a scatter into out=": (
        lambda m, x, out: aten.select_scatter.out(m, x, 0, 1, out=out),
        lambda m, x, out: out.copy_(aten.select_scatter.default(m, x, 0, 1)),
        (M, torch.ones(4), M + 1),
    ),
    "copy into out=": (
        lambda x, y, out: aten.copy.out(x, y, out=out),
        lambda x, y, out: out.copy_(y),
        (X, X + 1, X + 2),
    ),
    "values made into out=": (
        lambda out: torch.arange(6.0, out=out),
        lambda out: out.copy_(torch.arange(6.0)),
    ),
    "zeros into out=, and filled": (lambda out: torch.zeros(6, out=out), lambda out: out.zero_()),
    "random numbers into out=": (
        lambda x, out: torch.normal(x, 1.0, out=out),
        lambda x, out: out.copy_(torch.normal(x, 1.0)),
        (X, X + 1),
    ),
    "a batch norm into out=": (norm_out(training=True), norm_copied(training=True), NORM),
    "a batch norm by running statistics into out=": (
        norm_out(training=False),
        norm_copied(training=False),
        RUNNING_NORM,
    ),
    "a random fill whose functional form has another name": (
        lambda x: x.normal_(),
        lambda x: x.copy_(aten.normal_functional.default(x)),
    ),
    "random numbers like a tensor that is not read": (
        lambda x: torch.randn_like(x + 1),
        torch.randn_like,
    ),
    "a shift in place": (
        lambda i: aten.__ilshift__.Scalar(i, 1),
        lambda i: i.copy_(aten.__lshift__.Scalar(i, 1)),
        (NARROW,),
    ),
    "sums of integers, cut down afterwards": (
        lambda i: i.cumsum_(0),
        lambda i: i.copy_(i.cumsum(0)),
        (NARROW,),
    ),
    "a constant converted by a store, or before it": (
        lambda c: c.fill_(5).logical_not_(),
        lambda c: c.copy_(torch.full((3,), 5, dtype=c.dtype).logical_not().to(c.dtype)),
        (torch.ones(3, dtype=torch.complex64),),
    ),
    "constants of a dtype that has few kernels": (
        lambda x: x.new_ones(6, dtype=torch.float8_e5m2).clone(),
        lambda x: torch.ones(6, dtype=torch.float8_e5m2),
    ),
    "a view-copy of what has no such view": (
        lambda m: aten.view_copy.default(m.t(), [12]),
        lambda m: m.t().reshape(12),
        (M,),
    ),
    "lists filled and copied": (
        lambda x, y: (aten._foreach_zero_.default([x]), aten._foreach_copy_.default([y], [x])),
        lambda x, y: (x.zero_(), y.copy_(x), None)[2],
        (X, X + 1),
    ),
    "items of a list that overlap": (
        lambda x: aten._foreach_mul_.ScalarList([x[:2], x[1:]], [2, 3]),
        lambda x: (
            aten._foreach_mul_.ScalarList([x[:2]], [2]),
            aten._foreach_mul_.ScalarList([x[1:]], [3]),
        )[0],
    ),
    "resized, whether the new bytes are read or not": (
        lambda x: (x.resize_(12), None)[1],
        lambda x: (x.resize_(12), x.clone(), None)[2],
    ),
    "made smaller, in place or not": (
        lambda m: m.resize_(2),
        lambda m: aten.resize_as.default(m, aten.resize.default(m, [2])),
        (M,),
    ),
    "resized by a kernel to work in it, or not": (
        lambda x, y, out: aten.mse_loss.out(x, y, 1, out=out.resize_(0)),
        lambda x, y, out: out.resize_(0).resize_(()).copy_(aten.mse_loss.default(x, y, 1)),
        (X, X + 1, torch.zeros(())),
    ),
    "in inference mode, where composites are not decomposed": (
        in_inference_mode(lambda m: m.t().reshape(12) * 1),
        lambda m: m.t().reshape(12) * 1,
        (M,),
    ),
    "a branch": (
        lambda x: cond_op(x.sum() > 0, lambda x: (x + 1,), lambda x: (x - 1,), (x,)),
        lambda x: (x + 1,),
    ),
}


@pytest.mark.parametrize("name", SAME)
def test_it_holds(name: str) -> None:
    eager, target, inputs = (*SAME[name], (X,))[:3]
    assert same_hashes(eager, target, *inputs)


# --- not the same ---------------------------------------------------------------------------------

HIDDEN: dict[str, tuple[Any, ...]] = {
    "which dimension is indexed": (
        lambda s, i: s[:, i] * 0,
        lambda s, i: s[i, :] * 0,
        (S, INDICES),
    ),
    "which dimension is stored to": (
        lambda s, i: aten.index_put_.default(s, [None, i], s[:1, :1] * 0),
        lambda s, i: aten.index_put_.default(s, [i, None], s[:1, :1] * 0),
        (torch.zeros(3, 3), INDICES),
    ),
    "what a scatter into out= stores": (
        lambda m, x, out: aten.select_scatter.out(m, x, 0, 1, out=out),
        lambda m, x, out: aten.select_scatter.out(m, x * 1, 0, 1, out=out),
        (M, torch.ones(4), M + 1),
    ),
    "the dtype whose sign is flipped": (
        lambda x: x.neg_(),
        lambda x: (x.view(torch.int32).neg_(), x)[1],
        (torch.zeros(2),),
    ),
    "an input that was given another storage": (
        lambda x, y: (x.set_((y + 1) * 0), None)[1],
        lambda x, y: (x.set_((y + 2) * 0), None)[1],
        (X, X + 1),
    ),
    "the operand of a maximum that comes first": (
        torch.maximum,
        lambda x, y: torch.maximum(y, x),
        (torch.zeros(2), torch.tensor([-0.0, -0.0])),
    ),
    "an element read too early, in inference mode": (
        in_inference_mode(lambda m: m.add_(1).t().reshape(12) * 0),
        in_inference_mode(lambda m: (m.t().reshape(12) * 0, m.add_(1))[0]),
        (M,),
    ),
}


@pytest.mark.parametrize("name", HIDDEN)
def test_a_difference_is_seen(name: str) -> None:
    eager, target, inputs = (*HIDDEN[name], (X,))[:3]
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


CUSTOM: dict[str, tuple[Function, Function]] = {
    "an argument of `clone`": (lambda x: custom.clone(x, 0.0), lambda x: custom.clone(x, -0.0)),
    "what `empty` reads": (lambda x: custom.empty(x * 2), lambda x: custom.empty(x + 1)),
    "what `zeros_like` reads": (
        lambda x: custom.zeros_like(x * 2),
        lambda x: custom.zeros_like(x + 1),
    ),
    "a dtype that the result does not show": (
        lambda x: custom.rounded(x, torch.int32),
        lambda x: custom.rounded(x, torch.float16),
    ),
    "the position in a list": (
        lambda x: custom.first([x, None]),
        lambda x: custom.first([None, x]),
    ),
    "what a pointwise one reads in a list": (
        lambda x: custom.total([x, x]),
        lambda x: custom.total([x, x * 1]),
    ),
    "what is in `out`": (
        lambda x: (custom.accumulate(x, out=x[:0].new_zeros(6)), custom.accumulate(x, out=x))[1],
        lambda x: (b := x.new_zeros(6), custom.accumulate(x, out=b), x.copy_(b), None)[3],
    ),
}


@pytest.mark.parametrize("name", CUSTOM)
def test_a_custom_operator_is_not_taken_for_one_of_torch(name: str) -> None:
    eager, target = CUSTOM[name]
    assert same_hashes(eager, eager, X)
    assert not same_hashes(eager, target, X)


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
CALLS: dict[str, tuple[Function, Function, Tensor]] = {
    "select_backward": (
        lambda g: aten.select_backward(g, [4, 2], 0, 1),
        lambda g: torch.zeros(4, 2).select_scatter(g, 0, 1),
        FLAT[:2],
    ),
    "slice_backward": (
        lambda g: aten.slice_backward(g, [6, 2], 0, 1, 5, 1),
        lambda g: aten.constant_pad_nd(g, [0, 0, 1, 1]),
        ROWS,
    ),
    "diagonal_backward": (
        lambda g: aten.diagonal_backward(g, [2, 2], 0, 0, 1),
        lambda g: torch.zeros(2, 2).diagonal_scatter(g),
        FLAT[:2],
    ),
    "windows that touch": (
        lambda g: aten.unfold_backward(g, [8], 0, 2, 2),
        lambda g: g.reshape(8).clone(),
        ROWS,
    ),
    "windows that overlap": (
        lambda g: aten.unfold_backward(g, [5], 0, 2, 1),
        lambda g: torch.zeros(5).index_put((torch.arange(5).unfold(0, 2, 1),), g, True),
        ROWS,
    ),
    "windows in the decomposition of Inductor": (
        lambda g: aten.unfold_backward(g, [5], 0, 3, 1),
        lambda g: decompositions[aten.unfold_backward.default](g, [5], 0, 3, 1),
        torch.arange(9.0).reshape(3, 3),
    ),
    "rows that are added": (
        lambda g: torch.zeros(2, 2).index_add(0, torch.tensor([0, 1, 0, 1]), g),
        lambda g: aten.embedding_dense_backward(g, torch.tensor([0, 1, 0, 1]), 2, -1, False),
        ROWS,
    ),
    "rows in another order": (lambda x: x[torch.tensor([3, 2, 1, 0])], lambda x: x.flip(0), ROWS),
    "a triangle": (
        lambda x: x[:2].tril(),
        lambda x: aten.put(torch.zeros(2, 2), LOWER, x.take(LOWER)),
        ROWS,
    ),
    "a pad with a number": (
        lambda x: aten.constant_pad_nd(x, [1, 0], float("inf")),
        lambda x: torch.cat([torch.full((1,), float("inf")), x]),
        FLAT,
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_two_ways_to_take_the_same_elements_are_equal(name: str) -> None:
    one, other, operand = CALLS[name]
    torch.testing.assert_close(one(operand), other(operand))
    assert same_hashes(one, other, operand)


@pytest.mark.parametrize("name", CALLS)
def test_another_element_shows(name: str) -> None:
    one, other, operand = CALLS[name]
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
