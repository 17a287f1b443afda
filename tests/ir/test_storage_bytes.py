"""The bytes of a storage, and arrays with one entry per byte."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from aliasproof.ir.regions import Region
from aliasproof.ir.storages import bytes_of, entries_of

BASE = torch.arange(12, dtype=torch.int32)


def addresses(tensor: Tensor) -> np.ndarray:
    """The byte addresses of a tensor's elements, counted from the start of its storage."""
    storage = np.arange(tensor.untyped_storage().nbytes())
    offset, itemsize = int(tensor.storage_offset()), tensor.element_size()
    return entries_of(storage, tensor.shape, tensor.stride(), offset, itemsize)


def test_bytes_share_the_storage() -> None:
    tensor = BASE.clone()
    shown = bytes_of(tensor[3:].untyped_storage())
    assert (shown.dtype, shown.shape) == (torch.uint8, (48,))
    shown[:4] = 1
    assert tensor[0] == 0x01010101


@pytest.mark.parametrize(
    "tensor",
    [
        pytest.param(BASE, id="contiguous"),
        pytest.param(BASE.view(3, 4).t()[1:], id="transposed, with an offset"),
        pytest.param(BASE[:2].expand(3, 2), id="expanded"),
        pytest.param(BASE.view(torch.int16)[5::2], id="another item size"),
        pytest.param(BASE[2], id="0-d"),
    ],
)
def test_entries_are_those_of_the_bytes_of_each_element(tensor: Tensor) -> None:
    found = addresses(tensor)
    assert found.shape == (*tensor.shape, tensor.element_size())
    region = Region.of(tensor)
    expected = region.addresses() - tensor.untyped_storage().data_ptr()
    assert np.array_equal(np.unique(found), expected)
    assert found[(0,) * tensor.dim()][0] == region.start - tensor.untyped_storage().data_ptr()


def test_entries_are_a_view() -> None:
    mask = np.zeros(48, np.bool_)
    entries_of(mask, (2,), (4,), 1, 4)[...] = True
    assert np.flatnonzero(mask).tolist() == [4, 5, 6, 7, 20, 21, 22, 23]


def test_a_tensor_without_elements_has_no_entries_wherever_it_starts() -> None:
    assert entries_of(np.zeros(0), (0, 3), (3, 1), 7, 4).shape == (0, 3, 4)


def test_a_tensor_beyond_the_end_is_an_error() -> None:
    with pytest.raises(ValueError, match="strides"):
        entries_of(np.zeros(8), (3,), (1,), 0, 4)
