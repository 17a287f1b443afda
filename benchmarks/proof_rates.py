"""How many pairs of inputs and outputs are decided for all sizes, and how long a decision takes.

The programs are drawn from a seed. They make views with symbolic cut points (slices, splits,
transposes, diagonals, reshapes), write to them and copy between them, and return some of the
values. Each program goes through these targets:

- the reference pass and AOTAutograd, which are right as far as is known;
- *arena*, which is right but hard to prove: it packs all outputs into one buffer, one after the
  other;
- *even arena*, which is wrong: it rounds the offsets in the buffer down to even numbers, so only
  odd sizes show the mistake;
- *no clones*, which is wrong: it gets the program with a clone of each output, and drops these
  clones. Two outputs that are views of one storage are refuted if they share a byte at some sizes;
  the others must be proved.

How to read a row: pairs by answer; the median and the longest time per pair; how many pairs z3
decided, and their median time. These times exclude the build. *build* is the median time to trace a
program, compile it and find its layouts. Refutations were replayed with real tensors.
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

from aliasproof.oracles.contract import Contract
from aliasproof.oracles.proofs.pair_decision import Answer
from aliasproof.oracles.proofs.target_proofs import TargetProofs
from aliasproof.programs.regions import Region, overlaps_itself
from aliasproof.proving import prove_build
from aliasproof.targets.registry import TARGETS
from aliasproof.targets.symbolic_sizes import SYMBOLIC, SymbolicBuild
from aliasproof.targets.target import Build, Function, Target
from benchmarks.tables import Table, percent

FIRST_SEED = 5000
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


# A step is drawn together with its complement half of the time. So programs return parts of one
# tensor that are close to each other and yet disjoint: the pairs that are hard to prove.
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
    # Only results of steps are returned: an input as output is too easy to prove.
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
        # Scalars and single elements leave nothing to cut or to overlap.
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


def no_clones(function: Function, fakes: Sequence[Tensor]) -> fx.GraphModule:
    """The graph of the function, without the clones of its outputs."""
    # The outputs of the program are clones (see `Cloned`), so their operands are views and alias.
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
        return [output.clone() for output in self.function(*inputs)]


def _never_run(function: Function, inputs: Sequence[Tensor]) -> Build:
    raise NotImplementedError("only its symbolic build is used")


def _stand_in(name: str) -> Target:
    """The target of that name, or one that promises everything: the planted targets need one."""
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
    """The figures of all programs through one target; times in milliseconds."""

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
class ProofRates:
    counts: Sequence[ProofCounts]

    def tables(self) -> list[Table]:
        rows = [
            (
                counts.target,
                str(counts.pairs),
                *(percent(counts.answers[answer.value] / counts.pairs) for answer in Answer),
                f"{counts.median:.2f}",
                f"{counts.longest:.0f}",
                str(counts.by_z3),
                f"{counts.median_by_z3:.0f}",
                f"{counts.build:.0f}",
            )
            for counts in self.counts
        ]
        columns = (
            "target",
            "pairs",
            *(answer.value for answer in Answer),
            "median ms",
            "longest",
            "by z3",
            "median",
            "build ms",
        )
        notes = [
            f"From {self.counts[0].programs} programs, sizes from 1 to 64, at most 10 s per pair."
        ]
        return [
            Table(
                "proof_rates: pairs of inputs and outputs decided for all sizes",
                columns,
                rows,
                notes,
            )
        ]


def measure(programs: int = 200, builds: Sequence[str] = tuple(BUILDS)) -> ProofRates:
    """Prove what can be proved of that many programs through each target."""
    return ProofRates([_counted(name, programs) for name in builds])


def _counted(name: str, programs: int) -> ProofCounts:
    answers: Counter[str] = Counter()
    hows: Counter[str] = Counter()
    spent, spent_by_z3, build = [], [], []
    for seconds, found in _proofs(name, programs):
        times = [pair.proof.milliseconds for pair in found.pairs]
        build.append(1e3 * seconds - sum(times))  # all that is not a decision
        spent += times
        answers.update(pair.proof.answer.value for pair in found.pairs)
        hows.update(pair.proof.how for pair in found.pairs)
        spent_by_z3 += [pair.proof.milliseconds for pair in found.pairs if "z3" in pair.proof.how]
    return ProofCounts(
        target=name,
        programs=programs,
        answers={answer.value: answers[answer.value] for answer in Answer},
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
