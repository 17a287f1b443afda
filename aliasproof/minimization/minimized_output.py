"""The result of `minimize`: printed, written to a file, and as the folder of a finding."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from aliasproof.campaigns.failure.failure import Kept
from aliasproof.campaigns.failure.finding import Finding, sized
from aliasproof.campaigns.publish.issue_text import BY_FUZZER
from aliasproof.campaigns.publish.publisher import published
from aliasproof.campaigns.store.run_folder import write_text
from aliasproof.corpus.bug_files import known_bugs
from aliasproof.formats.stored_graph import about_graph, is_stored_graph
from aliasproof.ir.errors import UserError
from aliasproof.ir.program import Program
from aliasproof.ir.python_program import AnyProgram, PythonProgram
from aliasproof.ir.serialization import dumps, to_json
from aliasproof.minimization.candidate_checks import file_source
from aliasproof.minimization.minimize import Minimized
from aliasproof.minimization.minimize_python import KeptPython
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

    minimized: Minimized[Program] | Minimized[PythonProgram]
    kept: Kept | KeptPython | None = None
    named: NamedResult | None = None
    user_code: bool = False

    @property
    def identifier(self) -> str | None:
        """The identifier that a campaign gives to it."""
        return None if self.named is None else self.named.identifier

    @property
    def known(self) -> str:
        """The known bug that it is, or empty."""
        finding = None if self.named is None else self.named.finding
        return (finding and finding.known) or (self.kept and self.kept.cause) or ""


def print_kept(kept: Kept | KeptPython, program: AnyProgram) -> None:
    """Print what is kept, with the known bug: nobody has to wait for a reduction to hear of it."""
    size, symptom = counted(*sized(program)), kept.symptom
    bug = (
        f"; known bug {kept.cause}: {known_bugs()[kept.cause].title_and_link}" if kept.cause else ""
    )
    what = f"{symptom.oracle}: {symptom.kind}, target {symptom.target}, in {size}"
    print_lines(notes(), f"keeps {what}{bug}")


@dataclass(slots=True)
class SmallestFile:
    """The file of the smallest program so far, which is whole at any time.

    It is `output`, or a temporary one, which stays only if the reduction does not end. Of a Python
    program, JSON is the `finding` with it.
    """

    output: Path | None
    path: Path | None = None
    finding: Finding[PythonProgram] | None = None
    _written: tuple[AnyProgram, Finding[PythonProgram] | None] | None = None

    def write(self, program: AnyProgram) -> None:
        """Write a program as Python or JSON, unless it is there. Raises `UserError`."""
        if (program, self.finding) == self._written:
            return
        if self.path is None:
            folder = None if self.output else Path(tempfile.mkdtemp(prefix="aliasproof-minimize-"))
            name = "finding.json" if self.finding else "smallest.json"
            self.path = self.output or Path(folder or "", name)
            print_notes([f"the smallest program so far is always in {self.path}"])
        best = program.renamed() if isinstance(program, Program) else program
        try:
            write_text(
                self.path, self._json(best) if self.path.suffix == ".json" else file_source(best)
            )
        except OSError as error:
            raise UserError(f"{self.path} cannot be written: {error.strerror}") from error
        self._written = program, self.finding

    def _json(self, program: AnyProgram) -> str:
        if isinstance(program, Program):
            return dumps(program)
        assert self.finding is not None
        return json.dumps(replace(self.finding, program=program).to_json(), indent=1) + "\n"

    @property
    def continued(self) -> Path | None:
        """What another reduction takes: the file, or the folder of a finding of `hunt`."""
        if self.finding is None or self.path is None:
            return self.path
        return self.path.parent if self.path.name == "finding.json" else None

    def remove_temporary(self) -> None:
        """Remove the file unless the user named it."""
        if self.output is None and self.path is not None:
            shutil.rmtree(self.path.parent, ignore_errors=True)


def print_minimized(reduced: MinimizeResult, file: str, *, as_json: bool) -> None:
    """Print the program and what each step cost; or all of it as one JSON object."""
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


# --- the question that candidates answer ----------------------------------------------------------


def digest_of(file: Path) -> str:
    """A name for the contents of a file."""
    return hashlib.sha256(file.read_bytes()).hexdigest()[:16]


def question_about(kept: Kept | KeptPython, request: MinimizeRequest) -> dict[str, object]:
    """What each candidate is asked, as JSON values: an answer in a file holds for this alone."""
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


# --- the folder of a finding ----------------------------------------------------------------------


def _origin(path: Path) -> str:
    """Where a difference was found, as an issue says it."""
    if is_stored_graph(path):
        graph = about_graph(path).get("graph", "")
        return f"in a model that was compared with eager while it ran: graph {graph}"
    return BY_FUZZER if path.is_dir() or path.suffix == ".json" else "in a function of a user"


def write_folder(
    folder: Path, named: NamedResult, minimized: Minimized[Any], given: Path
) -> Sequence[str]:
    """Write the folder, after its script ran in a fresh process; notes on what it has.

    `given` is what was reduced. Raises `UserError` if it cannot be written.
    """
    if named.finding is None:
        return [f"{folder} is not written: {named.reason}"]
    reducer = minimized.reducer
    tried, accepted, steps = reducer.tried, reducer.accepted, reducer.passes
    finding = replace(named.finding, tried=tried, accepted=accepted, steps=steps)
    try:
        return published(finding, origin=_origin(given)).write(folder)
    except OSError as error:
        raise UserError(f"{folder} cannot be written: {error.strerror}") from error
