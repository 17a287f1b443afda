"""The commands `fuzz` and `hunt`: options become a plan, then a campaign runs, and is printed."""

from __future__ import annotations

import inspect
import itertools
import os
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from aliasproof.campaigns.run.worker_server import start_worker_server
from aliasproof.commands.options import (
    Json,
    KnownToo,
    above_zero,
    flag,
    option,
    targets_option,
    whole_number,
)
from aliasproof.commands.startup import INTERRUPTED, quit_now, quitting_at_ctrl_c
from aliasproof.ir.errors import UserError, did_you_mean
from aliasproof.processes.interrupts import Interrupts
from aliasproof.reports.console import (
    counted,
    listed,
    notes,
    print_lines,
    print_notes,
    relative,
    results,
    write_json,
)
from aliasproof.targets.names import ATEN, BOTH, DEFAULTS, FUZZED, HUNTED, LANGUAGES, PYTHON

if TYPE_CHECKING:  # they import torch
    from aliasproof.campaigns.run.campaign import Campaign
    from aliasproof.campaigns.store.plan import Plan

DEFAULT_SECONDS = {ATEN: 90.0, PYTHON: 600.0, BOTH: 600.0}
# What Python programs run through, and by default.
LAYERS = ("identity", "dynamo", "aot-eager", "inductor", "reference")
LARGEST = 4  # worker processes per core
LONG = 1800.0  # seconds; so long a campaign draws programs of both languages
PROFILES = {"dev": 90.0, "ci": 300.0, "nightly": 8 * 3600.0}  # seconds
WHOLE = "a whole number, "

Targets = Annotated[list[str] | None, targets_option(FUZZED, f"; of Python programs, {HUNTED}")]
Seconds = Annotated[
    float | None,
    above_zero(
        "SECONDS",
        "Draw programs for this time. Default: 90; 600 with Python programs.",
        "a number of seconds above 0",
    ),
]
Programs = Annotated[
    int | None,
    whole_number("Draw this many programs per target; by default without a time limit.", 1, WHOLE),
]


def _known_language(name: str | None) -> str | None:
    if name not in (None, *LANGUAGES):
        raise UserError(f"--language {name}: give one of {', '.join(LANGUAGES)}")
    return name


Language = Annotated[
    str | None,
    typer.Option(
        callback=_known_language,
        metavar="|".join(LANGUAGES),
        help="What programs are written in. With both, a quarter is Python, for backends of"
        " torch.compile. Default: both for half an hour or more, otherwise aten.",
    ),
]
Until = Annotated[str | None, option("HH:MM", "Draw programs until this time of the day.")]
Seed = Annotated[
    int | None,
    whole_number("The same seed and --programs give the same findings. Default: 0.", 0, WHOLE),
]
RunFolder = Annotated[
    Path | None,
    option(
        "DIR",
        "New folder for the findings, or the folder of a run to go on with. Default:"
        " runs/<date>-<time>.",
    ),
]
Jobs = Annotated[
    int | None,
    whole_number(
        "Worker processes. Default: one per core.", 1, WHOLE, names=("--workers", "--jobs", "-j")
    ),
]
Share = Annotated[
    str | None,
    option("I/N", "Run the I-th of N shares of the programs. 'aliasproof merge' joins the N runs."),
]
Profile = Annotated[
    str | None,
    option(
        "dev|ci|nightly",
        "dev: 90 seconds. ci: 5 minutes past the known bugs, exit status 1 for a finding."
        " nightly: 8 hours.",
    ),
]
Limit = Annotated[
    float | None, above_zero("SECONDS", "A program that takes longer hangs. Default: 120.")
]
Memory = Annotated[
    float | None,
    above_zero(
        "GIB", "Memory that each worker may allocate. Default: its part of 80 % of what is free."
    ),
]
PastKnown = Annotated[
    bool, flag("--past-known", "Patch torch's known bugs first: only new ones show.")
]
DeviceName = Annotated[
    str | None,
    option("DEVICE", "The device that programs are on: cpu, cuda or cuda:NUMBER. Default: cpu."),
]
Group = Annotated[
    int | None,
    whole_number(
        "Compile this many programs as one. Default: the fastest number for each target.", 1, WHOLE
    ),
]
Rules = Annotated[
    int | None,
    whole_number(
        "Of a hundred programs, how many are derived from the rules of Inductor, such as its"
        " patterns. Default: 50 in each fourth shard.",
        0,
        WHOLE,
    ),
]
Cluster = Annotated[
    str | None,
    option(
        "auto|HOST:PORT|ray://HOST:PORT",
        "Run on the nodes of a Ray cluster; --workers is then per node.",
    ),
]
FailOnFindings = Annotated[
    bool, flag("--fail-on-findings", "Exit with status 1 if there is a finding.")
]


def fuzz(
    target: Targets = None,
    language: Language = None,
    seconds: Seconds = None,
    programs: Programs = None,
    until: Until = None,
    seed: Seed = None,
    run: RunFolder = None,
    workers: Jobs = None,
    shard: Share = None,
    profile: Profile = None,
    limit: Limit = None,
    memory: Memory = None,
    past_known: PastKnown = False,
    device: DeviceName = None,
    group: Group = None,
    rules: Rules = None,
    cluster: Cluster = None,
    json: Json = False,
    known: KnownToo = False,
    fail_on_findings: FailOnFindings = False,
) -> int:
    """Search for miscompiles with random programs, of ATen calls or as people write them.

    Each miscompile is reduced, confirmed in a fresh process, and stored in a folder of its own. All
    is stored at once, so that a run that was ended or killed goes on where it was, with --run DIR.

    Exit status: 0; 1 for a finding, or a violation that waits to be reduced, with
    --fail-on-findings or --profile ci; 2 bad input, or a full disk; 3 internal error; 4 nothing
    was tested; 130 interrupted.
    """
    started = time.monotonic()  # what is asked to take 40 seconds includes the import of torch
    given: dict[str, Any] = {"seed": seed, "programs": programs, "group": group, "device": device}
    given |= {"limit": limit, "memory": memory, "workers": worker_count(workers, cluster)}
    given |= {"past_known": past_known or profile == "ci" or None, "share": share_of(shard)}
    given |= {"language": language}
    given |= {"seconds": _duration(seconds, programs, until, profile), "rules": rules}
    given |= {"finish": (seconds, programs, until) == (None, None, None)}
    with quitting_at_ctrl_c():
        start_early(target or (), language)
        plan = _runnable(plan_of(run, target or (), given))
        campaign = run_campaign(
            plan, run, (cluster, workers), started, as_json=json, everything=known
        )
    return exit_status(campaign, campaign.total.judged, fail_on_findings or profile == "ci")


def exit_status(campaign: Campaign, judged: int, fail_on_findings: bool) -> int:
    """The exit status of a campaign. Violations that wait count as findings."""
    from aliasproof.oracles.check_result import DIFFERS, NOTHING_JUDGED

    if campaign.interrupted:
        return INTERRUPTED
    if fail_on_findings and (campaign.findings or campaign.reducing or campaign.confirming):
        return DIFFERS
    # Passes of a user that changed no graph were not tested.
    tallies = campaign.statistics.values()
    idle = bool(tallies) and all(it.unchanged and not it.changed for it in tallies)
    return 0 if (judged and not idle) or campaign.findings else NOTHING_JUDGED


def start_early(targets: Sequence[str], language: str | None) -> None:
    """Import torch, and start the server that workers are forked from."""
    if "torch" not in sys.modules:
        print("Starting. To import torch takes some seconds.", file=sys.stderr, flush=True)
        start_worker_server(targets or DEFAULTS[language or ATEN], early=True)


def worker_count(workers: int | None, cluster: str | None) -> int | None:
    """The worker processes that are asked for. Raises `UserError` if that is too many."""
    cores = os.cpu_count() or 1
    # On a cluster, the CPUs of each node are the bound.
    if workers is not None and workers > LARGEST * cores and cluster is None:
        raise UserError(
            f"--workers {workers}: each runs torch, and this machine has"
            f" {counted(cores, 'core')}; give at most {LARGEST * cores}"
        )
    return workers


def share_of(given: str | None) -> tuple[int, int] | None:
    """The share that 'I/N' names. Raises `UserError` if it names none."""
    if given is None:
        return None
    match = re.fullmatch(r"(\d+)/(\d+)", given)
    index, number = (int(match[1]), int(match[2])) if match else (0, 0)
    if not 1 <= index <= number:
        raise UserError(f"--shard {given}: give I/N with I from 1 to N, such as 1/4")
    return index, number


def _duration(
    seconds: float | None, programs: int | None, until: str | None, profile: str | None
) -> float | None:
    """The time limit in seconds, if one is given."""
    if until is not None and (seconds, programs) != (None, None):
        raise UserError("--until says when to stop; give no --seconds or --programs with it")
    if profile is not None and profile not in PROFILES:
        hint = did_you_mean(profile, PROFILES, otherwise=f"give {', '.join(PROFILES)}")
        raise UserError(f"--profile {profile}: no such profile{hint}")
    if until is not None:  # the next time that the clock shows this time of the day
        match = re.fullmatch(r"([01]?\d|2[0-3]):([0-5]\d)", until)
        if match is None:
            raise UserError(f"--until {until}: give a time of the day as HH:MM, such as 06:30")
        now, day = datetime.now().astimezone(), timedelta(days=1)
        end = now.replace(hour=int(match[1]), minute=int(match[2]), second=0, microsecond=0)
        return ((end - now) % day).total_seconds() or day.total_seconds()
    if seconds is None and programs is None and profile is not None:
        return PROFILES[profile]
    return seconds


def plan_of(run: Path | None, targets: Sequence[str], given: Mapping[str, Any]) -> Plan:
    """The plan with what is given by options, where that is not None.

    The rest is as in the stored plan of a run that goes on. Raises `UserError` for unknown targets.
    """
    from aliasproof.campaigns.store.plan import Plan
    from aliasproof.campaigns.store.run_folder import stored_plan
    from aliasproof.ir.devices import require_device
    from aliasproof.targets.registry import target as target_named
    from aliasproof.targets.user_names import grant

    stored = None if run is None else stored_plan(run)
    base = stored or Plan(DEFAULTS[given["language"] or ATEN])
    # Only what the command line names: a file names no code to import.
    grant(targets)
    names = dict.fromkeys(target_named(name).name for name in targets or base.targets)
    if given["device"] is not None:
        require_device(given["device"])
    # Without --workers, `Plan` has its own default, also on another machine.
    base = replace(base, targets=tuple(names), workers=Plan(()).workers)
    plan = replace(base, **{name: value for name, value in given.items() if value is not None})
    # Who goes on without a time limit wants all that was found.
    plan = replace(plan, finish=plan.finish and stored is not None)
    if stored is None and given["language"] is None and (plan.seconds or 0.0) >= LONG:
        mixed = replace(plan, targets=plan.targets if targets else DEFAULTS[BOTH], language=BOTH)
        plan = mixed if mixed.python_targets else plan
    _require_python(plan)
    limited = plan.seconds is not None or plan.programs is not None
    return plan if limited else replace(plan, seconds=DEFAULT_SECONDS[plan.language])


def _require_python(plan: Plan) -> None:
    """Raises `UserError` if Python programs are asked for that cannot run."""
    from aliasproof.campaigns.store.plan import takes_python

    if plan.language == ATEN:
        return
    if plan.device != "cpu":
        raise UserError(f"--language {plan.language}: Python programs are on the CPU alone")
    wrong = [name for name in plan.targets if not takes_python(name)]
    if wrong and (plan.language == PYTHON or not plan.python_targets):
        raise UserError(
            f"--language {plan.language}: Python programs run through backends of torch.compile,"
            f" and {' or '.join(wrong)} is none; give one of {', '.join(LAYERS)}, or your own"
        )


def _runnable(plan: Plan) -> Plan:
    """The plan with the targets that can run on this machine. Notes say why the others cannot.

    Raises `UserError` if none can.
    """
    from aliasproof.targets.registry import target as target_named
    from aliasproof.torch_parts import off, why_off

    asked = {name: target_named(name) for name in plan.targets}
    reasons = {name: target.unavailable() or target.broken() for name, target in asked.items()}
    left_out = [f"{name} {reason}" for name, reason in reasons.items() if reason is not None]
    targets = tuple(name for name, reason in reasons.items() if reason is None)
    if not targets:
        raise UserError("; ".join(left_out))
    print_notes(f"left out: {reason}" for reason in left_out)
    print_notes(f"{name} {reason}" for name, reason in off() if not name.startswith("target "))
    return replace(plan, targets=targets, rules=plan.rules if why_off("rules") is None else 0)


def run_campaign(
    plan: Plan,
    run: Path | None,
    cluster: tuple[str | None, int | None],
    started: float,
    *,
    as_json: bool,
    everything: bool = False,
) -> Campaign:
    """Run a campaign, and print the outcome.

    `cluster` is the address of one, and the workers per node. The time of the campaign counts from
    `started` on, when the command began.
    """
    from aliasproof.campaigns.run.cluster_connection import connect
    from aliasproof.campaigns.run.executor import LocalWorkers
    from aliasproof.campaigns.run.fuzz import fuzz as search
    from aliasproof.judge.trial import quiet_torch
    from aliasproof.reports.campaign_outcome import print_outcome
    from aliasproof.reports.progress import display

    quiet_torch()
    # A cluster that cannot be joined leaves no folder of a run.
    address, per_node = cluster
    executor = LocalWorkers.of if address is None else connect(address, per_node)
    # A mistyped folder is a new one: the title says so.
    kind = "new folder " if run is not None and not run.exists() else ""
    folder = run if run is not None else new_folder(Path("runs"))
    title = _title(plan, address, f"{kind}{relative(folder)}")
    with display(notes(), title) as listener:
        interrupts = Interrupts(at_third=quit_now)
        campaign = search(plan, folder, listener, interrupts, started, executor)
    if as_json:
        write_json(campaign.to_json() | {"folder": str(folder)})
    else:
        print_outcome(results(), campaign, everything=everything)
        advise_later_calls(campaign)
    return campaign


def advise_later_calls(campaign: Campaign) -> None:
    """For a user's backend without a finding, name the variants for later calls if none ran."""
    from aliasproof.targets.registry import OWN
    from aliasproof.targets.user_targets import LATER_CALLS, is_plain_backend

    if campaign.findings or campaign.plan.language != ATEN:  # Python programs call more than once
        return
    for name in campaign.plan.targets:
        later = [f"{name}:{variant.name}" for variant in LATER_CALLS]
        is_backend = name in OWN and is_plain_backend(OWN[name])
        if is_backend and not {*later} <= campaign.statistics.keys():
            one = f"one call was compared: --target {' and '.join(later)} compare later ones"
            print_lines(results(), f"{name}: {one}")


def _title(plan: Plan, cluster: str | None, folder: str) -> str:
    targets = () if plan.language == PYTHON else plan.targets
    favored = listed([*dict.fromkeys(it for name in targets for it in _favored(name))], 5)
    workers = counted(plan.workers, "worker")
    if cluster is not None:
        workers = f"the workers of the cluster at {cluster}"
    on = "" if plan.device == "cpu" else f", on {plan.device}"
    words = {PYTHON: ", with Python programs,", BOTH: ", a quarter with Python programs,"}
    return (
        f"Fuzzing {', '.join(plan.targets)}{words.get(plan.language, '')} with {workers},"
        f" seed {plan.seed}{on}, into {folder}"
        + (f". Your file names {favored}, so more programs call these." if favored else "")
    )


def _favored(name: str) -> Iterator[str]:
    """The ops that are drawn more often for a target."""
    from aliasproof.generators.strategies import favored_operators
    from aliasproof.targets.registry import target

    if names := target(name).favored:
        yield from (operator.name.split(".")[1] for operator in favored_operators(names))


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


# --- hunt -----------------------------------------------------------------------------------------


_OF_ATEN = ("language", "device", "group", "rules")  # options of `fuzz` that say nothing here


def hunt(**given: Any) -> int:
    """Search with programs as people write them: modules, gradients, closures, loops, state.

    Each program is called as a user calls it, several times; all that the caller can reach
    afterwards must be as in eager. What differs is reduced, and its script runs in a fresh process.
    A finding is a folder with finding.json, issue.md and reproducer.py, which needs torch alone.
    All is stored at once: a run that was ended or killed goes on where it was, with --run DIR.

    It is fuzz --language python, through aot-eager unless --target names another layer of
    torch.compile (identity, dynamo, aot-eager, inductor, reference), or your own pass or backend.
    Exit status: as that of fuzz.
    """
    return fuzz(language=PYTHON, **given)


_SIGNATURE = inspect.signature(fuzz, eval_str=True)
_OPTIONS = [it for it in _SIGNATURE.parameters.values() if it.name not in _OF_ATEN]
hunt.__signature__ = _SIGNATURE.replace(parameters=_OPTIONS)  # type: ignore[attr-defined]
hunt.__annotations__ = {**get_type_hints(fuzz, include_extras=True)}
