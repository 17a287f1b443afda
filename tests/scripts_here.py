"""Scripts of reproducers, run in the process of a test: a fresh one takes seconds to start."""

from __future__ import annotations

import contextlib
import io
import runpy
from pathlib import Path

from aliasproof.campaigns.publish.confirmation import Confirmation


def confirm_here(path: Path) -> Confirmation:
    """What `confirm` says of a script that needs no process of its own."""
    printed, status = io.StringIO(), 0
    with contextlib.redirect_stdout(printed):
        try:
            runpy.run_path(str(path), run_name="__main__")
        except SystemExit as exit_:
            status = int(exit_.code or 0)
    return Confirmation.of(status, printed.getvalue(), "", 0)
