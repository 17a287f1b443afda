"""What `hunt` prints: its progress on standard error, and its outcome."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass

from rich.console import Console

from aliasproof.campaigns.run.python_hunt import PythonHunt
from aliasproof.campaigns.store.finding import PythonFinding
from aliasproof.campaigns.store.stored import show_command
from aliasproof.reports.campaign_outcome import print_waiting
from aliasproof.reports.console import LINE_EVERY, print_heading, print_lines, relative
from aliasproof.reports.wording import clock, counted

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
