"""The path that a user gives for a program. A wrong path is refused before torch is imported."""

from __future__ import annotations

import ast
import re
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from aliasproof.ir.errors import UserError

GIVE = (
    "give FILE.py, FILE.py:FUNCTION, PROGRAM.json, a graph that torch printed into FILE.txt, a"
    " FILE.pt2 of torch.export.save, or the folder of a finding or of a stored graph"
)
PRINTED = (".txt", ".log")  # of graphs that torch printed
EXPORTED = ".pt2"  # of torch.export.save
STORED_GRAPH = "graph.json"  # in the folder of a stored graph (`formats/stored_graph.py`)


class FileNames(NamedTuple):
    """The names in a Python file: of the function, and of the function that returns its inputs."""

    function: str = "program"
    inputs: str = "inputs"


DEFAULT_NAMES = FileNames()


@dataclass(frozen=True, slots=True)
class GivenFile:
    """A path that a user gives, and the function of FILE.py:FUNCTION; None without one.

    FILE.py::FUNCTION means the same, as for pytest. FILE.txt:2 is the second of several graphs that
    torch printed.
    """

    path: Path
    function: str | None = None

    @classmethod
    def of(cls, given: str | Path) -> GivenFile:
        """Parse a path. Raises `UserError` if a colon after the file is not followed by a name."""
        match = re.fullmatch(r"(.+\.(?:py|txt|log))::?(?!:)(.*)", str(given))
        if match is None or Path(given).exists():
            return cls(Path(given))
        path, function = match.groups()
        if not (function.isidentifier() or function.isdecimal()):
            raise UserError(f"'{given}' does not end with the name of a function; {GIVE}")
        return cls(Path(path), function)

    def names(self, function: str | None, inputs: str) -> FileNames:
        """The names of the function and of its inputs, from the path and the options.

        Raises `UserError` if the path and the option name two functions.
        """
        if None not in (self.function, function) and self.function != function:
            raise UserError(
                f"{self.path}:{self.function} and --function {function} are two functions; give one"
            )
        return FileNames(self.function or function or DEFAULT_NAMES.function, inputs)


def file_to_read(path: Path) -> Path:
    """The file of Python or JSON for a path; in a folder, that of the finding or stored graph.

    Raises `UserError` if there is none, or if a Python file does not parse.
    """
    if path.is_dir():
        if (path / STORED_GRAPH).is_file():
            return path / STORED_GRAPH
        if not (path / "program.json").is_file():
            raise UserError(f"{path} is a folder without program.json; {GIVE}")
        return path / "program.json"
    if not path.exists():
        raise UserError(f"{path} does not exist; {GIVE}")
    if not path.is_file():  # reading a fifo would never end
        raise UserError(f"{path} is not a regular file; {GIVE}")
    if path.suffix not in (".py", ".json", EXPORTED, *PRINTED):
        raise UserError(f"{path} is neither a .py, a .json, a .txt nor a .pt2 file; {GIVE}")
    if path.suffix == ".py":
        _require_python(path)
    return path


def _require_python(path: Path) -> None:
    try:
        with warnings.catch_warnings(action="ignore"):  # the import will show them
            ast.parse(path.read_bytes())
    except SyntaxError as error:
        raise UserError(f"{path}: line {error.lineno}: not Python: {error.msg}") from error
    except (OSError, ValueError, RecursionError, MemoryError) as error:
        raise UserError(f"{path} cannot be read: {str(error) or type(error).__name__}") from error
