"""Memory that no call has written, where storages change their size."""

from __future__ import annotations

import pytest
import torch

from aliasproof.programs.definedness import Undefined, Watch


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
