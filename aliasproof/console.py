"""Where text goes: results to standard output, progress and notes to standard error."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from rich.console import Console
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

WIDTH_OF_FILES = 100  # columns, where there is no terminal to ask


def results() -> Console:
    """Standard output."""
    return _console(stderr=False)


def notes() -> Console:
    """Standard error."""
    return _console(stderr=True)


def _console(*, stderr: bool) -> Console:
    console = Console(stderr=stderr, highlight=False, emoji=False, markup=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = WIDTH_OF_FILES
    return console


def write_json(data: Mapping[str, object]) -> None:
    """One JSON object on standard output."""
    sys.stdout.write(json.dumps(data, indent=2) + "\n")
    sys.stdout.flush()


def print_code(console: Console, code: str) -> None:
    """Python source as it is: no line is broken or padded, so that it can be copied."""
    text = Syntax("", "python", theme="ansi_dark").highlight(code.strip("\n"))
    text.rstrip()
    console.print(text, soft_wrap=True)


def print_table(console: Console, table: Table) -> None:
    """A table, in a file without the spaces that fill its lines."""
    if console.is_terminal:
        console.print(table)
        return
    with console.capture() as capture:
        console.print(table)
    for line in capture.get().splitlines():
        print_exactly(console, line.rstrip())


def print_heading(console: Console, title: str) -> None:
    """A line between two parts."""
    console.print()
    console.print(
        Text(f"── {title} ".ljust(min(console.width, WIDTH_OF_FILES), "─"), style="bold"),
        soft_wrap=True,
    )


def print_lines(console: Console, text: str, style: str = "") -> None:
    """Sentences: a terminal shows them broken between words, a file gets them whole."""
    console.print(Text(text, style=style), soft_wrap=not console.is_terminal)


def print_exactly(console: Console, text: str, style: str = "") -> None:
    """Text of which no line is broken, so that it can be copied."""
    console.print(Text(text, style=style), soft_wrap=True)


def relative(path: Path) -> Path:
    """The path from here if it lies below, else as it is."""
    try:
        return path.absolute().relative_to(Path.cwd())
    except ValueError:
        return path
