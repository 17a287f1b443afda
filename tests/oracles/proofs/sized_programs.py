"""Programs for inputs of many sizes, drawn from a seed, and targets for proofs about them.

The programs make views with symbolic cut points (slices, splits, transposes, diagonals, reshapes),
write to them and copy between them, and return some of the values.

- *arena* is right but hard to prove: it packs all outputs into one buffer, one after the other.
- *even arena* is wrong: it rounds the offsets in the buffer down to even numbers, so only odd sizes
  show the mistake.
- *no clones* is wrong: its clones are none.
"""

import contextlib
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from unittest import mock

import torch

from aliasproof.ir.regions import Region, overlaps_itself
from aliasproof.targets.target import Function

MOST_STEPS = 8
Tensor = torch.Tensor


# --- programs -------------------------------------------------------------------------------------


# A cut point as a function of a size; it is from 0 to the size.
CUTS: dict[str, Callable[[int], int]] = {
    "1": lambda size: 1,
    "n // 2": lambda size: size // 2,
    "n // 3": lambda size: size // 3,
    "(n + 1) // 2": lambda size: (size + 1) // 2,
    "n - 1": lambda size: size - 1,
}

# Each takes a tensor, a dim, and a cut point of that dim.
STEPS: dict[str, Callable[[Tensor, int, int], Tensor]] = {
    "up to": lambda x, dim, cut: x.narrow(dim, 0, cut),
    "from": lambda x, dim, cut: x.narrow(dim, cut, x.shape[dim] - cut),
    "first split": lambda x, dim, cut: x.split([cut, x.shape[dim] - cut], dim)[0],
    "second split": lambda x, dim, cut: x.split([cut, x.shape[dim] - cut], dim)[1],
    "select": lambda x, dim, cut: x.select(dim, cut),
    "transpose": lambda x, dim, cut: x.transpose(dim, -1),
    "diagonal": lambda x, dim, cut: x.diagonal(),
    "upper diagonal": lambda x, dim, cut: x.diagonal(1),
    "lower diagonal": lambda x, dim, cut: x.diagonal(-1),
    "even": lambda x, dim, cut: x[::2],
    "odd": lambda x, dim, cut: x[1::2],
    "flat": lambda x, dim, cut: x.reshape(-1),
    "folded": lambda x, dim, cut: x.view(x.shape[-1], -1),
    "windows": lambda x, dim, cut: x.unfold(dim, 2, 1),
    "repeated": lambda x, dim, cut: x.unsqueeze(0).expand(2, *x.shape),
    "clone": lambda x, dim, cut: x.clone(),
    "contiguous": lambda x, dim, cut: x.contiguous(),
    "plus one": lambda x, dim, cut: x + 1,
    "add_": lambda x, dim, cut: x.add_(1),
    "zero_": lambda x, dim, cut: x.zero_(),
}


# Half of the time, a step is drawn together with its complement. So programs return parts of one
# tensor that are close to each other and yet disjoint: such pairs are hard to prove.
COMPLEMENTS = {
    "up to": "from",
    "first split": "second split",
    "even": "odd",
    "diagonal": "upper diagonal",
    "lower diagonal": "diagonal",
}


@dataclass(frozen=True, slots=True)
class DrawnStep:
    """One operation on an earlier value."""

    name: str
    value: int
    dim: int
    cut: str

    def run(self, values: Sequence[Tensor]) -> Tensor:
        tensor = values[self.value]
        size = tensor.shape[self.dim] if tensor.dim() else 1
        return STEPS[self.name](tensor, self.dim, CUTS[self.cut](size))


@dataclass(frozen=True, slots=True)
class SizedProgram:
    """A function that works for inputs of many sizes; `shapes` are those of the sample."""

    shapes: tuple[tuple[int, ...], ...]
    steps: tuple[DrawnStep, ...]
    outputs: tuple[int, ...]

    def __call__(self, *inputs: Tensor) -> list[Tensor]:
        values = list(inputs)
        for step in self.steps:
            values.append(step.run(values))
        return [values[index] for index in self.outputs]

    def inputs(self) -> list[Tensor]:
        return [
            torch.arange(1.0, 1 + torch.Size(shape).numel()).reshape(shape) for shape in self.shapes
        ]


def draw(seed: int) -> SizedProgram:
    """A program of that seed.

    Steps that eager refuses, or that write to memory that overlaps itself, are left out.
    """
    source = random.Random(seed)
    shapes = tuple(
        (source.choice((4, 6, 8)), source.choice((4, 5, 7, 9)))
        for _ in range(source.choice((1, 1, 2)))
    )
    values = [torch.zeros(shape) for shape in shapes]
    steps: list[DrawnStep] = []
    for _ in range(4 * MOST_STEPS):
        # The last value half of the time, so that chains of views get long.
        value = source.choice((source.randrange(len(values)), len(values) - 1))
        dim = source.randrange(max(1, values[value].dim()))
        step = DrawnStep(source.choice(list(STEPS)), value, dim, source.choice(list(CUTS)))
        drawn = [step]
        if step.name in COMPLEMENTS and source.random() < 0.5:
            drawn.append(replace(step, name=COMPLEMENTS[step.name]))
        for candidate in drawn:
            made = _tried(candidate, values)
            if made is not None and len(steps) < MOST_STEPS:
                values.append(made)
                steps.append(candidate)
    # Only results of steps are returned: it is too easy to prove an input that is an output.
    made_here = range(len(shapes), len(values))
    return SizedProgram(
        shapes,
        tuple(steps),
        tuple(source.sample(made_here, min(len(made_here), source.choice((2, 3, 4))))),
    )


def _tried(step: DrawnStep, values: Sequence[Tensor]) -> Tensor | None:
    """The result of the step, or None if the step is left out."""
    if step.name.endswith("_") and overlaps_itself(Region.of(values[step.value])):
        return None  # undefined in eager
    with contextlib.suppress(RuntimeError, IndexError):
        made = step.run(values)
        # Scalars and single elements cannot be cut, and overlap nothing.
        return made if made.dim() and made.numel() > 1 else None
    return None


# --- targets --------------------------------------------------------------------------------------


def arena(function: Function, fakes: Sequence[Tensor], unit: int = 1) -> Function:
    """All outputs in one buffer, each at the end of the one before.

    The offset, in elements, is rounded down to a multiple of `unit`.
    """

    def packed(*inputs: Tensor) -> list[Tensor]:
        outputs: list[Tensor] = list(function(*inputs))  # type: ignore[call-overload]
        buffer = torch.empty(sum(output.numel() for output in outputs))
        offset, found = 0, []
        for output in outputs:
            part = buffer.narrow(0, offset, output.numel())
            found.append(part.view(output.shape).copy_(output))
            offset = (offset + output.numel()) // unit * unit
        return found

    return packed


def even_arena(function: Function, fakes: Sequence[Tensor]) -> Function:
    return arena(function, fakes, unit=2)


def no_clones(function: Function, fakes: Sequence[Tensor]) -> Function:
    """The function, whose clones show the memory of what they would copy."""

    def careless(*inputs: Tensor) -> object:
        with mock.patch.object(Tensor, "clone", Tensor.detach):
            return function(*inputs)

    return careless
