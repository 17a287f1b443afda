"""The problem that memory planning solves: values with bytes and lifetimes, and who may share.

Time is the position of a call. A *value* is what one call of a functional graph allocates. A plan
puts each value into a *storage*, alone or with others. The values that are live in a storage at one
time need bytes of their own, except where they have the same *contents*, or where a *sharing* of
the graph says otherwise. The part of a concatenation, and the bytes that it is copied to, are the
same contents: in one storage, the part is computed there.

A plan obeys four laws:

- A storage has one size. It is live from the call of its first value to the last use of one, both
  inclusive.
- It has room, at each time, for all bytes that are read at that time or later. Where these bytes
  are is not asked, so gaps between them never cost anything.
- A returned value shares its storage with no other returned value, and its storage is not larger
  than the one that its call allocates: a caller can see both.
- Only a value that is `movable` may be computed at a given address. Others allocate their storage,
  or are written over an operand.
- A value that is `shown` to an operator of another library is in a storage as large as its own: the
  operator sees that size.

The peak is the largest number of bytes of live storages. Inputs do not count.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum


class Sharing(Enum):
    """Why two values may be in the same bytes although both are live."""

    OVER = "over"  # the call of `value` writes its result over the operand `other`, which dies
    CAST = "cast"  # `other` is `value` as another dtype, which `value` may be written as at once


@dataclass(frozen=True, slots=True)
class Value:
    """The result of a call, which has `nbytes` bytes in the storage that the call allocates.

    Of these, `needed` are bytes of the result, or are read. `read_until` counts them by the time of
    their last read. `dies` is the last time at which the value, or a view of it, is an operand.
    """

    name: str
    nbytes: int
    needed: int
    born: int
    dies: int
    read_until: tuple[tuple[int, int], ...]
    returned: bool = False
    movable: bool = True
    shown: bool = False

    def live(self, time: int) -> int:
        """The bytes that it needs while the call at a time runs."""
        if time <= self.born:
            return self.needed if time == self.born else 0
        return sum(count for until, count in self.read_until if until >= time)

    def dying(self, time: int) -> int:
        """The bytes that are read for the last time at a time."""
        return sum(count for until, count in self.read_until if until == time)


@dataclass(frozen=True, slots=True)
class Space:
    """Bytes of an input that the graph overwrites at its end, so that they are free before.

    `free` counts them by the time of their last read, and that of the write. `copied` are the
    values that are written there, with the time of the write. The input has `nbytes` bytes.
    """

    name: str
    free: tuple[tuple[int, int, int], ...]
    copied: tuple[tuple[int, int], ...] = ()
    nbytes: int = 0

    def room(self, time: int) -> int:
        """The bytes that are free while the call at a time runs."""
        return sum(count for read, write, count in self.free if read < time <= write)

    def dying(self, time: int) -> int:
        """The bytes that are read for the last time at a time."""
        return sum(count for read, _, count in self.free if read == time)


@dataclass(frozen=True, slots=True)
class Content:
    """Classes of `nbytes` bytes that are equal, whatever value they are in.

    `readers` has for each byte of a class the index of its value, and the time of its last read
    there. A value may have several of them. With `source`, a space has them, too: its index, and
    the time until which they are read there.
    """

    readers: tuple[tuple[int, int], ...]
    nbytes: int
    source: tuple[int, int] | None = None

    def live(self, values: Sequence[Value], time: int) -> Counter[int]:
        """The values that need these bytes at a time, with how many of each class they need."""
        return Counter(
            index
            for index, until in self.readers
            if values[index].born <= time <= max(until, values[index].born)
        )

    def in_source(self, space: int, time: int) -> bool:
        """True if a space has the bytes at a time, without room for them."""
        return self.source is not None and self.source[0] == space and time <= self.source[1]


@dataclass(frozen=True, slots=True)
class Pair:
    """A sharing of the value with that index with another value or, if `in_space`, a space.

    `nbytes` is what it saves at the time at which `value` is written. `held` counts those of them
    that are the contents of other values, too, and are read there later: nothing is saved if one of
    these is in the same storage. With `cast`, the value must be written as the dtype that it is
    cast to.
    """

    sharing: Sharing
    value: int
    other: int
    nbytes: int = 0
    in_space: bool = False
    cast: bool = False
    held: tuple[tuple[int, tuple[int, ...]], ...] = ()


@dataclass(frozen=True, slots=True)
class Problem:
    """What a functional graph allocates, in the order of its calls.

    `contents` has the bytes of all values; by default, no two are the same. `times` are those at
    which a peak, or a lack of room, can begin.
    """

    values: tuple[Value, ...]
    spaces: tuple[Space, ...] = ()
    pairs: tuple[Pair, ...] = ()
    contents: tuple[Content, ...] = ()
    times: tuple[int, ...] = field(init=False)
    _by_value: dict[int, list[Pair]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        births = {value.born for value in self.values}
        # What an input holds until it is written must be dead by then.
        writes = {write + 1 for space in self.spaces for _, write, _ in space.free}
        by_value: dict[int, list[Pair]] = {}
        for pair in self.pairs:
            by_value.setdefault(pair.value, []).append(pair)
        object.__setattr__(self, "times", tuple(sorted(births | writes)))
        object.__setattr__(self, "_by_value", by_value)
        if not self.contents:
            own = (
                Content(((index, until),), count)
                for index, value in enumerate(self.values)
                for until, count in value.read_until
            )
            object.__setattr__(self, "contents", tuple(own))

    def of(self, index: int, *sharings: Sharing) -> list[Pair]:
        """The pairs of a value, of these kinds."""
        return [pair for pair in self._by_value.get(index, ()) if pair.sharing in sharings]

    def copied_before(self, index: int, time: int) -> bool:
        """True if a value is in an input by then, to which the epilogue has copied it."""
        return any(
            copied == index and write < time
            for space in self.spaces
            for copied, write in space.copied
        )


def allocated(problem: Problem) -> int:
    """The peak with each value in a storage of its own."""
    live = [0] * len(problem.times)
    for value in problem.values:
        for at in _lifetime(problem, value):
            live[at] += value.nbytes
    return max(live, default=0)


def needed(problem: Problem) -> int:
    """A lower bound of the peak that takes no search.

    At each time, it adds the bytes that are read then or later, the same contents once, less the
    most that a sharing of each value saves. Inputs that are overwritten later hold as much of it as
    they have room.
    """
    returned, others = ([0] * len(problem.times) for _ in range(2))
    for content in problem.contents:
        for at in _times_of(problem, content):
            time = problem.times[at]
            live = content.live(problem.values, time)
            here = {i: n for i, n in live.items() if not problem.copied_before(i, time)}
            if not here or (content.source is not None and time <= content.source[1]):
                continue
            kept = any(problem.values[index].returned for index in here)
            casts = any(problem.of(index, Sharing.CAST) for index in here)
            if not casts:
                (returned if kept else others)[at] += max(here.values()) * content.nbytes
    for index, value in enumerate(problem.values):
        at = bisect_left(problem.times, value.born)
        others[at] -= max((pair.nbytes for pair in problem.of(index, Sharing.OVER)), default=0)
    rooms = [sum(space.room(time) for space in problem.spaces) for time in problem.times]
    return max(
        (
            kept + max(0, other - room)
            for kept, other, room in zip(returned, others, rooms, strict=True)
        ),
        default=0,
    )


def _times_of(problem: Problem, content: Content) -> range:
    """The indices of the times at which bytes are live."""
    lives = [_lifetime(problem, problem.values[index]) for index, _ in content.readers]
    return range(min(life.start for life in lives), max(life.stop for life in lives))


def _lifetime(problem: Problem, value: Value) -> range:
    """The indices of the times at which a value is live."""
    times = problem.times
    return range(bisect_left(times, value.born), bisect_right(times, value.dies))
