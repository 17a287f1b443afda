"""`locate` and `read_stored`: what a run has stored, found by folder, file or name.

Findings, unconfirmed failures and suspicions are a `Finding`.
"""

from __future__ import annotations

import shlex
from pathlib import Path

from aliasproof.campaigns.failure.finding import AnyFinding
from aliasproof.campaigns.store.run_folder import read_finding
from aliasproof.ir.errors import UserError, did_you_mean
from aliasproof.targets.registry import user_code

RUNS = Path("runs")
KINDS = ("findings", "suspicions", "unconfirmed")  # folders of a run
MARK = "finding.json"  # a file that each stored case has


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
    """What to type to see a finding. Code of the user is imported if it is named."""
    named = [] if user_code(target) is None else ["--target", target]
    return shlex.join(["aliasproof", "show", str(folder), *named])


def read_stored(folder: Path) -> AnyFinding:
    """What a folder has. Raises `UserError` with the file if something is missing or malformed."""
    try:
        return read_finding(folder)
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{folder} cannot be read: {error}") from error
