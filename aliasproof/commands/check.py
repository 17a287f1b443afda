"""The command `check`: compare a user's file with eager."""

from __future__ import annotations

import contextlib
import faulthandler
from collections.abc import Iterator, Sequence
from pathlib import Path

from aliasproof import user_file
from aliasproof.checking import DEFAULT_TARGETS, check
from aliasproof.user_file import FileNames, UserFunction
from oracles.check_result import Check
from programs.program import Program
from reports.console import print_notes, results, write_json
from reports.verdict_table import check_json, print_check
from targets.registry import target as target_named
from trials.worker import quiet_torch


def check_file(
    path: Path,
    targets: Sequence[str] | None,
    names: FileNames,
    *,
    missed: bool,
    as_json: bool,
    accept_documented: bool = False,
    strict: bool = False,
) -> int:
    """Check the function or program in a file, print the outcome, and return the exit status."""
    chosen = list(targets or DEFAULT_TARGETS)
    for name in chosen:  # before the user's file runs, which can take long
        target_named(name)

    def action(given: UserFunction | Program) -> Check:
        if isinstance(given, Program):
            return check(given, targets=chosen, missed=missed)
        return check(
            given.function,
            given.inputs,
            chosen,
            second_inputs=given.second_inputs,
            file=path,
            missed=missed,
        )

    quiet_torch()
    with _stack_of_crashes():
        found = user_file.apply_to(path, names, action)
    print_notes(found.notes)
    if as_json:
        write_json({"file": str(path)} | check_json(found))
    else:
        print_check(results(), str(path), found)
    return found.exit_status(accept_documented=accept_documented, strict=strict)


@contextlib.contextmanager
def _stack_of_crashes() -> Iterator[None]:
    """Print the Python stack if a target crashes, since it ends this process with it."""
    ours = not faulthandler.is_enabled()
    if ours:
        faulthandler.enable()
    try:
        yield
    finally:
        if ours:
            faulthandler.disable()
