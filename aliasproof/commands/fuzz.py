"""The command `fuzz`: options become a plan, then a campaign runs, then its outcome is printed."""

from __future__ import annotations

import itertools
import math
import os
import re
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path

from aliasproof.campaigns.run.cluster_connection import connect
from aliasproof.campaigns.run.executor import MakeExecutor
from aliasproof.campaigns.run.fuzz import fuzz, stored_plan
from aliasproof.campaigns.run.local_workers import LocalWorkers
from aliasproof.campaigns.run.plan import Plan
from aliasproof.programs.devices import CPU, require_device
from aliasproof.programs.errors import UserError, did_you_mean
from aliasproof.reports.campaign_outcome import print_outcome
from aliasproof.reports.console import notes, print_notes, relative, results, write_json
from aliasproof.reports.progress import display
from aliasproof.reports.wording import counted
from aliasproof.startup import quit_now
from aliasproof.targets.registry import target as target_named
from aliasproof.targets.user_names import grant
from aliasproof.trials.interrupts import Interrupts
from aliasproof.trials.worker import quiet_torch

# `functionalize` is tested through `fx-reinplace`, which builds on it. A violation that
# `functionalize` shows alone is attributed to it.
DEFAULT_TARGETS = ("inductor-fx", "aot", "inductor", "fx-reinplace")
DEFAULT_SECONDS = 90.0


LARGEST = 4  # worker processes per core, and not less than this in all
PROFILES = {"dev": 90.0, "ci": 300.0, "nightly": 8 * 3600.0}  # seconds


@dataclass(frozen=True, slots=True)
class FuzzOptions:
    """The options of the command; None where the default applies."""

    targets: tuple[str, ...] = ()
    seconds: float | None = None
    programs: int | None = None
    until: str | None = None
    seed: int | None = None
    run: Path | None = None
    workers: int | None = None
    shard: str | None = None
    profile: str | None = None
    limit: float | None = None
    memory: float | None = None
    past_known: bool = False
    device: str | None = None
    group: int | None = None
    cluster: str | None = None

    @property
    def fails_on_findings(self) -> bool:
        """Whether a finding is a failure of the command."""
        return self.profile == "ci"

    def plan(self, stored: Plan | None = None) -> Plan:
        """The plan; what is not given is as in the stored plan of a run that goes on.

        Raises `UserError` for numbers out of range and unknown targets.
        """
        self._check_numbers()
        base = stored or Plan(DEFAULT_TARGETS, programs=self.programs)
        chosen = self.targets or base.targets
        # Only what the command line names: a file names no code to import.
        grant(self.targets)
        names = tuple(dict.fromkeys(target_named(name).name for name in chosen))
        seconds = self._seconds()
        # Without --workers, `Plan` has its own default, also on another machine.
        workers = Plan(names).workers if self.workers is None else self.workers
        plan = replace(
            base,
            targets=names,
            seed=base.seed if self.seed is None else self.seed,
            programs=base.programs if self.programs is None else self.programs,
            seconds=base.seconds if seconds is None else seconds,
            workers=workers,
            past_known=base.past_known or self.past_known or self.profile == "ci",
            device=base.device if self.device is None else require_device(self.device),
            group=base.group if self.group is None else self.group,
            limit=base.limit if self.limit is None else self.limit,
            memory=base.memory if self.memory is None else self.memory,
            share=base.share if self.shard is None else _share(self.shard),
            # Who goes on without a time limit wants all that was found.
            finish=stored is not None and self._limits() == 0,
        )
        limited = plan.seconds is not None or plan.programs is not None
        return plan if limited else replace(plan, seconds=DEFAULT_SECONDS)

    def _limits(self) -> int:
        return sum(each is not None for each in (self.seconds, self.programs, self.until))

    def _seconds(self) -> float | None:
        if self.until is not None:
            return _seconds_until(self.until)
        if self.seconds is None and self.programs is None and self.profile is not None:
            return PROFILES[self.profile]
        return self.seconds

    def _check_numbers(self) -> None:
        if self._limits() > 1:
            raise UserError(
                "--seconds, --programs and --until each say when to stop; give one of them"
            )
        if self.seconds is not None and not (math.isfinite(self.seconds) and self.seconds > 0):
            raise UserError(f"--seconds {self.seconds:g}: give a number of seconds above 0")
        for option, given in (("limit", self.limit), ("memory", self.memory)):
            if given is not None and not (math.isfinite(given) and given > 0):
                raise UserError(f"--{option} {given:g}: give a number above 0")
        if self.profile is not None and self.profile not in PROFILES:
            hint = did_you_mean(self.profile, PROFILES, otherwise=f"give {', '.join(PROFILES)}")
            raise UserError(f"--profile {self.profile}: no such profile{hint}")
        for option, number, least in (
            ("programs", self.programs, 1),
            ("workers", self.workers, 1),
            ("group", self.group, 1),
            ("seed", self.seed, 0),
        ):
            if number is not None and number < least:
                raise UserError(f"--{option} {number}: give a whole number, at least {least}")
        cores = os.cpu_count() or 1
        most = max(LARGEST * cores, LARGEST)
        # On a cluster, the CPUs of each node are the bound.
        if self.workers is not None and self.workers > most and self.cluster is None:
            raise UserError(
                f"--workers {self.workers}: each runs torch, and this machine has"
                f" {counted(cores, 'core')}; give at most {most}"
            )


def _share(given: str) -> tuple[int, int]:
    """The share that 'I/N' names."""
    found = re.fullmatch(r"(\d+)/(\d+)", given)
    index, number = (int(found[1]), int(found[2])) if found else (0, 0)
    if not 1 <= index <= number:
        raise UserError(f"--shard {given}: give I/N with I from 1 to N, such as 1/4")
    return index, number


def _seconds_until(given: str) -> float:
    """The seconds until the next time that the clock shows this time of the day."""
    found = re.fullmatch(r"([01]?\d|2[0-3]):([0-5]\d)", given)
    if found is None:
        raise UserError(f"--until {given}: give a time of the day as HH:MM, such as 06:30")
    now = datetime.now().astimezone()
    end = now.replace(hour=int(found[1]), minute=int(found[2]), second=0, microsecond=0)
    return ((end - now) % timedelta(days=1)).total_seconds() or timedelta(days=1).total_seconds()


def runnable(plan: Plan) -> tuple[Plan, list[str]]:
    """The plan with the targets that can run on this machine, and why the others cannot.

    Raises `UserError` if none can.
    """
    reasons = {name: target_named(name).unavailable() for name in plan.targets}
    left_out = [f"{name} {reason}" for name, reason in reasons.items() if reason is not None]
    targets = tuple(name for name, reason in reasons.items() if reason is None)
    if not targets:
        raise UserError("; ".join(left_out))
    return replace(plan, targets=targets), [f"left out: {reason}" for reason in left_out]


def run_campaign(options: FuzzOptions, started: float, *, as_json: bool) -> bool:
    """Run a campaign, and print the outcome. True if there is a finding.

    Its time counts from `started` on, when the command began.
    """
    stored = None if options.run is None else stored_plan(options.run)
    plan, left_out = runnable(options.plan(stored))
    print_notes(left_out)
    quiet_torch()
    # A cluster that cannot be joined leaves no folder of a run.
    executor: MakeExecutor = LocalWorkers.of
    if options.cluster is not None:
        executor = connect(options.cluster, options.workers)
    folder = options.run if options.run is not None else new_folder(Path("runs"))
    on = "" if plan.device == CPU else f", on {plan.device}"
    workers = counted(plan.workers, "worker")
    if options.cluster is not None:
        workers = f"the workers of the cluster at {options.cluster}"
    title = (
        f"Fuzzing {', '.join(plan.targets)} with {workers},"
        f" seed {plan.seed}{on}, into {relative(folder)}"
    )
    with display(notes(), title) as listener:
        interrupts = Interrupts(at_third=quit_now)
        campaign = fuzz(plan, folder, listener, interrupts, started, executor)
    if as_json:
        write_json(campaign.to_json())
    else:
        print_outcome(results(), campaign)
    return bool(campaign.findings)


def new_folder(runs: Path) -> Path:
    """Make a folder named after the time. A number is added if that name is taken."""
    name = datetime.now().astimezone().strftime("%Y%m%d-%H%M%S")
    for number in itertools.count(1):
        folder = runs / (name if number == 1 else f"{name}-{number}")
        # Another campaign can start in the same second: only `mkdir` decides who has the name.
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError as error:
            raise UserError(
                f"run folder {folder} cannot be made: {error.strerror}; name another with --run"
            ) from error
        return folder
    raise AssertionError("itertools.count does not end")
