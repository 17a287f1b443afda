"""The value hash of an opaque call depends on which bytes its operands share."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import aliasproof.ir.custom_operators  # noqa: F401 - it registers them
from tests.oracles.scenes import same_hashes

ops = torch.ops.aliasproof


def eager(x: Tensor) -> None:
    ops.add_both(x[:3], x[1:])


def copied_together(x: Tensor) -> None:
    copy = x.clone()
    ops.add_both(copy[:3], copy[1:])
    x.copy_(copy)


def copied_with_other_strides(x: Tensor) -> None:
    copy = torch.zeros(12).as_strided((4,), (2,), 2)
    copy.copy_(x)
    ops.add_both(copy[:3], copy[1:])
    x.copy_(copy)


def copied_apart(x: Tensor) -> None:
    low, high = x[:3].clone(), x[1:].clone()
    ops.add_both(low, high)
    x[:3].copy_(low)
    x[1:].copy_(high)


def copied_one_off(x: Tensor) -> None:
    low = x[:3].clone()
    ops.add_both(low, low)
    x[:3].copy_(low)


@pytest.mark.parametrize(
    ("target", "equivalent"),
    [
        (copied_together, True),
        (copied_with_other_strides, True),
        (copied_apart, False),
        (copied_one_off, False),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_operands_must_share_what_they_share_in_eager(
    target: Callable[[Tensor], None], equivalent: bool
) -> None:
    assert same_hashes(eager, target, torch.arange(4.0)) == equivalent


def test_operands_that_are_only_read_may_be_copied() -> None:
    assert same_hashes(
        lambda x, y: ops.add_out(x, x, out=y),
        lambda x, y: ops.add_out(x, x.clone(), out=y),
        torch.arange(4.0),
        torch.ones(4),
    )


@pytest.mark.parametrize(
    ("op", "equivalent"),
    [
        (lambda x, y: ops.add_if(x, y, True), True),
        (lambda x, y: ops.add_into(y, x), True),
        (ops.add_twice, False),
        (lambda x, y: ops.running_sum([x, y]), False),
    ],
    ids=["add_if", "add_into", "add_twice", "running_sum"],
)
def test_only_an_operator_that_reads_after_it_writes_sees_what_operands_share(
    op: Callable[[Tensor, Tensor], None], equivalent: bool
) -> None:
    shared, copied = (lambda x: op(x[1:], x[:3])), (lambda x: op(x[1:], x[:3].clone()))
    assert same_hashes(shared, copied, torch.arange(4.0)) == equivalent
