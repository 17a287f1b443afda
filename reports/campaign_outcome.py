"""The outcome of a campaign: a table of findings, the shortest one in full, suspicions, counts."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from aliasproof.campaigns.run.campaign import (
    Campaign,
    findings_in_order,
    known_in_order,
    suspicions_in_order,
)
from aliasproof.campaigns.store.finding import AnyFinding, PythonFinding
from aliasproof.campaigns.store.stored import show_command
from aliasproof.ir.printing import source
from aliasproof.ir.python_program import PythonProgram
from aliasproof.reports.console import (
    counted,
    new_table,
    print_code,
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
    if campaign.untried:
        names = ", ".join(campaign.untried)
        print_lines(console, f"The time did not suffice for a program of {names}.", "yellow")
    print_waiting(console, campaign)
    console.print()
    print_lines(console, _summary(campaign))
    if campaign.sites.fired:
        print_lines(console, f"{sites_fired(*campaign.sites)}.")


def print_waiting(console: Console, campaign: Campaign) -> None:
    """Print how to go on, if the run ended before all that it found was reduced and confirmed."""
    counts = {"to be reduced": campaign.reducing, "to be confirmed": campaign.confirming}
    waiting = [f"{count} {what}" for what, count in counts.items() if count]
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
    hits = counted(sum(count for _, count in hit), "violation")
    bugs = counted(len(hit), "known bug")
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
        print_lines(console, f"    {finding.size} instructions  {finding.identifier}")


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


def _print_findings(console: Console, campaign: Campaign, findings: list[AnyFinding]) -> None:
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
        after = f" after {ops}" if finding.silent and (ops := _ops(finding)) else ""
        what = Text.assemble(
            (shortened(finding.kind), "bold red" if finding.silent else ""),
            after,
            "\n",
            (finding.identifier, "dim"),
        )
        size, count = str(finding.size), str(finding.count)
        known = finding.known or "-"
        table.add_row(finding.target, what, finding.place, known, size, count)
    print_table(console, table)
    unit = "line" if campaign.plan.command == "hunt" else "instruction"
    print_lines(
        console,
        f"size: {unit}s of the reduced program; count: violations with this cause; known: the"
        " bug in corpus/bugs/",
        "dim",
    )


def _ops(finding: AnyFinding) -> str:
    """The ops of the reduced program, such as 'expand, zero_'; none of a Python program."""
    if isinstance(finding, PythonFinding):
        return ""
    return ", ".join(call.op.split(".")[1] for call in finding.program.instructions)


def _print_shortest(console: Console, campaign: Campaign, findings: list[AnyFinding]) -> None:
    """Print the shortest finding, a silent one if there is any, and how to see the others.

    One of Inductor comes before others, since it is what `torch.compile` runs.
    """
    # Silent ones are worse: a user sees an exception. The source's length breaks ties.
    shortest = min(
        findings,
        key=lambda finding: (
            not finding.silent,
            not finding.of_inductor,
            finding.size,
            len(_source(finding)),
        ),
    )
    folder = relative(campaign.path(shortest))
    which = "Shortest silent finding" if shortest.silent else "Shortest finding"
    print_heading(console, f"{which}: {shortest.identifier}")
    if isinstance(shortest, PythonFinding):
        print_code(console, shortest.program.source.strip())
    else:
        print_program(console, shortest.program)
    console.print()
    what = f"{shortest.target}: {shortened(shortest.kind)} ({shortest.place})"
    print_lines(console, f"{what}. Show it, or run its reproducer:")
    print_exactly(console, f"    {show_command(folder, shortest.target)}", "bold")
    print_exactly(console, f"    {python_command(folder / 'reproducer.py')}", "bold")


def _source(finding: AnyFinding) -> str:
    program = finding.program
    return program.source if isinstance(program, PythonProgram) else source(program)


def _summary(campaign: Campaign) -> str:
    total = campaign.total
    dropped = f"{100 * total.instructions.dropped:.1f} %"  # Python programs have no instructions
    parts = [
        f"{counted(total.programs, 'program')} in {campaign.elapsed:.0f} s",
        f"{100 * total.undefined_rate:.1f} % discarded (undefined in eager)",
        *([f"{total.rejected.total()} not for their target"] if total.rejected else []),
        *([f"{dropped} of drawn instructions dropped"] if total.instructions.drawn else []),
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
        "that end their process, maybe in eager": campaign.total.dies,
        "internal errors of aliasproof (see run.json, and please report them)": len(
            campaign.mistakes
        ),
        "with matching values but suspicious": campaign.total.suspicious,
    }
    return [f"{count} {what}" for what, count in counts.items() if count]
