"""One check, in the process that runs the user's code: first eager, then targets one by one.

That process is isolated, or it is the calling one. The results of the functions can be pickled. The
steps that they announce say whose code was running if the process dies.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch._functorch import config as functorch_config
from torch._inductor import config as inductor_config

from aliasproof.campaigns.failure.recognition import cause_of
from aliasproof.campaigns.store.run_folder import read_finding
from aliasproof.checks.check import check_row, default_targets
from aliasproof.checks.isolated_check import Begun, CheckEvent, CheckRequest, ShownBug, shown_bugs
from aliasproof.checks.preparation import AS_CALLED, Prepared, prepare_rows
from aliasproof.corpus.bug_files import known_bugs
from aliasproof.corpus.known_bug import patched
from aliasproof.formats.stored_graph import about_graph, is_stored_graph
from aliasproof.ir.devices import on_device
from aliasproof.ir.errors import Rejected, UserError, out_of_memory
from aliasproof.ir.execution import SEED
from aliasproof.ir.program import Program
from aliasproof.judge.trial import Case, quiet_torch
from aliasproof.minimization.minimize_session import Difference, difference_of, lift
from aliasproof.oracles.check_result import TargetResult
from aliasproof.oracles.given_tolerance import compare_within
from aliasproof.oracles.judge import oracle_names
from aliasproof.processes.isolation import step
from aliasproof.reports.console import output_for_results
from aliasproof.targets import inductor
from aliasproof.targets.inductor_fx import CONFIG
from aliasproof.targets.names import CHECKED
from aliasproof.targets.registry import TARGETS, is_importable, is_name
from aliasproof.targets.registry import target as target_named
from aliasproof.targets.user_names import NAME_IT, grant
from aliasproof.targets.variants import GRAD
from aliasproof.user_code import user_file
from aliasproof.user_code.user_file import UserFunction

# A process serves one check. It keeps the tensors here, since callers only pass names.
_prepared: Prepared | None = None
_given: UserFunction | Program | None = None
_device: str | None = None


def begin(request: CheckRequest) -> Begun:
    """Run the user's file, and its function in eager. Raises `UserError` for bad input."""
    global _prepared, _device  # noqa: PLW0603
    _device = request.device
    compare_within(request.tolerance)
    grant(request.targets)
    step("the import of a target")
    _seed()  # the file of a target can be that of the function
    # Checked before the user's file runs, which can take long.
    given = request.targets
    if not given and is_stored_graph(request.path):
        name = about_graph(request.path).get("target", "")
        given = (name,) if name in TARGETS else ()  # a file must not select code of the user
    requested = [target_named(name) for name in given]
    quiet_torch()
    _seed()
    step("the file")

    def action(given: UserFunction | Program) -> Prepared:
        global _given  # noqa: PLW0603
        _given = given
        step(f"{request.names.function}() in eager")
        options: dict[str, Any] = {"device": request.device, "grad": request.grad}
        twice = isinstance(given, UserFunction) and given.second_inputs is not None
        chosen = requested or [target_named(name) for name in default_targets(twice=twice)]
        if isinstance(given, Program):
            return prepare_rows(given, targets=chosen, **options)
        arguments = given.function, given.inputs, given.second_inputs
        prepared = prepare_rows(*arguments, targets=chosen, file=request.path, **options)
        return replace(prepared, notes=(*given.notes, *prepared.notes))

    try:
        _prepared = user_file.apply_to(request.path, request.names, action)
    except UserError as error:
        # We limit the memory, so running out of it is not an error of the function.
        if out_of_memory(error.__cause__):
            raise MemoryError from error
        raise
    # Say which default targets this machine cannot run, and why.
    missing = {} if request.targets else {it: target_named(it).unavailable() for it in CHECKED}
    left_out = [f"left out: {name} {reason}" for name, reason in missing.items() if reason]
    notes = (*_prepared.notes, *left_out, *_own_target(request))
    after = {name: row.after for name, row in _prepared.rows.items()}
    is_named = _prepared.called is not None  # the results of a call have paths
    plain = {row.target.name.partition(":")[0] for row in _prepared.rows.values()}
    oracles = oracle_names(paths=is_named, memory=inductor.TARGET.name in plain)
    return Begun(_prepared.eager.without_tensors(), notes, after, oracles)


def _seed() -> None:
    """Seed all generators: a file that runs in several processes should do the same in each."""
    for seed in (torch.manual_seed, np.random.seed, random.seed):
        seed(SEED)


def _own_target(request: CheckRequest) -> Iterator[str]:
    """How to check a finding of the user's own code, which a file does not select itself."""
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
    """Compare the target of a row. `graphs` says why graphs are not judged; empty to judge them.

    With `eager_instead`, eager replaces the target, under the target's conditions.
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


def known_bug(name: str) -> ShownBug | None:
    """The known bug that a row shows; None if it is unknown.

    A bug counts if it is the cause for the program of ATen calls, with or without gradients, and
    the row itself is right while the bug is patched.
    """
    assert _prepared is not None
    target = _prepared.rows[name].target
    if not target.excused:
        return None
    step("the search for a known bug")
    as_called = name.endswith(AS_CALLED)
    causes = map(partial(_cause, target.name), (as_called, not as_called))
    if (found := next(filter(None, causes), None)) is None:
        return None
    cause, on_graphs = found
    graphs = "" if on_graphs else "asked for a known bug"
    # Caches ignore patches: they must not return code compiled without this one, nor store it.
    uncached = functorch_config.patch(enable_autograd_cache=False)
    patches = patched([known_bugs()[cause]])
    with patches, uncached, inductor_config.patch(CONFIG), output_for_results():
        result = check_row(_prepared, name, without_graphs=graphs)
    right = result.judged and not result.violated
    return ShownBug(name, cause, known_bugs()[cause].title) if right else None


def _cause(target: str, gradients: bool) -> tuple[str, bool] | None:
    """The known bug that the function's ATen calls, as a program, show on a target.

    Also whether the graphs show it for the given inputs, and results for others.
    """
    assert _given is not None
    with contextlib.suppress(Rejected, UserError), output_for_results():
        program = lift(_given, gradients=gradients).program
        program = on_device(program, _device or program.device)
        name = f"{target}:{GRAD.name}" if gradients else target
        found = difference_of(given := Case.of(program), name)
        if isinstance(found, Difference) and found.program is not None and found.kept.exact:
            cause = cause_of(found.program, found.kept.symptom)
            return (cause, found.case is not given) if cause else None
    return None


def run_here(request: CheckRequest) -> Iterator[CheckEvent]:
    """The whole check in this process, for debuggers; yields what `IsolatedCheck.results` does.

    If the user's code dies, so does this process.
    """
    begun = begin(request)
    yield begun
    results = dict[str, TargetResult]()
    for name in begun.targets:
        results[name] = run_target(name, request.missed, "")
        yield results[name]
    yield from shown_bugs(begun, results, known_bug)
