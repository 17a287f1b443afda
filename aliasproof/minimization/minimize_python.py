"""`minimize` of a finding of `hunt`: its program gets smaller on its syntax, its cause stays."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from aliasproof.campaigns.run.worker_calls import MOST, named, reduced
from aliasproof.campaigns.store.finding import PythonFinding
from aliasproof.commands.startup import INTERRUPTED
from aliasproof.corpus.bug_files import known_bugs
from aliasproof.corpus.known_bug import patched
from aliasproof.ir.errors import InternalError, Rejected, UserError
from aliasproof.ir.python_program import PythonProgram
from aliasproof.judge.python_trial import EAGER, Cause, FailsAlike
from aliasproof.judge.trial import start_worker
from aliasproof.minimization.candidate_checks import outcome_of
from aliasproof.processes.isolation import Isolated, Limits
from aliasproof.processes.outcome import Death, Outcome, Raised, Returned
from aliasproof.reduction.syntax_reducer import SyntaxReducer
from aliasproof.reports.console import (
    counted,
    notes,
    print_code,
    print_lines,
    print_notes,
    results,
    write_json,
)
from aliasproof.targets.registry import backend_source
from aliasproof.targets.user_names import grant


@dataclass(frozen=True, slots=True)
class MinimizedPython:
    """A finding with the smallest program that was found, and what that cost.

    It has no new name or place if the reduction was `interrupted`. `mistakes` counts candidates
    that ended in a mistake of ours; they did not count.
    """

    finding: PythonFinding
    tried: int
    accepted: int
    seconds: float
    interrupted: bool
    mistakes: int


@dataclass(slots=True)
class Candidates:
    """Asks a process, which may die, whether candidates fail alike."""

    fails: FailsAlike
    limits: Limits
    past_known: bool = False
    tried: int = 0
    accepted: int = 0
    mistakes: int = 0
    listener: Callable[[Candidates], None] = lambda candidates: None
    _process: Isolated | None = None

    @contextlib.contextmanager
    def at_work(self) -> Iterator[None]:
        """End the process when the context ends."""
        try:
            yield
        finally:
            if self._process is not None:
                self._process.stop()
                self._process = None

    def __call__(self, candidate: PythonProgram) -> bool:
        """Ask about a candidate: one that ends the process, or is our mistake, fails otherwise."""
        self.tried += 1
        outcome = self.call(ask, candidate, self.fails, self.past_known)
        self.listener(self)
        if isinstance(outcome, Death):
            return False
        if isinstance(outcome, Raised):
            self.mistakes += isinstance(outcome.error, InternalError)
            return False
        is_interesting, self.fails = outcome.value
        self.accepted += is_interesting
        return bool(is_interesting)

    def call(self, function: Callable[..., object], *arguments: object) -> Outcome:
        """Make a call in the process, which is started if there is none."""
        if self._process is None:
            self._process = Isolated(self.limits)
            outcome_of(self._process, _name(start_worker), (self.fails.cause.target,))
        outcome = outcome_of(self._process, _name(function), *arguments)
        if isinstance(outcome, Death):  # which has ended it
            self._process = None
        return outcome


def minimize_python(
    finding: PythonFinding, limits: Limits, listener: Callable[[Candidates], None]
) -> MinimizedPython:
    """Reduce the program of a finding; Ctrl-C ends that with the smallest so far.

    `listener` is called after each candidate. Raises `UserError` if the finding does not show.
    """
    started = time.monotonic()
    found: Outcome | None = None
    cause = Cause(finding.target, finding.oracle, finding.kind)
    candidates = Candidates(FailsAlike(cause), limits)
    with candidates.at_work():
        _require_failing(finding, candidates)
        candidates.tried = candidates.accepted = 0
        candidates.listener = listener
        reducer = SyntaxReducer(finding.program, candidates, MOST)
        try:
            reducer.run()
            found = candidates.call(described, reducer.current, cause, candidates.past_known)
        except KeyboardInterrupt:
            found = None
    smallest = replace(finding, program=reducer.current)
    if isinstance(found, Raised):
        raise found.error
    if isinstance(found, Returned) and found.value is not None:
        smallest = _with_name(smallest, found.value)
    seconds = time.monotonic() - started
    cost = candidates.tried, candidates.accepted, seconds
    return MinimizedPython(smallest, *cost, found is None, candidates.mistakes)


def _require_failing(finding: PythonFinding, candidates: Candidates) -> None:
    """Raises `UserError` if the finding does not show, also with known bugs of torch patched."""
    for past_known in (False, True):
        candidates.past_known = past_known
        if candidates(finding.program):
            return
    raise UserError(
        f"nothing to reduce: {finding.target} does not show '{finding.oracle}: {finding.kind}' in"
        f" torch {torch.__version__}; 'aliasproof show' says what it does"
    )


def _with_name(finding: PythonFinding, other: PythonFinding) -> PythonFinding:
    """The finding with the place, evidence and names of the reduced program."""
    names = ("place", "evidence", "line", "known", "part")
    return replace(finding, **{name: getattr(other, name) for name in names})


def _name(function: Callable[..., object]) -> str:
    return f"{function.__module__}:{function.__name__}"


# --- what is printed ------------------------------------------------------------------------------


def print_minimized(
    folder: Path,
    granted: Sequence[str],
    limits: Limits,
    output: Path | None,
    show: Callable[[str], None],
    *,
    as_json: bool,
) -> int:
    """Reduce the finding in a folder, and print it as `minimize` does; the exit status.

    `granted` are the targets that may be code of the user. `show` is called with the progress.
    Raises `UserError` for a finding of another target, or one that does not show.
    """
    given = PythonFinding.load(folder)
    if granted and given.target not in granted:
        raise UserError(f"{folder} is of the target {given.target}, and not of {granted[0]}")
    grant(granted)
    if given.target != EAGER:
        backend_source(given.target)  # it says what is wrong with a user's code
    print_lines(notes(), f"keeps {given.oracle}: {given.kind}, target {given.target}")

    def listener(so_far: Candidates) -> None:
        show(f"{counted(so_far.tried, 'candidate')} tried, {so_far.accepted} accepted")

    minimized = minimize_python(given, limits, listener)
    _write(minimized, output)
    if minimized.mistakes:
        what = counted(minimized.mistakes, "candidate")
        print_notes([f"{what} ended in an internal error of aliasproof, and did not count"])
    if as_json:
        write_json(_as_json(folder, given, minimized))
    else:
        print_code(results(), minimized.finding.program.source.strip())
        print_lines(notes(), _summary(given, minimized))
    return INTERRUPTED if minimized.interrupted else 0


def _write(minimized: MinimizedPython, output: Path | None) -> None:
    """Write the program, or the finding as `finding.json` has it."""
    if output is None:
        return
    finding = minimized.finding
    is_json = output.suffix == ".json"
    text = json.dumps(finding.to_json(), indent=1) + "\n" if is_json else finding.program.source
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"{output} cannot be written: {error.strerror}") from error


def _summary(given: PythonFinding, minimized: MinimizedPython) -> str:
    finding = minimized.finding
    sizes = f"{given.program.lines} to {counted(finding.program.lines, 'line')}"
    cost = f"{counted(minimized.tried, 'candidate')} tried, {minimized.accepted} accepted"
    known = f" (known: {finding.known})" if finding.known else ""
    name = "" if minimized.interrupted else f"; {finding.identifier}{known}"
    ended = "interrupted, the smallest so far: " if minimized.interrupted else ""
    return f"{ended}{sizes}, {cost}, {minimized.seconds:.1f} s{name}"


def _as_json(folder: Path, given: PythonFinding, minimized: MinimizedPython) -> dict[str, object]:
    finding = minimized.finding
    return {
        "file": str(folder),
        "signature": None if minimized.interrupted else finding.identifier,
        "known": finding.known,
        "kept": {"target": finding.target, "oracle": finding.oracle, "kind": finding.kind},
        "lines": {"before": given.program.lines, "after": finding.program.lines},
        "candidates tried": minimized.tried,
        "accepted": minimized.accepted,
        "seconds": round(minimized.seconds, 3),
        "interrupted": minimized.interrupted,
        "source": finding.program.source,
    }


# --- in the other process -------------------------------------------------------------------------


def ask(program: PythonProgram, fails: FailsAlike, past_known: bool) -> tuple[bool, FailsAlike]:
    """Whether a program fails alike, and the question for the next one."""
    with patched(known_bugs().values() if past_known else ()):
        return fails(program), fails


def described(program: PythonProgram, cause: Cause, past_known: bool) -> PythonFinding | None:
    """The finding that a reduced program is; None if it is documented, or shows nothing again."""
    with patched(known_bugs().values() if past_known else ()):
        finding = reduced(program, cause, 0)
    try:
        return None if finding is None else named(finding).finding
    except Rejected:
        return finding
