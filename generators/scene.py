"""The scene in which a program is drawn: its values are real tensors.

So each draw sees true shapes and aliases.
"""

from __future__ import annotations

import contextlib
import functools
import operator
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TypeVar

import torch

from aliasproof.eager.definedness import Undefined, Watch
from aliasproof.eager.rounding import rounding_name
from aliasproof.eager.uninitialised import ALLOCATES
from aliasproof.ir.execution import call, seed_generators
from aliasproof.ir.program import Argument, Input, Instruction, Program, Storage
from aliasproof.ir.regions import Region, overlap
from aliasproof.ir.schemas import Kind, facts, resolve
from aliasproof.ir.values import bytes_of, input_tensors

# --- float8 ---------------------------------------------------------------------------------------


FLOAT8 = frozenset({torch.float8_e4m3fn, torch.float8_e5m2})

# Views need no kernel. Of the other ops, these have a float8 kernel on CPU in torch 2.13. None of
# them computes new values.
# fmt: off
_MOVES = frozenset({
    "abs", "fill", "zero", "copy", "clone", "zeros_like", "full_like", "where", "cat", "stack",
    "select_scatter", "slice_scatter", "diagonal_scatter", "as_strided_scatter", "index",
    "index_select", "to", "_to_copy", "contiguous", "eq", "repeat", "view_copy",
})
# fmt: on


@functools.cache
def has_float8_kernel(name: str) -> bool:
    """True if eager runs the op on float8 tensors of every size.

    Eager runs more ops on tensors without elements; compilers need not support these.
    """
    op = resolve(name)
    if op is torch.ops.aten._neg_view.default:  # whatever reads this view has to negate
        return False
    changes_metadata = torch.Tag.inplace_view in op.tags
    is_view = facts(op).kind is Kind.VIEW
    return changes_metadata or is_view or rounding_name(op) in _MOVES


# --- scene ----------------------------------------------------------------------------------------


T = TypeVar("T")

LARGEST_RESULT = 4096  # elements; keeps a chain of expands from growing without bound
MOST_RESULTS = 4  # an unbind of a long dimension would fill the scene with similar views
# All errors that eager raises for arguments that do not fit.
EAGER_ERRORS = (RuntimeError, IndexError, ValueError, TypeError, NotImplementedError)
_NUMBERS = re.compile(r"-?\d+")


class NoChoice(Exception):
    """Nothing in the scene fits the draw; the caller draws something else."""


class Pick:
    """Draws, in the three forms that generation needs.

    The simplest results are the first choice, the lowest number and False: Hypothesis shrinks
    towards them. `draw(low, high)` returns an integer in this range, ends included. It is
    Hypothesis in tests and a seeded generator in campaigns.
    """

    def __init__(self, draw: Callable[[int, int], int]) -> None:
        self._draw = draw

    def integer(self, low: int, high: int) -> int:
        """An integer from `low` to `high`, both included."""
        return low if low >= high else self._draw(low, high)

    def one(self, choices: Sequence[T]) -> T:
        """One of the choices. Raises `NoChoice` if there is none."""
        if not choices:
            raise NoChoice
        return choices[self.integer(0, len(choices) - 1)]

    def chance(self, percent: int) -> bool:
        """True with this probability, in percent."""
        return self._draw(0, 99) >= 100 - percent


@dataclass(slots=True)
class Counts:
    """The fate of drawn instructions.

    Each was kept, raised in eager, is undefined in eager, or has too large or too many results.
    `reasons` counts the dropped calls by op and reason. `scenarios` counts the completed plays of
    each scenario.
    """

    kept: int = 0
    raised: int = 0
    undefined: int = 0
    too_large: int = 0
    reasons: Counter[tuple[str, str]] = field(default_factory=Counter)
    scenarios: Counter[str] = field(default_factory=Counter)
    # Rule-derived programs, by rule of the compiler and situation.
    pairs: Counter[tuple[str, str]] = field(default_factory=Counter)

    @property
    def drawn(self) -> int:
        """All instructions that were drawn."""
        return self.kept + self.raised + self.undefined + self.too_large

    def add(self, other: Counts) -> None:
        """Add the counts of other scenes to these."""
        for count in fields(self):
            total = operator.iadd(getattr(self, count.name), getattr(other, count.name))
            setattr(self, count.name, total)

    def note_dropped(self, op: str, reason: Exception) -> None:
        """Count a call that eager refuses or does not define."""
        text = str(reason).partition("\n")[0]
        if isinstance(reason, Undefined):
            self.undefined += 1
            # The message begins with the op that breaks the rule.
            self.reasons[op, f"undefined: {text.partition(' ')[2]}"] += 1
        else:
            self.raised += 1
            # Sizes and names differ from call to call, and the reason is the same.
            self.reasons[op, f"raises: {_NUMBERS.sub('N', text)}"] += 1


@dataclass(slots=True)
class Scene:
    """Inputs, instructions so far, and every value by name, as real tensors.

    `counts` belongs to the caller, who may pass one object to many scenes.
    """

    storages: tuple[Storage, ...]
    inputs: tuple[Input, ...]
    seed: int
    counts: Counts = field(default_factory=Counts)
    values: dict[str, torch.Tensor] = field(init=False)  # oldest first
    instructions: list[Instruction] = field(default_factory=list)
    wanted: list[str] = field(default_factory=list)  # values that a scenario wants to be returned
    # Inner values of calls that a rule matches. If another call read one, or it were returned, the
    # rule would not apply.
    hidden: set[str] = field(default_factory=set)
    # One watch for all calls, since it records which memory is still unwritten.
    watch: Watch = field(default_factory=lambda: Watch(traces=False))
    # The state of torch's generator after the instructions so far.
    _generator: torch.Tensor = field(init=False)

    def __post_init__(self) -> None:
        tensors = input_tensors(self.program(()))
        self.values = {view.name: tensor for view, tensor in zip(self.inputs, tensors, strict=True)}
        with torch.random.fork_rng(devices=[]):
            seed_generators()
            self._generator = torch.get_rng_state()

    def program(self, outputs: Sequence[str]) -> Program:
        """The program drawn so far, which returns the named values."""
        return Program(
            self.storages, self.inputs, tuple(self.instructions), tuple(outputs), self.seed
        )

    def call(
        self, op: str, *args: Argument, named: bool | None = None, **kwargs: Argument
    ) -> tuple[str, ...]:
        """Add an instruction, run it, and return the names of its results.

        Results are named if they are new tensors; `named` overrides that. If the call raises or is
        undefined in eager, raises `NoChoice` and leaves the scene unchanged.
        """
        instruction = Instruction(op, args, tuple(kwargs.items()))
        results = self._run(instruction)
        if named is None:
            named = not instruction.mutates()
        if not named:
            results = []
        # A kernel returns None for results that were not requested, such as a gradient.
        if not all(isinstance(result, torch.Tensor) for result in results):
            raise NoChoice
        # Only new tensors can be too large or too many, so a call dropped here wrote nothing.
        if len(results) > MOST_RESULTS or any(
            result.numel() > LARGEST_RESULT for result in results
        ):
            self.counts.too_large += 1
            self.counts.reasons[op, "results too large or too many"] += 1
            raise NoChoice
        self.counts.kept += 1
        # v0, v1, ... across the program: the canonical names of `Program.renamed`.
        first = len(self.values) - len(self.inputs)
        names = tuple(f"v{first + index}" for index in range(len(results)))
        self.values.update(zip(names, results, strict=True))
        self.instructions.append(replace(instruction, results=names))
        return names

    def _run(self, instruction: Instruction) -> list[torch.Tensor]:
        """The results of a call, with zeros in memory that it leaves unwritten."""
        op = instruction.op
        dtypes = {self.values[name].dtype for name in instruction.refs}
        if dtypes & FLOAT8 and not has_float8_kernel(op):
            raise NoChoice
        known = [self.values[name].untyped_storage() for name in instruction.refs]
        lengths = [storage.nbytes() for storage in known]
        try:
            with self.watch, torch.no_grad(), self._random_numbers(op):
                results = call(instruction, self.values)
        except (Undefined, *EAGER_ERRORS) as reason:
            self.counts.note_dropped(op, reason)
            raise NoChoice from reason
        # An `out=` buffer that is too short is resized, and the call writes all of it.
        if facts(resolve(op)).kind is not Kind.OUT:
            for storage, length in zip(known, lengths, strict=True):
                _fill_from(storage, length)
        if op.split(".")[1] in ALLOCATES:
            for result in results:
                _fill_from(result.untyped_storage(), 0)
        return results

    @contextlib.contextmanager
    def _random_numbers(self, op: str) -> Iterator[None]:
        """Give a call the generator state that a run has here; discard its draws if it raises."""
        if not facts(resolve(op)).random:
            yield
            return
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(self._generator)
            yield
            self._generator = torch.get_rng_state()

    def wants(self, *names: str) -> None:
        """Declare that a bug would show if these values were returned, the last ones first."""
        self.wanted += names
        self.hidden.difference_update(names)

    def is_written(self, tensor: torch.Tensor) -> bool:
        """True if a call, or the fill of an input, wrote each byte that the tensor covers."""
        return not self.watch.shows_unwritten(tensor)

    def leaves_unwritten_memory(self) -> bool:
        """True if the storage of an input has bytes that were never written."""
        return any(
            self.watch.shows_unwritten(bytes_of(self.values[view.name].untyped_storage()))
            for view in self.inputs
        )

    def newest_first(
        self, accepts: Callable[[torch.Tensor], bool] = lambda tensor: True
    ) -> list[str]:
        """The names of all values that are not hidden and that `accepts` accepts, newest first."""
        names = [name for name in reversed(self.values) if name not in self.hidden]
        return [name for name in names if accepts(self.values[name])]

    def apart(self, names: Iterable[str], others: Iterable[str]) -> list[str]:
        """The names whose values share no byte with the values of `others`."""
        regions = [Region.of(self.values[other]) for other in others]
        return [
            name
            for name in names
            if not any(overlap(Region.of(self.values[name]), region) for region in regions)
        ]

    def aliases(self, name: str) -> list[str]:
        """The names of other values that share a byte with this one, the newest first."""
        region = Region.of(self.values[name])
        return [
            other
            for other in self.newest_first()
            if other != name and overlap(Region.of(self.values[other]), region)
        ]


def _fill_from(storage: torch.UntypedStorage, start: int) -> None:
    """Write zeros from `start` on: a call that makes or resizes a storage leaves any bytes there.

    The contents of memory decide which values fit an argument, and draws must be reproducible.
    """
    if storage.nbytes() > start:
        torch.empty(0, dtype=torch.uint8).set_(storage)[start:].zero_()
