"""The path that a user gives for a program. It is refused before torch is imported."""

from __future__ import annotations

from pathlib import Path

from aliasproof.programs.errors import UserError

GIVE = "give FILE.py, PROGRAM.json or the folder of a finding"


def file_to_read(path: Path) -> Path:
    """The file of Python or JSON that a path stands for; `program.json` in the folder of a finding.

    Raises `UserError` if there is none.
    """
    if path.is_dir():
        if not (path / "program.json").is_file():
            raise UserError(f"{path} is a folder without program.json; {GIVE}")
        return path / "program.json"
    if not path.exists():
        raise UserError(f"{path} does not exist; {GIVE}")
    if not path.is_file():  # a fifo would be read without an end
        raise UserError(f"{path} is not a regular file; {GIVE}")
    if path.suffix not in (".py", ".json"):
        raise UserError(f"{path} is neither a .py nor a .json file; {GIVE}")
    return path
