"""Our `reinplace` against torch's: how many calls of a graph still allocate, and its peak memory.

Both passes get a copy of the functional graph that `make_fx(torch.func.functionalize(f))` makes of
a program, and the same sample inputs. Only programs on which torch's pass is right count: target
*fx-reinplace* is for them, no oracle finds a broken promise, and the graph has the same value
hashes as the functional graph, so it is right for other values too. The contract of the target
waives strides. Here it does not: a reinplaced output with other strides than eager's is not a gain.
Our pass must meet the same conditions, and so must the functional graph itself.

How to read a row: the number of programs on which our pass is better than torch's, equal, or worse,
and the totals.

- *in-place ops*: how many fewer calls of the graph have a result in a storage of their own (of at
  least one byte) than before.
- *peak bytes*: a storage is live from the call that makes it to the last call that reads it.
  Outputs are live to the end, inputs always. The median is of ours divided by torch's, program by
  program.
"""

from __future__ import annotations

import copy
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, count
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensorMode

from aliasproof.generators.features import swarm
from aliasproof.generators.strategies import sample
from aliasproof.oracles.contract import Contract, Promise
from aliasproof.oracles.equivalence import judge, run_uninterpreted
from aliasproof.programs.definedness import Undefined
from aliasproof.programs.errors import Rejected
from aliasproof.programs.printing import source
from aliasproof.programs.program import Program
from aliasproof.reference_pass.exceptions import Refused
from aliasproof.reference_pass.fake_execution import fake_inputs, run_node
from aliasproof.reference_pass.nested import tensors_in
from aliasproof.reference_pass.reinplace import decisions, reinplace
from aliasproof.targets.registry import TARGETS
from aliasproof.targets.target import Build
from aliasproof.trials.trial import Case, EagerRun, Trial, run_trial
from benchmarks.tables import Table

FIRST_SEED = 4000  # one seed per shard
SHARD = 50  # programs
SHOWN = 5  # findings of each kind
_ACCUSED = TARGETS["fx-reinplace"]
TARGET = replace(
    _ACCUSED,
    contract=replace(
        _ACCUSED.contract,
        waivers=tuple(
            waiver for waiver in _ACCUSED.contract.waivers if waiver.promise is not Promise.STRIDE
        ),
    ),
)


@dataclass(frozen=True, slots=True)
class Allocations:
    """How many calls of a graph have a result in a new storage, and the bytes at its peak."""

    fresh: int
    peak: int


@dataclass(frozen=True, slots=True)
class ReinplaceComparison:
    """One program: the memory of its functional graph, and of the graph after each pass."""

    before: Allocations
    ours: Allocations
    theirs: Allocations

    @property
    def in_place(self) -> int:
        """How many calls no longer allocate after our pass."""
        return self.before.fresh - self.ours.fresh

    @property
    def in_place_theirs(self) -> int:
        """The same after torch's."""
        return self.before.fresh - self.theirs.fresh


@dataclass(frozen=True, slots=True)
class AgainstTorch:
    """All comparisons, and texts about programs that need a look.

    Our pass refuses those in `refused`, gets those in `wrong` wrong, has fewer in-place ops than
    torch's on those in `fewer`, and a higher peak on those in `higher`.
    """

    drawn: int
    comparisons: Sequence[ReinplaceComparison]
    refused: Sequence[str]
    wrong: Sequence[str]
    fewer: Sequence[str]
    higher: Sequence[str]

    def tables(self) -> list[Table]:
        ours = [comparison.in_place for comparison in self.comparisons]
        theirs = [comparison.in_place_theirs for comparison in self.comparisons]
        peaks = [comparison.ours.peak for comparison in self.comparisons]
        their_peaks = [comparison.theirs.peak for comparison in self.comparisons]
        ratios = [one / other for one, other in zip(peaks, their_peaks, strict=True) if other]
        rows = [
            ("in-place ops", *_signs(ours, theirs), str(sum(ours)), str(sum(theirs)), ""),
            (
                "peak bytes",
                *_signs(their_peaks, peaks),
                str(sum(peaks)),
                str(sum(their_peaks)),
                f"{_median(ratios):.3f}",
            ),
        ]
        columns = ("", "better", "equal", "worse", "ours", "torch", "median ours / torch")
        compared = len(self.comparisons)
        calls = sum(comparison.before.fresh for comparison in self.comparisons)
        nbytes = sum(comparison.before.peak for comparison in self.comparisons)
        notes = [
            f"{compared} programs compared, of {self.drawn} drawn.",
            f"Of these, ours is wrong on {len(self.wrong)}; it refuses {len(self.refused)} others.",
            f"In the functional graphs {calls} calls allocate; their peaks are {nbytes} bytes.",
        ]
        kinds = {
            "refused": self.refused,
            "wrong": self.wrong,
            "fewer in-place ops": self.fewer,
            "higher peak": self.higher,
        }
        for kind, texts in kinds.items():
            notes += [f"\n--- {kind} ---\n{text}" for text in texts[:SHOWN]]
        return [Table("against_torch: what reinplace saves", columns, rows, notes)]


def measure(programs: int = 5_000) -> AgainstTorch:
    """Compare the passes on that many programs that torch's gets right and ours does not refuse."""
    drawn = 0
    comparisons: list[ReinplaceComparison] = []
    found: dict[str, list[str]] = {"refused": [], "wrong": [], "fewer": [], "higher": []}
    for program in _programs():
        if len(comparisons) == programs:
            break
        drawn += 1
        trial = _trial(program)
        if trial is None or trial.build is None:
            continue
        functional, theirs = (stage.graph for stage in trial.build.stages)
        if not is_right(program, copy.deepcopy(functional), trial):
            continue  # functionalization lost a stride, which reinplacing restored by chance
        if not is_same(program, functional, theirs, trial):
            continue  # right for these values by chance
        inputs = Case.of(program).fresh_inputs()
        try:
            ours = reinplace(copy.deepcopy(functional), *inputs)
        except Refused as error:
            found["refused"].append(f"{error}\n{source(program)}{functional.code}")
            continue
        comparison = ReinplaceComparison(
            *(memory(graph, inputs) for graph in (functional, ours, theirs))
        )
        comparisons.append(comparison)
        text = _describe(program, functional, ours, theirs, comparison)
        if not (is_right(program, ours, trial) and is_same(program, functional, ours, trial)):
            found["wrong"].append(text)
        if comparison.in_place < comparison.in_place_theirs:
            found["fewer"].append(text)
        if comparison.ours.peak > comparison.theirs.peak:
            found["higher"].append(text)
    return AgainstTorch(
        drawn, tuple(comparisons), **{kind: tuple(texts) for kind, texts in found.items()}
    )


def is_right(program: Program, ours: fx.GraphModule, theirs: Trial) -> bool:
    """True if a graph keeps all promises of the contract."""
    # The eager run is that of the other trial: it is the same program on the same inputs.
    target = replace(TARGET, name="ours", build=lambda function, inputs: Build(ours, []))
    trial = run_trial(Case.of(program), target, eager=EagerRun(theirs.eager, theirs.trace))
    return trial.target.error is None and not trial.judgement.violations


def is_same(
    program: Program, functional: fx.GraphModule, reinplaced: fx.GraphModule, trial: Trial
) -> bool:
    """True if two graphs have equal value hashes, and so compute the same for all values."""
    one, other = (
        run_uninterpreted(graph, Case.of(program).fresh_inputs())
        for graph in (functional, reinplaced)
    )
    return not judge(Contract(), one, other, trial.trace).violations


# --- memory ---------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Lifetimes:
    """The size of each storage in bytes, and the first and last node at which it is live.

    The keys are identities of storages. Callers keep the tensors alive, so that no identity is used
    again.
    """

    nbytes: dict[int, int] = field(default_factory=dict)
    first: dict[int, int] = field(default_factory=dict)
    last: dict[int, int] = field(default_factory=dict)

    def use(self, tensor: torch.Tensor, index: int) -> None:
        """The node of this index reads or makes the tensor. Nodes come in order."""
        storage = _storage(tensor)
        # A `resize_` can let a storage grow: its largest size counts.
        self.nbytes[storage] = max(self.nbytes.get(storage, 0), tensor.untyped_storage().nbytes())
        self.first.setdefault(storage, index)
        self.last[storage] = index

    def peak(self, nodes: int) -> int:
        """The most bytes that are live at one node; `nodes` is their number."""
        changes = [0] * (nodes + 2)
        for storage, nbytes in self.nbytes.items():
            changes[self.first[storage]] += nbytes
            changes[self.last[storage] + 1] -= nbytes
        return max(accumulate(changes))


def memory(module: fx.GraphModule, inputs: Sequence[torch.Tensor]) -> Allocations:
    """Run a graph on fakes of the inputs and see what it allocates."""
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    given = iter(fake_inputs(mode, inputs))
    values: dict[fx.Node, Any] = {}
    lifetimes = _Lifetimes()
    fresh = 0
    nodes = list(module.graph.nodes)
    with mode, torch.no_grad():
        for index, node in enumerate(nodes):
            operands = [
                tensor for operand in node.all_input_nodes for tensor in tensors_in(values[operand])
            ]
            results: list[torch.Tensor] = []
            if node.op != "output":
                values[node] = (
                    next(given)
                    if node.op == "placeholder"
                    else run_node(node, values.__getitem__, mode)
                )
                results = list(tensors_in(values[node]))
                fresh += isinstance(node.target, OpOverload) and _allocates(results, operands)
            for tensor in (*results, *operands):
                lifetimes.use(tensor, index)
    # The caller keeps inputs and constants, so they are live all the time.
    for node in nodes:
        if node.op in ("placeholder", "get_attr"):
            for tensor in tensors_in(values[node]):
                lifetimes.first[_storage(tensor)] = 0
                lifetimes.last[_storage(tensor)] = len(nodes)
    return Allocations(fresh, lifetimes.peak(len(nodes)))


def _allocates(results: Sequence[torch.Tensor], operands: Sequence[torch.Tensor]) -> bool:
    """True if a result has a storage of its own, with a byte or more."""
    taken = set(map(_storage, operands))
    return any(
        _storage(result) not in taken and result.untyped_storage().nbytes() for result in results
    )


def _storage(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


# --- programs and reports -------------------------------------------------------------------------


def _programs() -> Iterator[Program]:
    for seed in count(FIRST_SEED):
        yield from sample(swarm(seed), seed, SHARD)


def _trial(program: Program) -> Trial | None:
    """The trial of torch's pass, or None if it is not for this program, wrong, or raises."""
    try:
        trial = run_trial(Case.of(program), TARGET)
    except (Undefined, Rejected):
        return None
    finished = trial.target.error is None and TARGET.contract.unmet(trial.trace) is None
    return trial if finished and not trial.judgement.violations else None


def _describe(
    program: Program,
    functional: fx.GraphModule,
    ours: fx.GraphModule,
    theirs: fx.GraphModule,
    comparison: ReinplaceComparison,
) -> str:
    """What a reader needs to see why the passes differ."""
    refused = [
        f"{decision.node} ({decision.op}): not {how.value}: {condition}: {reason}"
        for decision in decisions(ours)
        if decision.how is None
        for how, condition, reason in decision.refused
    ]
    parts = [
        f"in-place ops, ours and torch's: {comparison.in_place} and {comparison.in_place_theirs}",
        f"peak bytes, ours and torch's: {comparison.ours.peak} and {comparison.theirs.peak}",
        source(program),
        *(
            f"{name}:{graph.code}"
            for name, graph in (("functional", functional), ("ours", ours), ("torch", theirs))
        ),
        *refused,
    ]
    return "\n".join(parts)


def _signs(ours: Sequence[int], theirs: Sequence[int]) -> tuple[str, str, str]:
    """How often ours is greater, equal, and less."""
    signs = [(one > other) - (one < other) for one, other in zip(ours, theirs, strict=True)]
    return str(signs.count(1)), str(signs.count(0)), str(signs.count(-1))


def _median(ratios: Sequence[float]) -> float:
    return statistics.median(ratios) if ratios else float("nan")
