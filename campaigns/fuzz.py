"""A fuzz campaign: shards run in worker processes, findings are confirmed in fresh ones and kept.

Results are taken in the order of the shards, whichever ends first, so a campaign with the same seed
and number of programs finds the same. A worker that dies or hangs costs one program: its shard runs
again without it.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import multiprocessing
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from multiprocessing import forkserver
from pathlib import Path
from typing import Any, TypeAlias

import torch
from pebble import ProcessExpired, ProcessFuture, ProcessPool

from campaigns.finding import Finding, write_finding, write_text
from campaigns.reproducer import Confirmation, confirm, render
from campaigns.shard import (
    PROGRAMS_PER_SHARD,
    Blame,
    Failure,
    Reduced,
    Shard,
    ShardResult,
    Suspicions,
    Tally,
    reduce_failure,
    run_shard,
)
from campaigns.signature import signature
from oracles.verdict import Violation
from programs.errors import InternalError, UserError
from programs.program import Program
from programs.serialization import dumps
from targets.registry import TARGETS
from trials.attribution import Symptom
from trials.worker import SEEDS_APART, start_worker

TASK_TIMEOUT = (
    600.0  # seconds; a shard takes 1 to 5 and a reduction 1 to 20, so one that takes longer hangs
)
GRACE = 20.0  # seconds that shards and reductions in work may take after the time is up


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run: `programs` through each target, or for about `seconds`, whichever ends first."""

    targets: tuple[str, ...]
    seed: int = 0
    programs: int | None = None
    seconds: float | None = None
    workers: int = field(default_factory=lambda: max(os.cpu_count() or 1, 1))

    def shards(self) -> Iterator[Shard]:
        """The shards in order, the targets taking turns."""
        for number in itertools.count():
            left = (
                PROGRAMS_PER_SHARD
                if self.programs is None
                else self.programs - number * PROGRAMS_PER_SHARD
            )
            if left <= 0:
                return
            for target in self.targets:
                yield Shard(self.seed * SEEDS_APART + number, target, min(left, PROGRAMS_PER_SHARD))


@dataclass(slots=True)
class Campaign:
    """The state of a campaign, as listeners see it: tallies by target, findings by identifier.

    `suspicions` are programs that are right in numbers but not when looked into (terms, stages);
    they are no findings. `unconfirmed` are reduced violations that a fresh process did not show
    again, with the reason; they are no findings. `reducing` and `confirming` say how many are in
    work. `repeats` are violations left unreduced, since enough of their symptom were reduced
    before; `lost` are violations that did not show again on a second look. `mistakes` are errors of
    aliasproof itself, each of which cost one shard or reduction.
    """

    plan: Plan
    folder: Path
    tallies: dict[str, Tally] = field(default_factory=dict)
    findings: dict[str, Finding] = field(default_factory=dict)
    unconfirmed: dict[str, str] = field(default_factory=dict)
    suspicions: Suspicions = field(default_factory=Suspicions)
    reducing: int = 0
    confirming: int = 0
    repeats: int = 0
    lost: int = 0
    mistakes: list[str] = field(default_factory=list)
    deaths: int = 0
    elapsed: float = 0.0
    interrupted: bool = False

    @property
    def total(self) -> Tally:
        """All tallies in one."""
        total = Tally()
        for each in self.tallies.values():
            total.add(each)
        return total

    def path(self, finding: Finding) -> Path:
        """The folder of a finding."""
        return self.folder / "findings" / finding.identifier

    def to_json(self) -> dict[str, object]:
        """The outcome as JSON values."""
        return {
            "version": 1,
            "torch": torch.__version__,
            "targets": list(self.plan.targets),
            "seed": self.plan.seed,
            "seconds": round(self.elapsed, 1),
            "interrupted": self.interrupted,
            "worker deaths": self.deaths,
            "programs": {name: _tally_json(each) for name, each in self.tallies.items()},
            "findings": [
                each.to_json() | {"folder": str(self.path(each))} for each in in_order(self)
            ],
            "unconfirmed": dict(sorted(self.unconfirmed.items())),
            "suspicions": [
                {
                    "target": each.target,
                    "oracle": each.oracle,
                    "kind": each.kind,
                    "count": count,
                    "folder": str(folder),
                }
                for folder, each, count, _ in suspicions(self)
            ],
            "not reduced again": self.repeats,
            "not shown again": self.lost,
            "mistakes of aliasproof": self.mistakes,
        }


def _order(finding: Finding) -> tuple[object, ...]:
    """Silent ones first, then by target, oracle and size."""
    return (
        not finding.silent,
        finding.target,
        finding.oracle,
        len(finding.program),
        finding.identifier,
    )


def in_order(campaign: Campaign) -> list[Finding]:
    """The findings as they are best read: silent ones first."""
    return sorted(campaign.findings.values(), key=_order)


def suspicions(campaign: Campaign) -> list[tuple[Path, Symptom, int, Program]]:
    """The folder, symptom, count and program of each suspicion, the most frequent first."""
    found = sorted(campaign.suspicions.found.items(), key=lambda each: (-each[1][0], str(each[0])))
    return [
        (
            campaign.folder / "suspicions" / f"{symptom.target}-{symptom.oracle}-{number}",
            symptom,
            count,
            program,
        )
        for number, (symptom, (count, program)) in enumerate(found, 1)
    ]


Listener: TypeAlias = Callable[[Campaign], None]


def fuzz(plan: Plan, folder: Path, listener: Listener = lambda campaign: None) -> Campaign:
    """Run a campaign and keep its findings under `folder`, which must be new or empty.

    `listener` is called several times a second. Ctrl-C ends the campaign early; what was found by
    then is confirmed and kept (a second Ctrl-C gives that up). Raises `UserError` if the folder
    cannot be used.
    """
    _prepare(folder)
    runner = _Runner(Campaign(plan, folder, {name: Tally() for name in plan.targets}), listener)
    return runner.run()


def _prepare(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise UserError(
                f"run folder {folder} is not empty; name a new one, so that nothing in it is lost"
            )
        (folder / "findings").mkdir()
    except OSError as reason:
        raise UserError(
            f"run folder {folder} cannot be written: {reason.strerror}; name another with --run"
        ) from reason


@dataclass(slots=True)
class _Runner:
    """The parent's loop: schedules shards, takes results in order, hands violations to confirmation, keeps findings."""

    campaign: Campaign
    listener: Listener
    started: float = field(default_factory=time.monotonic)
    queue: deque[tuple[Shard, ProcessFuture[ShardResult]]] = field(default_factory=deque)
    reductions: deque[tuple[int, Failure, ProcessFuture[Reduced | None]]] = field(
        default_factory=deque
    )
    symptoms: dict[Symptom, int] = field(default_factory=dict)
    confirmations: deque[tuple[Finding, Future[Confirmation]]] = field(default_factory=deque)
    counts: dict[str, int] = field(default_factory=dict)
    interrupts: int = 0

    def run(self) -> Campaign:
        os.environ.setdefault(
            "TORCH_CPP_LOG_LEVEL", "ERROR"
        )  # workers inherit it; torch's C++ warns past Python
        context = multiprocessing.get_context("forkserver")
        _start_forkserver()
        workers = self.campaign.plan.workers
        pool = ProcessPool(workers, initializer=start_worker, context=context)
        confirming = ThreadPoolExecutor(2)
        with self._counting_interrupts():
            try:
                self._search(pool, confirming)
            finally:
                self.campaign.interrupted = self.interrupts > 0
                pool.stop()
                pool.join()
            self._finish(confirming)
        return self.campaign

    @contextlib.contextmanager
    def _counting_interrupts(self) -> Iterator[None]:
        """Count each Ctrl-C, to be looked at between two steps: raised within one, it could leave a lock of the pool taken.

        The third is raised, should a step hang.
        """
        if (
            threading.current_thread() is not threading.main_thread()
        ):  # the only one that may set signal handlers
            yield
            return

        def count(*_: object) -> None:
            self.interrupts += 1
            if self.interrupts > 2:
                raise KeyboardInterrupt

        before = signal.signal(signal.SIGINT, count)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def _search(self, pool: ProcessPool, confirming: ThreadPoolExecutor) -> None:
        shards = self.campaign.plan.shards()
        while not self.interrupts:
            while not self._time_is_up() and len(self.queue) < 2 * self.campaign.plan.workers:
                shard = next(shards, None)
                if shard is None:
                    break
                self.queue.append((shard, self._schedule(pool, shard)))
            if not (self.queue or self.reductions) or self._time_is_up(GRACE):
                return
            if self.queue and self.queue[0][1].done():
                self._take(*self.queue.popleft(), pool, confirming)
            elif self.reductions and self.reductions[0][2].done():
                self._take_reduced(*self.reductions.popleft(), confirming)
            else:
                time.sleep(0.02)
            self._keep_confirmed()
            self._report()

    def _time_is_up(self, grace: float = 0.0) -> bool:
        seconds = self.campaign.plan.seconds
        return seconds is not None and time.monotonic() - self.started > seconds + grace

    def _schedule(self, pool: ProcessPool, shard: Shard) -> ProcessFuture[ShardResult]:
        blame = str(self._blame_file(shard))
        Blame.create(blame)
        return pool.schedule(_work, args=(shard, blame), timeout=TASK_TIMEOUT)

    def _blame_file(self, shard: Shard) -> Path:
        return self.campaign.folder / f".shard-{shard.target}-{shard.seed}"

    def _take(
        self,
        shard: Shard,
        future: ProcessFuture[ShardResult],
        pool: ProcessPool,
        confirming: ThreadPoolExecutor,
    ) -> None:
        try:
            result = future.result()
        except (ProcessExpired, TimeoutError) as death:
            self._bury(shard, death, pool, confirming)
            return
        except InternalError as mistake:
            self._note_mistake(mistake, f"shard {shard.seed} of {shard.target}")
            return
        self._blame_file(shard).unlink(missing_ok=True)
        self.campaign.tallies[shard.target].add(result.tally)
        for symptom, (count, program) in result.suspicions.found.items():
            self.campaign.suspicions.note(symptom, program, count)
        for failure in result.failures:
            self.symptoms[failure.symptom] = self.symptoms.get(failure.symptom, 0) + 1
            if worth_reducing(failure.symptom, self.symptoms[failure.symptom]):
                task = pool.schedule(reduce_failure, args=(failure,), timeout=TASK_TIMEOUT)
                self.reductions.append((shard.seed, failure, task))
            else:
                self.campaign.repeats += 1

    def _note_mistake(self, mistake: InternalError, place: str) -> None:
        """Our own mistake costs one task, not the campaign; the outcome names it."""
        self.campaign.mistakes.append(f"{place}: {mistake}")

    def _take_reduced(
        self,
        seed: int,
        failure: Failure,
        future: ProcessFuture[Reduced | None],
        confirming: ThreadPoolExecutor,
    ) -> None:
        try:
            reduced = future.result()
        except (ProcessExpired, TimeoutError) as death:
            # A candidate took the worker along. The failure itself is not lost: it goes on as it
            # was drawn.
            self.campaign.deaths += 1
            violation = Violation(
                failure.symptom.oracle, failure.symptom.kind, "call", {"reduction": str(death)}
            )
            found = signature(failure.symptom, failure.program)
            reduced = Reduced(found, violation, failure.program, failure.program, 0, 0, False)
        except InternalError as mistake:
            self._note_mistake(mistake, f"reduction of {failure.symptom.kind} from shard {seed}")
            return
        if reduced is None:
            self.campaign.lost += 1
        else:
            self._found(reduced, seed, confirming)

    def _bury(
        self,
        shard: Shard,
        death: ProcessExpired | TimeoutError,
        pool: ProcessPool,
        confirming: ThreadPoolExecutor,
    ) -> None:
        """A worker died or hung: blame the program it was at, and run the rest of the shard."""
        self.campaign.deaths += 1
        index = Blame.read(str(self._blame_file(shard)))
        if index is None:
            return
        again = replace(shard, skip=shard.skip | {index})
        self.queue.appendleft((again, self._schedule(pool, again)))
        ending = (
            f"dies of signal {-death.exitcode}" if isinstance(death, ProcessExpired) else "hangs"
        )
        violation = Violation("errors", ending, "call", {"worker": str(death)})
        program = shard.program(index)
        symptom = Symptom(shard.target, "errors", ending)
        reduced = Reduced(signature(symptom, program), violation, program, program, 0, 0, True)
        self._found(reduced, shard.seed, confirming)

    def _found(self, reduced: Reduced, seed: int, confirming: ThreadPoolExecutor) -> None:
        """Count a reduced violation; the first of its signature goes to be confirmed."""
        finding = Finding.of(reduced, seed)
        name = finding.identifier
        self.counts[name] = self.counts.get(name, 0) + 1
        if self.counts[name] > 1:
            if name in self.campaign.findings:
                self.campaign.findings[name] = replace(
                    self.campaign.findings[name], count=self.counts[name]
                )
            return
        folder = self.campaign.folder / "unconfirmed" / name
        folder.mkdir(parents=True)
        write_finding(folder, finding)
        script = render(
            finding.program, TARGETS[finding.target], reduced.violation, exact=reduced.exact
        )
        write_text(folder / "reproducer.py", script)
        self.confirmations.append((finding, confirming.submit(confirm, folder / "reproducer.py")))
        self.campaign.confirming = len(self.confirmations)

    def _keep_confirmed(self) -> None:
        """Move what a fresh process confirmed to the findings."""
        while self.confirmations and self.confirmations[0][1].done():
            finding, future = self.confirmations.popleft()
            self.campaign.confirming = len(self.confirmations)
            confirmation, name = future.result(), finding.identifier
            if confirmation.shown:
                (self.campaign.folder / "unconfirmed" / name).rename(self.campaign.path(finding))
                self.campaign.findings[name] = replace(finding, count=self.counts[name])
            else:
                self.campaign.unconfirmed[name] = (
                    f"{finding.kind}: the reproducer {confirmation.ending} without showing it"
                )

    def _finish(self, confirming: ThreadPoolExecutor) -> None:
        """Wait for the confirmations under way, until one more Ctrl-C, then write down counts and outcome."""
        before = self.interrupts
        while self.confirmations and self.interrupts == before:
            self._keep_confirmed()
            self._report()
            time.sleep(0.02)
        self.campaign.interrupted = self.interrupts > 0
        confirming.shutdown(wait=False, cancel_futures=True)
        for finding in self.campaign.findings.values():
            write_finding(self.campaign.path(finding), finding)
        for folder, _, _, program in suspicions(self.campaign):
            folder.mkdir(parents=True)
            write_text(folder / "program.json", dumps(program))
        for leftover in self.campaign.folder.glob(".shard-*"):
            leftover.unlink()
        _remove_if_empty(self.campaign.folder / "unconfirmed")
        self._report()
        write_text(
            self.campaign.folder / "run.json", json.dumps(self.campaign.to_json(), indent=1) + "\n"
        )

    def _report(self) -> None:
        self.campaign.elapsed = time.monotonic() - self.started
        self.campaign.reducing = len(self.reductions)
        self.listener(self.campaign)


def worth_reducing(symptom: Symptom, number: int) -> bool:
    """Whether the violation that is the `number`-th of its symptom is reduced, which takes as long as a hundred programs.

    An error's message is its signature, so its first is enough, and one more in case that one is
    lost. Silent violations of one symptom can have many causes: all are reduced at first, then one
    in four.
    """
    return number <= 2 if symptom.oracle == "errors" else number <= 12 or number % 4 == 0


def _start_forkserver() -> None:
    """Start the process that workers are forked from, with torch imported, and deaf to Ctrl-C: it is for the parent."""
    multiprocessing.set_forkserver_preload(["campaigns.shard"])
    if (
        threading.current_thread() is not threading.main_thread()
    ):  # the only one that may set signal handlers
        forkserver.ensure_running()
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        forkserver.ensure_running()
    finally:
        signal.signal(signal.SIGINT, before)


def _remove_if_empty(folder: Path) -> None:
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()


def _tally_json(tally: Tally) -> dict[str, Any]:
    return {
        "programs": tally.programs,
        "discarded": tally.discarded,
        "outside the contract": tally.outside,
        "violating": tally.violating,
        "suspicious": tally.suspicious,
    }


def _work(shard: Shard, blame: str) -> ShardResult:
    return run_shard(shard, Blame(blame))
