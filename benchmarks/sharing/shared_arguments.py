"""Programs, and the calls of them whose arguments share memory in changing ways.

A program is a function, or makes a module, and has a builder of calls. The builder takes a seed.
Every call owns new base tensors, and its arguments are views of them, so successive calls may
share storages in different ways.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import torch
from torch import Tensor

ViewFunction: TypeAlias = Callable[[Tensor], Tensor]
AnyFunction = TypeVar("AnyFunction", bound=Callable[..., Any])
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class View:
    """A tensor argument: the base with this number, or the view of it that `make` makes."""

    base: int
    make: ViewFunction | None = None

    def of(self, tensor: Tensor) -> Tensor:
        """The argument, if this tensor is the base."""
        return tensor if self.make is None else self.make(tensor)


@dataclass(frozen=True, slots=True)
class SharedCall:
    """The bases and arguments of a call. The label says how arguments share memory."""

    label: str
    bases: list[Tensor]
    arguments: list[Any]  # a `View`, or a plain value

    def with_rest(self, rest: Sequence[Any], generator: torch.Generator) -> SharedCall:
        """The call with more arguments: tensors of their own for specs, and plain values."""
        for item in rest:
            if isinstance(item, Spec):
                self.arguments.append(View(len(self.bases)))
                self.bases.append(item.fill(generator))
            else:
                self.arguments.append(item)
        return self


CallBuilder: TypeAlias = Callable[[int], list[SharedCall]]


# --- programs -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SharingProgram:
    """A function, or if `factory` what makes a module; its calls; and what requires gradients.

    `gradients` has a letter per argument, for training: `n` no gradient, `l` a leaf, `x` a view of
    the non-leaf `base * 1`, `p` a leaf of its own that shares the storage of the base. For the rest
    of the arguments, `n`.
    """

    name: str
    target: Callable[..., Any]
    calls: CallBuilder
    gradients: str
    factory: bool


PROGRAMS: dict[str, SharingProgram] = {}


def program(
    calls: CallBuilder, gradients: str = "", *, factory: bool = False
) -> Callable[[AnyFunction], AnyFunction]:
    """Add the decorated function to the programs."""

    def add(target: AnyFunction) -> AnyFunction:
        name = target.__name__
        if name in PROGRAMS:
            raise ValueError(f"two programs are called {name}; rename one")
        PROGRAMS[name] = SharingProgram(name, target, calls, gradients, factory)
        return target

    return add


# --- tensors --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Spec:
    """The shape of a tensor, and how it is filled."""

    shape: tuple[int, ...]
    make: Callable[[tuple[int, ...], torch.Generator], Tensor]

    def fill(self, generator: torch.Generator, shape: tuple[int, ...] | None = None) -> Tensor:
        """A new tensor, of another shape if one is given."""
        return self.make(self.shape if shape is None else shape, generator)


def floats(*shape: int) -> Spec:
    """Normally distributed numbers."""
    return Spec(shape, lambda sizes, generator: torch.randn(sizes, generator=generator))


def positives(*shape: int) -> Spec:
    """Numbers in [0.5, 1.5)."""
    return Spec(shape, lambda sizes, generator: torch.rand(sizes, generator=generator) + 0.5)


def complexes(*shape: int) -> Spec:
    """Complex numbers."""
    return Spec(
        shape,
        lambda sizes, generator: torch.randn(sizes, generator=generator, dtype=torch.complex64),
    )


def ints(*shape: int, high: int = 4) -> Spec:
    """Integers in [0, high)."""
    return Spec(shape, lambda sizes, generator: torch.randint(0, high, sizes, generator=generator))


def permutation(size: int) -> Spec:
    """A permutation of so many numbers."""
    return Spec((size,), lambda sizes, generator: torch.randperm(sizes[0], generator=generator))


def bools(*shape: int) -> Spec:
    """Booleans."""
    return Spec(shape, lambda sizes, generator: torch.rand(sizes, generator=generator) > 0.5)


# --- calls ----------------------------------------------------------------------------------------


def seeded(seed: int) -> torch.Generator:
    """A generator of random numbers."""
    return torch.Generator().manual_seed(seed)


def rotated(items: Sequence[Item], by: int) -> list[Item]:
    """The items from this number on, and then those before, so that seeds change the order."""
    by %= max(len(items), 1)
    return [*items[by:], *items[:by]]


def cut(offset: int, size: int) -> ViewFunction:
    """So many rows of a base from this one on."""
    return lambda base: base[offset : offset + size]


def separate(*arguments: Any, count: int = 2) -> CallBuilder:
    """So many calls in which each argument has a storage of its own."""
    return series(*[arguments] * count)


def series(*rows: tuple[Any, ...]) -> CallBuilder:
    """A call per row. Each argument has a storage of its own."""

    def build(seed: int) -> list[SharedCall]:
        generator = seeded(seed)
        return [SharedCall("separate", [], []).with_rest(row, generator) for row in rows]

    return build


def layouts(spec: Spec, *rest: Any, kinds: str = "whole offset strided swapped") -> CallBuilder:
    """The first argument is whole, a slice at an offset, a strided view or a transpose."""
    shape, rows = spec.shape, spec.shape[0]
    makers: dict[str, tuple[tuple[int, ...], ViewFunction | None]] = {
        "whole": (shape, None),
        "offset": ((rows + 3, *shape[1:]), cut(2, rows)),
        "strided": ((*shape[:-1], 2 * shape[-1]), lambda base: base[..., ::2]),
        "swapped": (shape[::-1], lambda base: base.permute(*range(base.dim() - 1, -1, -1))),
    }

    def build(seed: int) -> list[SharedCall]:
        generator = seeded(seed)
        calls = []
        for kind in rotated(kinds.split(), seed):
            if kind == "swapped" and len(shape) < 2:
                continue
            base_shape, view = makers[kind]
            call = SharedCall(kind, [spec.fill(generator, base_shape)], [View(0, view)])
            calls.append(call.with_rest(rest, generator))
        return calls

    return build


def group(
    spec: Spec, *rest: Any, count: int = 2, kinds: str = "separate overlap same disjoint"
) -> CallBuilder:
    """The first `count` arguments have one shape, and share memory in changing ways.

    Kinds: `separate`: each has a storage of its own; `same`: one tensor several times; `overlap`,
    `shifted`, `reverse`: windows of one base at distances 1, 2 (and an offset) and -1; `disjoint`,
    `apart`: parts of one base.
    """
    shape, rows = spec.shape, spec.shape[0]
    starts = {
        "overlap": list(range(count)),
        "shifted": [1 + 2 * index for index in range(count)],
        "reverse": [count - 1 - index for index in range(count)],
        "disjoint": [rows * index for index in range(count)],
        "apart": [1 + (rows + 1) * (count - 1 - index) for index in range(count)],
    }

    def build_one(kind: str, generator: torch.Generator) -> SharedCall:
        if kind == "separate":
            return SharedCall(kind, [], []).with_rest([spec] * count, generator)
        if kind == "same":
            return SharedCall(kind, [spec.fill(generator)], [View(0)] * count)
        base = spec.fill(generator, (max(starts[kind]) + rows + 1, *shape[1:]))
        return SharedCall(kind, [base], [View(0, cut(start, rows)) for start in starts[kind]])

    def build(seed: int) -> list[SharedCall]:
        generator = seeded(seed)
        return [
            build_one(kind, generator).with_rest(rest, generator)
            for kind in rotated(kinds.split(), seed)
        ]

    return build


def custom(spec: Spec, *cases: tuple[ViewFunction | None, ...]) -> CallBuilder:
    """A base per case. A case has a view function per argument, or None for the base."""

    def build(seed: int) -> list[SharedCall]:
        generator = seeded(seed)
        calls = [
            SharedCall(f"case {number}", [spec.fill(generator)], [View(0, make) for make in case])
            for number, case in enumerate(cases)
        ]
        return rotated(calls, seed)

    return build
