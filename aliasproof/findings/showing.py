"""The command `show`: print what a run has stored, and run it again in the installed torch."""

from __future__ import annotations

import shlex
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from aliasproof.campaigns.publish.confirmation import Confirmation, confirm
from aliasproof.campaigns.publish.python_issue import SCRIPT, confirm_python, title
from aliasproof.campaigns.publish.reproducer import render
from aliasproof.campaigns.store.finding import Finding, PythonFinding, is_of_python
from aliasproof.campaigns.store.stored import Suspicion, locate, read_stored
from aliasproof.checks.explaining import letter
from aliasproof.corpus.bug_files import all_bugs, known_bugs
from aliasproof.corpus.known_bug import patched
from aliasproof.ir.devices import require_device
from aliasproof.ir.eager_call import EagerCall, tensors_in
from aliasproof.ir.errors import Rejected, UserError
from aliasproof.ir.printing import source
from aliasproof.ir.python_program import PythonProgram
from aliasproof.judge.examination import Examination, examine
from aliasproof.judge.python_case import PythonCase, run_python
from aliasproof.judge.trial import Case, quiet_torch
from aliasproof.oracles.verdict import Violation
from aliasproof.processes.outcome import DEATHS, DEVICE_LOST
from aliasproof.reports.console import (
    output_for_results,
    print_code,
    print_heading,
    print_lines,
    relative,
    results,
    write_json,
)
from aliasproof.reports.differences import print_violation
from aliasproof.reports.finding_report import (
    print_finding,
    print_new_run,
    print_reproducer,
    print_stage,
    print_suspicion,
)
from aliasproof.reports.node_lines import NodeLine, ShownLayout
from aliasproof.reports.run_report import Status
from aliasproof.reports.side_by_side import rows
from aliasproof.reports.verdict_table import report_json
from aliasproof.targets.registry import is_importable
from aliasproof.targets.registry import target as target_named
from aliasproof.targets.target import Target
from aliasproof.targets.user_names import grant

# --- python showing -------------------------------------------------------------------------------
#
# `show` of a finding of `hunt`: what is stored, and what it does in the installed torch.


def show_python(folder: Path, *, as_json: bool) -> None:
    """Print a finding, its program run again, and whether it still fails."""
    finding = PythonFinding.load(folder)
    quiet_torch()
    with output_for_results():
        status, violations = _run_python_again(finding)
    # Eager beside the compiled program, each in a process of its own.
    confirmation = confirm_python(finding)
    if as_json:
        write_json(
            {
                "folder": str(folder),
                "stored as": "finding"
                if folder.resolve().parent.name == "findings"
                else "unconfirmed",
                "stored": finding.to_json(),
                "program": finding.program.source,
                "reproducer": str(folder / SCRIPT),
                "torch": str(torch.__version__),
                "status": status.word,
                "explanation": status.text,
                "eager beside target": confirmation.output.splitlines(),
            }
        )
        return
    _print_python(finding, confirmation, violations)
    if (folder / SCRIPT).is_file():
        print_lines(results(), f"reproducer: {relative(folder / SCRIPT)}")
    results().print()
    print_lines(results(), status.text, status.style)


def _run_python_again(finding: PythonFinding) -> tuple[Status, tuple[Violation, ...]]:
    """Whether a new run shows the stored violation, and what else it shows."""
    here = f"in torch {torch.__version__}"
    case, target = PythonCase(finding.program), target_named(finding.target)
    examination = examine(case, target)
    # It may have been found behind a known bug of another layer.
    if examination.symptom is not None and examination.symptom.target != target.name:
        with patched(known_bugs().values()):
            examination = examine(case, target)
    if (reason := examination.rejected) is not None:
        return Status("not judged", f"Not judged {here}: undefined in eager: {reason}."), ()
    violations = tuple(examination.violations)
    layer, main = examination.at_fault, examination.main
    if layer is not None and main is not None and layer.name != target.name:
        target, violations = layer, (main,)
    return python_status(finding, target.name, violations), violations


def python_status(finding: PythonFinding, target: str, violations: Sequence[Violation]) -> Status:
    """Whether the violations of a new run through a target are those of the finding."""
    here = f"in torch {torch.__version__}"
    kinds = {(target, one.oracle, one.kind) for one in violations}
    # The place and the evidence can change with the version of torch.
    if (finding.target, finding.oracle, finding.kind) in kinds:
        return Status("still there", f"Still there {here}.")
    if violations:
        other = f"{target}: {violations[0].oracle}: {violations[0].describe()}"
        return Status("another violation", f"Another violation {here}: {other}.")
    return Status("gone", f"Gone {here}: target and eager do the same.")


def _print_python(
    finding: PythonFinding, confirmation: Confirmation, violations: tuple[Violation, ...]
) -> None:
    console = results()
    print_lines(console, finding.identifier, "bold")
    print_lines(console, title(finding))
    how = "silent (no exception)" if finding.silent else "an exception"
    part = f" ({finding.wrong_part})" if finding.wrong_part else ""
    print_lines(console, f"target {finding.target}{part}; {how}; in torch {finding.torch_version}")
    print_lines(
        console,
        f"reduced from {finding.drawn_lines} lines to {finding.program.lines}: {finding.tried}"
        f" candidates tried, {finding.compiled} compiled",
    )
    if (bug := all_bugs().get(finding.known)) is not None:
        print_lines(console, f"known bug: {bug.title} {bug.link}".rstrip())
    print_heading(console, "program")
    print_code(console, finding.program.source.strip())
    print_heading(console, "violation as it was found")
    print_violation(console, finding.violation)
    print_heading(console, "eager beside the compiled program, now")
    print_lines(console, confirmation.output.strip() or confirmation.ending)
    for violation in violations[1:]:
        print_violation(console, violation)


# --- showing --------------------------------------------------------------------------------------


def show_finding(given: str, own: str | None = None, *, as_json: bool) -> None:
    """Print a stored case, its program run again, its reproducer, and whether it still fails.

    `own` is the target that the user named: nothing else that is code of theirs is imported.
    """
    folder = locate(given)
    grant([] if own is None else [own])
    if is_of_python(folder):
        show_python(folder, as_json=as_json)
        return
    stored = read_stored(folder)
    if own is not None and target_named(own).name != stored.target:
        raise UserError(f"{given} is of the target {stored.target}, and not of {own}")
    script = folder / "reproducer.py"
    if is_importable(stored.target):
        # It can be older than this version, and its target gone.
        target = target_named(stored.target)
        quiet_torch()
        summary = target.summary
        examination, status = _run_again(stored, target)
    else:
        summary, examination = "your own code", None
        advice = shlex.join(["aliasproof", "show", given, "--target", stored.target])
        status = Status("not run", f"Not run, since a file names its code. To run it: {advice}")
    if as_json:
        write_json(_to_json(stored, folder, examination, status))
        return
    _print(stored, summary, script, examination)
    results().print()
    print_lines(results(), status.text, status.style)


def _run_again(stored: Finding | Suspicion, target: Target) -> tuple[Examination | None, Status]:
    """Run a stored case again, where its device is. None where it could end this process."""
    try:
        require_device(stored.program.device)
    except UserError as reason:
        return None, Status("not run", f"Not run again: {reason}.")
    # What a worker reported dead would end this process too.
    if stored.kind.startswith((*DEATHS, DEVICE_LOST)):
        return None, _run_reproducer(stored, target)
    with output_for_results():
        examination = examine(Case.of(stored.program), target, every_oracle=True, attribute=False)
    return examination, status_of(stored, examination)


def _print(
    stored: Finding | Suspicion, summary: str, script: Path, examination: Examination | None
) -> None:
    console = results()
    if isinstance(stored, Finding):
        print_finding(console, stored, summary)
    else:
        print_suspicion(console, stored, summary)
    if examination is not None and examination.trial is not None:
        print_new_run(
            console, examination.target.name, examination.trial.eager, examination.trial.target
        )
        # A stored finding has the evidence of its own violation; of a suspicion, nobody wrote it.
        for violation in () if isinstance(stored, Finding) else examination.violations:
            print_violation(console, violation)
        for stage in examination.trial.build.stages if examination.trial.build is not None else []:
            print_stage(console, stage)
    # A script with torch alone cannot show what only oracles on graphs see.
    if isinstance(stored, Finding):
        print_reproducer(console, script)


def _run_reproducer(stored: Finding | Suspicion, target: Target) -> Status:
    """Run a reproducer in a process of its own, and say if it still fails.

    It is written anew: what a folder has as reproducer is shown, and never run.
    """
    if not isinstance(stored, Finding):
        return Status("not run", "Not run again: it would end this process.")
    with tempfile.TemporaryDirectory(prefix="aliasproof-") as folder:
        script = Path(folder) / "reproducer.py"
        script.write_text(render(stored.program, target, stored.violation, exact=stored.exact))
        done = confirm(script)
    if done.shown:
        return Status("still there", f"Still there in torch {torch.__version__}.")
    return Status("gone", f"Gone in torch {torch.__version__}: the reproducer {done.ending}.")


def status_of(stored: Finding | Suspicion, examination: Examination) -> Status:
    """Whether a new run shows the stored violation."""
    here = f"in torch {torch.__version__}"
    if examination.rejected is not None:
        return Status(
            "not judged",
            f"Not judged {here}: the program is undefined in eager: {examination.rejected}.",
        )
    # The place and the evidence can change with the version of torch.
    kind, violations = (stored.oracle, stored.kind), examination.violations
    if any((violation.oracle, violation.kind) == kind for violation in violations):
        return Status("still there", f"Still there {here}.")
    if violations:
        other = _violation_text(violations[0])
        return Status("another violation", f"Another violation {here}: {other}.")
    if examination.documented:
        first = examination.documented[0]
        reason = f"{first.difference.describe()}: {first.limitation.reason}"
        return Status("documented", f"Documented {here}: {reason}.")
    return Status("gone", f"Gone {here}: target and eager do the same.")


def _violation_text(violation: Violation) -> str:
    return f"{violation.oracle}: {violation.describe()}"


def _to_json(
    stored: Finding | Suspicion, folder: Path, examination: Examination | None, status: Status
) -> dict[str, object]:
    trial = examination.trial if examination is not None else None
    script = folder / "reproducer.py"
    stages = trial.build.stages if trial is not None and trial.build is not None else []
    return {
        "folder": str(folder),
        "stored as": "finding" if isinstance(stored, Finding) else "suspicion",
        "stored": stored.to_json(),
        "program": source(stored.program),
        "reproducer": str(script) if script.is_file() else None,
        "torch": str(torch.__version__),
        "status": status.word,
        "explanation": status.text,
        "oracles": {name: report_json(report) for name, report in examination.reports.items()}
        if examination is not None
        else {},
        "eager beside target": [
            {"what": what, "eager": ours, "target": theirs}
            for what, ours, theirs in (rows(trial.eager, trial.target) if trial is not None else ())
        ],
        "graphs": {stage.name: stage.graph.print_readable(print_output=False) for stage in stages},
    }


# --- recorded calls -------------------------------------------------------------------------------
#
# `recorded_lines`: the ATen calls of a Python program in eager, as lines of a graph.


MOST_CALLS = 200


class _CallRecorder(TorchDispatchMode):
    """Notes each call with the layouts of what it returns, and the storages that it writes."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[NodeLine] = []
        self._names: dict[int, str] = {}
        self._used: Counter[str] = Counter()
        self._letters: dict[int, str] = {}
        self._kept: list[torch.Tensor] = []  # so that no address is used again

    def __torch_dispatch__(
        self, func: OpOverload, types: Iterable[type], args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        operands = list(tensors_in([list(args), kwargs]))
        try:
            written = EagerCall.of(func, args, kwargs).written
        except Rejected:  # a sparse tensor
            written = []
        names = [self._name_of(tensor) for tensor in operands]
        writes = tuple(dict.fromkeys(map(self._letter, written)))
        result = func(*args, **kwargs)
        if len(self.lines) < MOST_CALLS:
            made = [it for it in tensors_in(result) if it.layout is torch.strided]
            call = f"{str(func).removeprefix('aten.')}({', '.join(names)})"
            name = self._new_name(func._schema.name.rpartition("::")[2])
            for tensor in made:
                self._keep(tensor, name)
            self.lines.append(NodeLine(name, call, tuple(map(self._layout, made)), writes))
        return result

    def _name_of(self, tensor: torch.Tensor) -> str:
        if id(tensor) not in self._names:
            self._keep(tensor, self._new_name("tensor"))
            if tensor.layout is torch.strided:
                name = self._names[id(tensor)]
                self.lines.append(NodeLine(name, "made before", (self._layout(tensor),)))
        return self._names[id(tensor)]

    def _keep(self, tensor: torch.Tensor, name: str) -> None:
        self._kept.append(tensor)
        self._names.setdefault(id(tensor), name)

    def _new_name(self, stem: str) -> str:
        self._used[stem] += 1
        return stem if self._used[stem] == 1 else f"{stem}_{self._used[stem] - 1}"

    def _letter(self, tensor: torch.Tensor) -> str:
        storage = tensor.untyped_storage()._cdata
        return self._letters.setdefault(storage, letter(len(self._letters)))

    def _layout(self, tensor: torch.Tensor) -> ShownLayout:
        return ShownLayout(
            str(tensor.dtype).removeprefix("torch."),
            tuple(tensor.shape),
            tuple(tensor.stride()),
            int(tensor.storage_offset()),
            tensor.is_contiguous(),
            self._letter(tensor),
        )


def recorded_lines(program: PythonProgram) -> list[NodeLine]:
    """The calls of a run in eager, at most `MOST_CALLS`. Raises `Rejected` as a run does."""
    recorder = _CallRecorder()
    with torch.compiler.set_stance("force_eager"):
        run_python(program, within=recorder)
    return recorder.lines
