"""Prints the line `# shows: ` of known bugs: `python tests/corpus/shown_bugs.py [NAME ...]`.

It takes the difference that each bug shows in the installed torch, and runs the reproducer.
"""

import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from aliasproof.campaigns.publish.confirmation import Confirmation
from aliasproof.campaigns.publish.confirmation_server import COMPILERS, ConfirmationServer
from aliasproof.campaigns.publish.replaying import known_reproducer
from aliasproof.corpus.bug_files import known_bugs
from aliasproof.corpus.known_bug import KnownBug, ShownDifference
from aliasproof.judge.trial import Case, quiet_torch, run_eager, run_trial
from aliasproof.oracles.judge import ON_RESULTS
from aliasproof.targets.registry import target as target_named

TIMEOUT = 120.0  # seconds


def differences(bug: KnownBug) -> Iterator[ShownDifference]:
    """The differences in the installed torch that a script can compare: main differences first."""
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
                yield ShownDifference(
                    name,
                    difference.oracle,
                    difference.kind,
                    difference.place,
                    trial.exact(difference.place),
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


def main(names: list[str]) -> None:
    """Print the line of each bug. Standard error names bugs that no reproducer shows."""
    server = ConfirmationServer(COMPILERS)
    try:
        for name in names or list(known_bugs()):
            if shown := first_shown(known_bugs()[name], server):
                print(f"{name}\n# shows: {shown}", flush=True)
            else:
                print(f"no reproducer shows {name}", file=sys.stderr)
    finally:
        server.stop()


if __name__ == "__main__":
    quiet_torch()
    main(sys.argv[1:])
