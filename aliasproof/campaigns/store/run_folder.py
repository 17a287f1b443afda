"""`RunFolder`: the folders and files of a run, for people. They are a view of its store.

`findings/<identifier>/` has `program.json` (the reduced program), `finding.json` (all the rest),
`reproducer.py`, and `issue.md` for PyTorch's tracker. `unconfirmed/<identifier>/` has the first
three for a failure that its reproducer did not show, or not yet. `suspicions/<name>/` has the first
two. A Python program is in its `finding.json`. `run.json` is the outcome. Each file can be read
with any editor, and generated again from the store. Reading them executes and unpickles nothing.
"""

from __future__ import annotations

import contextlib
import json
import shlex
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aliasproof.campaigns.failure.finding import AnyFinding, Finding
from aliasproof.campaigns.store.full_disk import explain_full_disk
from aliasproof.campaigns.store.plan import Plan
from aliasproof.campaigns.store.run_lock import (
    FINDINGS,
    KINDS,
    NAME,
    SUSPICIONS,
    UNCONFIRMED,
    RunLock,
    require_own_files,
)
from aliasproof.campaigns.store.store import EVENTS, Store
from aliasproof.campaigns.store.store_schema import NAME as STORE
from aliasproof.ir.errors import UserError, did_you_mean, printable_json, shown
from aliasproof.ir.program import Program
from aliasproof.ir.serialization import dumps, loads
from aliasproof.ir.stored_text import read_text, write_text
from aliasproof.targets.registry import user_code

RUNS = Path("runs")
MARK = "finding.json"  # a file that each stored case has


@dataclass(frozen=True, slots=True)
class RunFolder:
    """Writes the folder of one run. Each file appears atomically, so it is complete or absent."""

    folder: Path

    @classmethod
    def create(cls, folder: Path) -> RunFolder:
        """The folder of a new run or of one to resume. Raises `UserError` if it is neither."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
            require_own_files(folder)
            names = {path.name for path in folder.iterdir()}
            # A campaign that was killed immediately after its start leaves these two.
            if STORE not in names and names - {NAME, EVENTS}:
                raise UserError(
                    f"run folder {folder} is not empty, and no campaign to go on with; name a new"
                    " one, so that nothing in it is lost"
                )
            # This also checks, before any work is done, that the folder is writable.
            (folder / NAME).touch()
        except OSError as reason:
            raise UserError(
                f"run folder {folder} cannot be written: {reason.strerror}; name another with --run"
            ) from reason
        return cls(folder)

    def path(self, kind: str, name: str) -> Path:
        """The folder of a finding. A store from another machine may contain any names."""
        folder = self.folder / kind
        if name in ("", ".", "..") or Path(name).name != name or not name.isprintable():
            raise UserError(
                f"{shown(name)} is no name of a finding; the store of {self.folder} is damaged"
            )
        if (folder / name).is_symlink():
            raise UserError(f"{folder / name} is a link, and a run writes none; remove it")
        return folder / name

    def compiled_folder(self) -> Path:
        """Where compilers write. Removed when the run ends."""
        return self.folder / ".compiled"

    def prepare(self) -> None:
        """Make the folder of findings, and remove what a killed campaign left behind."""
        (self.folder / FINDINGS).mkdir(exist_ok=True)
        self.remove_leftovers()

    def write(
        self, kind: str, finding: AnyFinding, script: str | None = None, issue: str | None = None
    ) -> None:
        """Write a finding of this kind, with its reproducer and its issue, if any.

        One that is confirmed is no longer among the unconfirmed ones.
        """
        write_finding(self.path(kind, finding.identifier), finding, script, issue)
        if kind == FINDINGS:
            shutil.rmtree(self.path(UNCONFIRMED, finding.identifier), ignore_errors=True)

    def remove_finding(self, identifier: str) -> None:
        for kind in (FINDINGS, UNCONFIRMED):
            shutil.rmtree(self.path(kind, identifier), ignore_errors=True)

    def write_suspicions(self, suspicions: Sequence[AnyFinding], latent: Collection[str]) -> None:
        """Write suspicions, replacing those of an earlier end of this run; `latent` ones stay.

        Only an oracle on graphs reports a suspicion, so nothing confirms it.
        """
        for folder in (self.folder / SUSPICIONS).glob("*/"):
            if not folder.is_symlink() and folder.name not in latent:
                shutil.rmtree(folder)
        for suspicion in suspicions:
            self.write(SUSPICIONS, suspicion)

    def write_outcome(self, outcome: Mapping[str, object]) -> None:
        """Write `run.json`."""
        write_text(self.folder / "run.json", json.dumps(outcome, indent=1) + "\n")

    def remove_leftovers(self) -> None:
        """Remove the files that only a running campaign needs, and an empty `unconfirmed/`."""
        for partial in self.folder.glob("**/*.partial"):
            partial.unlink()
        shutil.rmtree(self.compiled_folder(), ignore_errors=True)
        unconfirmed = self.folder / UNCONFIRMED
        if unconfirmed.is_dir() and not any(unconfirmed.iterdir()):
            unconfirmed.rmdir()


def write_finding(
    folder: Path, finding: AnyFinding, script: str | None = None, issue: str | None = None
) -> None:
    """Write `finding.json`, `program.json` for ATen calls, and what else there is, into a folder.

    Creates the folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if isinstance(finding.program, Program):
        write_text(folder / "program.json", dumps(finding.program) + "\n")
    write_text(folder / "finding.json", json.dumps(finding.to_json(), indent=1) + "\n")
    if script is not None:
        write_text(folder / "reproducer.py", script)
    if issue is not None:
        write_text(folder / "issue.md", issue)


def read_finding(folder: Path) -> AnyFinding:
    """Read back a finding, an unconfirmed failure, or a suspicion.

    Raises `UserError` naming the file if something is missing or malformed.
    """
    program_file, finding_file = folder / "program.json", folder / MARK
    program = None
    try:
        if not finding_file.is_file():
            raise UserError(f"{folder} is not a finding: it has no finding.json")
        if program_file.exists():  # first: its errors name the malformed instruction
            program = loads(read_text(program_file, within=folder), str(program_file))
        data: Any = printable_json(json.loads(read_text(finding_file, within=folder)))
    except OSError as error:  # there may be no permission to read the folder
        raise UserError(f"{folder} cannot be read: {error}") from error
    except (ValueError, RecursionError) as reason:
        raise UserError(
            f"{finding_file} is not a finding of aliasproof: {type(reason).__name__}: {reason}"
        ) from reason
    if program is None and "version" in data and "program" not in data:
        raise UserError(f"{folder} is not a finding: it has no program.json")
    return Finding.from_json(data, program, str(finding_file))


def read_findings(run: Path) -> list[AnyFinding]:
    """All findings in the folder of a run, by identifier."""
    return [read_finding(path.parent) for path in sorted(run.glob("findings/*/finding.json"))]


def locate(given: str) -> Path:
    """The folder of a stored case, from its path, the path of a file in it, or its name.

    If several runs have a case of that name, the newest is taken. Raises `UserError`.
    """
    path = Path(given)
    if path.is_file():
        path = path.parent
        if not (path / MARK).is_file():
            raise UserError(
                f"{given} is not a file of a finding; give the folder or the name of one"
            )
    if path.is_dir():
        if (path / "findings").is_dir():
            names = sorted(folder.name for kind in KINDS for folder in (path / kind).glob("*/"))
            raise UserError(
                f"{path} is a run; name one of its findings: {', '.join(names) or 'it has none'}"
            )
        return path
    # By time: a name is the same in every run that found the bug.
    folders = sorted(
        (folder for kind in KINDS for folder in RUNS.glob(f"*/{kind}/*/")),
        key=lambda folder: folder.stat().st_mtime,
    )
    named = [folder for folder in folders if folder.name == given]
    if named:
        return named[-1]
    advice = "give its folder, such as runs/<run>/findings/<name>"
    hint = did_you_mean(given, [folder.name for folder in folders], otherwise=advice)
    raise UserError(f"no finding '{given}' here or under {RUNS}/*/findings{hint}")


def show_command(folder: Path, target: str) -> str:
    """The command that shows a finding. User code has to be named, since that imports it."""
    named = [] if user_code(target) is None else ["--target", target]
    return shlex.join(["aliasproof", "show", str(folder), *named])


def stored_plan(folder: Path) -> Plan | None:
    """The plan of a run that can be resumed; None if the folder has none. Raises `UserError`."""
    if not (folder / STORE).is_file():
        return None
    with explain_full_disk(folder), contextlib.closing(Store.open(folder)) as store:
        return store.plan()


@contextlib.contextmanager
def open_store(run: Path) -> Iterator[Store]:
    """The store of a run. Raises `UserError` if it is no run, has not begun, or is in use."""
    if not (run / STORE).is_file():
        raise UserError(f"{run} has no {STORE}; name the folder of a run")
    with contextlib.ExitStack() as stack:
        stack.callback(RunLock.take(run).release)
        stack.enter_context(explain_full_disk(run))
        store = Store.open(run)
        stack.callback(store.close)
        if not store.has_begun():
            raise UserError(f"{run} has not begun")
        yield store


@contextlib.contextmanager
def opened_run(plan: Plan, folder: Path) -> Iterator[tuple[RunFolder, Store, list[str]]]:
    """Create the run of a plan, or open it to resume; it is closed at the end of the context.

    Notes say how it begins, for people.

    Raises `UserError` if the folder cannot be used, if another campaign uses it, if its run has
    another plan, or if the disk is full.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(explain_full_disk(folder))
        files = RunFolder.create(folder)
        lock = RunLock.take(folder)
        stack.callback(lock.release)
        store = Store.open(folder)
        stack.callback(store.close)
        before = store.plan()
        plan.require_same_programs(before, folder)
        store.keep_plan(plan)
        files.prepare()
        notes = [f"{lock.stale} ended without a word; its lock is taken"] if lock.stale else []
        if before is not None:
            notes.append(f"going on with the run of {folder}")
        store.events.note("started", again=before is not None, stale=lock.stale)
        yield files, store, notes
