"""How many pairs of inputs and outputs are decided for all sizes at once, and how long that takes.

The programs are drawn from a seed: views with symbolic cut points (slices, splits, transposes,
diagonals, reshapes), writes and copies between them, and some of the values returned. Each goes
through

- targets that are right as far as is known: the reference pass and AOTAutograd;
- *arena*, which adds no alias either, and takes thought: all outputs lie one behind the other in
  one buffer;
- two that are wrong: *even arena*, which rounds the places in the buffer down to even numbers, so
  that it takes odd sizes to see it; and *no clones*, which gets the program with a clone of each
  output and drops these clones, so that two outputs that are views of one storage are refuted if
  they share a byte for some sizes, and else are to be proved.

How to read a row: pairs by answer; the median and the longest time of a pair, and the median over
the pairs that z3 decided, which are counted, too; all times without those of building. *build* is
the median time to trace a program, compile it and find its layouts. Refutations were replayed with
real tensors.
"""

from __future__ import annotations

import contextlib
import random
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx

from aliasproof.proving import prove_build
from benchmarks.tables import Table, percent
from oracles.contract import Contract
from oracles.proofs.all_sizes import Answer
from oracles.proofs.target_proofs import TargetProofs
from programs.regions import Region, overlaps_itself
from targets.registry import TARGETS
from targets.symbolic_sizes import SYMBOLIC, SymbolicBuild
from targets.target import Build, Function, Target

FIRST_SEED = 5000
MOST_STEPS = 8
Tensor = torch.Tensor


# --- programs -------------------------------------------------------------------------------------


CUTS: dict[str, Callable[[int], int]] = {
    "1": lambda size: 1,
    "n // 2": lambda size: size // 2,
    "n // 3": lambda size: size // 3,
    "(n + 1) // 2": lambda size: (size + 1) // 2,
    "n - 1": lambda size: size - 1,
}

# Of a tensor, a dim of it and a cut point of that dim.
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


# What is drawn together with a step half of the time, so that programs return parts that are close
# and yet apart.
COMPLEMENTS = {
    "up to": "from",
    "first split": "second split",
    "even": "odd",
    "diagonal": "upper diagonal",
    "lower diagonal": "diagonal",
}


@dataclass(frozen=True, slots=True)
class Step:
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
    steps: tuple[Step, ...]
    outputs: tuple[int, ...]

    def __call__(self, *inputs: Tensor) -> list[Tensor]:
        values = list(inputs)
        for each in self.steps:
            values.append(each.run(values))
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
    values = [torch.zeros(each) for each in shapes]
    steps: list[Step] = []
    for _ in range(4 * MOST_STEPS):
        value = source.choice((source.randrange(len(values)), len(values) - 1))
        dim = source.randrange(max(1, values[value].dim()))
        step = Step(source.choice(list(STEPS)), value, dim, source.choice(list(CUTS)))
        drawn = [step]
        if step.name in COMPLEMENTS and source.random() < 0.5:
            drawn.append(replace(step, name=COMPLEMENTS[step.name]))
        for each in drawn:
            made = _tried(each, values)
            if made is not None and len(steps) < MOST_STEPS:
                values.append(made)
                steps.append(each)
    made_here = range(len(shapes), len(values))
    return SizedProgram(
        shapes,
        tuple(steps),
        tuple(source.sample(made_here, min(len(made_here), source.choice((2, 3, 4))))),
    )


def _tried(step: Step, values: Sequence[Tensor]) -> Tensor | None:
    if step.name.endswith("_") and overlaps_itself(Region.of(values[step.value])):
        return None
    with contextlib.suppress(RuntimeError, IndexError):
        made = step.run(values)
        return made if made.dim() and made.numel() > 1 else None
    return None


# --- targets --------------------------------------------------------------------------------------


def arena(function: Function, fakes: Sequence[Tensor], unit: int = 1) -> Function:
    """All outputs in one buffer, each where the last one ends, rounded down to a multiple of `unit`."""

    def packed(*inputs: Tensor) -> list[Tensor]:
        outputs: list[Tensor] = list(function(*inputs))  # type: ignore[call-overload]
        buffer = torch.empty(sum(each.numel() for each in outputs))
        place, found = 0, []
        for each in outputs:
            found.append(buffer.narrow(0, place, each.numel()).view(each.shape).copy_(each))
            place = (place + each.numel()) // unit * unit
        return found

    return packed


def even_arena(function: Function, fakes: Sequence[Tensor]) -> Function:
    return arena(function, fakes, unit=2)


def no_clones(function: Function, fakes: Sequence[Tensor]) -> fx.GraphModule:
    """The graph of the function, which returns what it would return clones of."""
    module = make_fx(function, tracing_mode="symbolic")(*fakes)
    (returned,) = module.graph.find_nodes(op="output")
    returned.args = fx.map_arg(
        returned.args, lambda node: node.args[0] if node.target is CLONE else node
    )
    module.recompile()
    return module


CLONE = torch.ops.aten.clone.default


@dataclass(frozen=True, slots=True)
class Cloned:
    """A function that returns clones of what another returns."""

    function: SizedProgram

    def __call__(self, *inputs: Tensor) -> list[Tensor]:
        return [each.clone() for each in self.function(*inputs)]


def _never_run(function: Function, inputs: Sequence[Tensor]) -> Build:
    raise NotImplementedError("only its symbolic build is used")


def _stand_in(name: str) -> Target:
    return TARGETS.get(name) or Target(name, "", Contract(), _never_run, "")


BUILDS: dict[str, SymbolicBuild] = {
    "reference": SYMBOLIC["reference"],
    "aot": SYMBOLIC["aot"],
    "arena": arena,
    "even arena": even_arena,
    "no clones": no_clones,
}


# --- the measurement ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ProofCounts:
    """What came of all programs through one target; times in milliseconds."""

    target: str
    programs: int
    answers: dict[str, int]
    hows: dict[str, int]
    median: float
    longest: float
    by_z3: int
    median_by_z3: float
    build: float

    @property
    def pairs(self) -> int:
        return sum(self.answers.values())


@dataclass(frozen=True, slots=True)
class AllSizes:
    accounts: Sequence[ProofCounts]

    def tables(self) -> list[Table]:
        rows = [
            (
                each.target,
                str(each.pairs),
                *(percent(each.answers[answer.value] / each.pairs) for answer in Answer),
                f"{each.median:.2f}",
                f"{each.longest:.0f}",
                str(each.by_z3),
                f"{each.median_by_z3:.0f}",
                f"{each.build:.0f}",
            )
            for each in self.accounts
        ]
        columns = (
            "target",
            "pairs",
            *(each.value for each in Answer),
            "median ms",
            "longest",
            "by z3",
            "median",
            "build ms",
        )
        notes = [
            f"From {self.accounts[0].programs} programs, sizes from 1 to 64, at most 10 s a pair."
        ]
        return [
            Table(
                "all_sizes: pairs of inputs and outputs decided for all sizes", columns, rows, notes
            )
        ]


def measure(programs: int = 200, builds: Sequence[str] = tuple(BUILDS)) -> AllSizes:
    """Prove what can be proved of that many programs through each target."""
    return AllSizes([_account(name, programs) for name in builds])


def _account(name: str, programs: int) -> ProofCounts:
    answers: Counter[str] = Counter()
    hows: Counter[str] = Counter()
    spent, spent_by_z3, build = [], [], []
    for seconds, found in _proofs(name, programs):
        times = [each.proof.milliseconds for each in found.pairs]
        build.append(1e3 * seconds - sum(times))
        spent += times
        answers.update(each.proof.answer.value for each in found.pairs)
        hows.update(each.proof.how for each in found.pairs)
        spent_by_z3 += [each.proof.milliseconds for each in found.pairs if "z3" in each.proof.how]
    return ProofCounts(
        target=name,
        programs=programs,
        answers={each.value: answers[each.value] for each in Answer},
        hows=dict(hows),
        median=statistics.median(spent),
        longest=max(spent),
        by_z3=len(spent_by_z3),
        median_by_z3=statistics.median(spent_by_z3 or [0.0]),
        build=statistics.median(build),
    )


def _proofs(name: str, programs: int) -> Iterator[tuple[float, TargetProofs]]:
    """Seconds and proofs of each program."""
    for seed in range(FIRST_SEED, FIRST_SEED + programs):
        program = draw(seed)
        start = time.perf_counter()
        function = Cloned(program) if name == "no clones" else program
        found = prove_build(function, program.inputs(), _stand_in(name), BUILDS[name])
        yield time.perf_counter() - start, found
