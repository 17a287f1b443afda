"""`GuardedMemory`: inputs and buffers with red zones around them, and poison in fresh buffers.

The wrapper that Inductor generates allocates each buffer by a function of torch, which the module
of the wrapper looks up when it is loaded. While a `GuardedMemory` is entered, our function replaces
it. It returns a tensor whose storage is exactly the buffer, within more memory that has the same
pattern of bytes: so a caller sees the layout that torch would return, a store outside of the buffer
changes a red zone, and a load of unwritten memory returns the pattern.
"""

from __future__ import annotations

import linecache
import re
import sys
import threading
import weakref
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import FrameType
from typing import Any, ClassVar, Self, TypeAlias
from unittest import mock

import numpy as np
import numpy.typing as npt
import torch

from aliasproof.ir.values import bytes_of, move_to_storage

ZONE = 1024  # bytes before and behind each buffer: more than a tile of vectors
MOST_DEAD_BYTES = 2**26  # of buffers that have died, and are still compared
ALIGNMENT = 64  # bytes, as torch aligns storages on a CPU
# In each floating-point dtype, the first pattern is NaN, and the second a large number.
NAN_BYTES, NUMBER_BYTES = 0xFF, 0x7B
EDGE = 32  # bytes on each side of an edge that a picture shows one by one
BEFORE, BEHIND = "before the start of a buffer", "behind the end of a buffer"
AFTER_DEATH = "into a buffer after it was freed"
Place: TypeAlias = "str | tuple[str, int]"  # the name of an input; file and line of a wrapper
# Part of an error of torch: only a storage that torch allocates itself can be resized.
_FIXED_SIZE = "resize storage that is not resizable"

_empty_strided_cpu = torch._C._dynamo.guards._empty_strided_cpu  # type: ignore[attr-defined]
_reinterpret_tensor = torch._C._dynamo.guards._reinterpret_tensor  # type: ignore[attr-defined]


@dataclass(frozen=True, slots=True)
class StrayWrite:
    """Bytes that were written in a red zone of a buffer, or in the buffer after it was freed.

    `name` is that of the buffer in the code of the wrapper. `distance` is from the edge of the
    buffer to the first written byte, in bytes. `writer` is the call that wrote, if it was traced.
    """

    name: str
    layout: str
    side: str
    distance: int
    nbytes: int
    picture: str
    writer: str = ""


@dataclass(slots=True)
class _Buffer:
    """The memory of a buffer: `size` bytes from `start`, and a zone on each side."""

    memory: npt.NDArray[np.uint8]
    start: int
    size: int
    layout: str
    place: Place
    owner: weakref.ref[Any] | None = None

    def name(self) -> str:
        if isinstance(self.place, str):
            return self.place
        found = re.match(r"\s*(\w+) = ", linecache.getline(*self.place))
        return found[1] if found else "a buffer"

    def zones(self) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
        end = self.start + self.size
        return self.memory[self.start - ZONE : self.start], self.memory[end : end + ZONE]

    def stray_writes(self, pattern: int, writer: str) -> Iterable[StrayWrite]:
        inside = self.memory[self.start : self.start + self.size]
        if self.owner is None and (inside != pattern).any():
            written = np.flatnonzero(inside != pattern)
            place = self.name(), self.layout, AFTER_DEATH
            size = int(written[0]), int(written.size)
            yield StrayWrite(*place, *size, f"byte {size[0]} of the buffer", writer)
        for side, zone in ((BEFORE, self.zones()[0]), (BEHIND, self.zones()[1])):
            behind = side == BEHIND
            # From the edge of the buffer outwards.
            written = np.flatnonzero((zone if behind else zone[::-1]) != pattern)
            if written.size:
                distance, nbytes = int(written[0]), int(written.size)
                picture = self._picture(pattern, written if behind else -1 - written)
                name, layout = self.name(), self.layout
                yield StrayWrite(name, layout, side, distance, nbytes, picture, writer)

    def _picture(self, pattern: int, written: npt.NDArray[np.intp]) -> str:
        """The zones and the ends of the buffer, with an X for each byte that was written.

        `written` are positions from the end of the buffer, or negative ones from its start.
        """
        before, behind = (
            "".join("X" if byte != pattern else "." for byte in zone) for zone in self.zones()
        )
        inside = f"{self.size} bytes"  # without its name, which a report may replace
        line = f"{before[-EDGE:]}|{inside}|{behind[:EDGE]}"
        first = int(written[0])
        left = EDGE + first if first < 0 else EDGE + len(inside) + 2 + first
        at = f"byte {self.size + first if first >= 0 else first} of the buffer"
        if not 0 <= left < len(line):
            return f"{line}\n{at}, outside of the picture"
        return f"{line}\n{' ' * left}^ {at}"


@dataclass(frozen=True, slots=True)
class Dependent:
    """An element of a result that changes if memory has another pattern."""

    place: str
    index: list[int]
    count: int
    values: tuple[object, object]  # with the first pattern, and with the second
    picture: str = ""


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """How generated code used its memory in a run: writes outside of buffers, reads of poison."""

    stray: Sequence[StrayWrite] = ()
    dependent: Sequence[Dependent] = ()


@dataclass(slots=True)
class GuardedMemory:
    """A context in which the buffers of generated code are guarded.

    Zones and fresh buffers are filled with `pattern`. With `naming`, the zones are compared after
    each line of a wrapper, so that a stray write has a writer; that is slow.
    """

    pattern: int = NAN_BYTES
    naming: bool = False
    stray: list[StrayWrite] = field(default_factory=list)
    allocated: int = 0
    _live: dict[int, _Buffer] = field(default_factory=dict)
    _dead: list[_Buffer] = field(default_factory=list)
    _patch: Any = None
    _running: str = ""
    _lines: dict[FrameType, int] = field(default_factory=dict)  # the last line, by frame
    _tracing: Any = None  # the trace function that was set before
    _lock: threading.RLock = field(default_factory=threading.RLock)

    entered: ClassVar[list[GuardedMemory]] = []  # the last one is used

    def __enter__(self) -> Self:
        guards = torch._C._dynamo.guards
        self._patch = mock.patch.object(guards, "_empty_strided_cpu", empty_strided_cpu)
        self._patch.start()
        self.entered.append(self)
        return self

    def __exit__(self, *error: object) -> None:
        self.entered.remove(self)
        self._patch.stop()
        self.check()
        if self._lines:
            sys.settrace(self._tracing)
            self._lines.clear()
        self._live.clear()
        self._dead.clear()

    def allocate(
        self, size: Sequence[int], stride: Sequence[int], dtype: torch.dtype, frame: FrameType
    ) -> torch.Tensor:
        """A tensor with this layout, in guarded memory of its own."""
        last = sum((length - 1) * step for length, step in zip(size, stride, strict=True))
        line = frame.f_code.co_filename, frame.f_lineno
        nbytes = (last + 1) * dtype.itemsize
        inside = self._guarded_bytes(nbytes, f"{tuple(size)} {dtype}", line)
        self.allocated += 1
        if self.naming and frame not in self._lines:
            if not self._lines:
                self._tracing = sys.gettrace()
                sys.settrace(lambda *_: None)  # no other frame is traced
            self._lines[frame] = frame.f_lineno
            frame.f_trace = self._trace_line
        # Without a record of autograd: a view would have a base, which a caller sees.
        made: torch.Tensor = _reinterpret_tensor(inside.view(dtype), size, stride, 0)
        return made

    def guard(self, inputs: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        """Move the storages that are on a CPU into guarded memory, and return the same tensors.

        Storages of tensors that autograd has recorded are not moved.
        """
        recorded = {
            it.untyped_storage()._cdata for it in inputs if it.requires_grad or it._is_view()
        }
        # By identity: the old storages are kept alive, so that no new one gets their addresses.
        moved: dict[int, tuple[torch.UntypedStorage, torch.UntypedStorage]] = {}
        for index, tensor in enumerate(inputs):
            storage = tensor.untyped_storage()
            if storage.device.type != "cpu" or not storage.nbytes() or storage._cdata in recorded:
                continue
            if storage._cdata not in moved:
                layout = f"{tuple(tensor.shape)} {tensor.dtype}"
                inside = self._guarded_bytes(storage.nbytes(), layout, f"input {index}")
                copied = inside.copy_(bytes_of(storage)).untyped_storage()
                moved[storage._cdata] = copied, storage
                moved[copied._cdata] = copied, copied  # a tensor may be there twice
            tensor.data = move_to_storage(moved[storage._cdata][0], tensor, tensor.dtype)
        return inputs

    def _guarded_bytes(self, nbytes: int, layout: str, place: Place) -> torch.Tensor:
        memory = np.full(nbytes + 2 * ZONE + ALIGNMENT, self.pattern, np.uint8)
        start = ZONE + -(memory.ctypes.data + ZONE) % ALIGNMENT
        inside = memory[start : start + nbytes]
        buffer = _Buffer(memory, start, nbytes, layout, place)
        # When the storage dies, its zones are compared and its memory can be freed.
        buffer.owner = weakref.ref(inside, partial(self._end, id(buffer)))
        self._live[id(buffer)] = buffer
        return torch.frombuffer(inside, dtype=torch.uint8)

    @property
    def use(self) -> MemoryUse | None:
        """The use of the buffers; None if there was no buffer."""
        return MemoryUse(tuple(self.stray)) if self.allocated or self.stray else None

    def check(self) -> None:
        """Compare the zones of all buffers, and the contents of those that have died."""
        with self._lock:
            for buffer in [*self._live.values(), *self._dead]:
                self._check(buffer)

    def _check(self, buffer: _Buffer) -> None:
        dead = buffer.owner is None
        compared = [buffer.memory] if dead else buffer.zones()
        if any((zone != self.pattern).any() for zone in compared):
            self.stray += buffer.stray_writes(self.pattern, self._running)
            for zone in compared:
                zone.fill(self.pattern)  # so that each write is reported once

    def _end(self, key: int, _: object) -> None:
        """Poison a buffer whose storage dies, and keep it: a kernel may still use its address."""
        with self._lock:
            buffer = self._live.pop(key, None)
            if buffer is None:
                return
            self._check(buffer)
            buffer.owner = None
            buffer.memory.fill(self.pattern)
            self._dead.append(buffer)
            while sum(it.memory.size for it in self._dead) > MOST_DEAD_BYTES:
                self._dead.pop(0)

    # --- naming the writer ---

    def _trace_line(self, frame: FrameType, event: str, _: object) -> Any:
        """Compare the zones after the line that a wrapper ran last."""
        line = linecache.getline(frame.f_code.co_filename, self._lines[frame])
        self._running = line.strip().partition("(")[0]
        self.check()
        self._running = ""
        self._lines[frame] = frame.f_lineno
        if event == "return":
            del self._lines[frame]
            if not self._lines:
                sys.settrace(self._tracing)
        return self._trace_line


def empty_strided_cpu(
    size: Sequence[int], stride: Sequence[int], dtype: torch.dtype
) -> torch.Tensor:
    """The function that a wrapper calls in place of torch's, for as long as its module lives."""
    if not GuardedMemory.entered or not all(size):
        made: torch.Tensor = _empty_strided_cpu(size, stride, dtype)
        return made
    return GuardedMemory.entered[-1].allocate(size, stride, dtype, sys._getframe(1))


def needs_resizing(error: BaseException | None) -> bool:
    """True if an error says that a guarded buffer cannot be resized, as one of torch can."""
    return error is not None and _FIXED_SIZE in str(error)


def first_dependent(place: str, one: torch.Tensor, other: torch.Tensor) -> Dependent | None:
    """The first difference of a result between two runs; None if only rounding may differ."""
    if (one.shape, one.dtype) != (other.shape, other.dtype):
        return Dependent(place, [], 0, (tuple(one.shape), tuple(other.shape)))
    one, other = one.detach().resolve_conj().resolve_neg(), other.detach().resolve_conj()
    other = other.resolve_neg()
    if one.dtype.is_floating_point or one.dtype.is_complex:
        wide = torch.complex128 if one.dtype.is_complex else torch.float64
        # Kernels with threads may add in another order. A pattern makes a larger difference.
        same = torch.isclose(one.to(wide), other.to(wide), 1e-2, 1e-2, equal_nan=True)
    else:
        same = one == other
    wrong = (~same).nonzero().tolist()
    if not wrong:
        return None
    index = wrong[0]
    values = one[tuple(index)].item(), other[tuple(index)].item()
    differs = (~same).flatten()
    first = int(differs.to(torch.uint8).argmax())
    start = max(0, first - EDGE)
    cells = "".join("X" if cell else "." for cell in differs[start : first + EDGE].tolist())
    picture = f"{cells}\n{' ' * (first - start)}^ element {first}"
    return Dependent(place, index, len(wrong), values, picture)
