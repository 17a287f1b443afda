"""Memory that no call has written: storages that change their size, and losses of nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from aliasproof.eager.definedness import Undefined, Watch

aten = torch.ops.aten
NOTHING, NO_LABELS = torch.empty(0, 3), torch.empty(0, 3, dtype=torch.int64)


@pytest.mark.parametrize("written", ["x[:2].fill_(1)", "x.fill_(1)"])
def test_a_storage_that_shrank_and_grew_has_memory_that_was_never_written(written: str) -> None:
    storage = (x := torch.ones(4)).untyped_storage()
    with Watch() as watch:
        storage.resize_(0)
        storage.resize_(16)
        with pytest.raises(Undefined, match="reads memory that was never written"):
            x.add(1)
        exec(written, {"x": x})
    assert watch.shows_unwritten(x) is ("[" in written)
    assert not watch.shows_unwritten(x[:2])
    assert "noting" not in torch.UntypedStorage.resize_.__qualname__


@pytest.mark.parametrize(
    "loss",
    [
        lambda: aten.soft_margin_loss(NOTHING, NOTHING, -1),
        lambda: aten.multi_margin_loss(NOTHING, NO_LABELS[:, 0]),
        lambda: aten.multilabel_margin_loss(NOTHING, NO_LABELS),
    ],
)
def test_a_loss_of_nothing_may_be_memory_that_was_never_written(loss: Callable[[], Tensor]) -> None:
    with Watch() as watch:
        result = loss()
    assert watch.shows_unwritten(result)
