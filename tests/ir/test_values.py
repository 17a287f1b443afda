"""The data in storages: plain, special, and explicit values."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from aliasproof.ir.program import Program, Storage
from aliasproof.ir.regions import Region
from aliasproof.ir.validation import ELEMENT_DTYPES
from aliasproof.ir.values import (
    EXACT_INTEGERS,
    STATIC,
    bytes_of,
    clone_inputs,
    entries_of,
    fill,
    input_tensors,
    storage_data,
    texts_of,
)
from tests.short_programs import of_vectors

FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


def seen(dtype: torch.dtype, kind: str) -> list[float]:
    """All values of short storages of a dtype, over many seeds, real and imaginary parts apart."""
    buffers = [fill(Storage(dtype, 4), index, seed, kind) for seed in range(40) for index in (0, 1)]
    parts = [torch.view_as_real(each) if dtype.is_complex else each for each in buffers]
    return torch.cat([part.reshape(-1) for part in parts]).tolist()


@pytest.mark.parametrize("dtype", [*FLOATS, torch.complex64])
def test_the_special_fill_has_every_special_value(dtype: torch.dtype) -> None:
    kind, values = torch.finfo(dtype), seen(dtype, "special")
    assert {math.inf, -math.inf, kind.max, kind.min, kind.tiny} <= set(values)
    assert any(map(math.isnan, values))
    assert any(value == 0 and math.copysign(1, value) < 0 for value in values)
    assert any(0.9e20 < value < 1.1e20 for value in values) or kind.max < 1e20
    # The rest are the small integers of the plain fill.
    assert 0.3 < sum(value in range(1, 15) for value in values) / len(values) < 0.7


@pytest.mark.parametrize("dtype", [torch.int64, torch.int8, torch.uint8, torch.int32])
def test_special_integers_are_the_limits(dtype: torch.dtype) -> None:
    limits, values = torch.iinfo(dtype), set(seen(dtype, "special"))
    assert {limits.min, limits.max, max(-1, limits.min)} <= values


def test_half_of_the_int64_storages_can_serve_as_indices() -> None:
    buffers = [fill(Storage(torch.int64, 4), index, 3, "special") for index in range(6)]
    fine = [sorted(each.tolist()) == [0, 1, 2, 3] for each in buffers]
    assert fine in ([True, False] * 3, [False, True] * 3)


@pytest.mark.parametrize("dtype", sorted(EXACT_INTEGERS, key=str))
def test_plain_values_are_exact_and_not_zero(dtype: torch.dtype) -> None:
    most = EXACT_INTEGERS[dtype]
    values = fill(Storage(dtype, 300), 2, 5).double()
    expected = {float(number) for number in range(1, most + 1)}
    assert set(values.tolist()) <= expected
    assert len(set(values.tolist())) == min(most, 300)


def test_every_dtype_can_be_filled_in_every_way(subtests: pytest.Subtests) -> None:
    for dtype, length, seed in itertools.product(ELEMENT_DTYPES, (0, 1, 5, 64), (0, 7, -2)):
        with subtests.test(dtype=dtype, length=length, seed=seed):
            special = fill(Storage(dtype, length), 0, seed, "special")
            assert (special.dtype, special.shape) == (dtype, (length,))
            named = fill(Storage(dtype, length, texts_of(special) or ("1",)), 3, 9)
            assert named.untyped_storage().tolist() == special.untyped_storage().tolist()


def test_values_of_a_storage_repeat_and_hide_both_fills() -> None:
    storage = Storage(torch.float32, 5, ("inf", "-0.0"))
    for kind in ("plain", "special"):
        values = storage_data(Program((storage,), (), (), (), 0, kind), 0).tolist()
        assert list(map(str, values)) == ["inf", "-0.0", "inf", "-0.0", "inf"]


def test_programs_are_equal_if_and_only_if_their_values_are() -> None:
    zero, minus, nan = (Storage(torch.float32, 1, (text,)) for text in ("0.0", "-0.0", "nan"))
    assert len({zero, minus, nan}) == 3
    assert nan == Storage(torch.float32, 1, ("nan",))


def test_a_caller_may_write_to_what_a_fill_returned() -> None:
    program = replace(of_vectors("return ()", 0, sizes=(3,)), fill="special")
    input_tensors(program)[0].fill_(5)
    assert input_tensors(program)[0].tolist() != [5, 5, 5]


# --- the bytes of a storage, and arrays with one entry per byte -----------------------------------


BASE = torch.arange(12, dtype=torch.int32)


def addresses(tensor: Tensor) -> np.ndarray:
    """The byte addresses of a tensor's elements, counted from the start of its storage."""
    storage = np.arange(tensor.untyped_storage().nbytes())
    offset, itemsize = int(tensor.storage_offset()), tensor.element_size()
    return entries_of(storage, tensor.shape, tensor.stride(), offset, itemsize)


def test_clones_of_views_are_views_of_one_clone_of_their_base() -> None:
    base = torch.arange(6.0)
    setattr(base, STATIC, "unguarded")
    other = torch.arange(6, dtype=torch.int32).view(torch.float32)
    with torch.no_grad():  # as for inputs that are cloned
        one, two, whole, apart = clone_inputs([base[:4], base.view(2, 3).mT, base, other])
    assert one._base is two._base is whole
    assert apart._base is None
    assert (two.shape, two.stride(), getattr(whole, STATIC)) == ((3, 2), (1, 3), "unguarded")
    one.mul_(torch.zeros((), requires_grad=True))  # under autograd, which may write a view
    assert whole.tolist() == [0, 0, 0, 0, 4, 5]
    assert base.tolist() == [0, 1, 2, 3, 4, 5]


def test_a_view_with_other_data_is_cloned_with_them() -> None:
    view = torch.zeros(4)[1:]
    view.data = torch.arange(3.0)
    (clone,) = clone_inputs([view])
    assert clone.tolist() == [0, 1, 2]


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
