"""The inputs of a function with symbolic sizes: runs give layouts as expressions of the sizes.

The function runs on fake tensors whose sizes are symbols of one `ShapeEnv`. During the run, torch
has to decide about sizes: is the tensor contiguous, do these two broadcast? It decides for the
sample and records each decision as a *guard*. The run is valid for all sizes that satisfy the
guards. So the guards are assumptions of a proof, as is the range that the caller gives.

A size becomes a symbol if it is two or more and its input fills a storage of its own. Torch treats
0 and 1 as constants. The layout of an input that shares its storage, or has gaps, stays constant,
too.
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

from aliasproof.ir.errors import Rejected
from aliasproof.ir.regions import Region
from aliasproof.ir.values import clone_inputs
from aliasproof.oracles.observation import Observation, observe
from aliasproof.oracles.proofs.assumptions import Assumptions, SizeRange
from aliasproof.oracles.proofs.size_expressions import Expr, SizeValues, evaluate, evaluator

# --- symbolic regions -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SymbolicRegion:
    """The bytes of a strided view, as expressions.

    `storage` is the index of its storage. `start` and `strides` count bytes, `sizes` elements per
    dimension.
    """

    storage: int
    start: Expr
    sizes: tuple[Expr, ...]
    strides: tuple[Expr, ...]
    itemsize: int

    @property
    def expressions(self) -> tuple[Expr, ...]:
        """All expressions: start, sizes, strides."""
        return (self.start, *self.sizes, *self.strides)

    def replaced(self, solved: Mapping[Expr, Expr]) -> SymbolicRegion:
        """The same region with symbols replaced by expressions."""
        start, *rest = (expression.xreplace(solved) for expression in self.expressions)
        dims = len(self.sizes)
        return SymbolicRegion(
            self.storage, start, tuple(rest[:dims]), tuple(rest[dims:]), self.itemsize
        )

    def at(self, sizes: SizeValues) -> Region:
        """The region at given sizes; its start counts from the start of its storage."""
        return self.with_values([int(evaluate(each, sizes)) for each in self.expressions])

    def with_values(self, values: Sequence[int]) -> Region:
        """The region for these values of its expressions."""
        end = 1 + len(self.sizes)
        return Region(values[0], tuple(values[1:end]), tuple(values[end:]), self.itemsize)


SymbolicLayout: TypeAlias = Mapping[str, SymbolicRegion]  # by the name of the input or output
RegionPair: TypeAlias = tuple[SymbolicRegion, SymbolicRegion]


def compiled_pair(
    symbols: Sequence[Expr], pair: RegionPair
) -> Callable[[SizeValues], tuple[Region, Region]]:
    """Two regions as a function of the sizes of the symbols, which is cheap at many sizes.

    It takes the sizes in the order of the symbols. Raises `Rejected` if the regions have others.
    """
    one, other = pair
    evaluated = evaluator(symbols, [*one.expressions, *other.expressions])
    count = len(one.expressions)

    def at(sizes: SizeValues) -> tuple[Region, Region]:
        # An expression with fractions evaluates to a `Fraction` whose value is an integer.
        values = list(map(int, evaluated(*sizes.values())))
        return one.with_values(values[:count]), other.with_values(values[count:])

    return at


# --- against a real run ---------------------------------------------------------------------------


def disagreements(layout: SymbolicLayout, observation: Observation, sizes: SizeValues) -> set[str]:
    """Names of the tensors whose layout in a real run at these sizes is not the symbolic one.

    Fake tensors do not always have the layout of real ones, so a proof is checked against real
    runs.
    """
    real = observation.tensors()
    wrong = set(real.keys() ^ layout.keys())
    # For each symbolic storage: the address of the real one, and the first tensor on it. Inputs
    # come first, so a storage belongs to its input.
    storages: dict[int, tuple[int, str]] = {}
    for name, tensor in real.items():
        if name not in layout:
            continue
        address, actual = tensor.untyped_storage().data_ptr(), Region.of(tensor)
        if not _same_bytes(layout[name].at(sizes), actual, address):
            wrong.add(name)
        if 0 in actual.sizes:  # an empty tensor has no bytes, so its storage does not matter
            continue
        storage = layout[name].storage
        known, owner = storages.setdefault(storage, (address, name))
        # One real storage for two symbolic ones: the tensors share it, and should not.
        others = {
            other_name
            for other, (other_address, other_name) in storages.items()
            if other_address == address and other != storage
        }
        if known != address or others:
            wrong |= {name, owner, *others}
    return wrong


def _same_bytes(expected: Region, actual: Region, address: int) -> bool:
    """Whether the expected region, in the storage at this address, is the actual one."""
    if expected.itemsize != actual.itemsize or expected.sizes != actual.sizes:
        return False
    if 0 in expected.sizes:
        return True
    # The stride of a dimension of size one is never used, so it can be any number.
    used = [dim for dim, size in enumerate(expected.sizes) if size > 1]
    return expected.start + address == actual.start and all(
        expected.strides[dim] == actual.strides[dim] for dim in used
    )


# --- symbolic inputs ------------------------------------------------------------------------------


TracedFunction: TypeAlias = Callable[..., object]


class SymbolicInputs:
    """The inputs of a function with sizes as symbols `n0`, `n1`, ...

    `shapes` are the sizes of each input, symbols and numbers. Each function that runs on these
    inputs adds its guards.
    """

    def __init__(self, samples: Sequence[torch.Tensor]) -> None:
        self.samples = clone_inputs(samples)
        # Without duck shaping, two equal sizes of the sample get two symbols.
        self.env = ShapeEnv(duck_shape=False)
        self.mode = FakeTensorMode(
            shape_env=self.env, allow_non_fake_inputs=True, allow_fallback_kernels=False
        )
        # The cache loses offset and size of the storage that a scatter copies.
        self.mode.cache_enabled = False
        self.names: dict[Expr, Expr] = {}  # our symbols, by torch's symbols
        self.hints: dict[Expr, int] = {}
        self.storages: list[Any] = []  # kept alive, so that no address is used again
        self.symbolic = _fill_own_storage(self.samples)
        self._shapes = [
            self._symbols(index, sample) if index in self.symbolic else tuple(sample.shape)
            for index, sample in enumerate(self.samples)
        ]
        self.shapes = tuple(tuple(map(self._expression, shape)) for shape in self._shapes)

    def _symbols(self, index: int, tensor: torch.Tensor) -> tuple[Any, ...]:
        shape: list[Any] = []
        for dim, size in enumerate(tensor.shape):
            if size < 2:  # torch specializes on 0 and 1
                shape.append(size)
                continue
            source = ConstantSource(f"input_{index}_size_{dim}")
            symbol = self.env.create_symbol(size, source, DimDynamic.DYNAMIC)
            self.names[symbol] = sympy.Symbol(f"n{len(self.names)}", integer=True, positive=True)
            self.hints[self.names[symbol]] = size
            shape.append(self.env.create_symintnode(symbol, hint=size, source=source))
        return tuple(shape)

    def fresh(self) -> list[torch.Tensor]:
        """Fake tensors of these sizes; they share a storage if their samples do."""
        storages: dict[int, Any] = {}  # fake storages, by the identity of the sample's storage
        made: list[Any] = []
        with self.mode, torch.no_grad():
            for index, (sample, shape) in enumerate(zip(self.samples, self._shapes, strict=True)):
                if index in self.symbolic:
                    # A new storage: this input shares it with no other.
                    strides = _strides(shape, sample.stride())
                    made.append(torch.empty_strided(shape, strides, dtype=sample.dtype))
                    continue
                # One fake storage for each storage of the samples, of the same size in bytes.
                storage = sample.untyped_storage()
                if storage._cdata not in storages:
                    flat = torch.empty(storage.nbytes(), dtype=torch.uint8)
                    storages[storage._cdata] = flat.untyped_storage()
                empty: Any = torch.empty(0, dtype=sample.dtype)
                layout = (sample.storage_offset(), sample.shape, sample.stride())
                made.append(empty.set_(storages[storage._cdata], *layout))
        return made

    def layout(self, function: TracedFunction, name: str = "the function") -> SymbolicLayout:
        """The layouts of inputs and outputs after a run of the function; `name` is for errors.

        Raises `Rejected` if the function cannot run with symbolic sizes, or creates data-dependent
        integers. Torch assumes much about such integers (that they are not 1, for example) and
        records no guard.
        """
        observation = observe(function, self.fresh(), _on_symbols(self.mode))
        # Otherwise the next run looks for these symbols among its own results.
        self.env.pending_fresh_unbacked_symbols.clear()
        if observation.error is not None:
            raise Rejected(f"with symbolic sizes, {name} raises {_in_short(observation.error)}")
        if any(map(self.env.is_unbacked_symint, self.env.var_to_range)):
            raise Rejected(
                "a size or another integer is data-dependent, and torch records no guard for what"
                " it assumes about it"
            )
        return {name: self._region(tensor) for name, tensor in observation.tensors().items()}

    def _region(self, tensor: torch.Tensor) -> SymbolicRegion:
        storage, item = tensor.untyped_storage(), tensor.element_size()
        known = [other._cdata for other in self.storages]
        if storage._cdata not in known:
            self.storages.append(storage)
            known.append(storage._cdata)
        return SymbolicRegion(
            known.index(storage._cdata),
            self._expression(tensor.storage_offset()) * item,
            tuple(map(self._expression, tensor.shape)),
            tuple(self._expression(stride) * item for stride in tensor.stride()),
            item,
        )

    def _expression(self, value: Any) -> Expr:
        """An integer of torch as an expression of our symbols."""
        return (
            value.node.expr.xreplace(self.names)
            if isinstance(value, torch.SymInt)
            else sympy.Integer(value)
        )

    def assumptions(self, low: int, high: int | None) -> Assumptions:
        """The sizes are from `low` to `high` (None: no bound), and all guards so far hold.

        Raises `Rejected` if torch followed guards that the sample itself does not satisfy.
        """
        ranges: dict[Expr, SizeRange] = {}
        for symbol, name in self.names.items():
            allowed = self.env.var_to_range[symbol]
            # Torch narrows these ranges itself, for example after a guard `size >= 3`.
            most = None if not allowed.upper.is_Integer else int(allowed.upper)
            bounds = [bound for bound in (high, most) if bound is not None]
            ranges[name] = max(low, int(allowed.lower)), min(bounds, default=None)
        guards = [guard.expr.xreplace(self.names) for guard in self.env.guards]
        # Symbols that torch found to equal an expression, and replaced everywhere.
        equal = {
            self.names.get(symbol, symbol): value.xreplace(self.names)
            for symbol, value in self.env.replacements.items()
        }
        assumptions = Assumptions.of(ranges, guards, equal, self.hints)
        # A sample outside the range says nothing about the guards.
        if all(size >= low and (high is None or size <= high) for size in self.hints.values()):
            own = {name: self.hints[name] for name in assumptions.ranges}
            if not assumptions.allow(own) or assumptions.complete(own) != self.hints:
                raise Rejected("the sizes of the sample do not satisfy the guards of its own run")
        return assumptions

    def at(self, sizes: SizeValues) -> list[torch.Tensor]:
        """Real inputs of these sizes; the values of the samples repeat to fill them."""
        tensors = clone_inputs(self.samples)
        for index in self.symbolic:
            sample = self.samples[index]
            shape = [int(evaluate(size, sizes)) for size in self.shapes[index]]
            values = torch.empty(0, dtype=sample.dtype).set_(
                sample.untyped_storage(), 0, (sample.numel(),), (1,)
            )
            count = math.prod(shape)
            repeats = -(-count // sample.numel())  # rounded up
            filled = values.repeat(repeats)[:count].clone()
            tensors[index] = torch.empty(0, dtype=sample.dtype).set_(
                filled.untyped_storage(), 0, shape, _strides(shape, sample.stride())
            )
        return tensors


# --- tensors --------------------------------------------------------------------------------------


def _fill_own_storage(tensors: Sequence[torch.Tensor]) -> set[int]:
    """Indices of the tensors that cover all of a storage that no other tensor uses.

    They cover each element once, dense in some order of dimensions.
    """
    storages = [tensor.untyped_storage()._cdata for tensor in tensors]
    return {
        index
        for index, tensor in enumerate(tensors)
        if storages.count(storages[index]) == 1
        and tensor.storage_offset() == 0
        and tensor.numel() > 0
        and tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()
        and tuple(tensor.stride()) == _strides(tensor.shape, tensor.stride())
    }


def _strides(shape: Sequence[Any], order: Sequence[int]) -> tuple[Any, ...]:
    """The strides of a dense tensor whose dimensions are ordered as the given strides are."""
    strides: list[Any] = [1] * len(shape)
    step: Any = 1
    for dim in sorted(range(len(shape)), key=lambda dim: (order[dim], -dim)):
        strides[dim] = step
        step = step * shape[dim]
    return tuple(strides)


@contextlib.contextmanager
def _on_symbols(mode: FakeTensorMode) -> Iterator[None]:
    # Python decompositions keep sizes symbolic; some C++ kernels of composite ops make constants.
    with mode, enable_python_dispatcher():
        yield


def _in_short(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:200]}" if lines else type(error).__name__
