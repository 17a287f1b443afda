"""Lemmas: steps that an overlap predicate takes, proved or refuted by z3 for all sizes, strides and offsets at once.

A lemma is a statement "where these premises hold, that is impossible", such as "where the last
element of one view lies before the first of the other, no byte is in both". z3 is asked for a
counterexample. There are four answers, and none stands in for another: proved (there is none),
refuted (here is one), unknown (z3 gave up), vacuous (the premises cannot hold, so that nothing was
shown; of a branch of a case split it says that the branch is dead).

A statement is written once and read twice: over z3 terms to be proved, and over numbers. The second
reading checks each witness, and lets a test hold a restated predicate against the function that it
restates.

What a proof leaves out: numbers of dims other than those named, and integers that do not fit into
64 bits.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, TypeAlias

import torch
import z3

from programs.errors import InternalError
from programs.program import Input, Instruction, Program, Ref, Storage
from programs.regions import Region

Number: TypeAlias = Any  # an `int`, or a z3 integer term
Formula: TypeAlias = Any  # a `bool`, or a z3 Boolean term
Scope: TypeAlias = Callable[[str], Number]  # what a name stands for

# Integers, so that no bit pattern is special. By bytes an element.
DTYPES = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}

# Milliseconds for each search for a smaller counterexample. The first one is right as well, only
# harder to read.
_SMALLER_MS = 1000


# --- what lemmas speak of -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SymbolicView:
    """A strided view.

    Offset and strides count elements of `itemsize` bytes, from the start of the storage.
    """

    offset: Number
    sizes: tuple[Number, ...]
    strides: tuple[Number, ...]
    itemsize: int = 1

    @property
    def dims(self) -> int:
        """The number of dimensions."""
        return len(self.sizes)

    @property
    def numel(self) -> Number:
        """The number of elements."""
        return prod(self.sizes)

    def address(self, index: Sequence[Number]) -> Number:
        """The first byte of an element."""
        return self.itemsize * (
            self.offset + sum(stride * i for stride, i in zip(self.strides, index, strict=True))
        )

    def region(self) -> Region:
        """The bytes of a view of known numbers."""
        strides = tuple(stride * self.itemsize for stride in self.strides)
        return Region(self.offset * self.itemsize, self.sizes, strides, self.itemsize)


def view(scope: Scope, name: str, dims: int, itemsize: int = 1) -> SymbolicView:
    """A view whose numbers are named after it, `x.offset` and so on."""
    sizes = tuple(scope(f"{name}.size{dim}") for dim in range(dims))
    return SymbolicView(
        scope(f"{name}.offset"),
        sizes,
        tuple(scope(f"{name}.stride{dim}") for dim in range(dims)),
        itemsize,
    )


def index(scope: Scope, name: str, of: SymbolicView) -> tuple[Number, ...]:
    """An index tuple of named numbers, which `inside` bounds."""
    return tuple(scope(f"{name}{dim}") for dim in range(of.dims))


def inside(index: Sequence[Number], of: SymbolicView) -> list[Formula]:
    """The index is that of an element."""
    return [each for i, size in zip(index, of.sizes, strict=True) for each in (i >= 0, i < size)]


def either(*conditions: Formula) -> Formula:
    """At least one holds."""
    return z3.Or(*conditions) if any(map(z3.is_expr, conditions)) else any(conditions)


def every(*conditions: Formula) -> Formula:
    """All hold."""
    return z3.And(*conditions) if any(map(z3.is_expr, conditions)) else all(conditions)


def no(condition: Formula) -> Formula:
    """The condition does not hold."""
    return z3.Not(condition) if z3.is_expr(condition) else not condition


def choose(condition: Formula, one: Number, other: Number) -> Number:
    """`one` where the condition holds, else `other`."""
    if not z3.is_expr(condition):
        return one if condition else other
    return z3.If(condition, one, other)


def floor_divided(number: Number, divisor: Number) -> Number:
    """Python's `number // divisor` for a positive divisor, which z3's integer division is as well."""
    return (
        number // divisor
        if isinstance(number, int) and isinstance(divisor, int)
        else number / divisor
    )


# --- lemmas ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Statement:
    """Where all `premises` hold, the `counterexample` must be impossible.

    `views` are those that it speaks of, if any.
    """

    premises: Sequence[Formula]
    counterexample: Sequence[Formula]
    views: tuple[SymbolicView, ...] = ()


@dataclass(frozen=True, slots=True)
class LemmaCase:
    """One question to z3: a number of dims, a pair of item sizes, one direction of an equivalence."""

    name: str
    state: Callable[[Scope], Statement]


@dataclass(frozen=True, slots=True)
class Lemma:
    """A step of a predicate, and what it claims. It is proved if all cases are; cases are taken in order.

    `source` names file and function. `ranges` says what the proof covers. Where views refute the
    lemma, `asks` tells whether the real function takes the step on tensors like these, and
    `program` makes a program that depends on it.
    """

    name: str
    source: str
    claim: str
    ranges: str
    cases: tuple[LemmaCase, ...]
    asks: Callable[[Sequence[torch.Tensor]], bool] | None = None
    program: Callable[[Sequence[SymbolicView]], Program] | None = None


@dataclass(frozen=True, slots=True)
class Proved:
    """There is no counterexample, and the premises can hold."""


@dataclass(frozen=True, slots=True)
class Refuted:
    """A counterexample: each name's number, and the views that they make."""

    case: str
    numbers: Mapping[str, int]
    views: tuple[SymbolicView, ...] = ()

    def describe(self) -> str:
        """One line for people."""
        if not self.views:
            return ", ".join(f"{name} = {number}" for name, number in self.numbers.items())
        return "; ".join(
            f"{name}: sizes {each.sizes}, strides {each.strides}, offset {each.offset}, {each.itemsize} bytes an element"
            for name, each in zip("xy", self.views, strict=False)
        )


@dataclass(frozen=True, slots=True)
class Undecided:
    """z3 gave up on a case; `reason` holds its own words."""

    case: str
    reason: str


@dataclass(frozen=True, slots=True)
class Vacuous:
    """The premises of a case contradict each other."""

    case: str


Answer: TypeAlias = Proved | Refuted | Undecided | Vacuous


@dataclass(frozen=True, slots=True)
class LemmaProof:
    """What z3 says of a lemma, and after how many milliseconds."""

    lemma: Lemma
    answer: Answer
    milliseconds: float

    @property
    def verdict(self) -> str:
        """The kind of answer: proved, refuted, unknown or vacuous."""
        return type(self.answer).__name__.lower()


def prove(lemma: Lemma, limit_ms: int = 10_000) -> LemmaProof:
    """Put a lemma to z3, `limit_ms` milliseconds for each question. Equal lemmas get equal answers.

    A case that is refuted refutes the lemma; else one that is unknown leaves it unknown; else one
    that is vacuous makes it vacuous.

    Raises:
        InternalError: z3's counterexample is none.

    """
    start = time.perf_counter()
    answers: list[Answer] = []
    for case in lemma.cases:
        answers.append(_settle(case, limit_ms))
        if isinstance(answers[-1], Refuted):
            break
    worst = min(answers, key=lambda each: (Refuted, Undecided, Vacuous, Proved).index(type(each)))
    return LemmaProof(lemma, worst, 1e3 * (time.perf_counter() - start))


def holds(state: Callable[[Scope], Statement], numbers: Mapping[str, int]) -> bool:
    """Whether these numbers are a counterexample, by plain arithmetic."""
    statement = state(numbers.__getitem__)
    return all((*statement.premises, *statement.counterexample))


def _settle(case: LemmaCase, limit_ms: int) -> Answer:
    symbols = _Symbols()
    statement = case.state(symbols)
    possible = symbols.ask(statement.premises, limit_ms)
    if possible is None:
        return Vacuous(case.name)
    found = (
        possible
        if isinstance(possible, str)
        else symbols.ask((*statement.premises, *statement.counterexample), limit_ms)
    )
    if found is None:
        return Proved()
    if isinstance(found, str):
        return Undecided(case.name, found)
    numbers = symbols.smallest((*statement.premises, *statement.counterexample), found, limit_ms)
    if not holds(case.state, numbers):
        raise InternalError(
            f"z3 gave a wrong counterexample to '{case.name}', please send us this line: {numbers}"
        )
    return Refuted(case.name, numbers, case.state(numbers.__getitem__).views)


class _Symbols:
    """The names of one statement as z3 terms.

    Each has a context of its own, so that no question depends on another.
    """

    def __init__(self) -> None:
        self.context = z3.Context()
        self.terms: dict[str, Any] = {}

    def __call__(self, name: str) -> Any:
        return self.terms.setdefault(name, z3.Int(name, self.context))

    def ask(self, conditions: Sequence[Formula], limit_ms: int) -> dict[str, int] | str | None:
        """Numbers that meet the conditions; None if there are none; z3's reason if it does not know."""
        # A fresh solver picks its tactics by the terms; one that is asked again falls back on a
        # weaker general one.
        solver = z3.Solver(ctx=self.context)
        solver.set("timeout", limit_ms)
        solver.add(*conditions)
        verdict = solver.check()
        if verdict == z3.unsat:
            return None
        if verdict == z3.unknown:
            return f"z3 gave up, with a limit of {limit_ms} ms: {solver.reason_unknown()}"
        model = solver.model()
        return {
            name: int(model.eval(term, model_completion=True).as_long())
            for name, term in self.terms.items()
        }

    def smallest(
        self, conditions: Sequence[Formula], found: dict[str, int], limit_ms: int
    ) -> dict[str, int]:
        """Numbers of a small sum that meet the conditions, too: easier to read, and small tensors."""
        total = z3.Sum(*(z3.If(term >= 0, term, -term) for term in self.terms.values()))
        least = 0
        while least < (most := sum(map(abs, found.values()))):
            middle = (least + most) // 2
            smaller = self.ask((*conditions, total <= middle), min(limit_ms, _SMALLER_MS))
            if isinstance(smaller, dict):
                found = smaller
            else:
                least = middle + 1
        return found


# --- lemmas about views ---------------------------------------------------------------------------


def share_a_byte(scope: Scope, x: SymbolicView, y: SymbolicView) -> list[Formula]:
    """Some element of `x` and some element of `y` have a byte in common."""
    i, j = index(scope, "i", x), index(scope, "j", y)
    distance = y.address(j) - x.address(i)
    return [*inside(i, x), *inside(j, y), distance < x.itemsize, distance > -y.itemsize]


def overlaps_itself(scope: Scope, x: SymbolicView) -> list[Formula]:
    """Two different elements of `x` are the same bytes."""
    i, j = index(scope, "i", x), index(scope, "j", x)
    different = (
        either(*(one != other for one, other in zip(i, j, strict=True))) if x.dims else False
    )
    return [*inside(i, x), *inside(j, x), different, x.address(i) == x.address(j)]


# --- from a counterexample to tensors and programs ------------------------------------------------


def tensors(views: Sequence[SymbolicView]) -> list[torch.Tensor]:
    """Views of known numbers as tensors over one storage, filled with its positions, byte by byte."""
    flat = torch.arange(_nbytes(views), dtype=torch.int64).to(torch.uint8)
    made = []
    for each in views:
        empty = torch.empty(0, dtype=DTYPES[each.itemsize])
        made.append(empty.set_(flat.untyped_storage(), each.offset, each.sizes, each.strides))
    return made


def write_one_read_other(views: Sequence[SymbolicView]) -> Program:
    """A program that writes all of the first view and then reads the second; it goes wrong if they are held apart."""
    x, y = views
    storage = Storage(DTYPES[x.itemsize], _nbytes(views) // x.itemsize)
    inputs = tuple(
        Input(name, 0, DTYPES[each.itemsize], each.sizes, each.strides, each.offset)
        for name, each in zip(("x0", "x1"), (x, y), strict=True)
    )
    # Inverting changes every byte, whichever of them the two views share.
    write = Instruction("aten.bitwise_not_.default", (Ref("x0"),))
    return Program(
        (storage,),
        inputs,
        (write, Instruction("aten.clone.default", (Ref("x1"),), (), ("v0",))),
        ("v0",),
    )


def invert_windows(views: Sequence[SymbolicView]) -> Program:
    """A program that makes the first view, two dims whose inner stride is one, with `unfold`, and then inverts it."""
    (x,) = views
    (count, length), (step, _) = x.sizes, x.strides
    steps = (
        Instruction("aten.clone.default", (Ref("x0"),), (), ("v0",)),
        Instruction("aten.unfold.default", (Ref("v0"), 0, length, step), (), ("v1",)),
        Instruction("aten.bitwise_not.default", (Ref("v1"),), (), ("v2",)),
    )
    elements = (count - 1) * step + length
    dtype = DTYPES[x.itemsize]
    return Program(
        (Storage(dtype, elements),), (Input("x0", 0, dtype, (elements,), (1,)),), steps, ("v2",)
    )


def _nbytes(views: Sequence[SymbolicView]) -> int:
    """Bytes of the smallest storage that holds the views, rounded up to whole elements of each."""
    end = max(each.region().interval[1] for each in views)
    unit = max(each.itemsize for each in views)
    return int(-(-end // unit) * unit)
