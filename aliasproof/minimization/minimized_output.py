"""The result of `minimize`: printed, written to a file, and as the folder of a finding."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch

from aliasproof.campaigns.failure.failure import Kept
from aliasproof.campaigns.publish.issue_text import BY_FUZZER
from aliasproof.campaigns.publish.publishing import published
from aliasproof.campaigns.store.run_folder import write_text
from aliasproof.corpus.bug_files import known_bugs
from aliasproof.formats.stored_graph import about_graph, is_stored_graph
from aliasproof.ir.errors import UserError
from aliasproof.ir.program import Program
from aliasproof.ir.serialization import dumps, to_json
from aliasproof.minimization.candidate_checks import file_source
from aliasproof.minimization.minimize import Minimized
from aliasproof.minimization.minimize_request import MinimizeRequest
from aliasproof.minimization.minimize_session import NamedResult
from aliasproof.reports.console import (
    counted,
    notes,
    print_code,
    print_lines,
    print_notes,
    results,
    write_json,
)
from aliasproof.reports.reduction_table import print_steps
from aliasproof.targets.user_names import code_name


@dataclass(frozen=True, slots=True)
class MinimizeResult:
    """A reduction; what was kept of a target, and what a campaign makes of the result.

    `user_code` is true if the program calls operators that the user's file defines.
    """

    minimized: Minimized
    kept: Kept | None = None
    named: NamedResult | None = None
    user_code: bool = False

    @property
    def identifier(self) -> str | None:
        """The identifier that a campaign gives to it."""
        return None if self.named is None else self.named.identifier


def print_kept(kept: Kept, program: Program) -> None:
    """Print what is kept, with the known bug: nobody has to wait for a reduction to hear of it."""
    size, symptom = counted(len(program), "instruction"), kept.symptom
    bug = (
        f"; known bug {kept.cause}: {known_bugs()[kept.cause].title_and_link}" if kept.cause else ""
    )
    what = f"{symptom.oracle}: {symptom.kind}, target {symptom.target}, in {size}"
    print_lines(notes(), f"keeps {what}{bug}")


@dataclass(slots=True)
class SmallestFile:
    """The file of the smallest program so far, which is whole at any time.

    It is `output`, or a temporary one, which stays only if the reduction does not end.
    """

    output: Path | None
    path: Path | None = None
    _written: Program | None = None

    def write(self, program: Program) -> None:
        """Write a program as Python or JSON, unless it is there. Raises `UserError`."""
        if program is self._written:
            return
        if self.path is None:
            folder = None if self.output else Path(tempfile.mkdtemp(prefix="aliasproof-minimize-"))
            self.path = self.output or Path(folder or "", "smallest.json")
            print_notes([f"the smallest program so far is always in {self.path}"])
        renamed = program.renamed()
        text = dumps(renamed) if self.path.suffix == ".json" else file_source(renamed)
        try:
            write_text(self.path, text)
        except OSError as error:
            raise UserError(f"{self.path} cannot be written: {error.strerror}") from error
        self._written = program

    def remove_temporary(self) -> None:
        """Remove the file unless the user named it."""
        if self.output is None and self.path is not None:
            shutil.rmtree(self.path.parent, ignore_errors=True)


def print_minimized(reduced: MinimizeResult, file: str, *, as_json: bool) -> None:
    """Print the program and what each step cost; or all of it as one JSON object."""
    minimized, kept = reduced.minimized, reduced.kept
    text = file_source(minimized.program)
    if as_json:
        symptom = None if kept is None else asdict(kept.grades[minimized.reducer.grade - 1])
        head = {"file": file, "signature": reduced.identifier, "kept": symptom}
        write_json(head | _as_json(minimized) | {"source": text})
    else:
        print_code(results(), text)
        print_steps(notes(), minimized.reducer.passes)
        print_lines(notes(), _summary(minimized, reduced.identifier))


def _summary(minimized: Minimized, identifier: str | None) -> str:
    sizes = f"{len(minimized.original)} to {counted(len(minimized.program), 'instruction')}"
    reducer = minimized.reducer
    cost = f"{counted(reducer.tried, 'candidate')} tried, {reducer.accepted} accepted"
    name = f"; {identifier}" if identifier else ""
    ended = "interrupted, the smallest so far: " if minimized.interrupted else ""
    return f"{ended}{sizes}, {cost}, {minimized.seconds:.1f} s{name}"


def _as_json(minimized: Minimized) -> dict[str, object]:
    return {
        "instructions": {"before": len(minimized.original), "after": len(minimized.program)},
        "candidates tried": minimized.reducer.tried,
        "accepted": minimized.reducer.accepted,
        "seconds": round(minimized.seconds, 3),
        "interrupted": minimized.interrupted,
        "steps": {name: asdict(spent) for name, spent in minimized.reducer.passes.items()},
        "program": to_json(minimized.program),
    }


# --- the question that candidates answer ----------------------------------------------------------


def digest_of(file: Path) -> str:
    """A name for the contents of a file."""
    return hashlib.sha256(file.read_bytes()).hexdigest()[:16]


def question_about(kept: Kept, request: MinimizeRequest) -> dict[str, object]:
    """What each candidate is asked, as JSON values: an answer in a file holds for this alone."""
    code = code_name(request.target or "")
    return {
        **asdict(kept.symptom),
        "cause": kept.cause,
        "exact": kept.exact,
        "step": kept.step,
        "asked target": request.target,
        "code": digest_of(Path(code.module)) if code is not None and code.in_file else None,
        "device": request.device,
        "tolerance": list(request.tolerance),
        "torch": torch.__version__,
    }


# --- the folder of a finding ----------------------------------------------------------------------


def _origin(path: Path) -> str:
    """Where a difference was found, as an issue says it."""
    if is_stored_graph(path):
        graph = about_graph(path).get("graph", "")
        return f"in a model that was compared with eager while it ran: graph {graph}"
    return BY_FUZZER if path.is_dir() or path.suffix == ".json" else "in a function of a user"


def write_folder(
    folder: Path, named: NamedResult, minimized: Minimized, given: Path
) -> Sequence[str]:
    """Write the folder, after its script ran in a fresh process; notes on what it has.

    `given` is what was reduced. Raises `UserError` if it cannot be written.
    """
    if named.finding is None:
        return [f"{folder} is not written: {named.reason}"]
    reducer = minimized.reducer
    finding = replace(
        named.finding, tried=reducer.tried, accepted=reducer.accepted, steps=dict(reducer.passes)
    )
    try:
        return published(finding, origin=_origin(given)).write(folder)
    except OSError as error:
        raise UserError(f"{folder} cannot be written: {error.strerror}") from error
