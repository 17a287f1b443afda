"""The command `fuzz`: options become a plan, then a campaign runs, then its outcome is printed."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from campaigns.fuzz import fuzz
from campaigns.plan import Plan
from programs.devices import CPU, require_device
from programs.errors import UserError
from reports.campaign_outcome import print_outcome
from reports.console import notes, print_notes, relative, results, write_json
from reports.progress import display
from reports.wording import counted
from targets.registry import target as target_named
from targets.user_names import grant
from trials.worker import quiet_torch

# `functionalize` is tested through `fx-reinplace`, which builds on it. A violation that
# `functionalize` shows alone is attributed to it.
DEFAULT_TARGETS = ("inductor-fx", "aot", "inductor", "fx-reinplace")
DEFAULT_SECONDS = 90.0


@dataclass(frozen=True, slots=True)
class FuzzOptions:
    """The options of the command; None where the default applies."""

    targets: tuple[str, ...] = ()
    seconds: float | None = None
    programs: int | None = None
    seed: int = 0
    run: Path | None = None
    workers: int | None = None
    past_known: bool = False
    device: str = "cpu"
    group: int | None = None

    def plan(self) -> Plan:
        """The plan. Raises `UserError` for numbers out of range and unknown targets."""
        chosen = self.targets or DEFAULT_TARGETS
        grant(chosen)
        names = tuple(dict.fromkeys(target_named(name).name for name in chosen))
        if self.seconds is not None and self.programs is not None:
            raise UserError("--seconds and --programs both say when to stop; give one of them")
        if self.seconds is not None and not (math.isfinite(self.seconds) and self.seconds > 0):
            raise UserError(f"--seconds {self.seconds:g}: give a number of seconds above 0")
        for option, number, least in (
            ("programs", self.programs, 1),
            ("workers", self.workers, 1),
            ("group", self.group, 1),
            ("seed", self.seed, 0),
        ):
            if number is not None and number < least:
                raise UserError(f"--{option} {number}: give a whole number, at least {least}")
        seconds = self.seconds
        if seconds is None and self.programs is None:
            seconds = DEFAULT_SECONDS
        device = require_device(self.device)
        plan = Plan(
            names, self.seed, self.programs, seconds, past_known=self.past_known, device=device
        )
        plan = replace(plan, group=self.group)
        # Without --workers, `Plan` has its own default.
        return plan if self.workers is None else replace(plan, workers=self.workers)


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


def run_campaign(options: FuzzOptions, *, as_json: bool) -> bool:
    """Run a campaign, and print the outcome. True if there is a finding."""
    plan, left_out = runnable(options.plan())
    print_notes(left_out)
    quiet_torch()
    folder = options.run if options.run is not None else new_folder(Path("runs"))
    on = "" if plan.device == CPU else f", on {plan.device}"
    title = (
        f"Fuzzing {', '.join(plan.targets)} with {counted(plan.workers, 'worker')},"
        f" seed {plan.seed}{on}, into {relative(folder)}"
    )
    with display(notes(), title) as listener:
        campaign = fuzz(plan, folder, listener)
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
