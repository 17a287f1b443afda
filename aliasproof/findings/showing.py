"""The command `show`: print a stored case, and run it again in the installed torch."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from aliasproof.campaigns.failure.finding import AnyFinding
from aliasproof.campaigns.publish.confirmation import SCRIPT, run_text
from aliasproof.campaigns.publish.publisher import script_of
from aliasproof.campaigns.store.run_folder import locate, read_finding
from aliasproof.campaigns.store.run_lock import KINDS
from aliasproof.corpus.bug_files import all_bugs
from aliasproof.eager.definedness import why_unjudged
from aliasproof.ir.devices import require_device
from aliasproof.ir.eager_call import EagerCall, tensors_in
from aliasproof.ir.errors import Rejected, UserError
from aliasproof.ir.printing import source
from aliasproof.ir.program import Program
from aliasproof.ir.python_program import PythonProgram
from aliasproof.ir.serialization import dtype_name
from aliasproof.judge.examination import Examination, examine
from aliasproof.judge.python_case import run_python, subject_of
from aliasproof.judge.trial import quiet_torch
from aliasproof.processes.outcome import DEATHS, DEVICE_LOST
from aliasproof.reports.console import (
    counted,
    output_for_results,
    print_code,
    print_exactly,
    print_heading,
    print_lines,
    python_command,
    relative,
    results,
    write_json,
)
from aliasproof.reports.differences import print_rows, print_violation
from aliasproof.reports.explanation import print_program
from aliasproof.reports.node_lines import NodeLine, ShownLayout, letter
from aliasproof.reports.progress import print_steps
from aliasproof.reports.run_report import Status
from aliasproof.reports.side_by_side import rows
from aliasproof.reports.verdict_table import report_json
from aliasproof.targets.registry import is_importable
from aliasproof.targets.registry import target as target_named
from aliasproof.targets.target import Target
from aliasproof.targets.user_names import grant


def show_finding(given: str, own: str | None = None, *, as_json: bool) -> None:
    """Print a stored case, its program run again, its reproducer, and whether it still fails.

    `own` is the target that the user named: no other code of the user is imported.
    """
    folder = locate(given)
    grant([] if own is None else [own])
    stored = read_finding(folder)
    if own is not None and target_named(own).name != stored.target:
        raise UserError(f"{given} is of the target {stored.target}, and not of {own}")
    if is_importable(stored.target):
        # The finding may be from an older version that had a target which no longer exists.
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
    _print(stored, summary, folder / SCRIPT, examination)
    results().print()
    print_lines(results(), status.text, status.style)


def _run_again(stored: AnyFinding, target: Target) -> tuple[Examination | None, Status]:
    """Run a stored case again on its device. None if that could end this process."""
    program = stored.program
    if isinstance(program, Program):
        try:
            require_device(program.device)
        except UserError as reason:
            return None, Status("not run", f"Not run again: {reason}.")
    # A case that killed its worker would end this process, too, so its script runs instead. That is
    # generated from the program: the reproducer in a folder is shown, but never run.
    if stored.kind.startswith((*DEATHS, DEVICE_LOST)):
        done, here = run_text(script_of(stored)), f"in torch {torch.__version__}"
        if done.shown:
            return None, Status("still there", f"Still there {here}.")
        return None, Status("gone", f"Gone {here}: the reproducer {done.ending}.")
    with output_for_results():
        examination = examine(subject_of(program), target, every_oracle=True, attribute=False)
    return examination, status_of(stored, examination)


def _print(stored: AnyFinding, summary: str, script: Path, examination: Examination | None) -> None:
    console = results()
    _print_finding(console, stored, summary)
    if examination is not None and examination.trial is not None:
        trial, name = examination.trial, examination.target.name
        # The stored evidence above may be from another torch, or another machine.
        print_heading(console, f"eager beside {name}, run again in torch {torch.__version__}")
        print_rows(console, rows(trial.eager, trial.target), name)
        # A stored finding has the evidence of its own violation; a suspicion has none.
        for violation in () if stored.evidence else examination.violations:
            print_violation(console, violation)
        for stage in trial.build.stages if trial.build is not None else []:
            print_heading(console, f"graph: {stage.name}")
            print_code(console, stage.graph.print_readable(print_output=False))
    # A script that needs only torch cannot show what only oracles on graphs report.
    if not stored.on_graphs:
        _print_reproducer(console, script)


def _print_finding(console: Console, finding: AnyFinding, summary: str) -> None:
    """Print what a finding stores. `summary` describes its target."""
    print_lines(console, finding.identifier, "bold")
    print_lines(console, f"target {finding.target}: {summary}")
    for line in _origin(finding):
        print_lines(console, line)
    for what, text in _further(finding):
        print_lines(console, f"{what}: {text}")
    if finding.steps:
        print_heading(console, "steps of the reduction")
        print_steps(console, finding.steps)
    print_heading(console, "program")
    print_program(console, finding.program)
    print_heading(console, "violation as it was found")
    print_violation(console, finding.violation)


def _origin(finding: AnyFinding) -> Iterator[str]:
    """How often the finding was seen, and what was reduced."""
    if finding.on_graphs and not finding.latent:
        yield (
            f"suspicion: values match, but on {counted(finding.count, 'program')} of the run"
            f" {finding.oracle} reports '{finding.kind}'; not reduced, and this is the shortest"
            " program"
        )
        return
    how = "silent (no exception)" if finding.silent else "an exception"
    count = counted(finding.count, "violation")
    yield f"{how}; {count} of the run reduced to it, in torch {finding.torch_version}"
    how = f"{finding.tried} candidates tried, {finding.accepted} accepted"
    if finding.known and not finding.tried:
        how = "that of the known bug, which it shows, too"
    yield f"reduced from {counted(finding.drawn_size, finding.unit)} to {finding.size}: {how}"


def _further(finding: AnyFinding) -> list[tuple[str, str]]:
    """Further facts about a finding, each with its title."""
    lines = []
    if finding.known is not None:
        bug = all_bugs().get(finding.known)
        title = "" if bug is None else f" ({bug.title}; {bug.link or 'no issue found'})"
        lines.append(("known bug", f"{finding.known}{title}"))
    if finding.wrong_part:
        lines.append(("first wrong after", finding.wrong_part))
    if finding.cause:
        lines.append(("cause", finding.cause))
    if finding.latent:
        lines.append(("latent", "not shown equal for all inputs; no values that were tried differ"))
    lines += [
        (f'torch.compile(backend="{name}")', text) for name, text in finding.user_level.items()
    ]
    return lines


def _print_reproducer(console: Console, script: Path) -> None:
    """Print the script, how to run it, and where the issue for PyTorch's tracker is."""
    print_heading(console, "reproducer")
    if not script.is_file():
        folder = shlex.quote(str(relative(script.parent)))
        advice = f"aliasproof minimize {folder} --finding DIR"
        print_lines(console, f"{relative(script)} is missing; for one: {advice}", "yellow")
        return
    print_code(console, script.read_text(encoding="utf-8", errors="replace"))
    console.print()
    print_lines(console, "Run it. Exit status 1: the bug is there. Exit status 0: it is gone.")
    print_exactly(console, f"    {python_command(relative(script))}", "bold")
    issue = script.with_name("issue.md")
    if issue.is_file():
        title = issue.read_text(encoding="utf-8", errors="replace").partition("\n")[0]
        console.print()
        print_lines(console, f"For PyTorch's tracker: {relative(issue)}")
        print_exactly(console, f"    {title}", "bold")


def status_of(stored: AnyFinding, examination: Examination) -> Status:
    """Whether a new run shows the stored violation."""
    here = f"in torch {torch.__version__}"
    if examination.rejected is not None:
        return Status(
            "not judged",
            f"Not judged {here}: {why_unjudged(examination.rejected)}.",
        )
    # The location and the evidence can differ between versions of torch.
    kind, violations = (stored.oracle, stored.kind), examination.violations
    if any((violation.oracle, violation.kind) == kind for violation in violations):
        return Status("still there", f"Still there {here}.")
    if violations:
        other = f"{violations[0].oracle}: {violations[0].describe()}"
        return Status("another violation", f"Another violation {here}: {other}.")
    if examination.documented:
        first = examination.documented[0]
        reason = f"{first.difference.describe()}: {first.limitation.reason}"
        return Status("documented", f"Documented {here}: {reason}.")
    return Status("gone", f"Gone {here}: target and eager do the same.")


def _to_json(
    stored: AnyFinding, folder: Path, examination: Examination | None, status: Status
) -> dict[str, object]:
    trial = examination.trial if examination is not None else None
    script, program = folder / SCRIPT, stored.program
    stages = trial.build.stages if trial is not None and trial.build is not None else []
    return {
        "folder": str(folder),
        "stored as": folder.resolve().parent.name.removesuffix("s")
        if folder.resolve().parent.name in KINDS
        else "finding",
        "stored": stored.to_json(),
        "program": source(program) if isinstance(program, Program) else program.source,
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


MOST_CALLS = 200


class _CallRecorder(TorchDispatchMode):
    """Records each call with the layouts of its results, and the storages that it writes."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[NodeLine] = []
        self._names: dict[int, str] = {}
        self._used: Counter[str] = Counter()
        self._letters: dict[int, str] = {}
        self._kept: list[torch.Tensor] = []  # alive, so that no address is used again

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
            dtype_name(tensor.dtype),
            tuple(tensor.shape),
            tuple(tensor.stride()),
            int(tensor.storage_offset()),
            tensor.is_contiguous(),
            self._letter(tensor),
        )


def recorded_lines(program: PythonProgram) -> list[NodeLine]:
    """The calls of a run in eager, at most `MOST_CALLS`. Raises `Rejected` like any run."""
    recorder = _CallRecorder()
    with torch.compiler.set_stance("force_eager"):
        run_python(program, within=recorder)
    return recorder.lines
