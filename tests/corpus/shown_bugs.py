"""Prints corpus/shown.json: `python tests/corpus/shown_bugs.py > shown.json`, then move it there.

It tries the difference that each known bug shows in the installed torch, and runs the reproducer. A
bug that this torch does not have keeps its entry.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

from aliasproof.campaigns.publish.confirmation import Confirmation
from aliasproof.campaigns.publish.confirmation_server import COMPILERS, ConfirmationServer
from aliasproof.campaigns.publish.replaying import known_reproducer
from aliasproof.corpus.bug_files import known_bugs
from aliasproof.corpus.known_bug import KnownBug
from aliasproof.corpus.shown_differences import ShownDifference, shown_differences
from aliasproof.judge.trial import Case, quiet_torch, run_eager, run_trial
from aliasproof.oracles.judge import ON_RESULTS
from aliasproof.targets.registry import target as target_named

TIMEOUT = 120.0  # seconds


def differences(bug: KnownBug) -> Iterator[ShownDifference]:
    """What the installed torch shows, that a script can compare: main differences first."""
    for name in bug.targets:
        target = target_named(name)
        case = Case.of(bug.program).under(target)
        trial = run_trial(case, target, eager=run_eager(case))
        documented = [
            limited.difference
            for report in trial.judgement.reports.values()
            for limited in report.documented
        ]
        for difference in (*trial.judgement.violations, *documented):
            if difference.oracle in ON_RESULTS:
                error = (
                    str(difference.evidence.get("type", ""))
                    if difference.oracle == "errors"
                    else ""
                )
                yield ShownDifference(
                    name,
                    difference.oracle,
                    difference.kind,
                    difference.place,
                    trial.exact(difference.place),
                    error=error,
                )


def first_shown(bug: KnownBug, server: ConfirmationServer) -> ShownDifference | None:
    """The first difference that a script shows in a fresh process."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "reproducer.py"
        for difference in differences(bug):
            for shown in (difference, replace(difference, literal=True)):
                script.write_text(known_reproducer(bug, shown))
                status, stdout, stderr, _ = server.run(script, TIMEOUT)
                if Confirmation.of(status, stdout, stderr, TIMEOUT).shown:
                    return shown
    return None


def document() -> str:
    """The text of corpus/shown.json. Bugs without a reproducer are named on standard error."""
    server, entries = ConfirmationServer(COMPILERS), {}
    before = shown_differences()
    try:
        for identifier, bug in sorted(known_bugs().items()):
            shown = first_shown(bug, server) or before.get(identifier)
            if shown is None:
                print(f"no reproducer shows {identifier}", file=sys.stderr)
            else:
                entries[identifier] = asdict(shown)
    finally:
        server.stop()
    lines = [f"{json.dumps(name)}: {json.dumps(entry)}" for name, entry in entries.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


if __name__ == "__main__":
    quiet_torch()
    print(document(), end="")
