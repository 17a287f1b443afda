"""The outcome of a campaign, on one screen: findings, the shortest one in full, then counts.

Everything except new findings has one line: known bugs, suspicions, programs that a target rejects.
"""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from aliasproof.campaigns.failure.finding import AnyFinding
from aliasproof.campaigns.run.campaign import (
    Campaign,
    findings_in_order,
    known_in_order,
    suspicions_in_order,
)
from aliasproof.campaigns.store.run_folder import show_command
from aliasproof.ir.program import Program
from aliasproof.reports.console import (
    counted,
    in_columns,
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
from aliasproof.reports.explanation import print_program

MOST_FINDINGS = 10  # lines of findings: the outcome fits a screen
FEW = 0.01  # of all programs: fewer are not worth a line


def print_outcome(console: Console, campaign: Campaign, *, everything: bool = False) -> None:
    """Print findings, new and silent ones first, then one line per other kind, then counts.

    With `everything`, each finding, known bug and rejection has its own line.
    """
    findings = sorted(findings_in_order(campaign), key=lambda finding: bool(finding.known))
    new = [finding for finding in findings if not finding.known]
    if campaign.interrupted:
        print_lines(console, "Interrupted. Findings so far are kept.", "yellow")
    waits = campaign.reducing or campaign.confirming
    if not new:
        none = f"No {'new ' if findings else ''}findings{' yet' if waits else ''}"
        known = f"; {counted(len(findings), 'known bug')} found again" if findings else ""
        print_lines(console, f"{none}{known}.", "bold")
    shown = findings if everything else new
    if shown:
        _print_findings(console, campaign, shown, len(shown) if everything else MOST_FINDINGS)
    if findings:
        _print_shortest(console, campaign, new or findings)
    console.print()
    _print_known(console, campaign, everything)
    _print_others(console, campaign)
    _print_rejected(console, campaign, everything)
    _print_changed(console, campaign)
    if campaign.untried and not campaign.interrupted:
        names = ", ".join(campaign.untried)
        print_lines(console, f"The time did not suffice for a program of {names}.", "yellow")
    print_waiting(console, campaign)
    print_lines(console, _summary(campaign))


def print_waiting(console: Console, campaign: Campaign) -> None:
    """Print how to resume, if the run ended before all failures were reduced and confirmed."""
    counts = {
        "to be reduced": campaign.reducing,
        "to be confirmed": campaign.confirming,
        "latent, to be reduced": campaign.latent_waiting,
    }
    waiting = [f"{count} {what}" for what, count in counts.items() if count]
    if waiting or campaign.interrupted:
        stored = f"Stored, and waiting: {' and '.join(waiting)}. " if waiting else ""
        print_lines(console, f"{stored}To go on (--seconds are those of the whole run):", "yellow")
        go_on = campaign.plan.resume_command(relative(campaign.folder))
        print_exactly(console, f"    {go_on}", "bold")


def _print_known(console: Console, campaign: Campaign, everything: bool) -> None:
    """Print how often known bugs were hit; with `everything`, each one with its link."""
    hit = known_in_order(campaign)
    if not hit:
        return
    hits = counted(sum(count for _, count in hit), "violation")
    total = f"{hits} by {counted(len(hit), 'known bug')}"
    if not everything:
        names = ", ".join(f"{bug.identifier} {count}" for bug, count in hit)
        _print_folded(console, f"{total}: {names}", "--known shows all")
        return
    print_lines(console, f"{total} ('aliasproof known NAME' shows one):", "bold")
    for bug, count in hit:
        # A mark is weaker than a patch: it only says that the violation looks like the bug.
        how = "" if bug.patch else ", attributed by signature"
        print_lines(console, f"    {count:5}  {bug.identifier}: {bug.title}{how}  {bug.link}")


def _print_folded(console: Console, text: str, rest: str) -> None:
    """Print the start of a text, and where the rest is, in one line."""
    print_lines(console, f"{in_columns(text, console.width - len(rest) - 3)} ({rest})")


def _print_others(console: Console, campaign: Campaign) -> None:
    """Print other results, one line each: not confirmed, not yours, latent, suspicious."""
    if campaign.unconfirmed:
        names = ", ".join(sorted(campaign.unconfirmed))
        text = f"{len(campaign.unconfirmed)} not shown by a reproducer: {names}"
        _print_folded(console, text, "run.json says why")
    if campaign.total.not_yours:
        wrong = counted(campaign.total.not_yours, "program")
        print_lines(console, f"Not yours: {wrong} wrong in a layer of torch before your code.")
    if campaign.latent:
        first = relative(campaign.folder / "suspicions" / min(campaign.latent))
        text = f"{len(campaign.latent)} latent: not shown equal, and no values differ"
        print_lines(console, f"{text} (aliasproof show {first})")
    suspicions = suspicions_in_order(campaign)
    if suspicions:
        number = counted(campaign.total.suspicious, "suspicion")
        text = f"{number}: values match, graphs do not: {relative(campaign.folder / 'suspicions')}/"
        # In torch without the patches, a graph may be right.
        where = "seen while known bugs were patched" if campaign.plan.past_known else ""
        print_lines(console, f"{text} ({where or 'aliasproof check FOLDER'})")


def _print_rejected(console: Console, campaign: Campaign, everything: bool) -> None:
    """For targets that reject many programs, print how many, and the main reasons."""
    for name, tally in campaign.statistics.items():
        if tally.rejected.total() < FEW * tally.programs or not tally.rejected:
            continue
        text = f"{name} does not take {tally.rejected.total()} of {tally.programs} programs"
        reasons = [(reason, count) for reason, count in tally.rejected.most_common()]
        if not everything:
            listed = ", ".join(f"{reason} ({count})" for reason, count in reasons)
            _print_folded(console, f"{text}: {listed}", "--known shows all")
            continue
        print_lines(console, f"{text}:", "bold")
        for reason, count in reasons:
            print_lines(console, f"    {count:5}  {reason}")


def _print_changed(console: Console, campaign: Campaign) -> None:
    """For each user's pass, print how often it changed a graph; only then was it tested."""
    for name, tally in campaign.statistics.items():
        compiled = tally.changed + tally.unchanged
        if tally.changed:
            of_all = f"{tally.changed} of {counted(compiled, 'compilation')}"
            print_lines(console, f"{name} changed a graph in {of_all}.")
        elif compiled and not any(found.target == name for found in campaign.findings.values()):
            none = f"{name} changed no graph in {counted(compiled, 'compilation')}: nothing of it"
            advice = "was tested. 'check' a function that it changes."
            print_lines(console, f"{none} {advice}", "yellow")


def _print_findings(
    console: Console, campaign: Campaign, findings: list[AnyFinding], most: int
) -> None:
    """Print the number of findings, and one line for each of the first ones."""
    silent = sum(finding.silent for finding in findings)
    folder = relative(campaign.folder / "findings")
    total = f"{counted(len(findings), 'finding')}, {silent} of them silent (no exception)"
    print_lines(console, f"{total}, in {folder}/", "bold")
    table = new_table()
    # The identifier is the folder's name. It is never cut, so that it can be copied.
    longest = max(len(finding.identifier) for finding in findings)
    table.add_column("finding", no_wrap=True, min_width=longest)
    table.add_column("what", no_wrap=True, overflow="ellipsis", ratio=1)
    table.add_column("size", justify="right", no_wrap=True, min_width=4)
    table.add_column("hits", justify="right", no_wrap=True, min_width=4)
    for finding in findings[:most]:
        # The ops hint at the cause of a wrong value. For an error, its message is better.
        after = f" after {ops}" if finding.silent and (ops := _ops(finding)) else ""
        kind = (finding.kind, "bold red" if finding.silent else "")
        what = Text.assemble(kind, f" ({finding.place})", after)
        table.add_row(finding.identifier, what, str(finding.size), str(finding.count))
    print_table(console, table)
    if len(findings) > most:
        print_lines(console, f"and {len(findings) - most} more (--known shows all)")


def _ops(finding: AnyFinding) -> str:
    """The ops of the reduced program, such as 'expand, zero_'; empty for a Python program."""
    program = finding.program
    calls = program.instructions if isinstance(program, Program) else ()
    return ", ".join(call.op.split(".")[1] for call in calls)


def _print_shortest(console: Console, campaign: Campaign, findings: list[AnyFinding]) -> None:
    """Print the shortest finding, a silent one if there is any, and how to see the others.

    A finding of Inductor comes before others, since `torch.compile` runs Inductor by default.
    """
    # Silent ones are worse: an exception is visible to a user. The source's length breaks ties.
    shortest = min(
        findings, key=lambda it: (not it.silent, not it.of_inductor, it.size, len(it.source))
    )
    folder = relative(campaign.path(shortest))
    which = "Shortest silent finding" if shortest.silent else "Shortest finding"
    print_heading(console, f"{which}: {shortest.identifier}")
    print_program(console, shortest.program)
    console.print()
    what = f"{shortest.target}: {shortened(shortest.kind)} ({shortest.place})"
    if "note" in shortest.evidence:  # the line of a user's pass
        what += f", {shortest.evidence['note']}"
    print_lines(console, f"{what}. Show it, or run its reproducer:")
    print_exactly(console, f"    {show_command(folder, shortest.target)}", "bold")
    print_exactly(console, f"    {python_command(folder / 'reproducer.py')}", "bold")


def _summary(campaign: Campaign) -> str:
    total = campaign.total
    counts = {
        "with a violation": total.wrong,
        "of these not reduced (others of their kind were)": campaign.repeats,
        "that differ as documented": total.documented,
        "not for their target": total.rejected.total(),
        "that end their process, maybe in eager": total.dies,
        "internal errors of aliasproof (see run.json, and please report them)": len(
            campaign.mistakes
        ),
    }
    parts = [
        f"{counted(total.programs, 'program')} in {campaign.elapsed:.0f} s",
        f"{100 * total.undefined_rate:.1f} % discarded (undefined in eager)",
        *[f"{count} {what}" for what, count in counts.items() if count],
        f"{100 * campaign.spent.after_search:.0f} % of the time in reduction and confirmation",
        *([counted(campaign.deaths, "worker death")] if campaign.deaths else []),
        *([sites_fired(*campaign.sites)] if campaign.sites.fired else []),
        f"seed {campaign.plan.seed}",
    ]
    return ", ".join(parts) + "."
