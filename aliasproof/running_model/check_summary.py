"""What a checked run says at its end: what was judged, what differs, and what it cost."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator

from aliasproof.reports.console import notes, print_lines
from aliasproof.reports.wording import counted
from aliasproof.running_model.model_check import ModelCheck
from aliasproof.targets.registry import TARGETS


def summary(check: ModelCheck) -> Iterator[str]:
    """The lines, without the differences themselves, which have a line each already."""
    graphs = check.graphs
    for reason in dict.fromkeys(check.unchecked):
        yield f"a graph is not checked, since aliasproof fails; please report it: {reason}"
    if not graphs:
        yield "no graph was compiled"
        return
    counts = [graph.counts for graph in graphs]
    targets = ", ".join(dict.fromkeys(graph.target.name for graph in graphs))
    wrong = len({difference.graph.number for difference in check.differences})
    yield (
        f"{targets} beside eager: {counted(len(graphs), 'graph')},"
        f" {counted(sum(it.calls for it in counts), 'call')}:"
        f" {sum(it.forward for it in counts)} judged,"
        f" {sum(it.backward for it in counts)} with a backward pass;"
        f" {counted(wrong, 'graph')} {'differs' if wrong == 1 else 'differ'}"
    )
    rounding = sum(it.rounding for it in counts)
    if rounding:
        yield f"{counted(rounding, 'call')}: rounding alone, both sides agree in float64"
    documented = sum(it.documented for it in counts)
    if documented:
        yield f"{counted(documented, 'difference')} that the target documents"
    reasons: Counter[str] = Counter()
    for it in counts:
        reasons.update(it.unjudged)
    for reason, number in reasons.items():
        yield f"{counted(number, 'call')} not judged: {reason}"
    alone = sum(it.target for it in counts)
    spent = sum(it.model + it.checking for it in counts)
    cost = f"{sum(it.first for it in counts):.1f} s in compilations and first calls"
    if alone:
        cost += f"; {spent:.1f} s in later calls, {spent / alone:.1f} times the target alone"
    yield cost
    if check.folders:
        yield _reduction(check)


def _reduction(check: ModelCheck) -> str:
    """The command that goes on from here. An issue is for a bug of torch."""
    found, folder = check.differences[0], check.folders[0]
    target = found.graph.target.reducing(found.direction)
    command = ["aliasproof", "minimize", str(folder), "--target", target]
    if target.split(":")[0] not in TARGETS:
        return f"to reduce what differs first: {shlex.join(command)}"
    command += ["--finding", f"{folder}-reduced"]
    return f"to reduce what differs first to a script and an issue: {shlex.join(command)}"


def print_summary(check: ModelCheck) -> None:
    """Print it on standard error."""
    for line in summary(check):
        print_lines(notes(), f"aliasproof: {line}")
