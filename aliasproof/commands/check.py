"""The command `check`: compare a user's file with eager."""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Iterator, Sequence
from typing import Annotated

from aliasproof.checks.isolated_check import (
    MEMORY_SHARE,
    PRELOADED,
    Begun,
    CheckEvent,
    CheckRequest,
    IsolatedCheck,
    ShownBug,
)
from aliasproof.commands.options import (
    Atol,
    File,
    FunctionName,
    InputsName,
    Json,
    MovedTo,
    Rtol,
    above_zero,
    flag,
    targets_option,
)
from aliasproof.oracles.check_result import Check, TargetResult
from aliasproof.processes.isolation import Limits, memory_available, start_server
from aliasproof.reports.console import print_lines, print_notes, results, write_json
from aliasproof.reports.verdict_table import CheckPrinter, Shown, check_json
from aliasproof.targets.names import CHECKED
from aliasproof.user_code.given_path import DEFAULT_NAMES, GivenFile

Targets = Annotated[
    list[str] | None, targets_option(CHECKED, ", the last one where a C++ compiler is")
]
Missed = Annotated[bool, flag("--missed", "Also list what a target could have done in place.")]
Limit = Annotated[
    float, above_zero("SECONDS", "Time limit of the file, of the run in eager, and of each target.")
]
Memory = Annotated[
    float | None,
    above_zero(
        "GIB", "Memory limit of the process that runs them. Default: 80 % of what is available."
    ),
]
InProcess = Annotated[
    bool,
    flag("--in-process", "Run all in this process, without limits, for debuggers."),
]
Documented = Annotated[
    bool,
    flag("--documented", "Show differences that a target documents in full."),
]
Strict = Annotated[bool, flag("--strict", "Wrong metadata in a graph counts as a difference.")]
Grad = Annotated[
    bool | None,
    flag(
        "--grad/--no-grad",
        "Judge the function as you call it, with gradients, and that alone; or not at all."
        " Default: also where it does something with gradients.",
    ),
]


def check(
    file: File,
    target: Targets = None,
    function: FunctionName = None,
    inputs: InputsName = "inputs",
    missed: Missed = False,
    limit: Limit = 60.0,
    memory: Memory = None,
    in_process: InProcess = False,
    documented: Documented = False,
    strict: Strict = False,
    device: MovedTo = None,
    rtol: Rtol = None,
    atol: Atol = None,
    grad: Grad = None,
    json: Json = False,
) -> int:
    """Compare your own function with eager. FILE.py defines program(*tensors) and inputs().

    Exit status: 0 judged, and no target violates what it promises: equal to eager, or different as
    documented; 1 a violation; 2 bad input; 3 internal error; 4 nothing could be judged (eager is
    undefined or raises, or no target can run it), or a process died and it is not a target's fault.
    """
    given, targets = GivenFile.of(file), tuple(target or ())
    names = given.names(function, inputs)
    request = CheckRequest(given.path, names, targets, missed, device, (rtol, atol), grad)
    if in_process:
        from aliasproof.checks.check_session import run_here

        events = run_here(request)
    else:
        if device is not None:  # before a process is started for it
            from aliasproof.ir.devices import require_device

            require_device(device)
        start_server(PRELOADED)  # it imports torch, which this process then need not
        share = MEMORY_SHARE * memory_available()
        limits = Limits(limit, int(share if memory is None else memory * 2**30))
        events = IsolatedCheck(request, limits).results()
    checked = _print_check(request, events, Shown(documented, strict), as_json=json)
    return checked.exit_status(strict=strict)


def _print_check(
    request: CheckRequest, events: Iterator[CheckEvent], shown: Shown, *, as_json: bool
) -> Check:
    """The check, printed as it goes on."""
    begun, path = next(events), request.path
    assert isinstance(begun, Begun)
    print_notes(begun.notes)
    rows = list(begun.targets)
    printer = CheckPrinter(results(), str(path), rows, begun.eager, shown, begun.oracles)
    if not as_json:
        printer.begin()
    by_name = {}
    for result in itertools.islice(events, len(rows)):
        assert isinstance(result, TargetResult)
        by_name[result.target] = result
        if not as_json:
            printer.target(result)
    # In the order that was asked for: rows came as they ended.
    checked = Check(begun.eager, {name: by_name[name] for name in begun.targets}, begun.notes)
    if as_json:
        bugs = {bug.row: bug.identifier for bug in events if isinstance(bug, ShownBug)}
        write_json({"file": str(path)} | check_json(checked, bugs))
    else:
        printer.end(checked)
        wrong = (name for name, it in checked.results.items() if it.violated)
        if (name := next(wrong, None)) is not None:
            command = _reduction(request, name.partition(" ")[0])  # without 'as called'
            print_notes([f"for a short program that shows it: {command}"])
        _print_bugs(checked, [bug for bug in events if isinstance(bug, ShownBug)])
    return checked


def _print_bugs(checked: Check, bugs: Sequence[ShownBug]) -> None:
    """Print the known bugs that rows show, and of which rows if it is not all that are wrong."""
    wrong = [name for name, result in checked.results.items() if result.violated]
    for identifier, title in dict.fromkeys((bug.identifier, bug.title) for bug in bugs):
        rows = [bug.row for bug in bugs if bug.identifier == identifier]
        which = "" if rows == wrong else f" of {', '.join(rows)}"
        line = f"Known bug{which}: {identifier} - {title} (aliasproof known {identifier})"
        print_lines(results(), line)


def _reduction(request: CheckRequest, target: str) -> str:
    """The command that reduces what a check found wrong."""
    names, (rtol, atol) = request.names, request.tolerance
    options = {
        "--target": (target, None),
        "--function": (names.function, DEFAULT_NAMES.function),
        "--inputs": (names.inputs, DEFAULT_NAMES.inputs),
        "--device": (request.device, None),
        "--rtol": (rtol, None),
        "--atol": (atol, None),
    }
    given = [(name, str(value)) for name, (value, default) in options.items() if value != default]
    return shlex.join(["aliasproof", "minimize", str(request.path), *itertools.chain(*given)])
