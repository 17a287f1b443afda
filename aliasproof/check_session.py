"""One check, in the process that runs the user's code: first eager, then targets one by one.

That process is isolated, or it is this one. What the functions return can be pickled. The steps
that they announce say whose code was running if the process dies.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from aliasproof.campaigns.store.run_folder import read_finding
from aliasproof.checking import Prepared, check_row, default_targets, prepare_rows
from aliasproof.checking_as_called import ORACLES
from aliasproof.isolated_check import Begun, CheckRequest
from aliasproof.oracles.check_result import TargetResult
from aliasproof.oracles.given_tolerance import compare_within
from aliasproof.oracles.judge import EVERY_ORACLE
from aliasproof.processes.isolation import step
from aliasproof.programs.errors import UserError, out_of_memory
from aliasproof.programs.execution import SEED
from aliasproof.programs.program import Program
from aliasproof.programs.stored_graph import about_graph, is_stored_graph
from aliasproof.reports.console import output_for_results
from aliasproof.targets.names import CHECKED
from aliasproof.targets.registry import TARGETS, is_importable, is_name
from aliasproof.targets.registry import target as target_named
from aliasproof.targets.user_names import NAME_IT, grant
from aliasproof.trials.worker import quiet_torch
from aliasproof.user_code import user_file
from aliasproof.user_code.user_file import FileNames, UserFunction

# A process serves one check. It keeps the tensors, and its callers know no more than names.
_prepared: Prepared | None = None


def begin(request: CheckRequest) -> Begun:
    """Run the user's file, and its function in eager. Raises `UserError` for bad input."""
    global _prepared  # noqa: PLW0603
    compare_within(request.tolerance)
    grant(request.targets)
    step("the import of a target")
    _seed()  # the file of a target can be that of the function
    # Before the user's file runs, which can take long.
    given = request.targets or _stored_target(request.path)
    chosen = [target_named(name) for name in given or default_targets()]
    quiet_torch()
    names = FileNames(*request.names)
    _seed()
    step("the file")

    def action(given: UserFunction | Program) -> Prepared:
        step(f"{names.function}() in eager")
        options: dict[str, Any] = {"device": request.device, "grad": request.grad}
        if isinstance(given, Program):
            return prepare_rows(given, targets=chosen, **options)
        arguments = given.function, given.inputs, given.second_inputs
        prepared = prepare_rows(*arguments, targets=chosen, file=request.path, **options)
        return replace(prepared, notes=(*given.notes, *prepared.notes))

    try:
        _prepared = user_file.apply_to(request.path, names, action)
    except UserError as error:
        # A limit of ours is not an error of theirs, unless they know of it.
        if out_of_memory(error.__cause__):
            raise MemoryError from error
        raise
    notes = (*_prepared.notes, *_left_out(request), *_own_target(request))
    after = {name: row.after for name, row in _prepared.rows.items()}
    oracles = EVERY_ORACLE if _prepared.called is None else ORACLES
    return Begun(_prepared.eager.without_tensors(), notes, after, oracles)


def _seed() -> None:
    """Seed all generators: a file may run in several processes, and should do the same in each."""
    for seed in (torch.manual_seed, np.random.seed, random.seed):
        seed(SEED)


def _left_out(request: CheckRequest) -> Iterator[str]:
    """The default targets that this machine cannot run, and why."""
    for name in () if request.targets else CHECKED:
        reason = target_named(name).unavailable()
        if reason is not None:
            yield f"left out: {name} {reason}"


def _stored_target(path: Path) -> tuple[str, ...]:
    """The target of a stored graph, unless it is code of a user, which a file may not name."""
    name = about_graph(path).get("target", "") if is_stored_graph(path) else ""
    return (name,) if name in TARGETS else ()


def _own_target(request: CheckRequest) -> Iterator[str]:
    """What to type to check a finding of the user's own code. A file names that code."""
    if request.targets:
        return
    if is_stored_graph(request.path):
        target = about_graph(request.path).get("target", "")
    elif (request.path / "finding.json").is_file():
        target = read_finding(request.path).target
    else:
        return
    if not (is_name(target) and is_importable(target)):
        how = f"add --target {target}" if is_name(target) else NAME_IT
        yield f"it was found in your own code: to check that, {how}"


def run_target(name: str, missed: bool, graphs: str, eager_instead: bool = False) -> TargetResult:
    """Compare the target of a row. `graphs` says why graphs are not judged; empty if they are.

    With `eager_instead`, eager runs in the place of the target, and under its conditions.
    """
    assert _prepared is not None
    prepared = _prepared
    if eager_instead:
        row = prepared.rows[name]
        eager = replace(TARGETS["identity"], conditions=row.target.conditions)
        prepared = replace(prepared, rows={name: row._replace(target=eager)})
    # In this process, standard output is for the results.
    with output_for_results():
        result = check_row(prepared, name, missed=missed, without_graphs=graphs)
    return result.without_tensors()


def run_here(request: CheckRequest) -> Iterator[Begun | TargetResult]:
    """The whole check in this process, for debuggers: the eager run, then each target.

    A death of the user's code is one of this process.
    """
    begun = begin(request)
    yield begun
    for name in begun.targets:
        yield run_target(name, request.missed, "")
