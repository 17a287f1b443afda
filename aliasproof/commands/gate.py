"""The command `gate`: what a change to a compiler breaks, in two to three minutes."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from aliasproof.commands.options import Json, Workers, option, require_writable, targets_option
from aliasproof.ir.errors import UserError
from aliasproof.ir.stored_text import writing
from aliasproof.reports.console import (
    counted,
    notes,
    print_exactly,
    print_lines,
    print_notes,
    progress_bar,
    relative,
    results,
    write_json,
)
from aliasproof.targets.names import FUZZED

if TYPE_CHECKING:  # it imports torch
    from aliasproof.campaigns.run.gate import Seen

Targets = Annotated[list[str] | None, targets_option(FUZZED, ", each program through one of them")]
BaselineFile = Annotated[
    Path | None,
    option(
        "FILE",
        "Compare with this file; if it does not exist, write it, and exit with status 0. Where the"
        " environment has CI, it must exist.",
        "--baseline",
    ),
]
Out = Annotated[
    Path,
    option("DIR", "Where new or recorded violations are written, a folder each.", "--out"),
]
Rebuild = Annotated[
    list[Path] | None,
    option(
        "RUN",
        "Make the corpus and its baseline anew, from the present one and this run. Repeat the"
        " option for more runs.",
        "--rebuild",
    ),
]


def gate(
    target: Targets = None,
    baseline: BaselineFile = None,
    out: Out = Path("gate"),
    rebuild: Rebuild = None,
    workers: Workers = None,
    json: Json = False,
) -> int:
    """Run a corpus of programs that shows known bugs and reaches rewrites, and print what changed.

    Each change against the baseline is a line: a new violation, one that no values show, a bug that
    is gone, a site of the compiler that no program fires any more. The baseline of the default
    targets comes with the package; that of your own pass or backend is a FILE:
    --target mine.py:my_pass --baseline FILE.

    Exit status: 0, 1 if a violation is new, 2 for bad input.
    """
    from aliasproof.campaigns.run import gate as gates
    from aliasproof.campaigns.store.run_folder import show_command, write_finding
    from aliasproof.judge.trial import quiet_torch
    from aliasproof.targets.user_names import grant

    quiet_torch()
    count = workers or len(os.sched_getaffinity(0))
    if rebuild:
        return _rebuild(rebuild, count)
    entries, before, stated = gates.corpus(), None, set[str]()
    if target:
        grant(target)
        entries = gates.pair_with_targets(entries, target)
    if baseline is not None and baseline.exists():
        before = gates.Baseline.read(baseline)
    elif baseline is not None:
        if not baseline.parent.is_dir():
            raise UserError(f"{baseline}: the folder {baseline.parent} does not exist: create it")
        require_writable(baseline)
        if os.environ.get("CI"):
            raise UserError(
                f"{baseline} does not exist, so nothing would be compared, in CI each time: run"
                " this command once on a machine of yours, and commit the file"
            )
    elif not target:
        # It need not be recorded again for each new file of a bug.
        before, stated = gates.shipped_baseline(), gates.stated_bugs()
    if not notes().is_terminal:  # which has no bar
        print_notes([f"running {counted(len(entries), 'program')}, some minutes"])
    with progress_bar() as bar:
        task = bar.add_task("running programs", total=len(entries))
        expected = {} if before is None else before.shown
        seen = gates.run_entries(
            entries, expected, count, lambda done: bar.update(task, completed=done)
        )
    recorded = None
    if baseline is not None and before is None:
        recorded = gates.Baseline.of(seen)
        recorded.write(baseline)
        before = replace(recorded, shown={}, sites=())
    if before is None:
        print_notes(["there is no baseline: each violation that is no known bug is new"])
    found = gates.changes(entries, seen, before, stated)
    new = sum(change.is_new for change in found)
    for finding in (change.finding for change in found if change.finding is not None):
        write_finding(out / finding.identifier, finding)
    if json:
        listed = [{"new": it.is_new, "text": it.text} for it in found]
        write_json({"programs": len(seen), "new": new, "changes": listed})
        return int(new > 0 and recorded is None)
    for text, number in Counter(change.text for change in found).items():
        line = text if recorded is None else f"recorded: {text.removeprefix('new: ')}"
        print_exactly(results(), line if number == 1 else f"{line} ({number} programs)")
        first = next(change.finding for change in found if change.text == text)
        if first is not None:
            where = relative(out / first.identifier)
            print_exactly(results(), f"    {show_command(where, first.target)}")
    if recorded is not None:
        assert baseline is not None
        shown = counted(len(recorded.shown), "violation")
        print_lines(results(), f"{relative(baseline)}: {shown} of {len(seen)} programs recorded")
        _note_exercised(target, seen)
        wrong = " They are wrong today, and accepted with it." if recorded.shown else ""
        print_notes([f"{relative(baseline)} is new, so nothing was compared: commit it.{wrong}"])
        kinds = [one.symptom.kind for one in recorded.shown.values() if one.known is None]
        if raising := sum(kind.startswith("raises ") for kind in kinds):
            what = f"exceptions in {counted(raising, 'program')} that eager does not raise"
            text = f"warning: {what}; {relative(baseline)} now accepts them"
            print_lines(notes(), text, "yellow")
        return 0
    changed = counted(len(found), "change")
    print_lines(results(), f"{counted(len(seen), 'program')}, {changed}, {new} new")
    _note_exercised(target, seen)
    return int(new > 0)


def _note_exercised(targets: list[str] | None, seen: Mapping[str, Seen]) -> None:
    """Note in how many programs a pass of the user changed a graph: only these test it."""
    from aliasproof.targets.registry import target as target_named
    from aliasproof.targets.user_targets import YOUR_PASS

    if any(target_named(name).yours.startswith(YOUR_PASS) for name in targets or ()):
        exercised = sum(YOUR_PASS in one.sites for one in seen.values())
        of_all = f"{exercised} of {counted(len(seen), 'program')}"
        advice = "the programs are fixed, 'aliasproof fuzz' draws some for your pass"
        print_notes([f"{YOUR_PASS} changed a graph in {of_all}; {advice}"])


def _rebuild(runs: list[Path], workers: int) -> int:
    """Write the corpus of these runs, and its baseline, into the package."""
    from aliasproof.campaigns.run import gate as gates
    from aliasproof.campaigns.store.run_folder import open_store

    with contextlib.ExitStack() as opened:
        stores = [opened.enter_context(open_store(run)) for run in runs]
        made = gates.distill(stores, workers, lambda text: print_notes([text]))
    with writing(gates.PROGRAMS):
        gates.FOLDER.mkdir(parents=True, exist_ok=True)
        gates.PROGRAMS.write_text(gates.corpus_text(made.added), encoding="utf-8")
    made.baseline.write(gates.FOLDER / f"torch-{gates.release()}.json")
    fired, bugs = len(made.baseline.sites), len(made.baseline.bugs)
    print_lines(
        results(),
        f"{counted(len(made.added), 'program')} beside those of known bugs; {bugs} known bugs show,"
        f" {fired} of {counted(made.reached, 'site')} that the runs reached",
    )
    return 0
