"""The command `minimize`: a user's function, a program or a finding, reduced to what matters."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aliasproof.commands.check import MEMORY_SHARE
from aliasproof.commands.options import (
    Atol,
    FunctionName,
    InputsName,
    Json,
    MovedTo,
    Rtol,
    Workers,
    target_option,
    whole_number,
)
from aliasproof.ir.errors import Rejected, UserError
from aliasproof.minimization.minimize_request import MinimizeRequest, Subject
from aliasproof.processes.isolation import (
    CPU,
    TARGET_STEP,
    Isolated,
    Limits,
    memory_available,
    start_server,
)
from aliasproof.processes.outcome import Death, Outcome, Raised, Returned
from aliasproof.reports.console import counted, notes, print_lines, print_notes
from aliasproof.reports.reduction_table import print_progress
from aliasproof.user_code.given_path import GivenFile, file_to_read

if TYPE_CHECKING:  # they import torch
    from aliasproof.campaigns.failure.failure import Kept
    from aliasproof.campaigns.failure.finding import Finding
    from aliasproof.ir.program import Program
    from aliasproof.ir.python_program import P, PythonProgram
    from aliasproof.minimization.minimize import CandidateCheck, Minimized
    from aliasproof.minimization.minimize_python import KeptPython
    from aliasproof.minimization.minimize_session import Found
    from aliasproof.minimization.minimized_output import MinimizeResult, SmallestFile
    from aliasproof.reduction.reducer import Reducer

NOT_JUDGED, INTERRUPTED = 4, 130
DEFAULT_TARGET = "inductor"  # it has all layers of torch.compile, and the one at fault is named
# By name: the functions run in the other process.
SESSION = "aliasproof.minimization.minimize_session"
PYTHON_SESSION = "aliasproof.minimization.minimize_python"

MinimizedFile = Annotated[
    str,
    typer.Argument(
        metavar="FILE",
        help="FILE.py, FILE.py:FUNCTION, PROGRAM.json, a graph that torch printed into FILE.txt,"
        " a FILE.pt2 of torch.export.save, the folder or name of a finding, or the folder of a"
        " stored graph.",
    ),
]
MinimizedTarget = Annotated[
    str | None,
    target_option("Keep what it does wrong; by default inductor, or a finding's own."),
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
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="Write the smallest program so far: .py or .json.",
    ),
]
FindingFolder = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Write a new folder with the result as a campaign does: a script that needs torch"
        " alone, an issue text, and the program.",
    ),
]
ResumedFrom = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Keep the answers about candidates in this file. After an interruption, the same"
        " command goes on from there.",
    ),
]
Repeat = Annotated[
    int,
    whole_number("Try each candidate N times: a flaky failure is reported, and reduced.", 1),
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
    finding: Path | None = None
    resume: Path | None = None
    repeat: int = 1

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
        if self.interesting is not None and self.finding is not None:
            raise UserError("--finding belongs to --target; a script does not say what is wrong")
        if self.finding is not None and self.finding.exists():
            raise UserError(f"--finding {self.finding}: it exists; name a new folder")
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
    finding: FindingFolder = None,
    resume: ResumedFrom = None,
    repeat: Repeat = 1,
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

    A function in FILE.py is recorded as ATen calls. The smallest program so far is always on
    disk. Ctrl-C ends the reduction with it; with --resume, the same command continues from there.

    Exit status: 0 reduced; 2 bad input, or nothing differs; 4 not judged; 130 interrupted.
    """
    given, within = GivenFile.of(file), (rtol, atol)
    names = given.names(function, inputs)
    request = MinimizeRequest(given.path, names, target, oracle, device, tolerance=within)
    options = MinimizeOptions(interesting, output, workers, limit, json, finding, resume, repeat)
    if request.path.suffix in (".py", ".json"):  # before torch is imported
        file_to_read(request.path)
        if request.path.suffix == ".py":
            _require_judge(request, options)
    if device is None:
        start_server([SESSION])  # it imports torch while this process does
    return _minimize(str(given.path), request, options)


def _minimize(given: str, request: MinimizeRequest, options: MinimizeOptions) -> int:
    """Reduce what is in a file, and print the result. Returns the exit status."""
    from aliasproof.campaigns.failure.finding import is_of_python
    from aliasproof.ir.devices import require_device
    from aliasproof.minimization.minimized_output import SmallestFile, print_minimized, write_folder
    from aliasproof.targets.user_names import grant

    request = located(given, request)
    grant(request.granted)  # the script of a finding is made in this process
    if is_of_python(request.path):
        options.validate(replace(request, target=request.target or ""))
        if options.interesting or request.oracle or request.device:
            raise UserError("a finding of 'hunt' keeps its cause: give no other options for that")
    else:
        request = complete(request, by_target=options.interesting is None)
        options.validate(request)
        if options.interesting is None and request.target is None:
            request = replace(request, target=DEFAULT_TARGET)
    if request.device is not None:  # before a process is started for it
        require_device(request.device)
    smallest = SmallestFile(options.output)
    try:
        if is_of_python(request.path):
            reduced = _of_python(request, options, smallest, _stored_finding(request))
        elif options.interesting is not None:
            reduced = _by_script(request, options, smallest)
        else:
            reduced = _by_target(request, options, smallest)
    except Rejected as reason:
        print_lines(notes(), f"aliasproof: {request.path} cannot be judged: {reason}")
        return NOT_JUDGED
    print_minimized(reduced, str(request.path), as_json=options.as_json)
    if reduced.minimized.interrupted:
        if smallest.continued and not reduced.user_code and options.resume is None:
            command = shlex.join(_next_command(smallest.continued, request, options))
            print_notes([f"to continue: {command}"])
        return INTERRUPTED
    if options.finding is not None and reduced.named is not None:
        print_notes([f"the script of {options.finding} runs in fresh processes"])
        print_notes(write_folder(options.finding, reduced.named, reduced.minimized, request.path))
    smallest.remove_temporary()
    return 0


def _next_command(file: Path, request: MinimizeRequest, options: MinimizeOptions) -> list[str]:
    """The command that reduces the program in this file further."""
    given = {
        "--target": request.target,
        "--oracle": request.oracle,
        "--interesting": options.interesting,
        "--output": options.output,
        "--finding": options.finding,
        "--device": request.device,
        "--rtol": request.tolerance[0],
        "--atol": request.tolerance[1],
    }
    words = [word for option, it in given.items() if it is not None for word in (option, str(it))]
    return ["aliasproof", "minimize", str(file), *words]


def located(given: str, request: MinimizeRequest) -> MinimizeRequest:
    """The request with the path of the file."""
    from aliasproof.campaigns.store.run_folder import locate

    path = Path(given)
    if not path.exists() and path.suffix not in (".py", ".json"):
        path = locate(given)
    granted = () if request.target is None else (request.target,)
    return replace(request, path=path, granted=granted)


def complete(request: MinimizeRequest, *, by_target: bool) -> MinimizeRequest:
    """The request with what a campaign or a check of a model stored as what must stay."""
    from aliasproof.campaigns.store.run_folder import MARK, read_finding
    from aliasproof.formats.stored_graph import about_graph, is_stored_graph

    path = request.path
    if by_target and request.target is None and is_stored_graph(path):
        return replace(request, target=about_graph(path).get("reduced through"))
    if not by_target or request.target is not None or not (path / MARK).is_file():
        return request
    case = read_finding(path)
    # Without its oracle, what results do not show is no violation.
    oracle = request.oracle or (case.oracle if case.on_graphs else None)
    device = request.device or case.device
    return replace(request, target=case.target, oracle=oracle, device=device)


def _require_judge(request: MinimizeRequest, options: MinimizeOptions) -> None:
    """Raises `UserError` if both a target and a script say what to keep."""
    if options.interesting is not None and request.target is not None:
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
    from aliasproof.user_code import user_file

    subject: Subject = value_of(process.outcome_of(f"{SESSION}:begin", request), request)
    print_notes(subject.notes)
    if subject.user_code:
        with contextlib.redirect_stdout(sys.stderr):
            user_file.read(request.path, user_file.FileNames(*request.names))
    return subject


def _found(outcome: Outcome, program: Program, request: MinimizeRequest) -> Found:
    """The difference that must stay."""
    from aliasproof.campaigns.failure.failure import Kept
    from aliasproof.judge.attribution import Symptom
    from aliasproof.minimization.minimize_session import Found

    if isinstance(outcome, Death) and outcome.step == TARGET_STEP and request.target is not None:
        kept = Kept(Symptom(request.target, "errors", outcome.kind), step=TARGET_STEP)
        return Found(program, request.target, kept)
    found: Found = value_of(outcome, request)
    return found


# --- the reduction --------------------------------------------------------------------------------


def _by_script(
    request: MinimizeRequest, options: MinimizeOptions, smallest: SmallestFile
) -> MinimizeResult:
    from aliasproof.minimization.candidate_checks import ScriptCheck
    from aliasproof.minimization.minimized_output import MinimizeResult, digest_of

    assert options.interesting is not None
    with _process(request, options) as process:
        subject = _subject(process, request)
    check = ScriptCheck(options.interesting, options.limit)
    question = {"script": digest_of(options.interesting)}
    minimized = _reduced(subject.program, check, question, options, smallest)
    if minimized is None:
        raise UserError(
            f"{options.interesting} does not find {request.path} interesting: its exit status is"
            " not 0 for the program as it was given"
        )
    return MinimizeResult(minimized, user_code=subject.user_code)


def _by_target(
    request: MinimizeRequest, options: MinimizeOptions, smallest: SmallestFile
) -> MinimizeResult:
    """The result, what was kept, and the finding that a campaign makes of it."""
    from aliasproof.minimization.minimized_output import MinimizeResult, print_kept

    with _process(request, options) as process:
        try:
            subject = _subject(process, request)
            outcome = process.outcome_of(f"{SESSION}:find", subject.program, request)
            program, target, kept = _found(outcome, subject.program, request)
        except (Rejected, UserError) as reason:
            found = _found_in_file(request, options, str(reason))
            if found is None:
                raise
            print_notes([f"reduced as it is written, since {reason}"])
            return _of_python(request, options, smallest, found)
        answer = outcome
        if isinstance(outcome, Returned):  # else the process has ended
            answer = process.outcome_of(f"{SESSION}:with_cause", program, kept)
    kept = answer.value if isinstance(answer, Returned) else kept
    if target != request.target:
        print_notes([f"its calls differ with gradients alone: reduced through {target}"])
        request, subject = replace(request, target=target), replace(subject, program=program)
    print_kept(kept, program)
    preparation = f"{SESSION}:attend", request, subject
    minimized = _reduce_kept(kept, program, preparation, request, options, smallest)
    if minimized.interrupted:  # whoever pressed Ctrl-C does not want to wait for another run
        return MinimizeResult(minimized, kept, user_code=subject.user_code)
    with _process(request, options) as process:
        value_of(process.outcome_of(f"{SESSION}:attend", request, subject), request)
        arguments = minimized.program, minimized.original, kept, minimized.grade
        named = value_of(process.outcome_of(f"{SESSION}:named", *arguments), request)
    return MinimizeResult(minimized, kept, named)


def _reduce_kept(
    kept: Kept | KeptPython,
    program: P,
    preparation: tuple[str, *tuple[object, ...]],
    request: MinimizeRequest,
    options: MinimizeOptions,
    smallest: SmallestFile,
) -> Minimized[P]:
    """The smallest program with what is kept, by processes that this call prepares."""
    from aliasproof.minimization.candidate_checks import TargetCheck
    from aliasproof.minimization.minimized_output import question_about

    device = getattr(program, "device", CPU)
    check = TargetCheck(kept, preparation, options.limits, device)
    question = question_about(kept, request)
    with check.at_work(options.count):
        minimized = _reduced(program, check, question, options, smallest, len(kept.grades))
    if check.mistakes:
        what = counted(check.mistakes, "candidate")
        print_notes([f"{what} ended in an internal error of aliasproof, and did not count"])
    if minimized is None:
        shown = f"{kept.symptom.oracle}: {kept.symptom.kind}"
        raise UserError(f"{request.path} shows '{shown}' only sometimes")
    return minimized


def _found_in_file(
    request: MinimizeRequest, options: MinimizeOptions, reason: str
) -> Finding[PythonProgram] | None:
    """What differs for the function in a user's file as it is called; None if nothing does.

    A note says why not, unless that is the `reason` why its ATen calls are not reduced.
    """
    if request.path.suffix != ".py" or request.oracle is not None or request.device is not None:
        return None
    with _process(request, options) as process:
        outcome = process.outcome_of(f"{PYTHON_SESSION}:find_in_file", request)
    if isinstance(outcome, Returned):
        finding: Finding[PythonProgram] = outcome.value
        return finding
    if isinstance(outcome, Raised) and str(outcome.error) != reason:
        print_notes([str(outcome.error)])
    return None


def _stored_finding(request: MinimizeRequest) -> Any:
    from aliasproof.campaigns.store.run_folder import read_finding

    given = read_finding(request.path)
    if request.target not in (None, given.target):
        raise UserError(
            f"{request.path} is of the target {given.target}, and not of {request.target}"
        )
    return given


def _of_python(
    request: MinimizeRequest,
    options: MinimizeOptions,
    smallest: SmallestFile,
    given: Finding[PythonProgram],
) -> MinimizeResult:
    """The result for a finding of a Python program, and the finding that it makes."""
    import torch

    from aliasproof.judge.attribution import Symptom
    from aliasproof.judge.python_case import EAGER
    from aliasproof.minimization.candidate_checks import CALL
    from aliasproof.minimization.minimize_python import KeptPython
    from aliasproof.minimization.minimize_session import NamedResult
    from aliasproof.minimization.minimized_output import MinimizeResult, print_kept
    from aliasproof.targets.registry import backend_source

    smallest.finding = given
    if given.target != EAGER:
        backend_source(given.target)  # it says what is wrong with a user's code
    symptom = Symptom(given.target, given.oracle, given.kind)
    print_kept(KeptPython(symptom), given.program)
    preparation = "aliasproof.judge.trial:start_worker", (given.target,)

    def in_process(function: Callable[..., object], *arguments: object) -> Outcome:
        with _process(request, options) as process:
            value_of(process.outcome_of(*preparation), request)
            return process.outcome_of(CALL, function, *arguments)

    asked = (
        in_process(KeptPython(symptom, past_known=past_known).of_first, given.program)
        for past_known in (False, True)
        for _ in range(options.repeat)
    )
    shown = (it.value for it in asked if isinstance(it, Returned))
    kept: KeptPython | None = next((it for it in shown if it is not None), None)
    if kept is None:
        raise UserError(
            f"nothing to reduce: {given.target} does not show '{given.oracle}: {given.kind}' in"
            f" torch {torch.__version__}; 'aliasproof show' says what it does"
        )
    request = replace(request, target=given.target)
    minimized = _reduce_kept(kept, given.program, preparation, request, options, smallest)
    if minimized.interrupted:
        return MinimizeResult(minimized, kept)
    try:
        outcome = in_process(kept.describe, given, minimized.program)
    except KeyboardInterrupt:  # experiments that name the part at fault take long
        return MinimizeResult(replace(minimized, interrupted=True), kept)
    if isinstance(outcome, Raised):
        raise outcome.error
    program = minimized.program
    finding = outcome.value if isinstance(outcome, Returned) else replace(given, program=program)
    smallest.finding = finding
    smallest.write(program)
    return MinimizeResult(minimized, kept, NamedResult(finding.identifier, finding))


def _reduced(
    program: P,
    check: CandidateCheck,
    question: Mapping[str, object],
    options: MinimizeOptions,
    smallest: SmallestFile,
    best_grade: int = 1,
) -> Minimized[P] | None:
    """The reduced program; None if the program as it was given is not interesting."""
    from aliasproof.minimization import minimize
    from aliasproof.minimization.candidate_checks import RememberedCheck, RepeatedCheck

    repeated = RepeatedCheck(check, options.repeat)
    question = {**question, "seconds": options.limit, "repeat": options.repeat}
    with RememberedCheck.with_file(repeated, options.resume, question) as remembered:
        shown = repeated.showing(program)
        repeated.flaky = shown < options.repeat
        if not shown:
            return None
        if repeated.flaky:
            print_notes([f"flaky: interesting in {shown} of {options.repeat} runs; so is the rest"])
        with _listener(smallest) as listener:
            minimized = minimize.minimize(
                program, remembered, options.count, listener, best_grade, repeated.showing
            )
    if minimized.interrupted and options.resume is not None:
        print_notes([f"the same command goes on from here, with --resume {options.resume}"])
    if minimized.again is not None and minimized.again < options.repeat:
        runs = counted(options.repeat, "more run")
        print_notes([f"flaky: the result is interesting in {minimized.again} of {runs}"])
    return minimized


@contextlib.contextmanager
def _listener(smallest: SmallestFile) -> Iterator[Callable[[Reducer[Any]], None]]:
    """Writes what a reducer accepts, and shows its progress."""
    from aliasproof.campaigns.failure.finding import sized

    with print_progress(notes()) as show:

        def listener(it: Reducer[Any]) -> None:
            smallest.write(it.current)
            show(
                f"{counted(*sized(it.current))}, {counted(it.tried, 'candidate')}"
                f" tried, {it.accepted} accepted; {it.step.replace('_', ' ')}".removesuffix("; ")
            )

        yield listener
