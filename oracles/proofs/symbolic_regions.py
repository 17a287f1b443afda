"""Regions whose start, sizes and strides are expressions of symbolic sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from aliasproof.ir.regions import Region
from aliasproof.oracles.observation import Observation
from aliasproof.oracles.proofs.size_expressions import Expr, SizeValues, evaluate, evaluator


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
        start, *rest = (int(evaluate(expression, sizes)) for expression in self.expressions)
        dims = len(self.sizes)
        return Region(start, tuple(rest[:dims]), tuple(rest[dims:]), self.itemsize)


SymbolicLayout: TypeAlias = Mapping[str, SymbolicRegion]  # by the name of the input or output
RegionPair: TypeAlias = tuple[SymbolicRegion, SymbolicRegion]


@dataclass(frozen=True, slots=True)
class CompiledPair:
    """Two regions, compiled so that they are cheap to evaluate at many sizes."""

    dims: tuple[int, int]
    itemsizes: tuple[int, int]
    values: Callable[..., Sequence[int]]

    @classmethod
    def of(cls, symbols: Sequence[Expr], pair: RegionPair) -> CompiledPair:
        """Two regions as functions of the symbols. Raises `Rejected` if they contain others."""
        one, other = pair
        values = evaluator(symbols, [*one.expressions, *other.expressions])
        return cls((len(one.sizes), len(other.sizes)), (one.itemsize, other.itemsize), values)

    def at(self, sizes: SizeValues) -> tuple[Region, Region]:
        """Both regions at the given sizes of the symbols, which are in the order of `of`."""
        # `int`, since an expression with fractions gives a `Fraction` that is a whole number.
        values = tuple(map(int, self.values(*sizes.values())))
        m, n = self.dims
        one, other = values[: 2 * m + 1], values[2 * m + 1 :]
        return (
            Region(one[0], one[1 : m + 1], one[m + 1 :], self.itemsizes[0]),
            Region(other[0], other[1 : n + 1], other[n + 1 :], self.itemsizes[1]),
        )


# --- against a real run ---------------------------------------------------------------------------


def disagreements(layout: SymbolicLayout, observation: Observation, sizes: SizeValues) -> set[str]:
    """Names of the tensors whose layout in a real run at these sizes is not the symbolic one.

    Fake tensors do not always have the layout of real ones, so a proof is checked against real
    runs.
    """
    real = observation.tensors()
    wrong = set(real.keys() ^ layout.keys())
    # For each symbolic storage: the address of the real one, and the tensor that was seen there
    # first. Inputs come first, so a storage belongs to the input that brought it.
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
