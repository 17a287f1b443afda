"""The command `minimize`: a user's function, a program or a finding, reduced to what matters."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aliasproof.commands.check import MEMORY_SHARE
from aliasproof.minimize_request import MinimizeRequest, Subject
from aliasproof.options import (
    Atol,
    FunctionName,
    InputsName,
    Json,
    MovedTo,
    Rtol,
    Workers,
    target_option,
)
from aliasproof.processes.isolation import (
    CPU,
    TARGET_STEP,
    Isolated,
    Limits,
    memory_available,
    start_server,
)
from aliasproof.processes.outcome import Death, Outcome, Raised
from aliasproof.programs.errors import Rejected, UserError
from aliasproof.reports.console import (
    notes,
    print_code,
    print_lines,
    print_notes,
    results,
    write_json,
)
from aliasproof.reports.reduction_table import print_progress, print_steps
from aliasproof.reports.wording import counted
from aliasproof.user_code.given_path import GivenFile, file_to_read

if TYPE_CHECKING:  # they import torch
    from aliasproof.campaigns.failure.kept import Kept
    from aliasproof.minimizing import Minimized
    from aliasproof.reduction.reducer import Reducer

NOT_JUDGED, INTERRUPTED = 4, 130
# By name: the functions run in the other process.
SESSION = "aliasproof.minimize_session"

MinimizedFile = Annotated[
    str,
    typer.Argument(
        metavar="FILE",
        help="FILE.py, FILE.py:FUNCTION, PROGRAM.json, a graph that torch printed into FILE.txt,"
        " the folder or name of a finding, or the folder of a stored graph.",
    ),
]
MinimizedTarget = Annotated[
    str | None, target_option("Keep what this target does wrong. A finding brings its own.")
]
KeptOracle = Annotated[
    str | None,
    typer.Option(
        metavar="ORACLE",
        help="Keep the difference that this oracle reports, documented or not.",
    ),
]
Interesting = Annotated[
    Path | None,
    typer.Option(
        metavar="SCRIPT",
        help="Keep what this executable exits with status 0 for. It runs in a new folder, with"
        " program.py and program.json as arguments.",
    ),
]
Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="FILE", help="Write the result: .py or .json."),
]
CandidateLimit = Annotated[float, typer.Option(metavar="SECONDS", help="Time limit per candidate.")]


@dataclass(frozen=True, slots=True)
class MinimizeOptions:
    """How to reduce: the script that decides instead of a target, and where the result goes."""

    interesting: Path | None = None
    output: Path | None = None
    workers: int | None = None
    limit: float = 60.0
    as_json: bool = False

    @property
    def count(self) -> int:
        """The number of workers."""
        return self.workers or len(os.sched_getaffinity(0))

    @property
    def limits(self) -> Limits:
        """What one process may take."""
        return Limits(self.limit, int(MEMORY_SHARE * memory_available() / self.count))

    def validate(self, request: MinimizeRequest) -> None:
        """Raises `UserError` for options that do not fit together."""
        _require_judge(request, self)
        if self.interesting is not None and request.oracle is not None:
            raise UserError("--oracle belongs to --target; with --interesting, the script decides")
        if self.workers is not None and self.workers < 1:
            raise UserError(f"--workers {self.workers}: give at least 1")
        if not 0 < self.limit < float("inf"):
            raise UserError(f"--limit {self.limit:g}: give a number above 0")
        if self.interesting is not None and not os.access(self.interesting, os.X_OK):
            raise UserError(f"{self.interesting} is not an executable file; try chmod +x")
        if self.output is not None and self.output.suffix not in (".py", ".json"):
            raise UserError(f"--output {self.output}: give a name that ends in .py or .json")


def minimize(
    file: MinimizedFile,
    target: MinimizedTarget = None,
    oracle: KeptOracle = None,
    interesting: Interesting = None,
    output: Output = None,
    function: FunctionName = None,
    inputs: InputsName = "inputs",
    workers: Workers = None,
    limit: CandidateLimit = 60.0,
    device: MovedTo = None,
    rtol: Rtol = None,
    atol: Atol = None,
    json: Json = False,
) -> int:
    """Reduce a function or a program as long as a target shows the same difference from eager.

    A function in FILE.py is recorded as ATen calls. Ctrl-C ends the reduction with the smallest
    program so far.

    Exit status: 0 reduced; 2 bad input, or nothing differs; 4 not judged; 130 interrupted.
    """
    given, within = GivenFile.of(file), (rtol, atol)
    names = given.names(function, inputs)
    request = MinimizeRequest(given.path, names, target, oracle, device, tolerance=within)
    options = MinimizeOptions(interesting, output, workers, limit, json)
    if request.path.suffix in (".py", ".json"):  # before torch is imported
        file_to_read(request.path)
        if request.path.suffix == ".py":
            _require_judge(request, options)
    if device is None:
        start_server([SESSION])  # it imports torch while this process does
    return _minimize(str(given.path), request, options)


def _minimize(given: str, request: MinimizeRequest, options: MinimizeOptions) -> int:
    """Reduce what is in a file, and print the result. Returns the exit status."""
    from aliasproof.campaigns.store.python_finding import is_of_python
    from aliasproof.programs.devices import require_device
    from aliasproof.python_minimizing import print_minimized

    request = located(given, request)
    if is_of_python(request.path):
        options.validate(replace(request, target=request.target or ""))
        if options.interesting is not None or request.oracle or request.device:
            raise UserError("a finding of 'hunt' keeps its cause: give no other options for that")
        with print_progress(notes()) as show:
            arguments = options.limits, options.output, show
            return print_minimized(
                request.path, request.granted, *arguments, as_json=options.as_json
            )
    request = complete(request, by_target=options.interesting is None)
    options.validate(request)
    if request.device is not None:  # before a process is started for it
        require_device(request.device)
    try:
        if options.interesting is not None:
            return _finish(_by_script(request, options), request, options)
        minimized, kept, named = _by_target(request, options)
    except Rejected as reason:
        print_lines(notes(), f"aliasproof: {request.path} cannot be judged: {reason}")
        return NOT_JUDGED
    return _finish(minimized, request, options, kept, named)


def located(given: str, request: MinimizeRequest) -> MinimizeRequest:
    """The request with the path of the file."""
    from aliasproof.campaigns.store.stored import locate

    path = Path(given)
    if not path.exists() and path.suffix not in (".py", ".json"):
        path = locate(given)
    granted = () if request.target is None else (request.target,)
    return replace(request, path=path, granted=granted)


def complete(request: MinimizeRequest, *, by_target: bool) -> MinimizeRequest:
    """The request with what a campaign or a check of a model stored as what must stay."""
    from aliasproof.campaigns.store.stored import StoredSuspicion, read_stored
    from aliasproof.programs.stored_graph import about_graph, is_stored_graph

    path = request.path
    if by_target and request.target is None and is_stored_graph(path):
        return replace(request, target=about_graph(path).get("reduced through"))
    stored = (path / "finding.json").is_file() or path.parent.name == "suspicions"
    if not by_target or request.target is not None or not stored:
        return request
    case = read_stored(path)
    request = replace(request, device=request.device or case.program.device)
    if isinstance(case, StoredSuspicion):
        return replace(request, target=case.target, oracle=request.oracle or case.oracle)
    # Results do not show what is latent, so it is no violation without its oracle.
    oracle = case.violation.oracle if case.latent else None
    return replace(request, target=case.target, oracle=request.oracle or oracle)


def _require_judge(request: MinimizeRequest, options: MinimizeOptions) -> None:
    """Raises `UserError` unless either a target or a script says what to keep."""
    if (options.interesting is None) == (request.target is None):
        raise UserError("give either --target or --interesting: one of them says what to keep")


@contextlib.contextmanager
def _process(request: MinimizeRequest, options: MinimizeOptions) -> Iterator[Isolated]:
    process = Isolated(options.limits, request.device or CPU)
    try:
        yield process
    finally:
        process.stop()


def value_of(outcome: Outcome, request: MinimizeRequest) -> Any:
    """What a call returned. Raises what it raised, and `UserError` if it ended its process."""
    if isinstance(outcome, Raised):
        raise outcome.error
    if isinstance(outcome, Death):
        raise UserError(f"{request.path}: {outcome.step} {outcome.describe()}")
    return outcome.value


def _subject(process: Isolated, request: MinimizeRequest) -> Subject:
    """The program to reduce. This process, too, must know the operators that it calls."""
    from aliasproof.candidate_checks import outcome_of
    from aliasproof.user_code import user_file

    subject: Subject = value_of(outcome_of(process, f"{SESSION}:begin", request), request)
    print_notes(subject.notes)
    if subject.user_code:
        with contextlib.redirect_stdout(sys.stderr):
            user_file.read(request.path, user_file.FileNames(*request.names))
    return subject


def _difference(outcome: Outcome, request: MinimizeRequest) -> Kept:
    """The difference that must stay."""
    from aliasproof.campaigns.failure.kept import Kept
    from aliasproof.trials.attribution import Symptom

    if isinstance(outcome, Death) and outcome.step == TARGET_STEP and request.target is not None:
        return Kept(Symptom(request.target, "errors", outcome.kind), step=TARGET_STEP)
    kept: Kept = value_of(outcome, request)
    return kept


# --- the reduction --------------------------------------------------------------------------------


def _by_script(request: MinimizeRequest, options: MinimizeOptions) -> Minimized:
    from aliasproof import minimizing
    from aliasproof.candidate_checks import ScriptCheck

    assert options.interesting is not None
    with _process(request, options) as process:
        subject = _subject(process, request)
    check = ScriptCheck(options.interesting, options.limit)
    if not check(subject.program):
        raise UserError(
            f"{options.interesting} does not find {request.path} interesting: its exit status is"
            " not 0 for the program as it was given"
        )
    with _listener() as listener:
        return minimizing.minimize(subject.program, check, options.count, listener)


def _by_target(
    request: MinimizeRequest, options: MinimizeOptions
) -> tuple[Minimized, Kept, str | None]:
    """The result, what was kept, and the identifier that a campaign gives to it."""
    from aliasproof import minimizing
    from aliasproof.candidate_checks import TargetCheck, outcome_of

    with _process(request, options) as process:
        subject = _subject(process, request)
        outcome = outcome_of(process, f"{SESSION}:find", subject.program, request)
    kept = _difference(outcome, request)
    symptom = kept.symptom
    print_lines(notes(), f"keeps {symptom.oracle}: {symptom.kind}, target {symptom.target}")
    check = TargetCheck(request, subject, kept, options.limits)
    with check.at_work(options.count), _listener() as listener:
        best = len(kept.grades)
        minimized = minimizing.minimize(subject.program, check, options.count, listener, best)
    if check.mistakes:
        what = counted(check.mistakes, "candidate")
        print_notes([f"{what} ended in an internal error of aliasproof, and did not count"])
    if minimized.interrupted:  # whoever pressed Ctrl-C does not want to wait for another run
        return minimized, kept, None
    with _process(request, options) as process:
        value_of(outcome_of(process, f"{SESSION}:attend", request, subject), request)
        arguments = minimized.program, kept, minimized.reducer.grade
        named = outcome_of(process, f"{SESSION}:identifier", *arguments)
        return minimized, kept, value_of(named, request)


@contextlib.contextmanager
def _listener() -> Iterator[Callable[[Reducer], None]]:
    """Shows the progress of a reducer."""
    with print_progress(notes()) as show:
        yield lambda it: show(
            f"{counted(len(it.current), 'instruction')}, {counted(it.tried, 'candidate')} tried,"
            f" {it.accepted} accepted"
        )


# --- its result -----------------------------------------------------------------------------------


def _finish(
    minimized: Minimized,
    request: MinimizeRequest,
    options: MinimizeOptions,
    kept: Kept | None = None,
    identifier: str | None = None,
) -> int:
    """Write and print the result, what was kept, and the identifier of the result."""
    from aliasproof.candidate_checks import file_source
    from aliasproof.programs.serialization import dumps

    text = file_source(minimized.program)
    if options.output is not None:
        written = dumps(minimized.program) if options.output.suffix == ".json" else text
        try:
            options.output.write_text(written, encoding="utf-8")
        except OSError as error:
            raise UserError(f"{options.output} cannot be written: {error.strerror}") from error
    if options.as_json:
        symptom = None if kept is None else asdict(kept.grades[minimized.reducer.grade - 1])
        head = {"file": str(request.path), "signature": identifier, "kept": symptom}
        write_json(head | _as_json(minimized) | {"source": text})
    else:
        print_code(results(), text)
        print_steps(notes(), minimized.reducer.passes)
        print_lines(notes(), _summary(minimized, identifier))
    return INTERRUPTED if minimized.interrupted else 0


def _summary(minimized: Minimized, identifier: str | None) -> str:
    sizes = f"{len(minimized.original)} to {counted(len(minimized.program), 'instruction')}"
    reducer = minimized.reducer
    cost = f"{counted(reducer.tried, 'candidate')} tried, {reducer.accepted} accepted"
    name = f"; {identifier}" if identifier else ""
    ended = "interrupted, the smallest so far: " if minimized.interrupted else ""
    return f"{ended}{sizes}, {cost}, {minimized.seconds:.1f} s{name}"


def _as_json(minimized: Minimized) -> dict[str, object]:
    from aliasproof.programs.serialization import to_json

    return {
        "instructions": {"before": len(minimized.original), "after": len(minimized.program)},
        "candidates tried": minimized.reducer.tried,
        "accepted": minimized.reducer.accepted,
        "seconds": round(minimized.seconds, 3),
        "interrupted": minimized.interrupted,
        "steps": {name: asdict(spent) for name, spent in minimized.reducer.passes.items()},
        "program": to_json(minimized.program),
    }
