"""The kill matrix: for each fault and each oracle, how many programs until the first kill.

A fault is *killed* by an oracle if that oracle reports a violation of the contract of the target
`reference`, or by the judge of Python programs. Programs are drawn by seed, and each fault is tried
on the same programs in the same order. So a row is a pure function of the name of the fault, the
seed and the limits. Programs that are undefined in eager do not count.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import multiprocessing
import re
import statistics
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeAlias

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _pytree as pytree

from aliasproof.faults.catalogue import EVERY_FAULT, fault_named
from aliasproof.faults.python_faults import PythonFault
from aliasproof.generators.features import swarm
from aliasproof.generators.python_drawing import sample_python
from aliasproof.generators.strategies import sample
from aliasproof.ir.errors import InternalError, Rejected
from aliasproof.ir.python_program import PythonProgram
from aliasproof.judge.examination import examine
from aliasproof.judge.python_case import PythonCase, compare
from aliasproof.judge.trial import SEEDS_APART, Case, EagerRun, run_eager, start_worker
from aliasproof.oracles.judge import EVERY_ORACLE
from aliasproof.oracles.verdict import Report, Verdict
from aliasproof.targets.target import Target

PROGRAMS_PER_SHARD = 25  # programs of one seed, that is of the same features
MOST_PROGRAMS = 5_000  # before a fault without a kill is given up
FURTHER = 200  # after the first kill, for the other oracles
# Targets that rewrite arithmetic do not promise what these oracles check.
WAIVED = ("equivalence",)


@dataclass(frozen=True, slots=True)
class FaultRow:
    """What killed a fault: for each oracle that did, the number of the first such program, from 1.

    `tried` counts the programs that the fault was tried on, `refused` those that the wrong pass
    refused.
    """

    fault: str
    tried: int
    refused: int
    first: dict[str, int] = field(default_factory=dict)

    @property
    def killed(self) -> int | None:
        """The number of programs until the first kill by any oracle; None if the fault survives."""
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
        """The median of `programs`; None if no fault was killed."""
        return statistics.median(self.programs) if self.programs else None

    def only_killer_of(self, oracle: str, *, without: Collection[str] = ()) -> list[str]:
        """The faults that only this oracle killed, if the oracles `without` are left out."""
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
                    "summary": EVERY_FAULT[row.fault].summary,
                    "source": EVERY_FAULT[row.fault].source,
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
            "only killer of": {oracle: self.only_killer_of(oracle) for oracle in self.oracles},
            "only killer of without waived": {
                oracle: self.only_killer_of(oracle, without=WAIVED)
                for oracle in self.oracles
                if oracle not in WAIVED
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
    rules: int = 0,
) -> Matrix:
    """Try each fault on programs until it is killed, and then on more for the other oracles.

    A fault without a kill is given up after `most_programs`. After the first kill it is tried on
    `further` programs. `listener` is called with each row, in order. The matrix does not depend on
    `workers`. `rules` of a hundred programs are derived from rules of Inductor: a planted fault is
    in a pass of ours, which has none of these, but their situations are all of aliasing. Raises
    `UserError` for an unknown name, and `InternalError` if the code of a fault fails.
    """
    faults = [fault_named(name) for name in names]
    chosen = [fault.name for fault in faults]
    make_row = functools.partial(
        row_of, seed=seed, most_programs=most_programs, further=further, rules=rules
    )
    rows = []
    made: Iterator[FaultRow] = map(make_row, chosen)
    with contextlib.ExitStack() as stack:
        if workers != 1:
            context = multiprocessing.get_context("forkserver")
            context.set_forkserver_preload(["aliasproof.faults.matrix"])
            pool = ProcessPoolExecutor(workers, mp_context=context, initializer=start_worker)
            made = stack.enter_context(pool).map(make_row, chosen)
        for row in made:
            listener(row)
            rows.append(row)
    return Matrix(seed, EVERY_ORACLE, tuple(rows))


def row_of(
    name: str,
    seed: int,
    most_programs: int = MOST_PROGRAMS,
    further: int = FURTHER,
    rules: int = 0,
) -> FaultRow:
    """One row of the matrix."""
    fault = fault_named(name)
    if not isinstance(fault, PythonFault):
        return row_of_target(fault.target, seed, most_programs, further, fault.right, rules)
    first: dict[str, int] = {}
    number = 0
    runs = filter(None, (_python_run(seed, index) for index in itertools.count()))
    for number, (program, eager) in enumerate(itertools.islice(runs, most_programs), 1):
        for violation in compare(program, fault.make, eager):
            if re.search(fault.shows, violation.kind):
                first.setdefault(violation.oracle, number)
        if first and number >= min(first.values()) + further:
            break
    return FaultRow(fault.name, number, 0, first)


def row_of_target(
    target: Target,
    seed: int,
    most_programs: int,
    further: int,
    right: Target | None = None,
    rules: int = 0,
) -> FaultRow:
    """A row for any target. Programs that become the same graphs as by `right` are not judged."""
    first: dict[str, int] = {}
    number = refused = 0
    for number, prepared in enumerate(itertools.islice(_cases(seed, rules), most_programs), 1):
        # Most programs do not show the fault, and to compare graphs costs less than to judge them.
        if right is None or _differ(prepared, target, right):
            reports = _reports(prepared, target)
            refused += reports["errors"].verdict is Verdict.DOCUMENTED
            for oracle, report in reports.items():
                if report.verdict is Verdict.VIOLATED:
                    first.setdefault(oracle, number)
        if first and number >= min(first.values()) + further:
            break
    return FaultRow(target.name, number, refused, first)


@functools.lru_cache(maxsize=1_000)  # since the next fault is tried on the same programs
def _python_run(seed: int, index: int) -> tuple[PythonProgram, EagerRun] | None:
    """A Python program in eager; None if it is not defined there."""
    (program,) = sample_python(seed, [index])
    try:
        return program, run_eager(PythonCase(program))
    except Rejected:
        return None


def _reports(prepared: PreparedCase, target: Target) -> Mapping[str, Report]:
    """The verdicts on a fault. Raises `InternalError` if its code raises, and not its graph."""
    examination = examine(
        prepared.case, target, eager=prepared.eager, every_oracle=True, attribute=False
    )
    if examination.mistake is not None:
        raise examination.mistake
    error = examination.trial.target.error if examination.trial else None
    mistake = None if error is None else own_mistake(target.name, error)
    if mistake is not None:
        raise InternalError(
            f"the code of fault '{target.name}' raises {mistake}; this is not a kill, since an"
            " oracle must see what the fault does: correct the function, or remove the fault"
        ) from error
    return examination.reports


# A torch kernel that refuses what a wrong graph asks of it is a legitimate kill. A fault that dies
# of its own `KeyError` shows nothing about the oracles: any program that reaches it would kill it.
_FAULTS, _TORCH = Path(__file__).parent, Path(torch.__file__).parent


def own_mistake(fault: str, error: BaseException) -> str | None:
    """What the fault of that name raised, and where, if that is its own mistake; else None.

    It is if the exception is raised in a function of `aliasproof/faults/`, or in torch when such a
    function calls it. A `TypeError` of the call of the fault with other arguments is one too.
    """
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return None
    text = f"{type(error).__name__}: {error}"
    if isinstance(error, TypeError) and f"{fault.replace(' ', '_')}() " in str(error):
        return f"{text} (called in {_place(frames[-1])})"
    # Torch raises for its caller. The caller of a kernel is the generated code of the graph, or the
    # reference pass that runs it on fakes: then the graph is wrong, and the kill is legitimate.
    callers = [frame for frame in frames if _TORCH not in Path(frame.filename).parents]
    if callers and _FAULTS in Path(callers[-1].filename).parents:
        return f"{text} (in {_place(callers[-1])})"
    return None


def _place(frame: traceback.FrameSummary) -> str:
    path = Path(frame.filename)
    return f"{frame.name}, {path.parent.name}/{path.name}:{frame.lineno}"


# --- programs -------------------------------------------------------------------------------------


@dataclass(slots=True)
class PreparedCase:
    """A program that is defined in eager, its eager run, and a digest of its graphs by target."""

    case: Case
    eager: EagerRun
    graphs: dict[str, bytes] = field(default_factory=dict)


def _cases(seed: int, rules: int) -> Iterator[PreparedCase]:
    for number in itertools.count():
        yield from _shard(seed * SEEDS_APART + number, rules)


@functools.lru_cache(maxsize=120)  # since the next fault is tried on the same programs
def _shard(seed: int, rules: int) -> list[PreparedCase]:
    cases = []
    features = replace(swarm(seed), rules=rules)
    for program in sample(features, seed, PROGRAMS_PER_SHARD):
        case = Case.of(program)
        try:
            eager = run_eager(case)
        except Rejected:
            continue
        if eager.observation.error is None:
            cases.append(PreparedCase(case, eager))
    return cases


def _differ(prepared: PreparedCase, target: Target, right: Target) -> bool:
    if right.name not in prepared.graphs:
        prepared.graphs[right.name] = _graphs(prepared, right)
    return _graphs(prepared, target) != prepared.graphs[right.name]


def _graphs(prepared: PreparedCase, target: Target) -> bytes:
    """A digest of the stages that a program becomes: their code and metadata.

    Empty if the build raises.
    """
    FakeTensorMode.cache_clear()  # before each build, as a trial does
    try:
        stages = target.build(prepared.case.function, prepared.case.fresh_inputs()).stages
    except Exception:  # noqa: BLE001 - the trial builds again, and judges what is raised
        return b""
    contents = [(stage.graph.code, _metadata(stage.graph.graph)) for stage in stages]
    return hashlib.blake2b(repr(contents).encode()).digest()


def _metadata(graph: fx.Graph) -> list[object]:
    """Dtype, layout and storage of the tensors in the metadata of each node.

    Storages are numbered in the order of the nodes, so equal graphs have equal numbers.
    """
    storages: dict[int, int] = {}
    entries: list[object] = []
    for node in graph.nodes:
        leaves = pytree.tree_leaves(node.meta.get("val"))
        for leaf in leaves:
            if isinstance(leaf, torch.Tensor):
                number = storages.setdefault(leaf.untyped_storage()._cdata, len(storages))
                entries.append(
                    (leaf.dtype, leaf.shape, leaf.stride(), leaf.storage_offset(), number)
                )
        entries.append(len(leaves))
    return entries
