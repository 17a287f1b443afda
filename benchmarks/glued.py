"""What it costs to check programs alone, and glued in groups; and whether both find the same.

Each target gets the same shards, as in a campaign, for each size of groups. The sizes take turns,
shard by shard and each time in another order, so that other load on the machine slows all of them
down alike. Compare the figures of one run with each other, not with those of another run.

How to read a row:

- *group* is how many programs are compiled as one. The programs of a shard are split evenly.
- *programs/s* and *CPU ms* are processor time per drawn program, of the compilers that were called
  too, without the question whether a violation is a known bug. So they hold for a free core.
- *× alone* is how many times as many programs that is as with groups of one.
- *harness* is the share of the time that is not the target's: drawing, eager, the oracles.
- *failures* are the violations found. *missed* are those that groups of one find and these groups
  do not, *further* the other way round: the same program with another symptom is one of each.
- *in company* are programs that differ from eager in a group, and not alone.
"""

from __future__ import annotations

import os
import resource
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from unittest import mock

from aliasproof.campaigns.run.pool import CACHE
from aliasproof.campaigns.run.shard import Shard, ShardResult, run_shard
from aliasproof.programs.program import Program
from aliasproof.targets.one_library import forget_compiled
from aliasproof.targets.registry import target as target_named
from aliasproof.trials.attribution import Symptom
from aliasproof.trials.trial import Spent
from benchmarks.tables import Table, percent

FIRST_SEED = 1000  # one seed per shard
WARM_UP_SEED = 999
SIZES = (1, 8, 16, 25)
TARGETS = ("aot", "inductor-fx", "inductor")


@dataclass(slots=True)
class GroupAccount:
    """Counts and times of one target with groups of one size. Times are in seconds."""

    target: str
    size: int
    programs: int = 0
    cpu: float = 0.0
    failures: int = 0
    missed: int = 0
    further: int = 0
    in_company: int = 0
    spent: Spent = field(default_factory=Spent)

    @property
    def cpu_ms(self) -> float:
        """Milliseconds of processor time per program."""
        return 1000 * self.cpu / self.programs


@dataclass(frozen=True, slots=True)
class GroupFigures:
    """The accounts of all targets and sizes, over equal shards."""

    shards: int
    programs: int
    accounts: Sequence[GroupAccount]

    def tables(self) -> list[Table]:
        alone = {each.target: each.cpu_ms for each in self.accounts if each.size == 1}
        rows = [
            (
                account.target,
                str(account.size),
                f"{1000 / account.cpu_ms:.1f}",
                f"{account.cpu_ms:.1f}",
                f"{alone[account.target] / account.cpu_ms:.1f}",
                percent(account.spent.harness_share),
                *map(str, (account.failures, account.missed, account.further)),
                str(account.in_company),
            )
            for account in self.accounts
        ]
        columns = ("target", "group", "programs/s", "CPU ms", "× alone", "harness")
        found = ("failures", "missed", "further", "in company")
        note = f"{self.shards} shards of {self.programs} programs, the same for each row;"
        note += " one process, one thread."
        return [Table("glued programs", (*columns, *found), rows, [note])]


def measure(
    targets: Sequence[str] = TARGETS,
    sizes: Sequence[int] = SIZES,
    shards: int = 8,
    programs: int = 25,
) -> GroupFigures:
    """Run `shards` shards of each target with each size of groups, after one that is not counted.

    Targets that cannot run here are left out. The first of the `sizes` must be 1.
    """
    with tempfile.TemporaryDirectory() as cache, mock.patch.dict(os.environ, {CACHE: cache}):
        return _measured(targets, sizes, shards, programs)


def _measured(
    targets: Sequence[str], sizes: Sequence[int], shards: int, programs: int
) -> GroupFigures:
    runs = [name for name in targets if target_named(name).unavailable() is None]
    accounts = [GroupAccount(name, size) for name in runs for size in sizes]
    for name in runs:
        run_shard(Shard(WARM_UP_SEED, name, min(programs, 5)))
    for number in range(shards):
        found: dict[tuple[str, int], set[tuple[Symptom, Program]]] = {}
        for turn in range(len(accounts)):
            # Another row begins in each shard.
            account = accounts[(number + turn) % len(accounts)]
            shard = Shard(FIRST_SEED + number, account.target, programs, group=account.size)
            result = _counted(shard, account)
            found[account.target, account.size] = {
                (each.symptom, each.program) for each in result.failures
            }
        for account in accounts:
            alone, glued = found[account.target, 1], found[account.target, account.size]
            account.missed += len(alone - glued)
            account.further += len(glued - alone)
    return GroupFigures(shards, programs, accounts)


def _counted(shard: Shard, account: GroupAccount) -> ShardResult:
    """Run a shard, and add its time and counts to the account."""
    # What another row compiled would cost this one nothing.
    forget_compiled()
    shutil.rmtree(os.environ[CACHE], ignore_errors=True)
    before = _processor_time()
    result = run_shard(shard)
    account.cpu += _processor_time() - before - result.recognizing
    account.programs += shard.count
    account.failures += len(result.failures)
    account.in_company += result.statistics.companions
    account.spent.add(result.statistics.spent)
    return result


def _processor_time() -> float:
    """Seconds of processor time of this process and of those that it waited for."""
    usages = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)
