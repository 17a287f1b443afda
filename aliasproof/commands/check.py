"""The command `check`: compare a user's file with eager."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from aliasproof.check_request import Begun, CheckRequest
from aliasproof.isolated_check import PRELOADED, IsolatedCheck
from aliasproof.oracles.check_result import Check
from aliasproof.programs.errors import UserError
from aliasproof.reports.console import print_notes, results, write_json
from aliasproof.reports.shown_runs import ShownCheck, ShownTarget
from aliasproof.reports.verdict_table import CheckPrinter, check_json
from aliasproof.trials.isolation import Limits, memory_available, start_server

MEMORY_SHARE = 0.8  # of the memory that is available, without --memory


@dataclass(frozen=True, slots=True)
class CheckOptions:
    """How a check runs: limits of its processes; or in this process, without limits."""

    limit: float = 60.0
    memory: float | None = None
    in_process: bool = False
    as_json: bool = False
    strict: bool = False

    def limits(self) -> Limits:
        """The limits. Raises `UserError` for numbers out of range."""
        for option, number in (("limit", self.limit), ("memory", self.memory)):
            if number is not None and not 0 < number < float("inf"):
                raise UserError(f"--{option} {number:g}: give a number above 0")
        share = MEMORY_SHARE * memory_available()
        return Limits(self.limit, int(share if self.memory is None else self.memory * 2**30))


def check_file(request: CheckRequest, options: CheckOptions) -> Check:
    """Check the function or program in a file, and print the outcome."""
    events = _events(request, options)
    begun, path = next(events), request.path
    assert isinstance(begun, Begun)
    print_notes(begun.eager.notes)
    found = ShownCheck(begun.eager)
    printer = CheckPrinter(results(), str(path), list(begun.targets), found, options.strict)
    if not options.as_json:
        printer.begin()
    by_name = {}
    for shown in events:
        assert not isinstance(shown, Begun)
        by_name[shown.result.target] = shown
        if not options.as_json:
            printer.target(shown)
    # In the order that was asked for: rows came as they ended.
    found = replace(found, targets={name: by_name[name] for name in begun.targets})
    if options.as_json:
        write_json({"file": str(path)} | check_json(found))
    else:
        printer.end(found)
    return found.check


def _events(request: CheckRequest, options: CheckOptions) -> Iterator[Begun | ShownTarget]:
    if not options.in_process:
        limits = options.limits()
        if request.device is not None:  # before a process is started for it
            from aliasproof.programs.devices import require_device  # noqa: PLC0415 - it imports torch

            require_device(request.device)
        # It imports torch, which this process then need not.
        start_server(PRELOADED)
        return IsolatedCheck(request, limits).results()
    from aliasproof.check_session import run_here  # noqa: PLC0415 - it imports torch

    return run_here(request)
