"""What a checked run says at its end: what was not checked, what differs, and the cost."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Sequence

from aliasproof.reports.console import notes, print_lines
from aliasproof.reports.wording import counted
from aliasproof.running_model.checked_graph import IN_BACKWARD, CallCounts
from aliasproof.running_model.model_check import ModelCheck
from aliasproof.targets.registry import TARGETS, is_name
from aliasproof.targets.user_names import NAME_IT

_ZEROS = "a gradient is None on one side and zeros on the other (an optimizer skips None only)"


def summary(
    check: ModelCheck, without_graphs: str = "NOT CHECKED: no graph was compiled"
) -> Iterator[str]:
    """The lines, without the differences themselves, which have a line each already.

    `without_graphs` is what to say if no graph was compiled.
    """
    graphs = check.graphs
    for reason in dict.fromkeys(check.unchecked):
        yield f"NOT CHECKED: a graph, because aliasproof fails; please report it: {reason}"
    if not graphs:
        yield without_graphs
        return
    counts = [graph.counts for graph in graphs]
    yield from _not_checked(counts)
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
    alone = sum(it.target for it in counts)
    spent = sum(it.model + it.checking for it in counts)
    cost = f"{sum(it.first for it in counts):.1f} s in compilations and first calls"
    if alone:
        cost += f"; {spent:.1f} s in later calls, {spent / alone:.1f} times the target alone"
    yield cost
    if check.folders:
        yield _reduction(check)


def _not_checked(counts: Sequence[CallCounts]) -> Iterator[str]:
    """How many calls were not judged, and why."""
    calls = counted(sum(it.calls for it in counts), "call")
    reasons: Counter[str] = Counter()
    for it in counts:
        reasons.update(it.unjudged)
        reasons.update({f"{IN_BACKWARD}{_ZEROS}": it.zeros})
    for reason, number in (+reasons).items():
        why = reason.removeprefix(IN_BACKWARD)
        which = f"the backward pass in {number}" if why != reason else f"{number}"
        yield f"NOT CHECKED: {which} of {calls}, because {why}"


def _reduction(check: ModelCheck) -> str:
    """The command that goes on from here. An issue is for a bug of torch."""
    found, folder = check.differences[0], check.folders[0]
    checked = found.graph.target
    target = checked.reducing(found.direction)
    if not is_name(target):
        return f"no command can import the backend of {folder}: {NAME_IT}"
    if found.direction == "backward" and not checked.gradients:  # a program has no backward pass
        command = ["aliasproof", "check", str(folder), "--target", target]
        return f"to see what differs first: {shlex.join(command)}"
    command = ["aliasproof", "minimize", str(folder), "--target", target]
    if target.split(":")[0] not in TARGETS:
        return f"to reduce what differs first: {shlex.join(command)}"
    command += ["--finding", f"{folder}-reduced"]
    return f"to reduce what differs first to a script and an issue: {shlex.join(command)}"


def print_summary(check: ModelCheck, *without_graphs: str) -> None:
    """Print it on standard error; the arguments are those of `summary`."""
    for line in summary(check, *without_graphs):
        print_lines(notes(), f"aliasproof: {line}")
