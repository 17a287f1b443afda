"""The situations around a match that a derived program has, measured by a run in eager."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import combinations

import torch

from aliasproof.generators.rules.situations import Weaving
from aliasproof.ir.execution import execute, seed_generators
from aliasproof.ir.program import Program
from aliasproof.ir.regions import Region, overlap
from aliasproof.ir.values import input_tensors


@dataclass(slots=True)
class Evidence:
    """The program of a woven match, which returns the wanted values, and what its run shows.

    `usual` are the dtypes of the operands in the usual match of the rule.
    """

    weaving: Weaving
    usual: frozenset[torch.dtype]
    program: Program = field(init=False)
    values: dict[str, torch.Tensor] = field(init=False)
    writes: list[list[torch.Tensor]] = field(default_factory=list)  # by call

    def __post_init__(self) -> None:
        scene = self.weaving.steps.scene
        self.program = scene.program(tuple(dict.fromkeys(scene.wanted)))
        names = [view.name for view in self.program.inputs]
        self.values = dict(zip(names, input_tensors(self.program), strict=True))
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            seed_generators()
            for call in self.program.instructions:
                self.writes.append([self.values[name] for name in call.written])
                execute(call, self.values)

    # --- which calls ------------------------------------------------------------------------------

    @property
    def match(self) -> list[int]:
        """The calls of the match; those of a second one come after them."""
        return self.weaving.calls[: len(self.weaving.plain)]

    def before(self) -> Iterable[int]:
        return range(min(self.match))

    def between(self) -> Iterable[int]:
        return {*range(min(self.match), max(self.match))} - {*self.match}

    def after(self) -> Iterable[int]:
        return range(max(self.match) + 1, len(self.program))

    def others(self) -> Iterable[int]:
        return {*range(len(self.program))} - {*self.weaving.calls}

    # --- what they do -----------------------------------------------------------------------------

    def made(self, calls: Iterable[int]) -> set[str]:
        return {name for call in calls for name in self.program.instructions[call].results}

    def read(self, calls: Iterable[int]) -> set[str]:
        return {name for call in calls for name in self.program.instructions[call].refs}

    def inner(self) -> set[str]:
        """The values that one call of the match makes and another one reads."""
        return self.made(self.match) & self.read(self.match)

    def results(self) -> set[str]:
        return self.made(self.weaving.calls)

    def operands(self) -> list[torch.Tensor]:
        return [self.values[name] for name in self.weaving.operands()]

    def writes_operand(self, calls: Iterable[int]) -> bool:
        return self.writes_one(calls, self.weaving.operands())

    def writes_one(self, calls: Iterable[int], names: Iterable[str]) -> bool:
        """Whether one of the calls writes a byte of one of these values."""
        return any(
            overlap(Region.of(written), Region.of(self.values[name]))
            for call in calls
            for written in self.writes[call]
            for name in names
        )


def is_expanded(tensor: torch.Tensor) -> bool:
    return any(
        size > 1 and stride == 0 for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
    )


def is_transposed(tensor: torch.Tensor) -> bool:
    """Whether the order of dimensions in memory is not that of the shape."""
    pairs = zip(tensor.shape, tensor.stride(), strict=True)
    strides = [stride for size, stride in pairs if size > 1 and stride > 0]
    return strides != sorted(strides, reverse=True)


def operands_alias(seen: Evidence) -> bool:
    regions = map(Region.of, seen.operands())
    return any(overlap(one, other) for one, other in combinations(regions, 2))


def returns_beside(seen: Evidence) -> bool:
    """Whether a result is returned with an operand, or with a view of one."""
    returned = {*seen.program.outputs}
    shown = [Region.of(seen.values[name]) for name in returned - seen.results()]
    operands = list(map(Region.of, seen.operands()))
    beside = any(overlap(one, other) for one in shown for other in operands)
    return beside and bool(returned & seen.results())


def written_back(seen: Evidence) -> bool:
    """Whether a result is copied into an operand."""
    return any(
        seen.program.instructions[call].op == "aten.copy_.default"
        and seen.program.instructions[call].refs[1] in seen.results()
        and seen.writes_operand([call])
        for call in seen.after()
    )


# By the name of the situation.
SHOWS: dict[str, Callable[[Evidence], bool]] = {
    "alone": lambda seen: True,
    "operand written before": lambda seen: seen.writes_operand(seen.before()),
    "operand written between": lambda seen: seen.writes_operand(seen.between()),
    "operand written after": lambda seen: seen.writes_operand(seen.after()),
    # Another call reads it, or it is returned.
    "inner value read": lambda seen: bool(
        seen.inner() & {*seen.read(seen.others()), *seen.program.outputs}
    ),
    "inner value written": lambda seen: seen.writes_one(seen.others(), seen.inner()),
    "operands alias": operands_alias,
    "operand expanded": lambda seen: any(map(is_expanded, seen.operands())),
    "operand transposed": lambda seen: any(map(is_transposed, seen.operands())),
    "operand with an offset": lambda seen: any(it.storage_offset() > 0 for it in seen.operands()),
    "operand without elements": lambda seen: any(it.numel() == 0 for it in seen.operands()),
    "operand without dimensions": lambda seen: any(it.dim() == 0 for it in seen.operands()),
    "operand of another dtype": lambda seen: any(
        it.dtype not in seen.usual for it in seen.operands()
    ),
    "match twice": lambda seen: len(seen.weaving.calls) > len(seen.match),
    "result beside operand": returns_beside,
    "result written back": written_back,
}
