"""The command `replay`: whether findings or known bugs are still there, in several torches."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from aliasproof.commands.options import Json, OwnTarget, option
from aliasproof.reports.console import (
    notes,
    print_lines,
    print_table,
    results,
    table_of,
    write_json,
)
from aliasproof.targets.user_names import grant

if TYPE_CHECKING:  # it imports torch
    from aliasproof.campaigns.publish.replaying import Replayable, Replayed

Folder = Annotated[
    Path | None,
    typer.Argument(
        metavar="CORPUS|RUN",
        exists=True,
        file_okay=False,
        help="Folder of findings, or of a run. Default: the known bugs of torch.",
    ),
]
Interpreters = Annotated[
    list[Path] | None,
    option(
        "PYTHON",
        "An interpreter that has the torch to run in. Repeat the option for more. Default:"
        " this one.",
    ),
]


def replay(
    folder: Folder = None,
    torch: Interpreters = None,
    target: OwnTarget = None,
    json: Json = False,
) -> int:
    """Run reproducers again: each bug is still failing, fixed, changed, or has regressed.

    They are written anew from the programs: what a folder has as reproducer is not run.

    A finding has regressed if its state is 'fixed' (see 'aliasproof triage') and it shows again. So
    has a known bug that shows in a torch in which it was fixed, as its file says.

    Exit status: 0, or 1 if a bug regressed.
    """
    from aliasproof.campaigns.publish import replaying

    # Nothing else that is code of the user is imported.
    grant([] if target is None else [target])
    replays = []
    for replayed in replaying.replay(_bugs(folder), torch or [Path(sys.executable)]):
        replays.append(replayed)
        not_run = replayed.word == replaying.NOT_RUN
        line = f"torch {replayed.torch}  {replayed.finding}: {replayed.word}"
        print_lines(notes(), f"{line} ({replayed.ending})" if not_run else line)
    if folder is not None and _is_run(folder):
        _keep(folder, replays)
    if json:
        names = ("finding", "torch", "status", "reproducer")
        rows = ((it.finding, it.torch, it.word, it.ending) for it in replays)
        write_json({"replayed": [dict(zip(names, row, strict=True)) for row in rows]})
    else:
        _print(replays)
    return int(any(replayed.word == replaying.REGRESSED for replayed in replays))


def _bugs(folder: Path | None) -> list[Replayable]:
    """The bugs of a run, of a folder of findings, or by default the known bugs of torch."""
    from aliasproof.campaigns.publish.replaying import findings_of, replayable_known_bugs
    from aliasproof.campaigns.store.run_contents import History
    from aliasproof.campaigns.store.run_folder import open_store
    from aliasproof.corpus.known_bug import FOLDER

    if folder is None or folder.resolve() == FOLDER:
        return replayable_known_bugs()
    if not _is_run(folder):
        return findings_of(folder)
    with open_store(folder) as store:
        return findings_of(folder, History.of(store).was_fixed)


def _is_run(folder: Path) -> bool:
    from aliasproof.campaigns.store.store_schema import NAME

    return (folder / NAME).is_file()


def _keep(run: Path, replays: Sequence[Replayed]) -> None:
    """Keep what replays showed: the states of findings follow from them."""
    from aliasproof.campaigns.publish.replaying import NOT_RUN, REGRESSED, STILL
    from aliasproof.campaigns.store.run_contents import keep_replay
    from aliasproof.campaigns.store.run_folder import open_store

    with open_store(run) as store:
        for replayed in replays:
            if replayed.word != NOT_RUN:
                shown = replayed.word in (STILL, REGRESSED)
                finding, ending = replayed.finding, replayed.ending
                keep_replay(store, finding, replayed.torch, ending, shown=shown)


def _print(replays: Sequence[Replayed]) -> None:
    """One row per finding, one column per version of torch."""
    if not replays:
        print_lines(results(), "There are no findings to replay.")
        return
    versions = list(dict.fromkeys(replayed.torch for replayed in replays))
    words = {(replayed.finding, replayed.torch): replayed.word for replayed in replays}
    columns = ("bug", *(f"torch {version}" for version in versions))
    rows = (
        (finding, *(words[finding, version] for version in versions))
        for finding in dict.fromkeys(replayed.finding for replayed in replays)
    )
    print_table(results(), table_of(columns, rows, texts=len(columns), fold=True))
    for version in versions:
        counts = Counter(replayed.word for replayed in replays if replayed.torch == version)
        counted = ", ".join(f"{number} {word}" for word, number in sorted(counts.items()))
        print_lines(results(), f"torch {version}: {counted}")
