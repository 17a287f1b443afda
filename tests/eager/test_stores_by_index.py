"""Memory that a store by index fills is written, element by element, and the store reads none."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from aliasproof.eager.definedness import Undefined
from aliasproof.oracles.observation import observe_eager

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
def test_what_is_stored_at_is_written_and_the_rest_is_not(
    store: Callable[[Tensor, Tensor], object],
) -> None:
    def filled(order: Tensor) -> Tensor:
        empty = torch.empty(3, dtype=torch.int64)
        store(empty, order)
        return empty

    assert observe_eager(filled, [ORDER])[0].error is None
    with pytest.raises(Undefined, match="returns memory that was never written"):
        observe_eager(filled, [ORDER[:2]])


def test_a_sum_reads_what_is_there() -> None:
    def adds(order: Tensor) -> Tensor:
        return torch.empty(3).index_put_((order,), torch.ones(3), accumulate=True)

    with pytest.raises(Undefined, match="reads memory that was never written"):
        observe_eager(adds, [ORDER])


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
