"""The time to decide whether two views share a byte, by several exact deciders.

`aliasproof.programs.regions.overlap` decides in the harness. `numpy.shares_memory` is the best
known alternative. z3 (`aliasproof.oracles.smt.decide`) is the second opinion on each finding. An
address mask (the addresses of all bytes, as arrays) and brute force (all pairs of elements, in
plain Python) are obviously right. The questions come from sampled programs: every two inputs or
results of one program.

How to read a row: microseconds of CPU time per decision, by kind of pair, and the mean as a
multiple of `overlap`'s. Each figure is the best of some rounds, in which the deciders take turns.
*overlap* and *z3* get regions and *numpy* gets arrays that are made before. The rows with *tensors*
start from tensors, as the harness must, so they show what a change of decider would bring.

How to read a column: *apart*: one ends before the other begins, or is empty; *shared*: they share a
byte; *interleaved*: one is in the gaps of the other, which is the only hard kind. *all* is the mean
over the pairs as they occur. z3, mask and brute force answer a sample of each kind. The deciders
must agree on every pair.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from aliasproof.generators.features import swarm
from aliasproof.generators.strategies import sample
from aliasproof.oracles.smt import Disjoint, Unknown, decide
from aliasproof.programs.errors import InternalError
from aliasproof.programs.execution import execute
from aliasproof.programs.program import Program
from aliasproof.programs.regions import Region, overlap
from aliasproof.programs.storage_bytes import bytes_of
from aliasproof.programs.values import input_tensors
from benchmarks.tables import Table

FIRST_SEED = 3000  # one seed per shard
SHARD = 50  # programs

ByteArray: TypeAlias = npt.NDArray[np.void]  # each element is `itemsize` plain bytes


@dataclass(frozen=True, slots=True)
class DrawnView:
    """A tensor, its region, and a numpy array of the same bytes."""

    tensor: torch.Tensor
    region: Region
    array: ByteArray

    @classmethod
    def of(cls, tensor: torch.Tensor) -> DrawnView:
        return cls(tensor, Region.of(tensor), as_array(tensor))


DrawnPair: TypeAlias = tuple[DrawnView, DrawnView]

DECIDERS: dict[str, Callable[[DrawnView, DrawnView], bool | None]] = {
    "overlap": lambda a, b: overlap(a.region, b.region),
    "numpy": lambda a, b: np.shares_memory(a.array, b.array),
    "tensors, overlap": lambda a, b: overlap(Region.of(a.tensor), Region.of(b.tensor)),
    "tensors, numpy": lambda a, b: np.shares_memory(as_array(a.tensor), as_array(b.tensor)),
    "mask": lambda a, b: bool(
        np.intersect1d(a.region.addresses(), b.region.addresses(), assume_unique=True).size
    ),
    "brute force": lambda a, b: _by_brute_force(a.region, b.region),
    "z3": lambda a, b: _by_z3(a.region, b.region),
}
SAMPLED = ("mask", "brute force", "z3")  # slow, so they answer only some pairs, in one round


@dataclass(frozen=True, slots=True)
class PairKind:
    """One kind of pair: how many there are, and microseconds per decision by decider."""

    name: str
    pairs: int
    microseconds: dict[str, float]


@dataclass(frozen=True, slots=True)
class OverlapTimes:
    """All kinds of pairs; the last one is the mean over all pairs.

    `unknown` is the number of pairs on which z3 gave up.
    """

    programs: int
    unknown: int
    kinds: Sequence[PairKind]

    def tables(self) -> list[Table]:
        everything = self.kinds[-1]
        rows = [("pairs", *(str(kind.pairs) for kind in self.kinds), "", "")]
        for name, mean in everything.microseconds.items():
            base = "tensors, overlap" if name.startswith("tensors") else "overlap"
            figures = (f"{kind.microseconds[name]:.2f}" for kind in self.kinds)
            rows.append((name, *figures, f"{mean / everything.microseconds[base]:.2f}", base))
        columns = ("µs", *(kind.name for kind in self.kinds), "×", "of")
        note = f"{self.programs} programs. All deciders agreed; z3 gave up on {self.unknown} pairs."
        return [Table("overlap: microseconds of CPU time for one decision", columns, rows, [note])]


def measure(programs: int = 200, rounds: int = 5, z3_sample: int = 150) -> OverlapTimes:
    """Collect the pairs of that many programs and let all deciders answer them."""
    by_kind: dict[str, list[DrawnPair]] = {"apart": [], "shared": [], "interleaved": []}
    for pair in collect(programs):
        by_kind[kind_of(*pair)].append(pair)
    kinds, unknown = [], 0
    for name, pairs in by_kind.items():
        if not pairs:
            continue
        questions = dict.fromkeys(DECIDERS, pairs)
        questions.update(
            dict.fromkeys(SAMPLED, random.Random(0).sample(pairs, min(z3_sample, len(pairs))))
        )
        # All deciders must agree before they are timed: a fast wrong answer is worth nothing.
        unknown += _compare(questions)
        microseconds = dict.fromkeys(DECIDERS, float("inf"))
        for turn in range(rounds):
            for decider, asked in questions.items():
                if decider not in SAMPLED or turn == 0:
                    microseconds[decider] = min(microseconds[decider], _time(decider, asked))
        kinds.append(PairKind(name, len(pairs), microseconds))
    return OverlapTimes(programs, unknown, (*kinds, _mean(kinds)))


def collect(programs: int) -> Iterator[DrawnPair]:
    """Every two values of each sampled program, after its run."""
    for start in range(0, programs, SHARD):
        seed = FIRST_SEED + start // SHARD
        for program in sample(swarm(seed), seed, min(SHARD, programs - start)):
            yield from combinations(map(DrawnView.of, values(program)), 2)


def kind_of(a: DrawnView, b: DrawnView) -> str:
    """The kind of a pair, which is a column of the table."""
    low_a, end_a = a.region.interval
    low_b, end_b = b.region.interval
    if max(low_a, low_b) >= min(end_a, end_b):
        return "apart"
    return "shared" if overlap(a.region, b.region) else "interleaved"


def values(program: Program) -> list[torch.Tensor]:
    """All inputs and results of a program after its run."""
    tensors = input_tensors(program)
    named = {given.name: tensor for given, tensor in zip(program.inputs, tensors, strict=True)}
    with torch.no_grad():
        for instruction in program.instructions:
            execute(instruction, named)
    return list(named.values())


def as_array(tensor: torch.Tensor) -> ByteArray:
    """The same elements as a numpy array of plain bytes.

    numpy has no bfloat16 and no lazy conjugation, so the dtype is only an item size.
    """
    size = tensor.element_size()
    strides = [stride * size for stride in tensor.stride()]
    offset = tensor.storage_offset() * size if tensor.numel() else 0
    memory = bytes_of(tensor.untyped_storage()).numpy()
    return np.ndarray(tensor.shape, f"V{size}", memory, offset, strides)


def _by_z3(a: Region, b: Region) -> bool | None:
    answer = decide(a, b)
    return None if isinstance(answer, Unknown) else not isinstance(answer, Disjoint)


def _by_brute_force(a: Region, b: Region) -> bool:
    """Every element of one against every element of the other."""
    starts_b = _starts(b)
    return any(
        one < other + b.itemsize and other < one + a.itemsize
        for one in _starts(a)
        for other in starts_b
    )


def _starts(region: Region) -> list[int]:
    """The addresses of all elements."""
    starts = [region.start]
    for size, stride in zip(region.sizes, region.strides, strict=True):
        starts = [start + step * stride for start in starts for step in range(size)]
    return starts


def _compare(questions: dict[str, list[DrawnPair]]) -> int:
    """The number of pairs on which z3 gave up. Raises `InternalError` if the deciders disagree."""
    unknown = 0
    for name, pairs in questions.items():
        for a, b in pairs:
            answer = DECIDERS[name](a, b)
            unknown += answer is None
            if answer is not None and answer != overlap(a.region, b.region):
                raise InternalError(
                    f"overlap and {name} disagree, please send us these regions:"
                    f" {a.region} and {b.region}"
                )
    return unknown


def _time(decider: str, pairs: Sequence[DrawnPair]) -> float:
    decide_pair = DECIDERS[decider]
    start = time.process_time()
    for a, b in pairs:
        decide_pair(a, b)
    return 1e6 * (time.process_time() - start) / len(pairs)


def _mean(kinds: Sequence[PairKind]) -> PairKind:
    total = sum(kind.pairs for kind in kinds)
    means = {
        name: sum(kind.pairs * kind.microseconds[name] for kind in kinds) / total
        for name in DECIDERS
    }
    return PairKind("all", total, means)
