"""Our `reinplace` against torch's: how much of a graph still allocates, and how much memory is live at its peak.

Both passes get the functional graph that `make_fx(torch.func.functionalize(f))` makes of a program,
each a copy of it, and the same sample inputs. The programs are those on which torch's pass is
right: target *fx-reinplace* is for them, no oracle finds a promise broken, and the terms are those
of the functional graph, so that it is right for other numbers, too. Its contract waives strides;
here it does not, since a reinplaced output with other strides than eager's is no gain to be had.
Ours is held against the same, and so is the functional graph itself.

How to read a row: the number of programs on which ours is better than torch's pass, as good, or
worse, and the totals.

- *in-place ops*: how many fewer calls of the graph have a result in a storage of their own (of a
  byte or more) than before.
- *peak bytes*: a storage is live from the call that makes it to the last one that has it as an
  operand; outputs live to the end, inputs always. The median is of ours divided by torch's, program
  by program.
"""

from __future__ import annotations

import copy
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensorMode

from benchmarks.tables import Table
from generators.features import swarm
from generators.strategies import sample
from oracles.contract import Contract, Promise
from oracles.equivalence import judge, run_uninterpreted
from programs.definedness import Undefined
from programs.errors import Rejected
from programs.printing import source
from programs.program import Program
from reference_pass.exceptions import Refused
from reference_pass.fake_execution import fake_inputs, run_node
from reference_pass.nested import tensors_in
from reference_pass.reinplace import decisions, reinplace
from targets.registry import TARGETS
from targets.target import Build
from trials.trial import Case, Trial, run_trial

FIRST_SEED = 4000  # of the shards; one a shard
SHARD = 50  # programs
SHOWN = 5  # findings of each kind
_ACCUSED = TARGETS["fx-reinplace"]
TARGET = replace(
    _ACCUSED,
    contract=replace(
        _ACCUSED.contract,
        waivers=tuple(
            each for each in _ACCUSED.contract.waivers if each.promise is not Promise.STRIDE
        ),
    ),
)


@dataclass(frozen=True, slots=True)
class Allocations:
    """What a graph allocates: calls with a result in a storage of their own, and bytes at the peak."""

    fresh: int
    peak: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """One program: the memory of its functional graph, and of what each pass made of it."""

    before: Allocations
    ours: Allocations
    theirs: Allocations

    @property
    def in_place(self) -> int:
        """Calls that no longer allocate, by our pass."""
        return self.before.fresh - self.ours.fresh

    @property
    def in_place_theirs(self) -> int:
        """The same by torch's."""
        return self.before.fresh - self.theirs.fresh


@dataclass(frozen=True, slots=True)
class AgainstTorch:
    """All comparisons. `refused` and `wrong` are texts about programs that our pass refuses or gets wrong, `fewer` and
    `higher` about those on which it does less than torch's, or takes more bytes.
    """

    drawn: int
    comparisons: Sequence[Comparison]
    refused: Sequence[str]
    wrong: Sequence[str]
    fewer: Sequence[str]
    higher: Sequence[str]

    def tables(self) -> list[Table]:
        ours, theirs = (
            [each.in_place for each in self.comparisons],
            [each.in_place_theirs for each in self.comparisons],
        )
        peaks, their_peaks = (
            [each.ours.peak for each in self.comparisons],
            [each.theirs.peak for each in self.comparisons],
        )
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
        calls, nbytes = (
            sum(getattr(each.before, name) for each in self.comparisons)
            for name in ("fresh", "peak")
        )
        notes = [
            f"{compared} programs compared, of {self.drawn} drawn.",
            f"Of these, ours is wrong on {len(self.wrong)}; it refuses {len(self.refused)} others.",
            f"The functional graphs have {calls} calls that allocate and {nbytes} bytes at their peaks.",
        ]
        kinds = {
            "refused": self.refused,
            "wrong": self.wrong,
            "fewer in-place ops": self.fewer,
            "higher peak": self.higher,
        }
        for kind, texts in kinds.items():
            notes += [f"\n--- {kind} ---\n{text}" for text in texts[:SHOWN]]
        return [Table("against torch: what reinplace saves", columns, rows, notes)]


def measure(programs: int = 5_000) -> AgainstTorch:
    """Compare the passes on that many programs on which torch's is right and ours does not refuse."""
    drawn = 0
    comparisons: list[Comparison] = []
    found: dict[str, list[str]] = {"refused": [], "wrong": [], "fewer": [], "higher": []}
    for program in _programs():
        if len(comparisons) == programs:
            break
        drawn += 1
        trial = _trial(program)
        if trial is None or trial.build is None:
            continue
        functional, theirs = (each.graph for each in trial.build.stages)
        if not is_right(program, copy.deepcopy(functional), trial):
            continue  # a stride that functionalization lost, and that reinplacing found again by chance
        if not is_same(program, functional, theirs, trial):
            continue  # right for these numbers by chance
        inputs = Case.of(program).fresh_inputs()
        try:
            ours = reinplace(copy.deepcopy(functional), *inputs)
        except Refused as error:
            found["refused"].append(f"{error}\n{source(program)}{functional.code}")
            continue
        comparison = Comparison(*(memory(each, inputs) for each in (functional, ours, theirs)))
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
    """True if a graph keeps all promises of that contract."""
    target = replace(TARGET, name="ours", build=lambda function, inputs: Build(ours, []))
    trial = run_trial(Case.of(program), target, eager=(theirs.eager, theirs.trace))
    return (
        trial.target is not None and trial.target.error is None and not trial.judgement.violations
    )


def is_same(
    program: Program, functional: fx.GraphModule, reinplaced: fx.GraphModule, trial: Trial
) -> bool:
    """True if two graphs compute the same terms, and so the same for all numbers."""
    one, other = (
        run_uninterpreted(each, Case.of(program).fresh_inputs())
        for each in (functional, reinplaced)
    )
    return not judge(Contract(), one, other, trial.trace).violations


def memory(module: fx.GraphModule, inputs: Sequence[torch.Tensor]) -> Allocations:
    """Run a graph on fakes of the inputs and see what it allocates."""
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    given = iter(fake_inputs(mode, inputs))
    values: dict[fx.Node, Any] = {}
    size: dict[
        int, int
    ] = {}  # bytes of each storage, by its identity; the values keep them all alive
    born: dict[int, int] = {}
    dies: dict[int, int] = {}
    fresh = 0
    nodes = list(module.graph.nodes)
    with mode, torch.no_grad():
        for index, node in enumerate(nodes):
            operands = [t for each in node.all_input_nodes for t in tensors_in(values[each])]
            taken = {_storage(each) for each in operands}
            dies |= dict.fromkeys(taken, index)
            if node.op == "output":
                continue
            values[node] = (
                next(given)
                if node.op == "placeholder"
                else run_node(node, values.__getitem__, mode)
            )
            results = list(tensors_in(values[node]))
            own = [
                each
                for each in results
                if _storage(each) not in taken and each.untyped_storage().nbytes()
            ]
            fresh += isinstance(node.target, OpOverload) and bool(own)
            for tensor in (*results, *operands):
                number = _storage(tensor)
                size[number] = max(size.get(number, 0), tensor.untyped_storage().nbytes())
                born.setdefault(number, index)
                dies.setdefault(number, index)
                if node.op in ("placeholder", "get_attr"):
                    born[number] = 0
    for node in nodes:
        if node.op in ("placeholder", "get_attr"):
            dies |= {_storage(each): len(nodes) for each in tensors_in(values[node])}
    changes = [0] * (len(nodes) + 2)
    for number, nbytes in size.items():
        changes[born[number]] += nbytes
        changes[dies[number] + 1] -= nbytes
    live, peak = 0, 0
    for change in changes:
        live += change
        peak = max(peak, live)
    return Allocations(fresh, peak)


def _programs() -> Iterator[Program]:
    for seed in count(FIRST_SEED):
        yield from sample(swarm(seed), seed, SHARD)


def _trial(program: Program) -> Trial | None:
    """The trial of torch's pass, if the pass is for this program, right about it, and runs to its end."""
    try:
        trial = run_trial(Case.of(program), TARGET)
    except (Undefined, Rejected):
        return None
    finished = trial.target is not None and trial.target.error is None
    return (
        trial
        if finished and trial.judgement.refused is None and not trial.judgement.violations
        else None
    )


def _storage(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _describe(
    program: Program,
    functional: fx.GraphModule,
    ours: fx.GraphModule,
    theirs: fx.GraphModule,
    comparison: Comparison,
) -> str:
    """All that one needs to see why the passes differ."""
    refused = [
        f"{each.node} ({each.op}): not {how.value}: {condition}: {reason}"
        for each in decisions(ours)
        if each.how is None
        for how, condition, reason in each.refused
    ]
    parts = [
        f"in-place ops, ours and torch's: {comparison.in_place} and {comparison.in_place_theirs}",
        f"peak bytes, ours and torch's: {comparison.ours.peak} and {comparison.theirs.peak}",
        source(program),
        *(
            f"{name}:{each.code}"
            for name, each in (("functional", functional), ("ours", ours), ("torch", theirs))
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
