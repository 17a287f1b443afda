"""How many programs per second one process checks, and where the time goes.

Each target gets the same programs: shards of swarm features, as in a campaign. They are drawn again
for each target, since drawing is part of the time. The targets take turns, shard by shard and each
time in another order, so that other load on the machine slows all of them down alike. Compare the
figures of one run with each other, not with those of another run.

How to read a row:

- *programs/s* and *ms* are wall time per drawn program, including those that were discarded or are
  not for the target. *CPU ms* is the time on a free core. *× least* is CPU time as a multiple of
  the cheapest target's.
- The shares of wall time sum to 1. *generation* draws the program, which already runs it in eager
  under watch; *eager* is the observed run; *target* its build and run; *oracles* the judgement of
  that run; *graphs* the judgement of its stage graphs; *other* all else: making the target's
  inputs, counting, freeing memory.
- *harness* is everything except *target*. Its share falls as a target gets slower. So it shows what
  the harness costs on that target, not whether the harness is fast; the milliseconds of *identity*
  show that.
- *discarded*: the program is undefined in eager. *not for it*: the target's contract does not cover
  the program. *violate*: an oracle found a broken promise (its time includes the confirmation by
  z3).
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields

from aliasproof.eager.definedness import Undefined
from aliasproof.generators.features import swarm
from aliasproof.generators.scene import Counts
from aliasproof.generators.strategies import sample
from aliasproof.ir.program import Program
from aliasproof.judge.examination import examine
from aliasproof.judge.trial import Case, Spent
from aliasproof.targets.registry import TARGETS
from aliasproof.targets.target import Target
from benchmarks.tables import Table, percent

FIRST_SEED = 1000  # one seed per shard
WARM_UP_SEED = 999


@dataclass(slots=True)
class TimeAccount:
    """Counts and times of all programs of one target. Times are in seconds."""

    target: str
    programs: int = 0
    discarded: int = 0
    not_applicable: int = 0
    violating: int = 0
    wall: float = 0.0
    cpu: float = 0.0
    spent: Spent = field(default_factory=Spent)
    instructions: Counts = field(default_factory=Counts)

    @property
    def shares(self) -> dict[str, float]:
        """The part of wall time that each part of the work took; they sum to 1."""
        parts = {part.name: getattr(self.spent, part.name) / self.wall for part in fields(Spent)}
        return parts | {"other": 1 - sum(parts.values())}

    @property
    def harness_share(self) -> float:
        """The part of wall time that is not the target's."""
        return 1 - self.shares["target"]

    @property
    def oracle_ratio(self) -> float:
        """The time of all oracles as a multiple of the target's own."""
        return (self.spent.oracles + self.spent.graphs) / self.spent.target

    @property
    def ms(self) -> float:
        """Milliseconds of wall time per program."""
        return 1000 * self.wall / self.programs

    @property
    def cpu_ms(self) -> float:
        """Milliseconds of CPU time per program."""
        return 1000 * self.cpu / self.programs


@dataclass(frozen=True, slots=True)
class Throughput:
    """The accounts of all targets, over equal programs."""

    shards: int
    programs: int
    accounts: Sequence[TimeAccount]

    def tables(self) -> list[Table]:
        return [self._speed(), self._shares()]

    def _speed(self) -> Table:
        least = min(account.cpu_ms for account in self.accounts)
        rows = [
            (
                account.target,
                f"{1000 / account.ms:.1f}",
                f"{account.ms:.2f}",
                f"{account.cpu_ms:.2f}",
                f"{account.cpu_ms / least:.1f}",
                *(
                    percent(part / account.programs)
                    for part in (account.discarded, account.not_applicable, account.violating)
                ),
            )
            for account in self.accounts
        ]
        columns = (
            "target",
            "programs/s",
            "ms",
            "CPU ms",
            "× least",
            "discarded",
            "not for it",
            "violate",
        )
        note = f"{self.shards} shards of {self.programs} programs, the same for each target;"
        note += " one process, one thread."
        return Table("throughput: programs per second", columns, rows, [note])

    def _shares(self) -> Table:
        rows = [
            (account.target, *map(percent, account.shares.values()), percent(account.harness_share))
            for account in self.accounts
        ]
        drawn = self.accounts[0].instructions
        tried = drawn.drawn
        note = (
            f"{tried} instructions were drawn: {percent(drawn.kept / tried)} kept, eager raised on"
        )
        note += f" {percent(drawn.raised / tried)}, {percent(drawn.undefined / tried)} undefined in"
        note += " eager."
        asked = ", ".join(
            f"{account.target} {percent(account.oracle_ratio)}" for account in self.accounts
        )
        notes = [note, f"All oracles together, as a share of the target's own time: {asked}."]
        columns = ("target", *self.accounts[0].shares, "harness")
        return Table("throughput: where the time goes", columns, rows, notes)


def available() -> tuple[Target, ...]:
    """The targets that can run on this machine."""
    return tuple(target for target in TARGETS.values() if target.unavailable() is None)


def measure(
    targets: Sequence[Target] = (),
    shards: int = 8,
    programs: int = 50,
    warm_up: int = 10,
) -> Throughput:
    """Check `shards` times `programs` programs on each target, after `warm_up` uncounted ones.

    Without targets, on all that can run on this machine.
    """
    targets = targets or available()
    for target in targets:
        check_shard(target, WARM_UP_SEED, warm_up, TimeAccount(target.name))
    accounts = {target.name: TimeAccount(target.name) for target in targets}
    for shard in range(shards):
        for turn in range(len(targets)):
            # Another target begins in each shard.
            target = targets[(shard + turn) % len(targets)]
            check_shard(target, FIRST_SEED + shard, programs, accounts[target.name])
    return Throughput(shards, programs, tuple(accounts.values()))


def check_shard(target: Target, seed: int, programs: int, account: TimeAccount) -> None:
    """Draw and check the programs of one shard, and add the results to the account."""
    gc.collect()  # the garbage of the target before must not be freed in this one's time
    start, cpu_start = time.perf_counter(), time.process_time()
    shard = sample(swarm(seed), seed, programs, account.instructions)
    for _ in range(programs):
        _check_next(shard, target, account)
    account.wall += time.perf_counter() - start
    account.cpu += time.process_time() - cpu_start
    account.programs += programs


def _check_next(shard: Iterator[Program], target: Target, account: TimeAccount) -> None:
    start = time.perf_counter()
    program = next(shard)
    account.spent.generation += time.perf_counter() - start
    examination = examine(Case.of(program), target, attribute=False)
    account.spent.add(examination.spent)
    if isinstance(examination.rejected, Undefined):
        account.discarded += 1
    else:
        account.not_applicable += examination.rejected is not None
        account.violating += examination.failed
