"""Scripts of reproducers, run in the process of a test: a fresh one takes seconds to start."""

import contextlib
import copy
import io
import runpy
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import torch
from torch._inductor import config

from aliasproof.campaigns.publish.confirmation import Confirmation, confirm

# These change the process for good: generated code keeps the function.
LASTING = ("_empty_strided_cpu", "setrlimit")


def confirm_here(path: Path) -> Confirmation:
    """What `confirm` returns for a script; this process is not changed."""
    if any(word in path.read_text(encoding="utf-8") for word in LASTING):
        return confirm(path)
    printed, status = io.StringIO(), 0
    with contextlib.redirect_stdout(printed), _settings_kept():
        try:
            runpy.run_path(str(path), run_name="__main__")
        except SystemExit as exit_:
            status = int(exit_.code or 0)
    return Confirmation.of(status, printed.getvalue(), "", 0)


@contextlib.contextmanager
def _settings_kept() -> Iterator[None]:
    threads, options = torch.get_num_threads(), copy.copy(torch._tensor_str.PRINT_OPTS)
    kept = {"fallback_random": config.fallback_random, "freezing": config.freezing}
    with mock.patch.object(torch._tensor_str, "PRINT_OPTS", options), config.patch(kept):
        try:
            yield
        finally:
            torch.set_num_threads(threads)
