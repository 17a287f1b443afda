"""What a campaign does with programs of each language: it draws, judges and reduces them."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch.utils import _pytree as pytree

from aliasproof.campaigns.failure.failure import AnyFailure, Failure
from aliasproof.campaigns.failure.finding import AnyFinding, Finding
from aliasproof.campaigns.failure.recognition import recognised
from aliasproof.campaigns.failure.reduction import (
    EndedInFork,
    Runner,
    end_of_reduction,
    isolated_runner,
    reduce_failure,
    unreduced,
)
from aliasproof.campaigns.failure.signature import signature, symptom_class
from aliasproof.campaigns.run.executor import Reduction, WorkerEnd
from aliasproof.campaigns.run.shard import ShardResult, run_shard
from aliasproof.campaigns.store.plan import Shard
from aliasproof.corpus.bug_files import known_bugs, python_bugs
from aliasproof.corpus.known_bug import PythonBug, patched
from aliasproof.generators.python_drawing import sample_python
from aliasproof.ir.errors import InternalError, Rejected, UserError
from aliasproof.ir.lifting import lift_program
from aliasproof.ir.program import Program
from aliasproof.ir.python_program import CALLS, COMPILED, PythonProgram
from aliasproof.judge.attribution import FailsAlike, Symptom
from aliasproof.judge.examination import examine
from aliasproof.judge.groups import Announce
from aliasproof.judge.localization import part_of
from aliasproof.judge.python_case import EAGER, PythonCase
from aliasproof.judge.trial import Case, processor_seconds
from aliasproof.oracles.verdict import Violation
from aliasproof.reduction.reducer import Reducer
from aliasproof.reduction.syntax_passes import PYTHON as PYTHON_PROBLEM
from aliasproof.targets.names import ATEN, PYTHON
from aliasproof.targets.registry import target as target_named


def is_waited_for(work: AnyFailure | AnyFinding) -> bool:
    """Whether a campaign whose time is up waits for the first finding of a bucket.

    Not for Python programs, whose reduction takes minutes, nor for latent symptoms, which are no
    findings.
    """
    return work.language == ATEN and not work.symptom.latent


def judge(shard: Shard, announce: Announce) -> ShardResult:
    """Draw the programs of a shard and judge each, in a worker."""
    return (judge_programs if shard.language == PYTHON else run_shard)(shard, announce)


def reduce(failure: Any, *, isolated: bool) -> Reduction:
    """Reduce a failure, in a worker; `isolated` if candidates may end their process."""
    if failure.language == PYTHON:
        # A candidate ended its process in an earlier attempt, and would do so again: try none.
        return reduce_program(failure, 0 if isolated else PYTHON_PROBLEM.most)
    runner = isolated_runner(failure) if isolated else Runner()
    try:
        finding = reduce_failure(failure, runner)
    except EndedInFork as end:  # where none may: keep the failure as it was drawn
        finding = unreduced(failure, f"a process that reduced it {end.death.kind}")
    return Reduction(finding, 0.0, tuple(runner.mistakes))


def failure_of_end(shard: Shard, programs: range, end: WorkerEnd) -> Failure[Program] | None:
    """The failure of programs that ended a worker; None if eager may have ended it."""
    if shard.language == PYTHON:
        return None
    together = len(programs) > 1
    program = shard.together(programs) if together else shard.program(programs[0])
    violation = Violation("errors", end.kind, "call", {"worker": end.text})
    symptom = Symptom(shard.target, "errors", end.kind)
    return Failure(symptom, program, shard.seed, of_group=together, violation=violation)


def as_drawn(failure: Any, reason: str) -> AnyFinding | None:
    """A failure as it was drawn, with the reason; None if no script could show it."""
    return None if failure.language == PYTHON else unreduced(failure, reason)


OURS = "no bug of torch, but a mistake of aliasproof, or a program that depends on chance"


def judge_programs(shard: Shard, announce: Announce = lambda numbers: None) -> ShardResult:
    """Draw the Python programs of a shard and judge each.

    Skipped programs end their process. Drawing runs eager, so eager may be what ends it.
    """
    result, before = ShardResult(shard), processor_seconds()
    count, skipped = result.statistics, shard.skip.intersection(shard.numbers)
    count.programs, count.dies = shard.count, len(skipped)
    with patched(known_bugs().values() if shard.past_known else ()):
        for number in shard.numbers:
            if number in skipped:
                continue
            announce([number])
            (program,) = sample_python(shard.seed, [number])
            try:
                found = examine(PythonCase(program), target_named(shard.target))
                cause = found.symptom
                if cause is not None and not FailsAlike(cause)(program):
                    cause = None  # flaky: a second run does not show it
            except InternalError as mistake:
                result.mistakes.append(f"program {number}: {mistake}")
                continue
            if found.rejected is not None:
                count.discarded += 1
            elif cause is not None and shard.target == EAGER:
                what = f"{cause.oracle}: {cause.kind}"
                result.mistakes.append(f"program {number}: two eager runs differ ({what}): {OURS}")
            elif cause is not None:
                count.violating += 1
                past = shard.past_known
                result.failures.append(Failure(cause, program, shard.seed, past_known=past))
    count.mistaken = len(result.mistakes)
    result.searching = processor_seconds() - before
    return result


def reduce_program(failure: Failure[PythonProgram], most: int = PYTHON_PROBLEM.most) -> Reduction:
    """Reduce a failing program, trying `most` candidates; no finding if it does not fail again."""
    with patched(known_bugs().values() if failure.past_known else ()):
        finding = reduced(failure.program, failure.symptom, most)
    if finding is None:
        return Reduction(None, 0.0)
    finding = replace(finding, seed=failure.seed)
    try:
        name = named(finding)
    except InternalError as mistake:  # keep the finding, without the name of a known bug
        return Reduction(finding, 0.0, (str(mistake),))
    return Reduction(name.finding, 0.0, documented=name.documented)


def reduced(
    drawn: PythonProgram, symptom: Symptom, most: int = PYTHON_PROBLEM.most
) -> Finding[PythonProgram] | None:
    """Reduce a failing program, trying `most` candidates; None if it does not fail any more."""
    fails = FailsAlike(symptom)
    if not fails(drawn):
        return None
    problem = replace(PYTHON_PROBLEM, most=most)
    reducer = Reducer(problem, drawn, fails, is_over=end_of_reduction())
    program = reducer.run()
    finding = shown_by(program, symptom.target)
    if finding is None:
        return None
    return replace(
        with_part(finding),
        original=drawn,
        tried=reducer.tried,
        accepted=reducer.accepted,
        steps=reducer.passes,
    )


def shown_by(program: PythonProgram, target: str) -> Finding[PythonProgram] | None:
    """What a target does wrong for an unreduced program; None if nothing, or not judged."""
    found = examine(PythonCase(program), target_named(target))
    main, layer = found.main, found.at_fault
    if main is None or layer is None:
        return None
    return Finding.of(program, layer.name, main)


def with_part(finding: Finding[PythonProgram]) -> Finding[PythonProgram]:
    """The finding with the part of the compiler at fault, which experiments find by more compiles.

    `named` uses the part to distinguish some known bugs.
    """
    return replace(finding, wrong_part=part_of(finding.program, finding.symptom))


class NamedFinding(NamedTuple):
    """The finding with its names; or None, and why the documentation allows what it shows."""

    finding: Finding[PythonProgram] | None = None
    documented: str = ""


def named(finding: Finding[PythonProgram]) -> NamedFinding:
    """The finding with the known bug that it is, and the identifier that `fuzz` gives it."""
    known = next((name for name, bug in python_bugs().items() if is_of_bug(finding, bug)), None)
    line = straight_line(finding.program)
    finding = replace(finding, known=known)
    return NamedFinding(finding) if line is None else _named_as_line(finding, line)


def is_of_bug(finding: Finding[PythonProgram], bug: PythonBug) -> bool:
    kind = finding.kind
    if kind.startswith("does not raise"):  # distinguished by what eager raises
        kind += ": " + str(finding.evidence.get("message", "")).partition("\n")[0]
    elif finding.evidence.get("zeros"):  # for a gradient that is None in eager
        kind += ": zeros"
    cause = (finding.target, finding.oracle, kind)
    return bug.explains(cause, finding.place, finding.program, finding.wrong_part)


# --- straight lines -------------------------------------------------------------------------------
#
# A Python program that is a straight line of ATen calls equals a `Program`. Such a program is named
# as campaigns of `Program`s name its violation, so that one cause is one finding in both languages.


class _LiftedError(Exception):
    """Ends a run after its call was lifted."""


def straight_line(program: PythonProgram) -> Program | None:
    """The ATen calls of `program`, if it is called once, on tensors that require no gradients.

    None if it has state of its own, returns anything but tensors, or does what a `Program` cannot
    express. Raises `InternalError` for a mistake of ours.
    """
    tree = ast.parse(program.source)
    called = [getattr(it.func, "id", "") for it in ast.walk(tree) if isinstance(it, ast.Call)]
    names = [getattr(it, "name", "") for it in tree.body if not isinstance(it, ast.Import)]
    if names != [COMPILED, CALLS] or called.count(COMPILED) != 1:
        return None
    lines: list[Program] = []

    def lift(function: Any) -> Any:
        def lifting(*arguments: Any) -> None:
            lines.append(_lifted(function, arguments))
            raise _LiftedError

        return lifting

    try:
        program.run(lift)
    except (_LiftedError, UserError, Rejected):
        return next(iter(lines), None)
    except InternalError:
        raise
    except Exception:  # noqa: BLE001 - any error of the program: then it is not a straight line
        return None
    return None


def _lifted(function: Any, arguments: tuple[Any, ...]) -> Program:
    if not all(_is_plain(it) for it in arguments):
        raise Rejected("arguments that are no tensors, or require gradients")
    returned: list[object] = []

    def noting(*tensors: torch.Tensor) -> object:
        returned.append(function(*tensors))
        return returned[0]

    with torch.no_grad():  # as programs run that need no gradients
        lifted = lift_program(noting, arguments)
    if not all(_is_plain(leaf) for leaf in pytree.tree_leaves(returned) if leaf is not None):
        raise Rejected("results that are no tensors, or require gradients")
    return lifted.program


def _is_plain(value: object) -> bool:
    return isinstance(value, torch.Tensor) and not value.requires_grad


def _named_as_line(finding: Finding[PythonProgram], program: Program) -> NamedFinding:
    """Name a finding as a campaign of `Program`s does, if the `program` shows it, too.

    Raises `InternalError` for a mistake of ours.
    """
    examination = examine(Case.of(program), target_named(finding.target))
    if examination.mistake is not None:
        raise examination.mistake
    symptom = examination.symptom
    for it in examination.documented if not examination.failed else ():
        if it.difference.oracle == finding.oracle:
            return NamedFinding(documented=it.limitation.reason)
    # For a Python program, all tensors that a caller can reach count as outputs, inputs included.
    if (
        not examination.failed
        or symptom is None
        or symptom_class(symptom).split(":")[0] != finding.oracle
    ):
        return NamedFinding(finding)
    known = recognised(program, symptom, reduced=True).known
    error = None if examination.trial is None else examination.trial.target.error
    identifier = signature(symptom, program, error, known).identifier
    return NamedFinding(replace(finding, identifier=identifier, known=finding.known or known))
