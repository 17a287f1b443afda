"""The command `replay`: whether the findings of a run are still there, in several torches."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from aliasproof.commands.triage import history_of, keep_replays
from campaigns.replaying import REGRESSED, Replayed, replay
from reports.console import new_table, notes, print_lines, print_table, results, write_json


def replay_run(run: Path, interpreters: Sequence[Path], *, as_json: bool) -> bool:
    """Run all reproducers, and print what became of the findings. True if one regressed."""
    history = history_of(run)
    found = []
    for replayed in replay(run, interpreters or [Path(sys.executable)], history.was_fixed):
        found.append(replayed)
        print_lines(notes(), f"torch {replayed.torch}  {replayed.finding}: {replayed.word}")
    keep_replays(run, found)
    if as_json:
        write_json({"replayed": [_json(each) for each in found]})
    else:
        _print(found)
    return any(each.word == REGRESSED for each in found)


def _json(replayed: Replayed) -> dict[str, str]:
    return {
        "finding": replayed.finding,
        "torch": replayed.torch,
        "status": replayed.word,
        "reproducer": replayed.ending,
    }


def _print(found: Sequence[Replayed]) -> None:
    """One row per finding, one column per version of torch."""
    versions = list(dict.fromkeys(each.torch for each in found))
    words = {(each.finding, each.torch): each.word for each in found}
    table = new_table()
    for name in ("finding", *(f"torch {version}" for version in versions)):
        table.add_column(name, overflow="fold")
    for finding in dict.fromkeys(each.finding for each in found):
        table.add_row(finding, *(words[finding, version] for version in versions))
    print_table(results(), table)
