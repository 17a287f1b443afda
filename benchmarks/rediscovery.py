"""What a blind search meets of the known bugs: the goal of what is drawn.

*Blind*: scenarios whose family names a known bug are not played, and no program of a known bug
runs. Everything else is as in a campaign, which compiles some shards in a variant. Each target has
equal processor time, in turns, shard by shard. That time includes drawing, and attributing
violations to bugs. A bug that was met often is patched in later shards, as in a campaign, so that
it hides no others. Programs run in a worker process, since some of them crash it.

A bug counts as met if patching it removes the violation, or if the violation has its mark. Marks
that are valid only for reduced programs are listed separately (*suspected* in campaigns, too).
"""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from aliasproof.campaigns.failure.failure import Failure
from aliasproof.campaigns.failure.signature import signature, symptom_class
from aliasproof.campaigns.run.executor import start_pool
from aliasproof.campaigns.run.worker_calls import cleaned_worker
from aliasproof.campaigns.store.plan import PROGRAMS_PER_SHARD, Shard, in_another_way
from aliasproof.corpus.bug_files import known_bugs
from aliasproof.corpus.known_bug import patched
from aliasproof.generators.features import Features, swarm
from aliasproof.generators.scenarios import SCENARIOS
from aliasproof.generators.scene import Counts
from aliasproof.generators.strategies import sample
from aliasproof.ir.errors import Rejected
from aliasproof.ir.program import Program
from aliasproof.ir.serialization import dumps
from aliasproof.judge.attribution import Symptom
from aliasproof.judge.examination import Examination, examine
from aliasproof.judge.groups import can_glue, examine_group
from aliasproof.judge.localization import first_wrong_pass
from aliasproof.judge.trial import Case, processor_seconds
from aliasproof.oracles.verdict import Violation
from aliasproof.processes.outcome import Death, Raised
from aliasproof.processes.pool import Pool, RemoteCall
from aliasproof.targets.names import FUZZED
from aliasproof.targets.registry import target as target_named
from benchmarks.tables import Table

UNKNOWN = "unknown: "  # prefix of the name of an unknown cause


@dataclass(frozen=True, slots=True)
class Batch:
    """`count` programs with these features, through one target.

    The known bugs in `patched` are patched while the programs run.
    """

    target: str
    features: Features
    seed: int
    count: int
    patched: tuple[str, ...] = ()

    def programs(self) -> list[Program]:
        """Draw the programs."""
        return list(sample(self.features, self.seed, self.count, Counts()))


@dataclass(slots=True)
class Yield:
    """The results of batches. `seconds` are processor time up to the violations.
    `all_seconds` also include drawing and attribution.

    `causes` counts violations by known bug. Other violations are counted by target and pass at
    fault, so several unknown causes can have one name. `unknown` has one program per such name, as
    JSON.
    """

    programs: int = 0
    violations: int = 0
    died: int = 0
    seconds: float = 0.0
    all_seconds: float = 0.0
    causes: dict[str, int] = field(default_factory=dict)
    unknown: dict[str, str] = field(default_factory=dict)

    def add(self, other: Yield) -> None:
        """Add the results of another batch."""
        self.programs += other.programs
        self.violations += other.violations
        self.died += other.died
        self.seconds += other.seconds
        self.all_seconds += other.all_seconds
        for cause, count in other.causes.items():
            self.causes[cause] = self.causes.get(cause, 0) + count
        self.unknown = other.unknown | self.unknown


@contextmanager
def worker(targets: list[str]) -> Iterator[Pool]:
    """A process that runs batches."""
    with tempfile.TemporaryDirectory() as folder:
        pool = start_pool(1, Path(folder), targets)
        with pool.at_work():
            yield pool


def run_in(pool: Pool, batch: Batch) -> Yield:
    """Run a batch in the worker. If the worker dies or hangs, the batch counts as died."""
    start = time.perf_counter()
    pool.submit(RemoteCall("", f"{__name__}:run_batch", (batch,)))
    _, outcome = pool.take()
    if isinstance(outcome, Raised):
        raise outcome.error
    if isinstance(outcome, Death):
        return Yield(died=1, all_seconds=time.perf_counter() - start)
    batch_yield: Yield = outcome.value
    return batch_yield


def run_batch(batch: Batch) -> Yield:
    """Draw the programs, examine them, and attribute their violations."""
    start = processor_seconds()
    with cleaned_worker():
        programs, target = batch.programs(), target_named(batch.target)
        before = processor_seconds()
        cases = [Case.of(program) for program in programs]
        with patched(known_bugs()[name] for name in batch.patched):
            if target.group > 1 and can_glue(target):
                examinations = examine_group(cases, target).examinations
            else:
                examinations = [examine(case, target) for case in cases]
        result = Yield(len(programs), seconds=processor_seconds() - before)
        for program, examination in zip(programs, examinations, strict=True):
            if examination.mistake is not None:
                raise examination.mistake
            if examination.failed and examination.symptom is not None:
                result.violations += 1
                cause = cause_of(program, examination, examination.symptom)
                result.causes[cause] = result.causes.get(cause, 0) + 1
                if cause.startswith(UNKNOWN):
                    result.unknown.setdefault(cause, dumps(program))
        result.all_seconds = processor_seconds() - start
        return result


def cause_of(program: Program, examination: Examination, symptom: Symptom) -> str:
    """The name of the known bug behind a violation, or a name for an unknown cause."""
    try:
        failure = Failure.of(symptom, program, 0, past_known=False)
    except Rejected:  # with the patch, the target at fault refuses the program
        return f"{UNKNOWN}{symptom.target} {symptom_class(symptom)}"
    known = failure.known or failure.suspected
    if known is not None:
        return known
    left = failure.symptom
    name = f"{UNKNOWN}{left.target} {symptom_class(left)}"
    if left.oracle == "errors":
        error = None if examination.trial is None else examination.trial.target.error
        return f"{name} {signature(left, program, error).cause}"
    violation = Violation(left.oracle, left.kind, "")
    target = target_named(left.target)
    wrong_part = first_wrong_pass(Case.of(program), target, violation, experiments=False)
    return name if wrong_part is None else f"{name} after {wrong_part.name}"


FIRST_SEED = 7000
OFTEN = 5  # hits after which a bug is patched


def written_for_bugs() -> frozenset[str]:
    """The scenarios whose family names a known bug, except those that only change inputs."""
    return frozenset(
        scenario.name
        for scenario in SCENARIOS
        if scenario.play is not None
        and set(re.split("[,;] *", scenario.family)) & set(known_bugs())
    )


def next_batch(target: str, seed: int, found: Yield) -> Batch:
    """The shard with that seed, without scenarios that were written for bugs.

    Bugs that were met often are patched.
    """
    often = tuple(
        name
        for name, hits in found.causes.items()
        if hits >= OFTEN and name in known_bugs() and known_bugs()[name].patch is not None
    )
    target = in_another_way(target, seed - FIRST_SEED, swarm(seed))
    features, left_out = Shard(seed, target).features(), written_for_bugs()
    kept = tuple(name for name in features.scenarios if name not in left_out)
    return Batch(target, replace(features, scenarios=kept), seed, PROGRAMS_PER_SHARD, patched=often)


@dataclass(frozen=True, slots=True)
class Rediscovery:
    """The bugs that were met on each target in `seconds` of processor time."""

    seconds: float
    found: Mapping[str, Yield]

    def tables(self) -> list[Table]:
        rows, met = [], set[str]()
        for target, found in self.found.items():
            known = [name for name in found.causes if name in known_bugs()]
            unknown = sum(name.startswith(UNKNOWN) for name in found.causes)
            counts = (found.programs, found.violations, found.died, len(known), unknown)
            rows.append((target, *map(str, counts)))
            met.update(known)
        # The known bugs that show without a variant.
        goal = {name for name, bug in known_bugs().items() if set(bug.targets) & self.found.keys()}
        notes = [
            f"{self.seconds:.0f} seconds of processor time for each row.",
            f"Left out: the scenarios {', '.join(sorted(written_for_bugs()))}.",
            f"Met: {len(met & goal)} of the {len(goal)} bugs that show on these targets.",
            f"Met beside these: {', '.join(sorted(met - goal)) or 'none'}.",
            f"Not met: {', '.join(sorted(goal - met)) or 'none'}.",
        ]
        columns = ("target", "programs", "violate", "died", "known bugs", "unknown")
        return [Table("rediscovery: known bugs that a blind search meets", columns, rows, notes)]


def measure(seconds: float, targets: Sequence[str] = ()) -> Rediscovery:
    """Search each target for that many seconds of processor time."""
    names = [it for it in targets or FUZZED if target_named(it).unavailable() is None]
    found = {name: Yield() for name in names}
    seed = FIRST_SEED
    with worker(names) as pool:
        while running := [name for name in names if found[name].all_seconds < seconds]:
            for name in running:
                found[name].add(run_in(pool, next_batch(name, seed, found[name])))
            seed += 1
    return Rediscovery(seconds, found)
