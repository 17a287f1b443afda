"""The kill matrix: for each fault and each oracle, how many programs until the first kill.

A fault is *killed* by an oracle if that oracle finds the contract of the reference violated: all
that eager does. Programs are drawn by seed, and each fault is tried on the same ones in the same
order, so that a row is a pure function of the name of the fault, the seed, and the limits. Programs
that eager leaves undefined do not count.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import multiprocessing
import statistics
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from typing import TypeAlias

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _pytree as pytree

from faults.catalogue import FAULTS, fault_named
from generators.features import swarm
from generators.strategies import sample
from oracles.judge import ON_GRAPHS, ON_RESULTS, excluded
from oracles.observation import Observation
from oracles.verdict import Report, Verdict
from programs.errors import Rejected
from programs.trace import Trace
from targets.reference import REFERENCE
from targets.target import Target
from trials.inspection import look_inside
from trials.trial import Case, Spent, observed_eager, run_trial
from trials.worker import SEEDS_APART, start_worker

PROGRAMS_PER_SHARD = 25  # programs of one seed, that is of the same features
MOST_PROGRAMS = 5_000  # until the first kill
FURTHER = 200  # after it, for the other oracles
ALL_ORACLES = (*ON_RESULTS, *ON_GRAPHS)
WAIVED = ("equivalence",)  # oracles of a promise that targets which rewrite arithmetic do not make


@dataclass(frozen=True, slots=True)
class FaultRow:
    """How a fault fared: by each oracle that killed it, the number of the first program that it was killed by, from 1.

    `tried` are all programs that it was tried on; `refused` those that the wrong pass refused.
    """

    fault: str
    tried: int
    refused: int
    first: dict[str, int] = field(default_factory=dict)

    @property
    def killed(self) -> int | None:
        """Programs until the first kill by any oracle; None if the fault survives."""
        return min(self.first.values(), default=None)


@dataclass(frozen=True, slots=True)
class Matrix:
    """The rows in the order of the catalogue."""

    seed: int
    oracles: tuple[str, ...]
    rows: tuple[FaultRow, ...]

    @property
    def survivors(self) -> list[str]:
        """The faults that no oracle killed."""
        return [row.fault for row in self.rows if row.killed is None]

    @property
    def programs(self) -> list[int]:
        """Programs until the first kill, of the faults that were killed."""
        return [row.killed for row in self.rows if row.killed is not None]

    @property
    def median(self) -> float | None:
        """The median of these; None without any."""
        return statistics.median(self.programs) if self.programs else None

    def only_killer_of(self, oracle: str, *, without: Collection[str] = ()) -> list[str]:
        """The faults that this oracle killed, and no other but those left out."""
        return [row.fault for row in self.rows if row.first.keys() - set(without) == {oracle}]

    def to_json(self) -> dict[str, object]:
        """The matrix as JSON values."""
        return {
            "version": 1,
            "torch": torch.__version__,
            "seed": self.seed,
            "faults": [
                {
                    "fault": row.fault,
                    "summary": FAULTS[row.fault].summary,
                    "source": FAULTS[row.fault].source,
                    "programs until killed": row.killed,
                    "by oracle": row.first,
                    "programs tried": row.tried,
                    "programs refused": row.refused,
                }
                for row in self.rows
            ],
            "killed": len(self.programs),
            "median": self.median,
            "most": max(self.programs, default=None),
            "survivors": self.survivors,
            "only killer of": {each: self.only_killer_of(each) for each in self.oracles},
            "only killer of without waived": {
                each: self.only_killer_of(each, without=WAIVED)
                for each in self.oracles
                if each not in WAIVED
            },
        }


Listener: TypeAlias = Callable[[FaultRow], None]


def kill_matrix(
    names: Sequence[str],
    seed: int = 0,
    most_programs: int = MOST_PROGRAMS,
    further: int = FURTHER,
    workers: int = 1,
    listener: Listener = lambda row: None,
) -> Matrix:
    """Try each fault until it is killed, at most on `most_programs`, and then on `further` ones for the other oracles.

    `listener` is told each row, in order. The matrix does not depend on `workers`. Raises
    `UserError` for an unknown name.
    """
    chosen = [fault_named(name).name for name in names]
    row = functools.partial(row_of, seed=seed, most_programs=most_programs, further=further)
    rows = []
    for each in _in_parallel(row, chosen, workers):
        listener(each)
        rows.append(each)
    return Matrix(seed, ALL_ORACLES, tuple(rows))


def _in_parallel(
    row: Callable[[str], FaultRow], names: Sequence[str], workers: int
) -> Iterator[FaultRow]:
    if workers == 1:
        yield from map(row, names)
        return
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["faults.matrix"])
    with ProcessPoolExecutor(workers, mp_context=context, initializer=start_worker) as pool:
        yield from pool.map(row, names)


def row_of(
    name: str, seed: int, most_programs: int = MOST_PROGRAMS, further: int = FURTHER
) -> FaultRow:
    """One row of the matrix."""
    return row_of_target(fault_named(name).target, seed, most_programs, further, right=REFERENCE)


def row_of_target(
    target: Target, seed: int, most_programs: int, further: int, right: Target | None = None
) -> FaultRow:
    """The same of any target.

    Where it makes the same graphs as the right one, there is nothing to judge.
    """
    first: dict[str, int] = {}
    last, number, refused = most_programs, 0, 0
    for number, case in enumerate(itertools.islice(_cases(seed), most_programs), 1):
        if right is None or _differ(case, target, right):
            reports = _reports(case, target)
            refused += reports["errors"].verdict is Verdict.NOT_APPLICABLE
            for oracle, report in reports.items():
                if report.verdict is Verdict.VIOLATED:
                    first.setdefault(oracle, number)
        if first:
            last = min(last, min(first.values()) + further)
        if number >= last:
            break
    return FaultRow(target.name, number, refused, first)


def _reports(case: PreparedCase, target: Target) -> Mapping[str, Report]:
    try:
        trial = run_trial(case.subject, target, eager=case.eager)
        return {**trial.judgement.reports, **look_inside(case.subject, target, trial).reports}
    except Rejected as reason:
        return excluded(str(reason), ALL_ORACLES).reports


# --- programs -------------------------------------------------------------------------------------


@dataclass(slots=True)
class PreparedCase:
    """A program that eager gives one meaning, with what eager does, and by target the graphs that it becomes."""

    subject: Case
    eager: tuple[Observation, Trace]
    graphs: dict[str, bytes] = field(default_factory=dict)


def _cases(seed: int) -> Iterator[PreparedCase]:
    for number in itertools.count():
        yield from _shard(seed * SEEDS_APART + number)


@functools.lru_cache(maxsize=120)  # the next fault is tried on the same programs
def _shard(seed: int) -> list[PreparedCase]:
    found = []
    for program in sample(swarm(seed), seed, PROGRAMS_PER_SHARD):
        subject = Case.of(program)
        try:
            eager = observed_eager(subject, Spent())
        except Rejected:
            continue
        if eager[0].error is None:
            found.append(PreparedCase(subject, eager))
    return found


def _differ(case: PreparedCase, target: Target, right: Target) -> bool:
    if right.name not in case.graphs:
        case.graphs[right.name] = _graphs(case, right)
    return _graphs(case, target) != case.graphs[right.name]


def _graphs(case: PreparedCase, target: Target) -> bytes:
    """A digest of the stages that a program becomes: their code and metadata.

    Empty if the build raises.
    """
    FakeTensorMode.cache_clear()  # as before each trial
    try:
        stages = target.build(case.subject.function, case.subject.fresh_inputs()).stages
    except Exception:  # noqa: BLE001 - the trial raises it again, and judges it
        return b""
    told = [(stage.graph.code, _metadata(stage.graph.graph)) for stage in stages]
    return hashlib.blake2b(repr(told).encode()).digest()


def _metadata(graph: fx.Graph) -> list[object]:
    """Size, strides, offset and storage (numbered as met) of the tensors in each node's metadata."""
    storages: dict[int, int] = {}
    found: list[object] = []
    for node in graph.nodes:
        leaves = pytree.tree_leaves(node.meta.get("val"))
        for each in leaves:
            if isinstance(each, torch.Tensor):
                number = storages.setdefault(each.untyped_storage()._cdata, len(storages))
                found.append((each.dtype, each.shape, each.stride(), each.storage_offset(), number))
        found.append(len(leaves))
    return found
