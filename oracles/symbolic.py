"""A function with sizes as symbols: where its inputs and outputs lie, as terms of the sizes, and for which sizes it is so.

The function runs on fake tensors whose sizes are symbols of one `ShapeEnv`. What torch asks of the sizes on the way (is the
tensor contiguous, do these two broadcast) it answers for the sample and notes as a *guard*: the run is true for all sizes
that fulfil the guards. So guards are premises, as is the range that the caller asks about.

Which sizes become symbols: those of two or more of an input that fills a storage of its own. Torch takes 0 and 1 for
constants, and so do we the layout of an input that shares its storage or leaves gaps in it.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import operator
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, TypeAlias

import sympy  # type: ignore[import-untyped]
import torch
from torch._dispatch.python import enable_python_dispatcher
from torch._dynamo.source import ConstantSource
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv
from torch.utils._sympy import functions as of_torch

from generators.errors import Rejected
from generators.regions import Region
from generators.values import clone_inputs
from oracles.observation import Observation, observe

Expr: TypeAlias = Any  # of sympy, which ships no types
Sizes: TypeAlias = Mapping[Expr, int]
Function: TypeAlias = Callable[..., object]

MOST_SAMPLES = 12
_DRAWS = 400


@dataclass(frozen=True, slots=True)
class SymbolicRegion:
    """The bytes of a strided view as terms: the number of its storage, start, elements a dimension, byte strides."""

    storage: int
    start: Expr
    sizes: tuple[Expr, ...]
    strides: tuple[Expr, ...]
    itemsize: int

    @property
    def terms(self) -> tuple[Expr, ...]:
        """All terms, start first."""
        return (self.start, *self.sizes, *self.strides)

    def replaced(self, terms: Mapping[Expr, Expr]) -> SymbolicRegion:
        """The same with symbols replaced by terms."""
        new = [each.xreplace(terms) for each in self.terms]
        dims = len(self.sizes)
        return SymbolicRegion(self.storage, new[0], tuple(new[1 : dims + 1]), tuple(new[dims + 1 :]), self.itemsize)

    def at(self, sizes: Sizes) -> Region:
        """The region at given sizes, its start counted from the start of its storage."""
        start, *rest = (int(evaluate(each, sizes)) for each in self.terms)
        dims = len(self.sizes)
        return Region(start, tuple(rest[:dims]), tuple(rest[dims:]), self.itemsize)


Layout: TypeAlias = Mapping[str, SymbolicRegion]


class SymbolicInputs:
    """The inputs of a function with sizes as symbols `n0`, `n1`, ...; each function that runs on them adds its guards.

    `shapes` are the sizes of each input, symbols and numbers.
    """

    def __init__(self, samples: Sequence[torch.Tensor]) -> None:
        self.samples = clone_inputs(samples)
        self.env = ShapeEnv(duck_shape=False)  # equal sizes of the sample are not taken for one symbol
        self.mode = FakeTensorMode(shape_env=self.env, allow_non_fake_inputs=True, allow_fallback_kernels=False)
        self.mode.cache_enabled = False  # it forgets offset and size of the storage that a scatter copies
        self.names: dict[Expr, Expr] = {}  # our symbols by torch's
        self.hints: dict[Expr, int] = {}
        self.storages: list[Any] = []  # held, so that no address is used twice
        symbolic = _fills_own_storage(self.samples)
        self._shapes = [
            self._symbols(index, each) if index in symbolic else tuple(each.shape) for index, each in enumerate(self.samples)
        ]
        self.symbolic = symbolic
        self.shapes = tuple(tuple(map(self._term, shape)) for shape in self._shapes)

    def _symbols(self, index: int, tensor: torch.Tensor) -> tuple[Any, ...]:
        shape: list[Any] = []
        for dim, size in enumerate(tensor.shape):
            if size < 2:
                shape.append(size)
                continue
            source = ConstantSource(f"input_{index}_size_{dim}")
            symbol = self.env.create_symbol(size, source, DimDynamic.DYNAMIC)
            self.names[symbol] = sympy.Symbol(f"n{len(self.names)}", integer=True, positive=True)
            self.hints[self.names[symbol]] = size
            shape.append(self.env.create_symintnode(symbol, hint=size, source=source))
        return tuple(shape)

    def fresh(self) -> list[torch.Tensor]:
        """Fake tensors of these sizes, sharing storages as the samples do."""
        storages: dict[int, Any] = {}
        made: list[Any] = []
        with self.mode, torch.no_grad():
            for index, (sample, shape) in enumerate(zip(self.samples, self._shapes, strict=True)):
                if index in self.symbolic:
                    made.append(torch.empty_strided(shape, _strides(shape, sample.stride()), dtype=sample.dtype))
                    continue
                storage = sample.untyped_storage()
                if storage._cdata not in storages:
                    storages[storage._cdata] = torch.empty(storage.nbytes(), dtype=torch.uint8).untyped_storage()
                empty: Any = torch.empty(0, dtype=sample.dtype)
                made.append(empty.set_(storages[storage._cdata], sample.storage_offset(), sample.shape, sample.stride()))
        return made

    def layout(self, function: Function) -> Layout:
        """Where inputs and outputs lie after a run of the function.

        Raises `Rejected` if it cannot run with sizes as symbols.
        """
        observation = observe(function, self.fresh(), _on_symbols(self.mode))
        if observation.error is not None:
            raise Rejected(f"with sizes as symbols it raises {_in_short(observation.error)}")
        return {name: self._region(tensor) for name, tensor in observation.tensors().items()}

    def _region(self, tensor: torch.Tensor) -> SymbolicRegion:
        storage, item = tensor.untyped_storage(), tensor.element_size()
        known = [each._cdata for each in self.storages]
        if storage._cdata not in known:
            self.storages.append(storage)
            known.append(storage._cdata)
        return SymbolicRegion(
            known.index(storage._cdata),
            self._term(tensor.storage_offset()) * item,
            tuple(map(self._term, tensor.shape)),
            tuple(self._term(each) * item for each in tensor.stride()),
            item,
        )

    def _term(self, value: Any) -> Expr:
        return value.node.expr.xreplace(self.names) if isinstance(value, torch.SymInt) else sympy.Integer(value)

    def premises(self, low: int, high: int | None) -> Premises:
        """What is known of the sizes: they are from `low` to `high` (None: no bound), and all guards so far hold."""
        ranges: dict[Expr, tuple[int, int | None]] = {}
        for symbol, name in self.names.items():
            allowed = self.env.var_to_range[symbol]
            most = None if not allowed.upper.is_Integer else int(allowed.upper)
            ranges[name] = max(low, int(allowed.lower)), min(high, most, key=_unbounded_last) if most is not None else high
        guards = [each.expr.xreplace(self.names) for each in self.env.guards]
        equal = {self.names.get(one, one): other.xreplace(self.names) for one, other in self.env.replacements.items()}
        return Premises.of(ranges, guards, equal, self.hints)

    def at(self, sizes: Sizes) -> list[torch.Tensor]:
        """Real inputs of these sizes, filled with the numbers of the samples over and over."""
        tensors = clone_inputs(self.samples)
        for index in self.symbolic:
            sample = self.samples[index]
            shape = [int(evaluate(each, sizes)) for each in self.shapes[index]]
            numbers = torch.empty(0, dtype=sample.dtype).set_(sample.untyped_storage(), 0, (sample.numel(),), (1,))
            count = math.prod(shape)
            filled = numbers.repeat(-(-count // sample.numel()))[:count].clone()
            strides = _strides(shape, sample.stride())
            tensors[index] = torch.empty(0, dtype=sample.dtype).set_(filled.untyped_storage(), 0, shape, strides)
        return tensors


def disagreements(layout: Layout, observation: Observation, sizes: Sizes) -> set[str]:
    """The tensors that lie otherwise in a real run at these sizes than the layout says: fake tensors are not always true."""
    real = observation.tensors()
    wrong = set(real.keys() ^ layout.keys())
    storages: dict[int, tuple[int, str]] = {}  # where each storage of the layout starts, and who says so
    for name in real.keys() & layout.keys():
        start, actual, expected = real[name].untyped_storage().data_ptr(), Region.of(real[name]), layout[name].at(sizes)
        if not _same_bytes(expected, actual, start):
            wrong.add(name)
        if 0 in actual.sizes:  # it lies nowhere
            continue
        number = layout[name].storage
        known, owner = storages.setdefault(number, (start, name))
        others = {each for other, (place, each) in storages.items() if place == start and other != number}
        if known != start or others:
            wrong |= {name, owner, *others}
    return wrong


@dataclass(frozen=True, slots=True)
class Premises:
    """For which sizes: the free symbols with their ranges, and conditions on them.

    `equal` are the other symbols, as terms of these. `samples` are sizes that fulfil all of it, as far as a short search
    found any.
    """

    ranges: Mapping[Expr, tuple[int, int | None]]
    conditions: tuple[Expr, ...]
    equal: Mapping[Expr, Expr]
    samples: tuple[Sizes, ...] = ()
    _values: Callable[..., Sequence[Any]] = field(default=lambda *sizes: (), repr=False, compare=False)

    @classmethod
    def of(
        cls,
        ranges: Mapping[Expr, tuple[int, int | None]],
        guards: Sequence[Expr],
        equal: Mapping[Expr, Expr],
        hints: Sizes,
    ) -> Premises:
        """Solve the equations that say what a symbol is, and look for samples near the hints and the ends of the ranges."""
        solved = _solved(ranges, guards, equal)
        conditions: list[Expr] = []
        for name, term in solved.items():
            low, high = ranges.get(name, (0, None))
            conditions += [sympy.Ge(term, low), *([] if high is None else [sympy.Le(term, high)])]
        conditions += [each.xreplace(solved) for each in guards]
        kept = tuple(dict.fromkeys(each for each in conditions if each != sympy.true))
        free = {name: bounds for name, bounds in ranges.items() if name not in solved}
        found = cls(free, kept, solved, _values=compiled(tuple(free), kept))
        return replace(found, samples=tuple(itertools.islice(found._search(hints), MOST_SAMPLES)))

    def holds(self, sizes: Sizes) -> bool:
        """Whether these sizes, of the free symbols in their order, are in range and fulfil all conditions."""
        inside = all(
            low <= sizes[name] and (high is None or sizes[name] <= high) for name, (low, high) in self.ranges.items()
        )
        return inside and self._fulfilled(tuple(sizes.values()))

    def _fulfilled(self, sizes: Sequence[int]) -> bool:
        try:
            return all(self._values(*sizes))
        except ZeroDivisionError:  # an earlier guard excludes that
            return False

    def whole(self, sizes: Sizes) -> dict[Expr, int]:
        """The sizes of all symbols, from those of the free ones."""
        return {**sizes, **{name: int(evaluate(term, sizes)) for name, term in self.equal.items()}}

    @property
    def count(self) -> int | None:
        """How many sizes are in range, conditions aside; None if there is no bound."""
        count = 1
        for low, high in self.ranges.values():
            if high is None:
                return None
            count *= max(high - low + 1, 0)
        return count

    def every(self, deadline: float) -> Iterator[Sizes]:
        """All sizes that fulfil the premises, until the deadline by `time.perf_counter`. The ranges are bounded."""
        spans = [range(low, (high if high is not None else low) + 1) for low, high in self.ranges.values()]
        for chosen in itertools.product(*spans):
            if self._fulfilled(chosen):
                yield dict(zip(self.ranges, chosen, strict=True))
            if time.perf_counter() >= deadline:
                return

    def _search(self, hints: Sizes) -> Iterator[Sizes]:
        """Candidates that hold, each once: the hints, the smallest, those next to them, and draws of small sizes."""
        if any(high is not None and high < low for low, high in self.ranges.values()) or sympy.false in self.conditions:
            return
        draw = random.Random(0)
        lows = {name: low for name, (low, _) in self.ranges.items()}
        reach = {name: min(low + 15, high if high is not None else low + 15) for name, (low, high) in self.ranges.items()}
        near = ({**lows, name: low + 1} for name, low in lows.items())
        drawn = ({name: draw.randint(low, reach[name]) for name, low in lows.items()} for _ in range(_DRAWS))
        seen = set()
        for each in itertools.chain([{name: hints[name] for name in lows}, lows], near, drawn):
            key = tuple(each.values())
            if key not in seen and self.holds(each):
                yield each
            seen.add(key)


def _solved(ranges: Mapping[Expr, object], guards: Sequence[Expr], equal: Mapping[Expr, Expr]) -> dict[Expr, Expr]:
    """Symbols that are equal to a term of others, by the equations among the guards; no term holds a solved symbol."""
    equations = list(equal.items())
    for each in guards:
        if isinstance(each, sympy.Eq):
            equations += [(each.lhs, each.rhs), (each.rhs, each.lhs)]
    solved: dict[Expr, Expr] = {}
    for name, term in equations:
        term = term.xreplace(solved)
        if name not in ranges or name in solved or name in term.free_symbols or not term.free_symbols <= ranges.keys():
            continue
        solved = {known: each.xreplace({name: term}) for known, each in solved.items()} | {name: term}
    return solved


# --- terms in numbers --------------------------------------------------------------------------------------------------


def _product(*factors: Any) -> Any:
    return math.prod(factors)


_MEANING: dict[type, Callable[..., Any]] = {
    sympy.Add: lambda *terms: sum(terms),
    sympy.Mul: _product,
    sympy.Pow: operator.pow,
    sympy.And: lambda *parts: all(parts),
    sympy.Or: lambda *parts: any(parts),
    sympy.Not: operator.not_,
    sympy.Eq: operator.eq,
    sympy.Ne: operator.ne,
    sympy.Lt: operator.lt,
    sympy.Le: operator.le,
    sympy.Gt: operator.gt,
    sympy.Ge: operator.ge,
    sympy.Max: max,
    sympy.Min: min,
    of_torch.Max: max,
    of_torch.Min: min,
    of_torch.FloorDiv: operator.floordiv,
    of_torch.CleanDiv: operator.floordiv,
    of_torch.PythonMod: operator.mod,
    of_torch.Mod: operator.mod,
    of_torch.ModularIndexing: lambda value, divisor, modulus: value // divisor % modulus,
    of_torch.PowByNatural: operator.pow,
}


def evaluate(term: Expr, sizes: Sizes) -> Any:
    """The value of a term or condition at given sizes. Raises `Rejected` if it has symbols of no given size."""
    if isinstance(term, sympy.Symbol):
        if term not in sizes:
            raise Rejected(f"the size {term} depends on numbers")
        return sizes[term]
    if isinstance(term, sympy.Integer):
        return int(term)
    if isinstance(term, sympy.Rational):
        return Fraction(int(term.p), int(term.q))
    meaning = _MEANING.get(type(term))
    if meaning is not None:
        return meaning(*(evaluate(each, sizes) for each in term.args))
    value = term.xreplace({name: sympy.Integer(number) for name, number in sizes.items()})
    if value in (sympy.true, sympy.false):
        return bool(value)
    if not value.is_Integer:
        raise Rejected(f"{term} has no value: {type(term).__name__} is not known")
    return int(value)


def compiled(symbols: Sequence[Expr], terms: Sequence[Expr]) -> Callable[..., Sequence[Any]]:
    """A function of the symbols that gives the values of all terms, a hundred times faster than `evaluate`.

    Raises `Rejected` if there are other symbols in the terms.
    """
    for each in terms:
        if not each.free_symbols <= set(symbols):
            raise Rejected(f"the sizes {', '.join(sorted(map(str, each.free_symbols - set(symbols))))} depend on numbers")
    if not all(_is_plain(part) for each in terms for part in sympy.preorder_traversal(each)):
        return lambda *sizes: [evaluate(each, dict(zip(symbols, sizes, strict=True))) for each in terms]
    found: Callable[..., Sequence[Any]] = sympy.lambdify(symbols, list(terms), modules=[_OF_TORCH, "math"], cse=True)
    return found


_OF_TORCH = {kind.__name__: meaning for kind, meaning in _MEANING.items() if kind.__module__ == of_torch.__name__}


def _is_plain(term: Expr) -> bool:
    """Whether a term, its parts aside, is the same in Python: no fraction, which would become a float."""
    if isinstance(term, sympy.Pow):
        return bool(term.args[1].is_Integer and term.args[1] >= 0)
    return isinstance(term, (sympy.Symbol, sympy.Integer)) or type(term) in _MEANING or term in (sympy.true, sympy.false)


@dataclass(frozen=True, slots=True)
class RegionsAt:
    """Two regions of one storage, ready to be asked for at many sizes."""

    dims: tuple[int, int]
    itemsizes: tuple[int, int]
    values: Callable[..., Sequence[int]]

    @classmethod
    def of(cls, symbols: Sequence[Expr], pair: tuple[SymbolicRegion, SymbolicRegion]) -> RegionsAt:
        """The two as functions of the symbols. Raises `Rejected` if there are others in them."""
        one, other = pair
        values = compiled(symbols, [*one.terms, *other.terms])
        return cls((len(one.sizes), len(other.sizes)), (one.itemsize, other.itemsize), values)

    def at(self, sizes: Sizes) -> tuple[Region, Region]:
        """Both at the given sizes of the symbols, in their order."""
        values, (m, n) = tuple(self.values(*sizes.values())), self.dims
        one, other = values[: 2 * m + 1], values[2 * m + 1 :]
        return (
            Region(one[0], one[1 : m + 1], one[m + 1 :], self.itemsizes[0]),
            Region(other[0], other[1 : n + 1], other[n + 1 :], self.itemsizes[1]),
        )


# --- tensors -----------------------------------------------------------------------------------------------------------


def _fills_own_storage(tensors: Sequence[torch.Tensor]) -> set[int]:
    """The places of tensors that show all of a storage that no other shows, each element once and in order of some dims."""
    storages = [each.untyped_storage()._cdata for each in tensors]
    return {
        index
        for index, each in enumerate(tensors)
        if storages.count(storages[index]) == 1
        and each.storage_offset() == 0
        and each.numel() > 0
        and each.untyped_storage().nbytes() == each.numel() * each.element_size()
        and tuple(each.stride()) == _strides(each.shape, each.stride())
    }


def _strides(shape: Sequence[Any], order: Sequence[int]) -> tuple[Any, ...]:
    """The strides of a dense tensor whose dims lie in the order of the given strides."""
    strides: list[Any] = [1] * len(shape)
    step: Any = 1
    for dim in sorted(range(len(shape)), key=lambda dim: (order[dim], -dim)):
        strides[dim] = step
        step = step * shape[dim]
    return tuple(strides)


@contextlib.contextmanager
def _on_symbols(mode: FakeTensorMode) -> Iterator[None]:
    with mode, enable_python_dispatcher():
        yield


def _same_bytes(one: Region, other: Region, start: int) -> bool:
    """Whether the first, counted from `start`, places the same elements as the second."""
    if one.itemsize != other.itemsize or one.sizes != other.sizes:
        return False
    if 0 in one.sizes:
        return True
    apart = [a for a, size in zip(one.strides, one.sizes, strict=True) if size > 1]
    return one.start + start == other.start and apart == [
        b for b, size in zip(other.strides, other.sizes, strict=True) if size > 1
    ]


def _in_short(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:200]}" if lines else type(error).__name__


def _unbounded_last(bound: int | None) -> float:
    return math.inf if bound is None else bound
