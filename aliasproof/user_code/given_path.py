"""The path that a user gives for a program. It is refused before torch is imported."""

from __future__ import annotations

import ast
import re
import warnings
from dataclasses import dataclass
from pathlib import Path

from aliasproof.ir.errors import UserError

GIVE = (
    "give FILE.py, FILE.py:FUNCTION, PROGRAM.json, a graph that torch printed into FILE.txt, a"
    " FILE.pt2 of torch.export.save, or the folder of a finding or of a stored graph"
)
PRINTED = (".txt", ".log")  # what torch prints
EXPORTED = ".pt2"  # what torch.export.save writes
STORED_GRAPH = "graph.json"  # in the folder of one (`aliasproof/formats/stored_graph.py`)


@dataclass(frozen=True, slots=True)
class GivenFile:
    """A path as a user gives it, and the function that FILE.py:FUNCTION names; None without one.

    As for pytest, FILE.py::FUNCTION is the same. Of several graphs that torch printed, FILE.txt:2
    names the second.
    """

    path: Path
    function: str | None = None

    @classmethod
    def of(cls, given: str | Path) -> GivenFile:
        """What a path stands for. Raises `UserError` if what follows the file is no name."""
        match = re.fullmatch(r"(.+\.(?:py|txt|log))::?(?!:)(.*)", str(given))
        if match is None or Path(given).exists():
            return cls(Path(given))
        path, function = match.groups()
        if not (function.isidentifier() or function.isdecimal()):
            raise UserError(f"'{given}' does not end with the name of a function; {GIVE}")
        return cls(Path(path), function)

    def names(self, function: str | None, inputs: str) -> tuple[str, str]:
        """The names of the function and of its inputs, beside the options that name them.

        Raises `UserError` if the path and the option name two functions.
        """
        if None not in (self.function, function) and self.function != function:
            raise UserError(
                f"{self.path}:{self.function} and --function {function} are two functions; give one"
            )
        return self.function or function or FUNCTION, inputs


FUNCTION = "program"  # without a name


def file_to_read(path: Path) -> Path:
    """The file of Python or JSON that a path stands for.

    In the folder of a finding, that is `program.json`, and `graph.json` in that of a stored graph.

    Raises `UserError` if there is none, or if it is to be Python and is not.
    """
    if path.is_dir():
        if (path / STORED_GRAPH).is_file():
            return path / STORED_GRAPH
        if not (path / "program.json").is_file():
            raise UserError(f"{path} is a folder without program.json; {GIVE}")
        return path / "program.json"
    if not path.exists():
        raise UserError(f"{path} does not exist; {GIVE}")
    if not path.is_file():  # a fifo would be read without an end
        raise UserError(f"{path} is not a regular file; {GIVE}")
    if path.suffix not in (".py", ".json", EXPORTED, *PRINTED):
        raise UserError(f"{path} is neither a .py, a .json, a .txt nor a .pt2 file; {GIVE}")
    if path.suffix == ".py":
        _require_python(path)
    return path


def _require_python(path: Path) -> None:
    try:
        with warnings.catch_warnings(action="ignore"):  # the import gives them
            ast.parse(path.read_bytes())
    except SyntaxError as error:
        raise UserError(f"{path}: line {error.lineno}: not Python: {error.msg}") from error
    except (OSError, ValueError, RecursionError, MemoryError) as error:
        raise UserError(f"{path} cannot be read: {str(error) or type(error).__name__}") from error
