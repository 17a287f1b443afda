"""The outcome of a campaign: a table of findings, the shortest one in full, suspicions, counts."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass

from rich.console import Console
from rich.text import Text

from aliasproof.campaigns.run.campaign import (
    Campaign,
    findings_in_order,
    known_in_order,
    suspicions_in_order,
)
from aliasproof.campaigns.run.python_hunt import PythonHunt
from aliasproof.campaigns.store.finding import Finding, PythonFinding
from aliasproof.campaigns.store.stored import show_command
from aliasproof.ir.printing import source
from aliasproof.reports.console import (
    LINE_EVERY,
    clock,
    counted,
    new_table,
    print_exactly,
    print_heading,
    print_lines,
    print_table,
    python_command,
    relative,
    shortened,
    sites_fired,
)
from aliasproof.reports.program_code import print_program
from aliasproof.reports.progress import silent_findings

MOST_REASONS = 5  # why programs are not for a target
FEW = 0.01  # of all programs: fewer tell nobody anything


def print_outcome(console: Console, campaign: Campaign) -> None:
    """Print all findings, silent ones first, then what is not a finding, then counts."""
    findings = findings_in_order(campaign)
    if campaign.interrupted:
        print_lines(console, "Interrupted. Findings so far are kept.", "yellow")
    if findings:
        _print_findings(console, campaign, findings)
        _print_shortest(console, campaign, findings)
    else:
        waits = campaign.reducing or campaign.confirming
        print_lines(console, "No findings yet." if waits else "No findings.", "bold")
    for name, reason in sorted(campaign.unconfirmed.items()):
        print_lines(console, f"not shown by its reproducer: {name}: {reason}", "yellow")
    if campaign.total.not_yours:
        wrong = counted(campaign.total.not_yours, "program")
        print_lines(console, f"Not yours: {wrong} wrong in a layer of torch before your code.")
    _print_known(console, campaign)
    _print_latent(console, campaign)
    _print_suspicions(console, campaign)
    _print_rejected(console, campaign)
    print_waiting(console, campaign)
    console.print()
    print_lines(console, _summary(campaign))
    if campaign.sites.fired:
        print_lines(console, f"{sites_fired(*campaign.sites)}.")


def print_waiting(console: Console, campaign: Campaign | PythonHunt) -> None:
    """Print how to go on, if the run ended before all that it found was reduced and confirmed."""
    waiting = [
        f"{count} {what}"
        for count, what in (
            (campaign.reducing, "to be reduced"),
            (campaign.confirming, "to be confirmed"),
        )
        if count
    ]
    if waiting or campaign.interrupted:
        stored = f"Stored, and waiting: {' and '.join(waiting)}. " if waiting else ""
        print_lines(console, f"{stored}To go on (--seconds are those of the whole run):", "yellow")
        go_on = campaign.plan.resume_command(relative(campaign.folder))
        print_exactly(console, f"    {go_on}", "bold")


def _print_known(console: Console, campaign: Campaign) -> None:
    """Print how often each known bug was hit, with the link to its issue."""
    hit = known_in_order(campaign)
    if not hit:
        return
    console.print()
    hits, bugs = (
        counted(sum(count for _, count in hit), "violation"),
        counted(len(hit), "known bug"),
    )
    left = "" if campaign.plan.past_known else "; --past-known leaves them out"
    print_lines(console, f"{hits} by {bugs} (corpus/bugs/){left}:", "bold")
    for bug, count in hit:
        # A mark is less than a patch: it says that the violation looks like the bug.
        how = "" if bug.patch else ", attributed by signature"
        print_lines(console, f"    {count:5}  {bug.identifier}: {bug.title}{how}  {bug.link}")


def _print_rejected(console: Console, campaign: Campaign) -> None:
    """Print of targets that take much less than all programs how many, and why most of them."""
    for name, tally in campaign.statistics.items():
        if tally.rejected.total() < FEW * tally.programs or not tally.rejected:
            continue
        total, shown = tally.rejected.total(), tally.rejected.most_common(MOST_REASONS)
        console.print()
        print_lines(console, f"{name} does not take {total} of {tally.programs} programs:", "bold")
        for reason, count in shown:
            print_lines(console, f"    {count:5}  {reason}")
        left = total - sum(count for _, count in shown)
        if left:
            others = len(tally.rejected) - len(shown)
            print_lines(console, f"    {left:5}  for {counted(others, 'other reason')}", "dim")


def _print_latent(console: Console, campaign: Campaign) -> None:
    """Print the reduced programs that are right on all values tried, by graphs that are wrong."""
    if not campaign.latent:
        return
    console.print()
    print_lines(
        console,
        f"{len(campaign.latent)} latent: the target computes something else, but no values that"
        " were tried show it. 'aliasproof show NAME' has both expressions:",
        "bold",
    )
    for _, finding in sorted(campaign.latent.items()):
        print_lines(console, f"    {len(finding.program)} instructions  {finding.identifier}")


def _print_suspicions(console: Console, campaign: Campaign) -> None:
    """Print the programs whose results match eager's, but whose graphs are wrong."""
    suspicions = suspicions_in_order(campaign)
    if not suspicions:
        return
    console.print()
    print_lines(
        console,
        f"{counted(campaign.total.suspicious, 'suspicion')}: values match, but an oracle on graphs"
        " reports a violation. These are not findings. 'aliasproof check FOLDER' shows why:",
        "bold",
    )
    # Most frequent first; each folder has the shortest program of its symptom.
    for folder, symptom, count, _ in suspicions:
        print_lines(
            console,
            f"    {count:5}  {symptom.target}  {symptom.oracle}: {symptom.kind}"
            f"  {relative(folder)}",
        )


def _print_findings(console: Console, campaign: Campaign, findings: list[Finding]) -> None:
    silent = f"{silent_findings(campaign)} of them silent (no exception)"
    folder = relative(campaign.folder / "findings")
    console.print()
    print_lines(console, f"{counted(len(findings), 'finding')}, {silent}, in {folder}/", "bold")
    table = new_table()
    table.add_column("target", overflow="fold")
    # The identifier is the folder's name. A line of its own keeps it whole in narrow terminals.
    table.add_column("violation and folder", overflow="fold", ratio=1)
    table.add_column("where", overflow="fold")
    table.add_column("known", overflow="fold")
    table.add_column("size", justify="right", no_wrap=True)
    table.add_column("count", justify="right", no_wrap=True)
    for finding in findings:
        # The ops hint at the cause of a wrong value. An error's message says more than they do.
        after = f" after {_ops(finding)}" if finding.silent else ""
        what = Text.assemble(
            (shortened(finding.kind), "bold red" if finding.silent else ""),
            after,
            "\n",
            (finding.identifier, "dim"),
        )
        size, count = str(len(finding.program)), str(finding.count)
        known = finding.known or "-"
        table.add_row(finding.target, what, finding.place, known, size, count)
    print_table(console, table)
    print_lines(
        console,
        "size: instructions of the reduced program; count: violations with this cause; known: the"
        " bug in corpus/bugs/",
        "dim",
    )


def _ops(finding: Finding) -> str:
    """The ops of the reduced program, such as 'expand, zero_'."""
    return ", ".join(call.op.split(".")[1] for call in finding.program.instructions)


def _print_shortest(console: Console, campaign: Campaign, findings: list[Finding]) -> None:
    """Print the shortest finding, a silent one if there is any, and how to see the others.

    One of Inductor comes before others, since it is what `torch.compile` runs.
    """
    # Silent ones are worse: a user sees an exception. The source's length breaks ties.
    shortest = min(
        findings,
        key=lambda finding: (
            not finding.silent,
            not finding.of_inductor,
            len(finding.program),
            len(source(finding.program)),
        ),
    )
    folder = relative(campaign.path(shortest))
    which = "Shortest silent finding" if shortest.silent else "Shortest finding"
    print_heading(console, f"{which}: {shortest.identifier}")
    print_program(console, shortest.program)
    console.print()
    what = f"{shortest.target}: {shortened(shortest.kind)} ({shortest.place})"
    print_lines(console, f"{what}. Show it, or run its reproducer:")
    print_exactly(console, f"    {show_command(folder, shortest.target)}", "bold")
    print_exactly(console, f"    {python_command(folder / 'reproducer.py')}", "bold")


def _summary(campaign: Campaign) -> str:
    total = campaign.total
    parts = [
        f"{counted(total.programs, 'program')} in {campaign.elapsed:.0f} s",
        f"{100 * total.undefined_rate:.1f} % discarded (undefined in eager)",
        *([f"{total.rejected.total()} not for their target"] if total.rejected else []),
        f"{100 * total.instructions.dropped:.1f} % of drawn instructions dropped",
        f"{total.violating} with a violation",
        f"{total.documented} that differ as documented",
        *_optional_counts(campaign),
        f"{100 * campaign.spent.after_search:.0f} % of the time in reduction and confirmation",
        f"{len(campaign.unconfirmed)} unconfirmed",
        counted(campaign.deaths, "worker death"),
        f"seed {campaign.plan.seed}",
    ]
    return ", ".join(parts) + "."


def _optional_counts(campaign: Campaign) -> list[str]:
    """The counts that are shown only if they are not zero."""
    counts = {
        "of these not reduced (others of their kind were)": campaign.repeats,
        "internal errors of aliasproof (see run.json, and please report them)": len(
            campaign.mistakes
        ),
        "with matching values but suspicious": campaign.total.suspicious,
    }
    return [f"{count} {what}" for what, count in counts.items() if count]


# --- hunt report ----------------------------------------------------------------------------------
#
# What `hunt` prints: its progress on standard error, and its outcome.


LONGEST_KIND = 100  # characters
LONGEST_NOTE = 300


@dataclass(slots=True)
class HuntProgress:
    """Prints a status line every `LINE_EVERY` seconds, and a line for each new finding."""

    console: Console
    last: float | None = None
    told: int = 0

    def __call__(self, hunt: PythonHunt) -> None:
        """Say what is new, and how far the hunt is, if it is time to."""
        now = time.monotonic()
        if self.last is None:
            self.last = now
            workers = counted(hunt.plan.workers, "worker")
            print_lines(
                self.console,
                f"Hunting {hunt.target} with {workers}, seed {hunt.plan.seed}, into"
                f" {relative(hunt.folder)}. Ctrl-C ends the run; it can go on later.",
            )
            for note in hunt.opening:
                print_lines(self.console, note)
        for finding in hunt.news[self.told :]:
            word = "found" if finding.confirmed else "not confirmed"
            print_lines(self.console, f"[{clock(hunt.elapsed)}] {word} {_line(finding)}")
        self.told = len(hunt.news)
        if now - self.last >= LINE_EVERY:
            self.last = now
            print_lines(self.console, f"[{clock(hunt.elapsed)}] {_status(hunt)}")


def _status(hunt: PythonHunt) -> str:
    programs = hunt.outcomes.total()
    rate = programs / hunt.elapsed if hunt.elapsed else 0.0
    violate = hunt.outcomes["violated"]
    return (
        f"{counted(programs, 'program')} ({rate:.1f}/s), {violate} violate,"
        f" {hunt.reducing} being reduced, {hunt.confirming} being confirmed,"
        f" {counted(len(hunt.findings), 'finding')}"
    )


def _line(finding: PythonFinding) -> str:
    lines = f"{finding.drawn_lines} -> {finding.program.lines} lines"
    known = f" (known: {finding.known})" if finding.known else ""
    return f"{finding.identifier}{known}: {finding.kind[:LONGEST_KIND]} at {finding.place}, {lines}"


def print_hunt(console: Console, hunt: PythonHunt) -> None:
    """Print the findings, those that are not known and silent ones first, and all counts."""
    listed = hunt.in_order()
    new = [finding for finding in listed if not finding.known]
    known = [finding for finding in listed if finding.known]
    _print_group(console, "findings", new)
    _print_group(console, "known bugs", known)
    _print_group(console, "not confirmed in a fresh process", hunt.unconfirmed.values())
    counts = ", ".join(f"{count} {name}" for name, count in hunt.outcomes.most_common())
    silent = sum(finding.silent for finding in new)
    interrupted = "Interrupted. What was found so far is kept. " if hunt.interrupted else ""
    programs = counted(hunt.outcomes.total(), "program")
    print_lines(console, f"{interrupted}{programs}{f': {counts}' if counts else ''}.")
    print_lines(
        console,
        f"{counted(len(new), 'finding')} ({silent} silent), {counted(len(known), 'known bug')},"
        f" {len(hunt.unconfirmed)} not confirmed.",
    )
    for note in hunt.notes:
        print_lines(console, note[:LONGEST_NOTE])
    if listed:
        command = show_command(relative(hunt.path(listed[0])), listed[0].target)
        print_lines(console, f"Each is a folder. To look at one: {command}")
    print_waiting(console, hunt)


def _print_group(console: Console, title: str, findings: Iterable[PythonFinding]) -> None:
    lines = [_line(finding) for finding in findings]
    if lines:
        print_heading(console, title)
        for line in lines:
            print_lines(console, line)
