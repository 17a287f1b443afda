"""The smallest peak that any plan of a problem can have, by z3's `Optimize`.

The unknowns are the storage of each value, the pairs that a plan makes use of, and the size of each
storage. A storage is named by the first value in it. All times are positions of calls, so there
is one inequality per time: the sizes of the storages that are live there are at most the peak.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import z3

from aliasproof.oracles.proofs.memory_problem import (
    Content,
    Pair,
    Problem,
    Sharing,
    Value,
    allocated,
    needed,
)


def smallest_peak(problem: Problem, seconds: float = 20.0) -> int | None:
    """The exact minimum of the peak in bytes; None if it is not found in time."""
    low, high = needed(problem), allocated(problem)
    if low == high:
        return low
    context = z3.Context()
    model = _Model(problem, context)
    optimize = z3.Optimize(ctx=context)
    optimize.set("timeout", int(seconds * 1000))
    peak = z3.Int("peak", context)
    optimize.add(*model.laws(), low <= peak, peak <= high)
    optimize.add(*(model.bytes_at(time) <= peak for time in problem.times))
    least = optimize.minimize(peak)
    if optimize.check() != z3.sat:
        return None
    return int(optimize.lower(least).as_long())


@dataclass(slots=True)
class _Model:
    """A plan as unknowns. Storages have the indices of values; spaces come after.

    `inside` says whether a value is in a storage, `used` whether the plan makes use of a pair.
    `moved` says that a value is copied into a space once it is computed: the epilogue copies it.
    """

    problem: Problem
    context: z3.Context
    inside: dict[tuple[int, int], Any] = field(default_factory=dict)
    size: dict[int, Any] = field(default_factory=dict)
    used: dict[Pair, Any] = field(default_factory=dict)
    moved: dict[int, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        values, spaces = self.problem.values, self.problem.spaces
        for index, storage in _candidates(self.problem):
            self.inside[index, storage] = self._bool(f"{index} in {storage}")
        for index, value in enumerate(values):
            self.size[index] = z3.Int(f"size {index}", self.context)
            if any(index == copied for space in spaces for copied, _ in space.copied):
                self.moved[index] = self._bool(f"{index} moved")
            for number, space in enumerate(spaces, len(values)):
                if not value.returned and (not value.shown or space.nbytes == value.nbytes):
                    self.inside[index, number] = self._bool(f"{index} in {number}")
        for number, pair in enumerate(self.problem.pairs):
            self.used[pair] = self._bool(f"pair {number}")

    # --- laws -------------------------------------------------------------------------------------

    def laws(self) -> Iterator[Any]:
        """What makes it a plan."""
        for index in range(len(self.problem.values)):
            yield from self._of_value(index)
        for pair in self.problem.pairs:
            yield from self._of_pair(pair)
        yield from self._of_groups()
        yield from self._of_overwritten()
        for storage in range(len(self.problem.values) + len(self.problem.spaces)):
            for time in self.problem.times:
                yield self._content(storage, time) <= self._room(storage, time)

    def _of_value(self, index: int) -> Iterator[Any]:
        value, own = self.problem.values[index], self.inside[index, index]
        homes = {storage: there for (one, storage), there in self.inside.items() if one == index}
        yield z3.PbEq([(there, 1) for there in homes.values()], 1)
        for storage, there in homes.items():
            if storage < len(self.problem.values):  # named by its first value
                yield z3.Implies(there, self.inside[storage, storage])
                if value.returned or value.shown:
                    yield z3.Implies(there, self.size[storage] <= value.nbytes)
                if value.shown:
                    yield z3.Implies(there, self.size[storage] >= value.nbytes)
        if index in self.moved:
            count = len(self.problem.values)
            copied = [
                self._inside(index, count + number)
                for number, space in enumerate(self.problem.spaces)
                if any(index == other for other, _ in space.copied)
            ]
            yield z3.Implies(self.moved[index], self._any(copied))
        if not value.movable:
            alone = z3.And(own, self.size[index] == value.nbytes)
            given = [self.used[p] for p in self.problem.of(index, Sharing.OVER)]
            moved = [self.moved[index]] if index in self.moved else []
            yield self._any([alone, *given, *moved])

    def _of_pair(self, pair: Pair) -> Iterator[Any]:
        used, other = self.used[pair], pair.other
        if pair.in_space:
            other += len(self.problem.values)
            yield z3.Implies(used, self._inside(pair.value, other))
        else:
            storages = {storage for _, storage in self.inside}
            for storage in storages:
                one, two = self._inside(pair.value, storage), self._inside(other, storage)
                yield z3.Implies(used, one == two)
        if pair.sharing is Sharing.OVER:
            casts = [self.used[p] for p in self.problem.of(pair.value, Sharing.CAST)]
            yield z3.Implies(used, self._any(casts) == pair.cast)

    def _of_groups(self) -> Iterator[Any]:
        """Returned values are apart, and a plan uses each kind of sharing of a value once."""
        groups: dict[object, list[Any]] = {}
        for (index, storage), there in self.inside.items():
            if self.problem.values[index].returned:
                groups.setdefault(("returned", storage), []).append(there)
        for pair, used in self.used.items():
            groups.setdefault((pair.sharing, pair.value), []).append(used)
        for group in groups.values():
            yield z3.PbLe([(used, 1) for used in group], 1)

    def _of_overwritten(self) -> Iterator[Any]:
        """Of what dies in one call, no byte is overwritten twice."""
        savings: dict[tuple[int, bool, int], list[Any]] = {}
        for pair, used in self.used.items():
            if pair.sharing is Sharing.OVER and pair.nbytes:
                call = pair.other, pair.in_space, self.problem.values[pair.value].born
                savings.setdefault(call, []).append((used, pair.nbytes))
        for (other, in_space, time), group in savings.items():
            operand = (self.problem.spaces if in_space else self.problem.values)[other]
            yield z3.PbLe(group, operand.dying(time))

    # --- bytes ------------------------------------------------------------------------------------

    def bytes_at(self, time: int) -> Any:
        """The sizes of all storages that are live at a time."""
        values = self.problem.values
        terms = []
        for storage, first in enumerate(values):
            later = [
                there
                for (index, home), there in self.inside.items()
                if home == storage and values[index].dies >= time
            ]
            if first.born <= time and later:
                live = z3.And(self.inside[storage, storage], self._any(later))
                terms.append(z3.If(live, self.size[storage], 0))
        for index, moved in self.moved.items():
            if values[index].born == time:
                own = values[index].needed if values[index].movable else values[index].nbytes
                terms.append(z3.If(moved, own, 0))
        return z3.Sum([z3.IntVal(0, self.context), *terms])

    def _content(self, storage: int, time: int) -> Any:
        """The bytes that the values in a storage need at a time."""
        problem, here = self.problem, self._living(storage, time)
        space = storage - len(problem.values)
        terms = [
            self._most(content, here, time)
            for content in problem.contents
            if not content.in_source(space, time)
        ]
        for index, there in here.items():
            value = problem.values[index]
            keeps_gaps = value.returned or value.shown or not value.movable
            if keeps_gaps and storage < len(problem.values):
                # The kernel that allocates the storage leaves gaps in it, which a caller can see.
                given = [self.used[p] for p in problem.of(index, Sharing.OVER)]
                gaps = z3.And(there, z3.Not(self._any(given)))
                terms.append(z3.If(gaps, value.nbytes - value.needed, 0))
            for pair in problem.of(index, Sharing.CAST):
                cast = problem.values[pair.other].needed if time < value.dies else 0
                terms.append(z3.If(z3.And(there, self.used[pair]), cast - value.live(time), 0))
            for pair in problem.of(index, Sharing.OVER) if value.born == time else ():
                saves = z3.And(there, self.used[pair])
                terms.append(z3.If(saves, -pair.nbytes, 0))
                for count, holders in pair.held:
                    held = self._any([self._inside(holder, storage) for holder in holders])
                    terms.append(z3.If(z3.And(saves, held), count, 0))
        return z3.Sum([z3.IntVal(0, self.context), *terms])

    def _living(self, storage: int, time: int) -> dict[int, Any]:
        """The values that are live at a time, each with the condition that a storage holds it."""
        here = {}
        for (index, home), there in self.inside.items():
            value = self.problem.values[index]
            if home != storage or not value.born <= time <= value.dies:
                continue
            if storage >= len(self.problem.values):
                space = self.problem.spaces[storage - len(self.problem.values)]
                if any(copied == index and write < time for copied, write in space.copied):
                    continue  # these are its bytes now
                if value.born == time and index in self.moved:
                    there = z3.And(there, z3.Not(self.moved[index]))
            here[index] = there
        return here

    def _most(self, content: Content, here: dict[int, Any], time: int) -> Any:
        """The bytes of these contents: as many as the value needs that needs the most of them."""
        live = content.live(self.problem.values, time)
        most: Any = z3.IntVal(0, self.context)
        for index, count in sorted(live.items(), key=lambda item: item[1]):
            most = z3.If(here[index], count * content.nbytes, most) if index in here else most
        return most

    def _room(self, storage: int, time: int) -> Any:
        count = len(self.problem.values)
        if storage < count:
            return self.size[storage]
        return z3.IntVal(self.problem.spaces[storage - count].room(time), self.context)

    # --- small ------------------------------------------------------------------------------------

    def _bool(self, name: str) -> Any:
        return z3.Bool(name, self.context)

    def _inside(self, index: int, storage: int) -> Any:
        return self.inside.get((index, storage), z3.BoolVal(False, self.context))

    def _any(self, conditions: Sequence[Any]) -> Any:
        return z3.Or(z3.BoolVal(False, self.context), *conditions)


def _candidates(problem: Problem) -> Iterator[tuple[int, int]]:
    """The values, each with the storages that it may be in.

    Values that no pair connects gain nothing in one storage, unless a part of it is idle.
    """
    group = list(range(len(problem.values)))
    for pair in problem.pairs:
        if not pair.in_space:
            old, new = group[pair.value], group[pair.other]
            group = [new if each == old else each for each in group]
    for content in problem.contents:
        for index, _ in content.readers:
            old, new = group[index], group[content.readers[0][0]]
            group = [new if each == old else each for each in group]
    idle = {
        group[index] for index, value in enumerate(problem.values) if _partly_idle(problem, value)
    }
    idle |= {group[pair.value] for pair in problem.pairs if not _replaces(problem, pair)}
    idle |= {group[index] for each in problem.contents for index, _ in each.readers[1:]}
    for index in range(len(group)):
        yield index, index
        for storage in range(index):
            both = {group[index], group[storage]}
            if len(both) == 1 or both & idle:
                yield index, storage


def _partly_idle(problem: Problem, value: Value) -> bool:
    return any(
        value.live(time) < value.needed for time in problem.times if value.born < time <= value.dies
    )


def _replaces(problem: Problem, pair: Pair) -> bool:
    """True if a value takes all bytes of the other one, and needs no others."""
    sizes = {pair.nbytes, problem.values[pair.value].needed}
    if not pair.in_space:
        sizes.add(problem.values[pair.other].needed)
    return pair.sharing is Sharing.OVER and len(sizes) == 1
