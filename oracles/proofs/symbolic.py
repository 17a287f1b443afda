"""A function with sizes as symbols: where its inputs and outputs lie, as terms of the sizes, and for which sizes it is so.

The function runs on fake tensors whose sizes are symbols of one `ShapeEnv`. What torch asks of the
sizes on the way (is the tensor contiguous, do these two broadcast) it answers for the sample and
notes as a *guard*: the run is true for all sizes that fulfil the guards. So guards are premises, as
is the range that the caller asks about.

Which sizes become symbols: those of two or more of an input that fills a storage of its own. Torch
takes 0 and 1 for constants, and so do we the layout of an input that shares its storage or leaves
gaps in it.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import sympy  # type: ignore[import-untyped]
import torch
from torch._dispatch.python import enable_python_dispatcher
from torch._dynamo.source import ConstantSource
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv

from oracles.observation import Observation, observe
from oracles.proofs.assumptions import Expr, Premises, Sizes, compiled, evaluate
from programs.errors import Rejected
from programs.regions import Region
from programs.values import clone_inputs

TracedFunction: TypeAlias = Callable[..., object]


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
        return SymbolicRegion(
            self.storage, new[0], tuple(new[1 : dims + 1]), tuple(new[dims + 1 :]), self.itemsize
        )

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
        self.env = ShapeEnv(
            duck_shape=False
        )  # equal sizes of the sample are not taken for one symbol
        self.mode = FakeTensorMode(
            shape_env=self.env, allow_non_fake_inputs=True, allow_fallback_kernels=False
        )
        self.mode.cache_enabled = (
            False  # it forgets offset and size of the storage that a scatter copies
        )
        self.names: dict[Expr, Expr] = {}  # our symbols by torch's
        self.hints: dict[Expr, int] = {}
        self.storages: list[Any] = []  # held, so that no address is used twice
        symbolic = _fills_own_storage(self.samples)
        self._shapes = [
            self._symbols(index, each) if index in symbolic else tuple(each.shape)
            for index, each in enumerate(self.samples)
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
                    made.append(
                        torch.empty_strided(
                            shape, _strides(shape, sample.stride()), dtype=sample.dtype
                        )
                    )
                    continue
                storage = sample.untyped_storage()
                if storage._cdata not in storages:
                    storages[storage._cdata] = torch.empty(
                        storage.nbytes(), dtype=torch.uint8
                    ).untyped_storage()
                empty: Any = torch.empty(0, dtype=sample.dtype)
                made.append(
                    empty.set_(
                        storages[storage._cdata],
                        sample.storage_offset(),
                        sample.shape,
                        sample.stride(),
                    )
                )
        return made

    def layout(self, function: TracedFunction, name: str = "the function") -> Layout:
        """Where inputs and outputs lie after a run of the function, which errors call by that name.

        Raises `Rejected` if it cannot run with sizes as symbols, or makes integers of numbers: of
        these torch takes much for granted (that they are not 1, say) and notes no guard.
        """
        observation = observe(function, self.fresh(), _on_symbols(self.mode))
        self.env.pending_fresh_unbacked_symbols.clear()  # else the next run looks for them among its results
        if observation.error is not None:
            raise Rejected(f"with sizes as symbols, {name} raises {_in_short(observation.error)}")
        if any(map(self.env.is_unbacked_symint, self.env.var_to_range)):
            raise Rejected(
                "a size or another integer depends on numbers, and torch does not tell what it takes for granted of it"
            )
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
        return (
            value.node.expr.xreplace(self.names)
            if isinstance(value, torch.SymInt)
            else sympy.Integer(value)
        )

    def premises(self, low: int, high: int | None) -> Premises:
        """What is known of the sizes: they are from `low` to `high` (None: no bound), and all guards so far hold.

        Raises `Rejected` if torch went by guards that the sample itself does not fulfil.
        """
        ranges: dict[Expr, tuple[int, int | None]] = {}
        for symbol, name in self.names.items():
            allowed = self.env.var_to_range[symbol]
            most = None if not allowed.upper.is_Integer else int(allowed.upper)
            ranges[name] = (
                max(low, int(allowed.lower)),
                min(high, most, key=_unbounded_last) if most is not None else high,
            )
        guards = [each.expr.xreplace(self.names) for each in self.env.guards]
        equal = {
            self.names.get(one, one): other.xreplace(self.names)
            for one, other in self.env.replacements.items()
        }
        found = Premises.of(ranges, guards, equal, self.hints)
        if all(size >= low and (high is None or size <= high) for size in self.hints.values()):
            own = {name: self.hints[name] for name in found.ranges}
            if not found.holds(own) or found.whole(own) != self.hints:
                raise Rejected("the sizes of the sample do not fulfil the guards of its own run")
        return found

    def at(self, sizes: Sizes) -> list[torch.Tensor]:
        """Real inputs of these sizes, filled with the numbers of the samples over and over."""
        tensors = clone_inputs(self.samples)
        for index in self.symbolic:
            sample = self.samples[index]
            shape = [int(evaluate(each, sizes)) for each in self.shapes[index]]
            numbers = torch.empty(0, dtype=sample.dtype).set_(
                sample.untyped_storage(), 0, (sample.numel(),), (1,)
            )
            count = math.prod(shape)
            filled = numbers.repeat(-(-count // sample.numel()))[:count].clone()
            strides = _strides(shape, sample.stride())
            tensors[index] = torch.empty(0, dtype=sample.dtype).set_(
                filled.untyped_storage(), 0, shape, strides
            )
        return tensors


def disagreements(layout: Layout, observation: Observation, sizes: Sizes) -> set[str]:
    """The tensors that lie otherwise in a real run at these sizes than the layout says: fake tensors are not always true."""
    real = observation.tensors()
    wrong = set(real.keys() ^ layout.keys())
    storages: dict[
        int, tuple[int, str]
    ] = {}  # where each storage of the layout starts, and who says so
    for name in (
        each for each in real if each in layout
    ):  # in order, inputs first: the first in a storage owns it
        start, actual, expected = (
            real[name].untyped_storage().data_ptr(),
            Region.of(real[name]),
            layout[name].at(sizes),
        )
        if not _same_bytes(expected, actual, start):
            wrong.add(name)
        if 0 in actual.sizes:  # it lies nowhere
            continue
        number = layout[name].storage
        known, owner = storages.setdefault(number, (start, name))
        others = {
            each for other, (place, each) in storages.items() if place == start and other != number
        }
        if known != start or others:
            wrong |= {name, owner, *others}
    return wrong


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
        values, (m, n) = (
            tuple(map(int, self.values(*sizes.values()))),
            self.dims,
        )  # of fractions, whole ones come out
        one, other = values[: 2 * m + 1], values[2 * m + 1 :]
        return (
            Region(one[0], one[1 : m + 1], one[m + 1 :], self.itemsizes[0]),
            Region(other[0], other[1 : n + 1], other[n + 1 :], self.itemsizes[1]),
        )


# --- tensors --------------------------------------------------------------------------------------


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
