"""`reduce_file`: a reduction, driven and printed by the process of the command."""

from __future__ import annotations

import contextlib
import hashlib
import json
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from aliasproof.campaigns.failure.failure import Kept
from aliasproof.campaigns.failure.finding import Finding, is_of_python, sized
from aliasproof.campaigns.publish.issue_text import BY_FUZZER
from aliasproof.campaigns.publish.publisher import publish_finding
from aliasproof.campaigns.store.run_folder import MARK, locate, read_finding
from aliasproof.corpus.bug_files import known_bugs
from aliasproof.formats.stored_graph import about_graph, is_stored_graph
from aliasproof.ir.devices import require_device
from aliasproof.ir.errors import Rejected, UserError
from aliasproof.ir.program import Program
from aliasproof.ir.python_program import AnyProgram, P, PythonProgram
from aliasproof.ir.serialization import dumps, to_json
from aliasproof.ir.stored_text import write_text, writing
from aliasproof.judge.attribution import Symptom
from aliasproof.judge.python_case import EAGER
from aliasproof.minimization.candidate_checks import (
    CALL,
    CandidateCheck,
    Minimized,
    RememberedCheck,
    RepeatedCheck,
    ScriptCheck,
    TargetCheck,
    file_source,
    minimize,
)
from aliasproof.minimization.minimize_python import KeptPython
from aliasproof.minimization.minimize_request import (
    SESSION,
    MinimizeOptions,
    MinimizeRequest,
    Subject,
)
from aliasproof.minimization.minimize_session import Found, NamedResult
from aliasproof.processes.isolation import CPU, TARGET_STEP, Isolated, Limits
from aliasproof.processes.outcome import Death, Outcome, Raised, Returned
from aliasproof.reduction.reducer import Reducer
from aliasproof.reports.console import (
    counted,
    notes,
    print_code,
    print_lines,
    print_notes,
    results,
    write_json,
)
from aliasproof.reports.progress import print_progress, print_steps
from aliasproof.targets.registry import backend_source
from aliasproof.targets.user_names import code_name, grant
from aliasproof.user_code import user_file

NOT_JUDGED, INTERRUPTED = 4, 130
DEFAULT_TARGET = "inductor"  # has all layers of torch.compile; the one at fault is reported
PYTHON_SESSION = "aliasproof.minimization.minimize_python"


def reduce_file(given: str, request: MinimizeRequest, options: MinimizeOptions) -> int:
    """Reduce the program in a file, and print the result. Returns the exit status."""
    request = locate_request(given, request)
    grant(request.granted)  # this process writes the script of a finding
    if is_of_python(request.path):
        options.validate(replace(request, target=request.target or ""))
        if options.interesting or request.oracle or request.device:
            raise UserError("a finding of 'hunt' keeps its cause: give no other options for that")
    else:
        request = complete_request(request, by_target=options.interesting is None)
        options.validate(request)
        if options.interesting is None and request.target is None:
            request = replace(request, target=DEFAULT_TARGET)
    if request.device is not None:  # checked before a process starts
        require_device(request.device)
    smallest = SmallestFile(options.output)
    try:
        if is_of_python(request.path):
            stored: Any = read_finding(request.path)
            if request.target not in (None, stored.target):
                raise UserError(
                    f"{request.path} is of the target {stored.target}, and not of {request.target}"
                )
            reduced = _of_python(request, options, smallest, stored)
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
    """The command that continues the reduction of the program in this file."""
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


def locate_request(given: str, request: MinimizeRequest) -> MinimizeRequest:
    """The request with the path of the file."""
    path = Path(given)
    if not path.exists() and path.suffix not in (".py", ".json"):
        path = locate(given)
    granted = () if request.target is None else (request.target,)
    return replace(request, path=path, granted=granted)


def complete_request(request: MinimizeRequest, *, by_target: bool) -> MinimizeRequest:
    """Fill in what must stay from a stored finding, or from the check of a model's graph."""
    path = request.path
    if by_target and request.target is None and is_stored_graph(path):
        return replace(request, target=about_graph(path).get("reduced through"))
    if not by_target or request.target is not None or not (path / MARK).is_file():
        return request
    case = read_finding(path)
    # Only this oracle sees a difference that results do not show.
    oracle = request.oracle or (case.oracle if case.on_graphs else None)
    device = request.device or case.device
    return replace(request, target=case.target, oracle=oracle, device=device)


@contextlib.contextmanager
def process_for(request: MinimizeRequest, limits: Limits) -> Iterator[Isolated]:
    """A process for the user's code, on the device of the request."""
    process = Isolated(limits, request.device or CPU)
    try:
        yield process
    finally:
        process.stop()


def value_of(outcome: Outcome, request: MinimizeRequest) -> Any:
    """The value that a call returned. Raises its error, or `UserError` if its process ended."""
    if isinstance(outcome, Raised):
        raise outcome.error
    if isinstance(outcome, Death):
        raise UserError(f"{request.path}: {outcome.step} {outcome.describe()}")
    return outcome.value


def _subject(process: Isolated, request: MinimizeRequest) -> Subject:
    """The program to reduce. Registers the operators that it calls in this process, too."""
    subject: Subject = value_of(process.outcome_of(f"{SESSION}:begin", request), request)
    print_notes(subject.notes)
    if subject.user_code:
        with contextlib.redirect_stdout(sys.stderr):
            user_file.read(request.path, request.names)
    return subject


# --- the reduction --------------------------------------------------------------------------------


def _by_script(
    request: MinimizeRequest, options: MinimizeOptions, smallest: SmallestFile
) -> MinimizeResult:
    assert options.interesting is not None
    with process_for(request, options.limits) as process:
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
    """The result, the difference that was kept, and the finding that a campaign makes of it."""
    with process_for(request, options.limits) as process:
        try:
            subject = _subject(process, request)
            outcome = process.outcome_of(f"{SESSION}:find", subject.program, request)
            if isinstance(outcome, Death) and outcome.step == TARGET_STEP:
                assert request.target is not None
                program, target = subject.program, request.target
                kept = Kept(Symptom(target, "errors", outcome.kind), step=TARGET_STEP)
            else:
                found: Found = value_of(outcome, request)
                program, target, kept = found
        except (Rejected, UserError) as reason:
            finding = found_in_file(request, options.limits, str(reason))
            if finding is None:
                raise
            print_notes([f"reduced as it is written, since {reason}"])
            return _of_python(request, options, smallest, finding)
        answer = outcome
        if isinstance(outcome, Returned):  # else the process ended
            answer = process.outcome_of(f"{SESSION}:with_cause", program, kept)
    kept = answer.value if isinstance(answer, Returned) else kept
    if target != request.target:
        print_notes([f"its calls differ with gradients alone: reduced through {target}"])
        request, subject = replace(request, target=target), replace(subject, program=program)
    print_kept(kept, program)
    preparation = f"{SESSION}:prepare_worker", request, subject
    minimized = _reduce_kept(kept, program, preparation, request, options, smallest)
    if minimized.interrupted:  # after Ctrl-C, start no further run
        return MinimizeResult(minimized, kept, user_code=subject.user_code)
    with process_for(request, options.limits) as process:
        value_of(process.outcome_of(f"{SESSION}:prepare_worker", request, subject), request)
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
    """The smallest program that shows `kept`, by processes that this call prepares."""
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


def found_in_file(
    request: MinimizeRequest, limits: Limits, reason: str
) -> Finding[PythonProgram] | None:
    """The difference for the function in a user's file as it is called; None if there is none.

    A note says why there is none, unless that is the `reason` why its ATen calls are not reduced.
    """
    if request.path.suffix != ".py" or request.oracle is not None or request.device is not None:
        return None
    with process_for(request, limits) as process:
        outcome = process.outcome_of(f"{PYTHON_SESSION}:find_in_file", request)
    if isinstance(outcome, Returned):
        finding: Finding[PythonProgram] = outcome.value
        return finding
    if isinstance(outcome, Raised) and str(outcome.error) != reason:
        print_notes([str(outcome.error)])
    return None


def _of_python(
    request: MinimizeRequest,
    options: MinimizeOptions,
    smallest: SmallestFile,
    given: Finding[PythonProgram],
) -> MinimizeResult:
    """The result for a finding of a Python program, and its finding."""
    smallest.finding = given
    if given.target != EAGER:
        backend_source(given.target)  # raises for unusable code of a user
    symptom = Symptom(given.target, given.oracle, given.kind)
    print_kept(KeptPython(symptom), given.program)
    preparation = "aliasproof.judge.trial:start_worker", (given.target,)

    def in_process(function: Callable[..., object], *arguments: object) -> Outcome:
        with process_for(request, options.limits) as process:
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
    except KeyboardInterrupt:  # localization experiments take long
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
    """The reduced program; None if the original program is not interesting."""
    repeated = RepeatedCheck(check, options.repeat)
    question = {**question, "seconds": options.limit, "repeat": options.repeat}
    with RememberedCheck.with_file(repeated, options.resume, question) as remembered:
        shown = repeated.showing(program)
        repeated.flaky = shown < options.repeat
        if not shown:
            return None
        if repeated.flaky:
            print_notes([f"flaky: interesting in {shown} of {options.repeat} runs; so is the rest"])
        with print_progress(notes()) as show:

            def listener(it: Reducer[Any]) -> None:
                smallest.write(it.current)
                step = f"; {it.step.replace('_', ' ')}" if it.step else ""
                cost = f"{counted(it.tried, 'candidate')} tried, {it.accepted} accepted{step}"
                show(f"{counted(*sized(it.current))}, {cost}")

            minimized = minimize(
                program, remembered, options.count, listener, best_grade, repeated.showing
            )
    if minimized.interrupted and options.resume is not None:
        print_notes([f"the same command goes on from here, with --resume {options.resume}"])
    if minimized.again is not None and minimized.again < options.repeat:
        runs = counted(options.repeat, "more run")
        print_notes([f"flaky: the result is interesting in {minimized.again} of {runs}"])
    return minimized


@dataclass(frozen=True, slots=True)
class MinimizeResult:
    """A reduction, the kept difference, and the name and finding of the result.

    `user_code` is true if the program calls operators that the user's file defines.
    """

    minimized: Minimized[Program] | Minimized[PythonProgram]
    kept: Kept | KeptPython | None = None
    named: NamedResult | None = None
    user_code: bool = False

    @property
    def identifier(self) -> str | None:
        return None if self.named is None else self.named.identifier

    @property
    def known(self) -> str:
        """The name of the known bug that the result shows, or empty."""
        finding = None if self.named is None else self.named.finding
        return (finding and finding.known) or (self.kept and self.kept.cause) or ""


def print_kept(kept: Kept | KeptPython, program: AnyProgram) -> None:
    """Print what is kept, with its known bug, before the reduction starts."""
    size, symptom = counted(*sized(program)), kept.symptom
    bug = (
        f"; known bug {kept.cause}: {known_bugs()[kept.cause].title_and_link}" if kept.cause else ""
    )
    what = f"{symptom.oracle}: {symptom.kind}, target {symptom.target}, in {size}"
    print_lines(notes(), f"keeps {what}{bug}")


@dataclass(slots=True)
class SmallestFile:
    """The file of the smallest program so far, which is complete at any time.

    It is `output`, or a temporary file, which remains only if the reduction does not finish. For a
    Python program, JSON output is its `finding`.
    """

    output: Path | None
    path: Path | None = None
    finding: Finding[PythonProgram] | None = None
    _written: tuple[AnyProgram, Finding[PythonProgram] | None] | None = None

    def write(self, program: AnyProgram) -> None:
        """Write a program as Python or JSON, unless it is already written. Raises `UserError`."""
        if (program, self.finding) == self._written:
            return
        if self.path is None:
            folder = None if self.output else Path(tempfile.mkdtemp(prefix="aliasproof-minimize-"))
            name = "finding.json" if self.finding else "smallest.json"
            self.path = self.output or Path(folder or "", name)
            print_notes([f"the smallest program so far is always in {self.path}"])
        best = program.renamed() if isinstance(program, Program) else program
        with writing(self.path):
            write_text(
                self.path, self._json(best) if self.path.suffix == ".json" else file_source(best)
            )
        self._written = program, self.finding

    def _json(self, program: AnyProgram) -> str:
        if isinstance(program, Program):
            return dumps(program)
        assert self.finding is not None
        return json.dumps(replace(self.finding, program=program).to_json(), indent=1) + "\n"

    @property
    def continued(self) -> Path | None:
        """The path that `minimize` can take: the file, or the folder of a finding of `hunt`."""
        if self.finding is None or self.path is None:
            return self.path
        return self.path.parent if self.path.name == "finding.json" else None

    def remove_temporary(self) -> None:
        """Remove the file unless the user named it."""
        if self.output is None and self.path is not None:
            shutil.rmtree(self.path.parent, ignore_errors=True)


def print_minimized(reduced: MinimizeResult, file: str, *, as_json: bool) -> None:
    """Print the program and the cost of each step; or everything as one JSON object."""
    minimized, kept = reduced.minimized, reduced.kept
    text = file_source(minimized.program)
    if as_json:
        symptom = None if kept is None else asdict(kept.grades[minimized.grade - 1])
        head = {"file": file, "signature": reduced.identifier, "known": reduced.known}
        write_json(head | {"kept": symptom} | _as_json(minimized) | {"source": text})
    else:
        print_code(results(), text)
        print_steps(notes(), minimized.reducer.passes)
        print_lines(notes(), _summary(minimized, reduced))


def _summary(minimized: Minimized[Any], reduced: MinimizeResult) -> str:
    sizes = f"{sized(minimized.original)[0]} to {counted(*sized(minimized.program))}"
    reducer = minimized.reducer
    cost = f"{counted(reducer.tried, 'candidate')} tried, {reducer.accepted} accepted"
    known = f" (known: {reduced.known})" if reduced.known else ""
    name = f"; {reduced.identifier}{known}" if reduced.identifier else ""
    ended = "interrupted, the smallest so far: " if minimized.interrupted else ""
    return f"{ended}{sizes}, {cost}, {minimized.seconds:.1f} s{name}"


def _as_json(minimized: Minimized[Any]) -> dict[str, object]:
    (before, _), (after, unit) = sized(minimized.original), sized(minimized.program)
    program = minimized.program
    return {
        f"{unit}s": {"before": before, "after": after},
        "candidates tried": minimized.reducer.tried,
        "accepted": minimized.reducer.accepted,
        "seconds": round(minimized.seconds, 3),
        "interrupted": minimized.interrupted,
        "steps": {name: asdict(spent) for name, spent in minimized.reducer.passes.items()},
        **({"program": to_json(program)} if isinstance(program, Program) else {}),
    }


def digest_of(file: Path) -> str:
    """A hash of the contents of a file."""
    return hashlib.sha256(file.read_bytes()).hexdigest()[:16]


def question_about(kept: Kept | KeptPython, request: MinimizeRequest) -> dict[str, object]:
    """The description of the check, as JSON values: stored grades are valid only for this one."""
    code = code_name(request.target or "")
    return {
        **asdict(kept.symptom),
        **{name: it for name, it in asdict(kept).items() if name != "symptom"},
        "asked target": request.target,
        "code": digest_of(Path(code.module)) if code is not None and code.in_file else None,
        "device": request.device,
        "tolerance": list(request.tolerance),
        "torch": torch.__version__,
    }


def _origin(path: Path) -> str:
    """Where a difference was found, as an issue words it."""
    if is_stored_graph(path):
        graph = about_graph(path).get("graph", "")
        return f"in a model that was compared with eager while it ran: graph {graph}"
    return BY_FUZZER if path.is_dir() or path.suffix == ".json" else "in a function of a user"


def write_folder(
    folder: Path, named: NamedResult, minimized: Minimized[Any], given: Path
) -> Sequence[str]:
    """Write the folder after its script ran in a fresh process; return notes on its contents.

    `given` is the path that was reduced. Raises `UserError` if the folder cannot be written.
    """
    if named.finding is None:
        return [f"{folder} is not written: {named.reason}"]
    reducer = minimized.reducer
    tried, accepted, steps = reducer.tried, reducer.accepted, reducer.passes
    finding = replace(named.finding, tried=tried, accepted=accepted, steps=steps)
    with writing(folder):
        return publish_finding(finding, folder, _origin(given))
