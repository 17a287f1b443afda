"""The known bugs of compilers: which versions have them, which targets show them, and the issue."""

from __future__ import annotations

from collections.abc import Collection

from rich.console import Console
from rich.text import Text

from aliasproof.corpus.known_bug import KnownBug
from aliasproof.ir.ordinary_syntax import ordinary_inputs, ordinary_source, with_short_names
from aliasproof.reports.console import new_table, print_lines, print_table
from aliasproof.reports.wording import counted

FIELD_WIDTH = 8  # columns: the longest is "versions"


def print_known_bugs(console: Console, bugs: Collection[KnownBug]) -> None:
    """Print one block per bug."""
    for bug in bugs:
        title = Text.assemble((bug.identifier, "bold"), f": {bug.title}")
        console.print(title, soft_wrap=not console.is_terminal)
        table = new_table(header=False)
        table.add_column("", width=FIELD_WIDTH, style="dim")
        table.add_column("", overflow="fold")
        for field, text in _fields(bug):
            table.add_row(field, text)
        print_table(console, table)
        console.print()


def print_titles(console: Console, bugs: Collection[KnownBug]) -> None:
    """Print one line per bug."""
    for bug in bugs:
        line = Text.assemble((bug.identifier, "bold"), f": {bug.title}", (f"  {bug.link}", "dim"))
        line.rstrip()
        console.print(line, soft_wrap=not console.is_terminal)
    print_lines(
        console,
        f"{counted(len(bugs), 'known bug')} (corpus/known/). A finding that vanishes while a bug is"
        " mended in process is that bug. 'aliasproof known NAME' shows its program.",
    )


def _fields(bug: KnownBug) -> list[tuple[str, str]]:
    return [
        ("versions", ", ".join(bug.versions)),
        ("targets", ", ".join(bug.targets)),
        *([("vectors", _widths(bug))] if bug.vector_bits else []),
        ("program", _program(bug)),
        ("mendable", "yes" if bug.mended is not None else "no: it is recognised by its mark"),
        ("issue", bug.link or "none found in the tracker"),
    ]


def _widths(bug: KnownBug) -> str:
    widths = ("none" if bits == 0 else f"{bits} bits" for bits in bug.vector_bits)
    return f"{', '.join(widths)} (of generated code: it shows with these only)"


def _program(bug: KnownBug) -> str:
    """The program and its inputs. What they share is a part of the bug."""
    program = with_short_names(bug.program)
    return f"{ordinary_source(program, near=True)}\n{ordinary_inputs(program, near=True)}".strip()


def known_bug_json(bug: KnownBug) -> dict[str, object]:
    """A known bug as JSON values."""
    return {
        "identifier": bug.identifier,
        "title": bug.title,
        "link": bug.link or None,
        "versions": list(bug.versions),
        "targets": list(bug.targets),
        "vector bits": list(bug.vector_bits),
        "mendable": bug.mended is not None,
        "program": _program(bug),
    }
