"""The command `bisect`: which layer of a compiler, and which pass of it, makes a program wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from aliasproof.commands.minimize import KeptOracle, MinimizedFile
from aliasproof.commands.options import (
    FunctionName,
    InputsName,
    Json,
    MovedTo,
    option,
    target_option,
)
from aliasproof.commands.replay import Interpreters
from aliasproof.ir.errors import Rejected, UserError
from aliasproof.minimization.minimize_request import MinimizeRequest
from aliasproof.processes.isolation import Limits, memory_available, start_server
from aliasproof.reports.console import (
    counted,
    notes,
    print_exactly,
    print_heading,
    print_lines,
    print_notes,
    print_table,
    results,
    table_of,
    write_json,
)
from aliasproof.reports.graph_change import changed_lines
from aliasproof.user_code.given_path import GivenFile, file_to_read

if TYPE_CHECKING:  # they import torch
    from aliasproof.campaigns.publish.replaying import Replayed
    from aliasproof.checks.bisecting import Bisection

SESSION = "aliasproof.checks.bisecting"
_STYLES = {"-": "red", "+": "green"}
STILL, FIXED = "still failing", "fixed"  # as `replay` calls them
BisectedTarget = Annotated[
    str | None,
    target_option("Search in this compiler; by default inductor, or a finding's own."),
]
TimeLimit = Annotated[float, option("SECONDS", "Time limit of the search.")]


def bisect(
    file: MinimizedFile,
    target: BisectedTarget = None,
    oracle: KeptOracle = None,
    torch: Interpreters = None,
    function: FunctionName = None,
    inputs: InputsName = "inputs",
    device: MovedTo = None,
    limit: TimeLimit = 600.0,
    json: Json = False,
) -> int:
    """Name the first layer that makes a program wrong, and its pass; show the graph around it.

    With --torch, run its script under several torches, and name the first version that is wrong.

    Exit status: 0 named; 2 bad input, or nothing differs; 4 not judged.
    """
    given = GivenFile.of(file)
    names = given.names(function, inputs)
    request = MinimizeRequest(given.path, names, target, oracle, device)
    if given.path.suffix in (".py", ".json"):  # before torch is imported
        file_to_read(given.path)
    start_server([SESSION])  # it imports torch while this process does
    from aliasproof.campaigns.failure.finding import is_of_python
    from aliasproof.minimization.minimizing import (
        DEFAULT_TARGET,
        NOT_JUDGED,
        complete_request,
        locate_request,
    )

    request = locate_request(str(given.path), request)
    if not is_of_python(request.path):  # which brings its target
        request = complete_request(request, by_target=True)
        request = replace(request, target=request.target or DEFAULT_TARGET)
    try:
        bisection = _bisect(request, limit)
    except Rejected as reason:
        print_lines(notes(), f"aliasproof: {given.path} cannot be judged: {reason}")
        return NOT_JUDGED
    print_notes(bisection.notes)
    replays = _replays(bisection, torch or [])
    if json:
        write_json({"file": str(given.path)} | _as_json(bisection, replays))
    else:
        _print(str(given.path), bisection, replays)
    return 0


def _bisect(request: MinimizeRequest, limit: float) -> Bisection:
    from aliasproof.minimization.minimizing import found_in_file, process_for, value_of
    from aliasproof.torch_parts import require

    require("attribution")
    limits = Limits(limit, memory_available())
    with process_for(request, limits) as process:
        outcome = process.outcome_of(f"{SESSION}:bisect", request)
    try:
        bisection: Bisection = value_of(outcome, request)
    except (Rejected, UserError) as reason:
        finding = found_in_file(request, limits, str(reason))
        if finding is None:
            raise
        print_notes([f"searched as it is written, since {reason}"])
        with process_for(request, limits) as process:
            outcome = process.outcome_of(f"{SESSION}:bisect_python", finding)
        bisection = value_of(outcome, request)
    return bisection


def _replays(bisection: Bisection, interpreters: list[Path]) -> list[Replayed]:
    """What the script shows under each interpreter, in the order of the versions of torch."""
    from aliasproof.campaigns.publish.replaying import replay_scripts

    if not interpreters:
        return []
    if not bisection.scripts:
        raise UserError(
            "--torch needs a script with torch alone: none is made for a target of your own, or for"
            " a function that no program of ATen calls keeps"
        )
    return replay_scripts(bisection.scripts, interpreters)


def _as_json(bisection: Bisection, replays: list[Replayed]) -> dict[str, object]:
    part = bisection.part
    return {
        "layers": [asdict(layer) for layer in bisection.layers],
        "at fault": asdict(bisection.symptom),
        "pass": None if part is None else asdict(part),
        "torch": {replayed.torch: replayed.word for replayed in replays},
        "first wrong torch": first_wrong(replays),
    }


def _print(given: str, bisection: Bisection, replays: Sequence[Replayed]) -> None:
    """Print it to standard output."""
    from aliasproof.checks.bisecting import DOCUMENTED

    console, symptom = results(), bisection.symptom
    rows = ((layer.target, layer.state, layer.detail) for layer in bisection.layers)
    print_table(console, table_of(("target", "", "difference"), rows, texts=3, fold=True))
    part = bisection.part
    named = f"the part at fault is {part.name}" if part else "no experiment names a part of it"
    console.print()
    states = {layer.state for layer in bisection.layers if layer.target == symptom.target}
    verdict = "differs first, as it documents" if DOCUMENTED in states else "is wrong first"
    print_lines(console, f"{given}: {symptom.target} {verdict}; {named}.", style="bold")
    if part is not None and part.before and part.after:
        lines = list(changed_lines(part.before, part.after))
        count = counted(sum(line[:1] in _STYLES for line in lines), "line")
        print_heading(console, f"the graph before and after {part.name}: {count} differ")
        for line in lines:
            print_exactly(console, line, style=_STYLES.get(line[:1], ""))
    if replays:
        print_heading(console, "versions of torch")
        words = {STILL: "wrong", FIXED: "right"}
        versions = ((f"torch {it.torch}", words.get(it.word, it.ending)) for it in replays)
        print_table(console, table_of(("", ""), versions, texts=2, header=False))
        if (first := first_wrong(replays)) is not None:
            print_lines(console, f"The first that is wrong is torch {first}.")


def first_wrong(replays: Sequence[Replayed]) -> str | None:
    """The oldest torch that is wrong, if older ones were asked and all are right."""
    words = [replayed.word for replayed in replays]
    first = words.index(STILL) if STILL in words else 0
    return replays[first].torch if first and set(words[:first]) == {FIXED} else None
