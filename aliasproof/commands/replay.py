"""The command `replay`: whether findings or known bugs are still there, in several torches."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import aliasproof.corpus.known
from aliasproof.campaigns.publish.replaying import (
    NOT_RUN,
    REGRESSED,
    Replayable,
    Replayed,
    findings_of,
    known_bugs,
    replay,
)
from aliasproof.campaigns.store.store import NAME
from aliasproof.commands.triage import history_of, keep_replays
from aliasproof.reports.console import (
    new_table,
    notes,
    print_lines,
    print_table,
    results,
    write_json,
)
from aliasproof.targets.user_names import grant


def replay_bugs(
    folder: Path | None, interpreters: Sequence[Path], own: str | None, *, as_json: bool
) -> bool:
    """Run all reproducers, and print what became of the bugs. True if one regressed.

    They are those of a run, of a folder of findings, or by default of the known bugs of torch.
    `own` is the target that the user named: nothing else that is code of theirs is imported.
    """
    grant([] if own is None else [own])
    found = []
    with _bugs(folder) as bugs:
        for replayed in replay(bugs, interpreters or [Path(sys.executable)]):
            found.append(replayed)
            why = f" ({replayed.ending})" if replayed.word == NOT_RUN else ""
            print_lines(
                notes(), f"torch {replayed.torch}  {replayed.finding}: {replayed.word}{why}"
            )
    if folder is not None and _is_run(folder):
        keep_replays(folder, found)
    if as_json:
        write_json({"replayed": [_json(each) for each in found]})
    else:
        _print(found)
    return any(each.word == REGRESSED for each in found)


def _bugs(folder: Path | None) -> AbstractContextManager[Sequence[Replayable]]:
    known = Path(str(aliasproof.corpus.known.__file__)).parent
    if folder is None or folder.resolve() == known:
        return known_bugs()
    return findings_of(folder, history_of(folder).was_fixed if _is_run(folder) else None)


def _is_run(folder: Path) -> bool:
    return (folder / NAME).is_file()


def _json(replayed: Replayed) -> dict[str, str]:
    return {
        "finding": replayed.finding,
        "torch": replayed.torch,
        "status": replayed.word,
        "reproducer": replayed.ending,
    }


def _print(found: Sequence[Replayed]) -> None:
    """One row per finding, one column per version of torch."""
    if not found:
        print_lines(results(), "There are no findings to replay.")
        return
    versions = list(dict.fromkeys(each.torch for each in found))
    words = {(each.finding, each.torch): each.word for each in found}
    table = new_table()
    for name in ("bug", *(f"torch {version}" for version in versions)):
        table.add_column(name, overflow="fold")
    for finding in dict.fromkeys(each.finding for each in found):
        table.add_row(finding, *(words[finding, version] for version in versions))
    print_table(results(), table)
    for version in versions:
        counts = Counter(each.word for each in found if each.torch == version)
        counted = ", ".join(f"{number} {word}" for word, number in sorted(counts.items()))
        print_lines(results(), f"torch {version}: {counted}")
