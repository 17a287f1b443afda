"""What a campaign found, as a table, with the shortest silent finding in full and how to see the others."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from aliasproof.console import (
    print_code,
    print_exactly,
    print_heading,
    print_lines,
    print_table,
    relative,
)
from aliasproof.progress import counted, short, silent
from aliasproof.showing import python
from campaigns.campaign import Campaign, findings_in_order, suspicions_in_order
from campaigns.finding import Finding
from programs.printing import inputs_source, source


def print_outcome(console: Console, campaign: Campaign) -> None:
    """All findings, silent ones first, and a summary."""
    findings = findings_in_order(campaign)
    if campaign.interrupted:
        print_lines(console, "Interrupted; what was found until then is kept.", "yellow")
    if findings:
        _print_findings(console, campaign, findings)
        _print_example(console, campaign, findings)
    else:
        print_lines(console, "Nothing found.", "bold")
    for name, reason in sorted(campaign.unconfirmed.items()):
        print_lines(console, f"not confirmed, so no finding: {name}: {reason}", "yellow")
    _print_suspicions(console, campaign)
    console.print()
    print_lines(console, _summary(campaign))


def _print_suspicions(console: Console, campaign: Campaign) -> None:
    """What a look inside showed where all numbers are right."""
    found = suspicions_in_order(campaign)
    if not found:
        return
    console.print()
    many = counted(campaign.total.suspicious, "program")
    print_lines(
        console,
        f"{many} right in numbers, and not right inside (no findings; 'aliasproof check' shows why):",
        "bold",
    )
    for folder, symptom, count, _ in found:
        print_lines(
            console,
            f"    {count:5}  {symptom.target}  {symptom.oracle}: {symptom.kind}  {relative(folder)}",
        )


def _print_findings(console: Console, campaign: Campaign, findings: list[Finding]) -> None:
    how_many = (
        f"{counted(len(findings), 'finding')}, {silent(campaign)} of them silent (no exception)"
    )
    console.print()
    print_lines(console, f"{how_many}, in {relative(campaign.folder / 'findings')}/", "bold")
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("target", overflow="fold")
    table.add_column("what is wrong, and the folder", overflow="fold", ratio=1)
    table.add_column("where", overflow="fold")
    table.add_column("size", justify="right", no_wrap=True)
    table.add_column("times", justify="right", no_wrap=True)
    for each in findings:
        after = f" after {_ops(each)}" if each.silent else ""
        what = Text.assemble(
            (short(each.kind), "bold red" if each.silent else ""),
            after,
            "\n",
            (each.identifier, "dim"),
        )
        table.add_row(each.target, what, each.place, str(len(each.program)), str(each.count))
    print_table(console, table)
    print_lines(
        console,
        "size: instructions of the reduced program; times: violations that came down to it",
        "dim",
    )


def _ops(finding: Finding) -> str:
    """The operators of the reduced program, such as 'expand, zero_'."""
    return ", ".join(each.op.split(".")[1] for each in finding.program.instructions)


def _print_example(console: Console, campaign: Campaign, findings: list[Finding]) -> None:
    """The shortest finding, a silent one if there is any."""
    shortest = min(
        findings, key=lambda each: (not each.silent, len(each.program), len(source(each.program)))
    )
    folder = relative(campaign.path(shortest))
    what = "The shortest silent one" if shortest.silent else "The shortest one"
    print_heading(console, f"{what}: {shortest.identifier}")
    print_code(
        console,
        f"aten = torch.ops.aten\n\n{source(shortest.program)}\n{inputs_source(shortest.program)}",
    )
    console.print()
    print_lines(
        console, f"{shortest.target}: {short(shortest.kind)} ({shortest.place}). See it and run it:"
    )
    print_exactly(console, f"    aliasproof show {folder}", "bold")
    print_exactly(console, f"    {python()} {folder / 'reproducer.py'}", "bold")


def _summary(campaign: Campaign) -> str:
    total = campaign.total
    parts = [
        f"{counted(total.programs, 'program')} in {campaign.elapsed:.0f} s",
        f"{100 * total.discard_rate:.1f} % discarded (eager gives them no single meaning)",
        f"{100 * total.instructions.dropped:.1f} % of instructions dropped while drawing",
        f"{total.outside} outside the contract",
        f"{total.violating} violating it",
        *(
            [f"{campaign.repeats} of these not reduced, as others of their kind were"]
            if campaign.repeats
            else []
        ),
        *(
            [f"{campaign.reducing} of these not reduced, as the run had ended"]
            if campaign.reducing
            else []
        ),
        *(
            [
                f"{len(campaign.mistakes)} mistakes of aliasproof itself (run.json has them; please report)"
            ]
            if campaign.mistakes
            else []
        ),
        *([f"{total.suspicious} suspicious inside"] if total.suspicious else []),
        f"{len(campaign.unconfirmed)} unconfirmed",
        f"{counted(campaign.deaths, 'worker death')}",
        f"seed {campaign.plan.seed}",
    ]
    return ", ".join(parts) + "."
