"""Guarded buffers of generated code: results are unchanged, and stray writes are reported."""

import ctypes
import gc
from typing import Any

import pytest
import torch

from aliasproof.ir.guarded_memory import (
    AFTER_DEATH,
    BEFORE,
    BEHIND,
    NUMBER_BYTES,
    ZONE,
    GuardedMemory,
    first_dependent,
    needs_resizing,
)
from aliasproof.ir.values import clone_inputs

guards: Any = torch._C._dynamo.guards
LAYOUTS = [((4, 3), (3, 1)), ((2, 3), (1, 4)), ((), ()), ((0, 3), (3, 1)), ((3,), (0,))]
DTYPES = [torch.float32, torch.bfloat16, torch.bool, torch.complex128, torch.float8_e5m2]


def allocate(size=(4,), stride=(1,), dtype=torch.float32) -> torch.Tensor:
    made: torch.Tensor = guards._empty_strided_cpu(size, stride, dtype)
    return made


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("size", "stride"), LAYOUTS)
def test_a_buffer_is_as_torch_makes_it(size, stride, dtype) -> None:
    expected = allocate(size, stride, dtype)
    with GuardedMemory():
        buffer = allocate(size, stride, dtype)
    for tensor in (buffer, expected):
        assert (tensor.shape, tensor.stride(), tensor.dtype) == (size, stride, dtype)
        assert (tensor.storage_offset(), tensor._base) == (0, None)
        assert tensor.data_ptr() % 64 == 0
    assert buffer.untyped_storage().nbytes() == expected.untyped_storage().nbytes()


def test_fresh_memory_has_the_pattern() -> None:
    with GuardedMemory():
        assert allocate().isnan().all()
    with GuardedMemory(NUMBER_BYTES):
        assert (allocate() > 1e36).all()


@pytest.mark.parametrize(
    ("first", "count", "side", "distance"),
    [(16, 4, BEHIND, 0), (20, 12, BEHIND, 4), (-4, 4, BEFORE, 0), (-ZONE, 1, BEFORE, ZONE - 1)],
)
def test_bytes_around_a_buffer_are_reported(first, count, side, distance) -> None:
    with GuardedMemory() as memory:
        buffer = allocate()
        ctypes.memset(buffer.data_ptr() + first, 0, count)
    (written,) = memory.stray
    assert (written.side, written.distance, written.nbytes) == (side, distance, count)
    assert written.picture.count("X") == (count if distance < 32 else 0)
    assert f"byte {first + count - 1 if first < 0 else first} of the buffer" in written.picture
    line, below = written.picture.splitlines()
    # A report names an input otherwise, which must not move the line against its mark.
    assert written.name not in line
    if distance < 32:
        assert below.index("^") == (line.rindex("X") if first < 0 else line.index("X"))


def test_what_is_written_into_a_freed_buffer_is_reported() -> None:
    with GuardedMemory() as memory:
        buffer = allocate()
        address = buffer.fill_(1).data_ptr()
        del buffer
        gc.collect()
        assert ctypes.string_at(address, 16) == b"\xff" * 16
        ctypes.memset(address + 8, 0, 4)
    (written,) = memory.stray
    assert (written.side, written.distance, written.nbytes) == (AFTER_DEATH, 8, 4)


def test_a_right_use_reports_nothing_and_an_output_outlives_the_context() -> None:
    with GuardedMemory() as memory:
        output = allocate().fill_(2)
        for _ in range(3):
            allocate().zero_()
    assert (memory.stray, memory.allocated) == ([], 4)
    gc.collect()
    assert output.tolist() == [2, 2, 2, 2]


def test_guarded_inputs_are_equal_and_bytes_around_them_are_reported() -> None:
    base = torch.arange(12.0)
    views = [base.view(3, 4).mT[1:], torch.ones(2, dtype=torch.bool), base[5:], torch.ones(0)]
    given = [view.detach() for view in views]
    with GuardedMemory() as memory:
        guarded = memory.guard(clone_inputs([*given, given[0]]))
        ctypes.memset(guarded[2].untyped_storage().data_ptr() + 48, 0, 3)
        ctypes.memset(guarded[1].data_ptr() - 1, 0, 1)
    assert guarded[4] is guarded[0]
    for one, other in zip(given, guarded, strict=False):
        assert torch.equal(one, other)
        assert (one.stride(), one.storage_offset()) == (other.stride(), other.storage_offset())
        assert one.untyped_storage().nbytes() == other.untyped_storage().nbytes()
    guarded[0].zero_()
    assert guarded[2].tolist() == [0, 0, 0, 8, 0, 0, 0]
    places = [(it.name, it.side, it.nbytes, it.layout) for it in memory.stray]
    assert places == [
        ("input 0", BEHIND, 3, "(3, 3) torch.float32"),
        ("input 1", BEFORE, 1, "(2,) torch.bool"),
    ]


def test_an_input_that_autograd_has_recorded_stays_where_it_is() -> None:
    leaf, base = torch.ones(3, requires_grad=True), torch.ones(3)
    given = [leaf, leaf.detach(), base[1:], base, torch.ones(2)]
    before = [x.data_ptr() for x in given]
    with GuardedMemory() as memory:
        guarded = memory.guard(given)
    assert [x.data_ptr() == y for x, y in zip(guarded, before, strict=True)] == [True] * 4 + [False]


def test_the_call_that_wrote_is_named() -> None:
    def kernel(buffer: torch.Tensor) -> None:
        ctypes.memset(buffer.data_ptr() + 16, 0, 4)

    def wrapper() -> torch.Tensor:
        buf0 = allocate()
        buf1 = guards._empty_strided_cpu((4,), (1,), torch.float32)
        kernel(buf1)
        buf0.zero_()
        return buf0

    with GuardedMemory(naming=True) as memory:
        wrapper()
    assert [(it.name, it.writer) for it in memory.stray] == [("buf1", "kernel")]


def test_a_buffer_that_cannot_be_resized_is_recognised() -> None:
    with GuardedMemory():
        buffer = allocate()
    with pytest.raises(RuntimeError) as raised:
        buffer.resize_(100)
    assert needs_resizing(raised.value)
    assert not needs_resizing(RuntimeError("another"))
    assert not needs_resizing(None)


def test_rounding_is_no_dependence_on_memory() -> None:
    one = torch.tensor([1.0, float("nan")])
    assert first_dependent("output 0", one, one + 1e-6) is None
    found = first_dependent("output 0", one, torch.tensor([1.0, 2.0]))
    assert found is not None
    assert (found.index, found.count) == ([1], 1)
    assert found.picture == ".X\n ^ element 1"
    ones = torch.ones(10, 10)
    found = first_dependent("output 0", ones, ones.clone().index_fill_(1, torch.tensor(9), 2))
    assert found is not None
    assert found.picture.splitlines()[0] == (".........X" * 10)[:41]
