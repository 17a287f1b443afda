"""`Weaving`: the calls of a plain match, played into a scene with other calls around them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import combinations

import torch

from aliasproof.generators.scenario_steps import fresh
from aliasproof.generators.scene import NoChoice, Pick, Scene
from aliasproof.ir.execution import execute, seed_generators
from aliasproof.ir.program import Program, Ref, rename
from aliasproof.ir.regions import Region, overlap
from aliasproof.ir.values import input_tensors

Accepts = Callable[[torch.Tensor], bool]


@dataclass(frozen=True, slots=True)
class Matched:
    """Where the calls of a match are in a program, and the operands that they take.

    `again` are the calls of a second match. `dtypes` are those that the operands usually have.
    """

    calls: tuple[int, ...]
    operands: tuple[str, ...]
    dtypes: frozenset[torch.dtype]
    again: tuple[int, ...] = ()


@dataclass(slots=True)
class Weaving:
    """A match that is played call by call. `names` has the values of the plain match."""

    pick: Pick
    scene: Scene
    plain: Program
    names: dict[str, str] = field(default_factory=dict)
    calls: list[int] = field(default_factory=list)
    played: int = 0

    def __post_init__(self) -> None:
        for view in self.plain.inputs:
            self.names[view.name] = view.name

    def compute_operands(self) -> None:
        """Let some operands be computed from inputs, or be views of what is computed."""
        for view in self.plain.inputs:
            if self.pick.chance(25):
                name = fresh(self.pick, self.scene, view.name)
                self.names[view.name] = self.view(name) if self.pick.chance(30) else name

    def play(self, until: int | None = None) -> None:
        """Play the next calls of the match; all that are left if `until` is None.

        Raises `NoChoice` if eager refuses one.
        """
        stop = len(self.plain) if until is None else until
        for call in self.plain.instructions[self.played : stop]:
            self.calls.append(len(self.scene.instructions))
            args = tuple(rename(argument, self.names) for argument in call.args)
            kwargs = {key: rename(value, self.names) for key, value in call.kwargs}
            results = self.scene.call(call.op, *args, named=True, **kwargs)
            self.names.update(zip(call.results, results, strict=False))
        self.played = max(self.played, stop)

    # --- values of the match ----------------------------------------------------------------------

    def operand(self, accepts: Accepts = lambda tensor: True) -> str:
        """An operand of the match. Raises `NoChoice` if none is accepted."""
        operands = [name for name in self.operands() if accepts(self.value(name))]
        if not operands:
            raise NoChoice("the match takes no tensor")
        return self.pick.one(operands)

    def operands(self) -> list[str]:
        """The tensors that the match takes."""
        return list(dict.fromkeys(self.names[view.name] for view in self.plain.inputs))

    def inner(self) -> str:
        """A value so far that one call of the match makes and another one reads."""
        read = {name for call in self.plain.instructions for name in call.refs}
        made = [name for call in self.plain.instructions for name in call.results]
        inner = [self.names[name] for name in made if name in read and name in self.names]
        if not inner:
            raise NoChoice("no call of the match reads another one's result")
        return self.pick.one(inner)

    def result(self) -> str:
        """A result of the match."""
        return self.pick.one(self.results())

    def results(self) -> list[str]:
        """The results of the match so far."""
        return [self.names[name] for name in self.plain.outputs if name in self.names]

    def value(self, name: str) -> torch.Tensor:
        """The tensor of that name."""
        return self.scene.values[name]

    def middle(self) -> int:
        """A number of calls after which some of the match are still to come."""
        if len(self.plain) < 2:
            raise NoChoice("the match is one call")
        return self.pick.integer(1, len(self.plain) - 1)

    def view(self, name: str) -> str:
        """Another view of all that a value shows."""
        return self.scene.call("aten.alias.default", Ref(name))[0]


# --- evidence -------------------------------------------------------------------------------------
#
# `Evidence`: what a program really does around a match, measured by a run in eager.


@dataclass(slots=True)
class Evidence:
    """A program, where its match is, and the regions of memory that its calls write."""

    program: Program
    matched: Matched
    values: dict[str, torch.Tensor] = field(default_factory=dict)
    writes: list[list[torch.Tensor]] = field(default_factory=list)  # by call

    def __post_init__(self) -> None:
        tensors = input_tensors(self.program)
        names = [view.name for view in self.program.inputs]
        self.values = dict(zip(names, tensors, strict=True))
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            seed_generators()
            for call in self.program.instructions:
                self.writes.append([self.values[name] for name in call.written])
                execute(call, self.values)

    # --- which calls ------------------------------------------------------------------------------

    def before(self) -> Iterable[int]:
        """The calls before those of the match."""
        return range(min(self.matched.calls))

    def between(self) -> Iterable[int]:
        """The calls among those of the match that are none of it."""
        calls = self.matched.calls
        return sorted({*range(min(calls), max(calls))} - {*calls})

    def after(self) -> Iterable[int]:
        """The calls after those of the match."""
        return range(max(self.matched.calls) + 1, len(self.program))

    def _others(self) -> Iterator[int]:
        own = {*self.matched.calls, *self.matched.again}
        return (index for index in range(len(self.program)) if index not in own)

    # --- what they do -----------------------------------------------------------------------------

    def writes_operand(self, calls: Iterable[int]) -> bool:
        """True if one of the calls writes bytes of an operand."""
        return self._writes(calls, self.matched.operands)

    def writes_inner(self) -> bool:
        """True if a call writes a value that the match makes and reads."""
        return self._writes(self._others(), self._inner())

    def _writes(self, calls: Iterable[int], names: Iterable[str]) -> bool:
        regions = [Region.of(self.values[name]) for name in names]
        return any(
            overlap(Region.of(written), region)
            for call in calls
            for written in self.writes[call]
            for region in regions
        )

    def reads_inner(self) -> bool:
        """True if a value that the match makes and reads has another reader, or is returned."""
        read = {name for index in self._others() for name in self.program.instructions[index].refs}
        return bool(self._inner() & {*read, *self.program.outputs})

    def _inner(self) -> set[str]:
        calls = [self.program.instructions[index] for index in self.matched.calls]
        made = {name for call in calls for name in call.results}
        return made & {name for call in calls for name in call.refs}

    # --- operands and results ---------------------------------------------------------------------

    def some_operand(self, accepts: Callable[[torch.Tensor], bool]) -> bool:
        """True if the function accepts an operand."""
        return any(accepts(self.values[name]) for name in self.matched.operands)

    def operands_alias(self) -> bool:
        """True if two operands share a byte."""
        regions = [Region.of(self.values[name]) for name in self.matched.operands]
        return any(overlap(one, other) for one, other in combinations(regions, 2))

    def has_other_dtype(self) -> bool:
        """True if an operand has a dtype that none has usually."""
        return self.some_operand(lambda tensor: tensor.dtype not in self.matched.dtypes)

    def results(self) -> set[str]:
        """What calls of the match make."""
        indices = (*self.matched.calls, *self.matched.again)
        return {name for index in indices for name in self.program.instructions[index].results}

    def returns_beside(self) -> bool:
        """True if a result is returned, and with it an operand or a view of one."""
        regions = [Region.of(self.values[name]) for name in self.matched.operands]
        returned = set(self.program.outputs)
        return bool(returned & self.results()) and any(
            overlap(Region.of(self.values[name]), region)
            for name in returned - self.results()
            for region in regions
        )

    def written_back(self) -> bool:
        """True if a result is copied into an operand."""
        return any(
            self.program.instructions[index].op == "aten.copy_.default"
            and self.program.instructions[index].refs[1] in self.results()
            and self.writes_operand([index])
            for index in self.after()
        )
