"""Consoles and the basic forms of output: results on stdout, progress and notes on stderr."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from rich.console import Console, RenderableType
from rich.progress import Progress
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

FILE_WIDTH = 100  # columns of a table or a heading in a file
# Seconds between two updates of progress in a terminal, and between two lines of it elsewhere.
REDRAWN_EVERY, LINE_EVERY = 0.2, 10.0


def results() -> Console:
    """Standard output."""
    return _console(stderr=False)


def notes() -> Console:
    """Standard error."""
    return _console(stderr=True)


def _console(*, stderr: bool) -> Console:
    # Rich would read brackets as markup and colour numbers: both change what a program prints.
    console = Console(stderr=stderr, highlight=False, emoji=False, markup=False)
    # Rich assumes 80 columns for a file. COLUMNS overrides that, as it does for other programs.
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = FILE_WIDTH
    return console


@contextlib.contextmanager
def output_for_results() -> Iterator[None]:
    """Standard output becomes standard error, for code of a user that runs in this process.

    File descriptors are redirected, too: C code and child processes write to them. So standard
    output only has the results of a command, possibly a single JSON object.
    """
    with contextlib.ExitStack() as stack, contextlib.redirect_stdout(sys.stderr):
        # A process may be started with one of them closed.
        with contextlib.suppress(OSError):
            kept = os.dup(1)
            stack.callback(os.close, kept)
            sys.stdout.flush()
            os.dup2(2, 1)
            stack.callback(os.dup2, kept, 1)
            # C code has its own buffer.
            stack.callback(ctypes.CDLL(None).fflush, None)
        yield


def write_json(data: Mapping[str, object]) -> None:
    """Write one JSON object to standard output."""
    # Not through a console, which would wrap long lines.
    sys.stdout.write(json.dumps(data, indent=2) + "\n")
    sys.stdout.flush()


def new_table(*, header: bool = True) -> Table:
    """An empty table without lines."""
    return Table(box=None, padding=(0, 2, 0, 0), show_header=header, header_style="bold")


def table_of(
    columns: Sequence[str],
    rows: Iterable[Iterable[str | Text]],
    *,
    texts: int = 1,
    fold: bool = False,
    header: bool = True,
) -> Table:
    """A table with these rows: the first `texts` columns are texts, and those without a name.

    The others are figures. Narrow consoles wrap texts if `fold` is true, and cut them otherwise.
    """
    table = new_table(header=header)
    for number, name in enumerate(columns):
        if number >= texts and name:
            table.add_column(name, justify="right", no_wrap=True)
        elif fold:
            table.add_column(name, overflow="fold")
        else:
            table.add_column(name, no_wrap=True)
    for row in rows:
        table.add_row(*row)
    return table


def print_code(console: Console, code: str) -> None:
    """Print Python source. Lines are not wrapped or padded, so that it can be copied."""
    text = Syntax("", "python", theme="ansi_dark").highlight(code.strip("\n"))
    text.rstrip()
    console.print(text, soft_wrap=True)


def print_table(console: Console, table: RenderableType) -> None:
    """Print a table, or an object with tables. In a file, lines have no trailing spaces."""
    if console.is_terminal:
        console.print(table)
        return
    # Rich fills every line of a table with spaces up to its width.
    with console.capture() as capture:
        console.print(table)
    for line in capture.get().splitlines():
        print_exactly(console, line.rstrip())


def print_heading(console: Console, title: str) -> None:
    """Print a rule with a title, after an empty line."""
    console.print()
    console.print(
        Text(f"── {title} ".ljust(min(console.width, FILE_WIDTH), "─"), style="bold"),
        soft_wrap=True,
    )


def print_lines(console: Console, text: str | Text, style: str = "") -> None:
    """Print sentences. Long lines wrap only in a terminal, between words."""
    styled = Text(text, style=style) if isinstance(text, str) else text
    console.print(styled, soft_wrap=not console.is_terminal)


def print_exactly(console: Console, text: str, style: str = "") -> None:
    """Print text without wrapping lines, so that it can be copied."""
    console.print(Text(text, style=style), soft_wrap=True)


def print_notes(texts: Iterable[str]) -> None:
    """Print each text as a note on standard error."""
    for text in texts:
        print_lines(notes(), f"note: {text}")


def progress_bar() -> Progress:
    """A context with bars on a terminal, removed at its end; elsewhere, nothing is shown."""
    console = notes()
    return Progress(console=console, transient=True, disable=not console.is_terminal)


def relative(path: Path) -> Path:
    """The path relative to the working directory if it is below it, else unchanged."""
    try:
        return path.absolute().relative_to(Path.cwd())
    except ValueError:
        return path


def python_command(script: Path) -> str:
    """The command that runs a script with this Python interpreter, by the shorter path."""
    return shlex.join([str(relative(Path(sys.executable))), str(script)])


# --- wording --------------------------------------------------------------------------------------
#
# Phrases that several reports share: counts, times, violation kinds in short.


LONGEST_KIND = 90  # characters


def counted(number: int, noun: str) -> str:
    """A number and its noun, in the plural unless the number is 1."""
    return f"{number} {noun}{'s' * (number != 1)}"


def clock(seconds: float) -> str:
    """Minutes and seconds, such as 1:05."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


def shortened(kind: str, most: int = LONGEST_KIND) -> str:
    """The kind of a violation, or another text, in at most `most` characters.

    The kind of an error contains its message, which can be long. The finding has the whole text.
    """
    return kind if len(kind) <= most else f"{kind[: most - 1].rstrip()}…"


def listed(names: Sequence[str], most: int) -> str:
    """At most `most` of the names, and how many more there are."""
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + rest


def in_columns(text: str, most: int) -> str:
    """A sentence in at most `most` characters, cut between two words."""
    if len(text) <= most:
        return text
    return text[: most - 1].rpartition(" ")[0].rstrip(",;:") + " …"


def in_lines(text: str, most: int) -> str:
    """At most `most` lines of a text."""
    lines = text.splitlines()
    return text if len(lines) <= most else "\n".join(lines[:most]) + " …"


def sites_fired(fired: int, new: int) -> str:
    """How many sites of the compiler fired, and how many of them first in the last quarter."""
    return f"{counted(fired, 'site')} of the compiler fired, {new} first in the last quarter"
