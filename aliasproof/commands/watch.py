"""The command `watch`: a live view of a run that another process writes."""

from __future__ import annotations

import contextlib
import time

from rich.console import Console
from rich.live import Live

from aliasproof.campaigns.store.run_view import RunReader
from aliasproof.commands.options import Run
from aliasproof.reports.console import print_table, results
from aliasproof.reports.watched_run import picture

REDRAWN_EVERY = 1.0  # seconds


def watch(run: Run) -> None:
    """Show a run while it goes on: progress, findings by target and state, throughput, memory.

    The view ends with the run, or at Ctrl-C, which the run does not notice. Where the output is no
    terminal, the state is printed once.
    """
    console = results()
    with contextlib.closing(RunReader.open(run)) as reader:
        if console.is_terminal:
            _live(reader, console)
        else:
            print_table(console, picture(reader.view()))


def _live(reader: RunReader, console: Console) -> None:
    view = reader.view()
    with (
        contextlib.suppress(KeyboardInterrupt),
        Live(picture(view), console=console, auto_refresh=False) as live,
    ):
        while view.running:
            time.sleep(REDRAWN_EVERY)
            view = reader.view()
            live.update(picture(view), refresh=True)
