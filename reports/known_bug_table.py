"""The known bugs of compilers: which versions have them, which targets show them, and the issue."""

from __future__ import annotations

from collections.abc import Collection

from rich.console import Console
from rich.text import Text

from aliasproof.corpus.known_bug import KnownBug, PythonBug
from aliasproof.ir.ordinary_syntax import ordinary_inputs, ordinary_source, with_short_names
from aliasproof.reports.console import counted, print_lines


def print_titles(console: Console, bugs: Collection[KnownBug | PythonBug]) -> None:
    """Print one line per bug."""
    for bug in bugs:
        line = Text.assemble((bug.identifier, "bold"), f": {bug.title}", (f"  {bug.link}", "dim"))
        line.rstrip()
        print_lines(console, line)
    print_lines(
        console,
        f"{counted(len(bugs), 'known bug')} (corpus/bugs/). A finding that vanishes while a bug is"
        " patched in process is that bug. 'aliasproof known NAME' prints its file.",
    )


def known_bug_json(bug: KnownBug | PythonBug) -> dict[str, object]:
    """A known bug as JSON values."""
    return {
        "identifier": bug.identifier,
        "title": bug.title,
        "link": bug.link or None,
        "versions": list(bug.versions),
        "targets": list(bug.targets),
        "vector bits": list(bug.vector_bits) if isinstance(bug, KnownBug) else [],
        "patchable": isinstance(bug, KnownBug) and bug.patch is not None,
        "program": _program(bug) if isinstance(bug, KnownBug) else bug.program.source,
    }


def _program(bug: KnownBug) -> str:
    """The program and its inputs, whose sharing is a part of the bug."""
    program = with_short_names(bug.program)
    return f"{ordinary_source(program, near=True)}\n{ordinary_inputs(program, near=True)}".strip()
