"""The start of a command: Ctrl-C, the encoding of its output, and the cache of its compiler."""

from __future__ import annotations

import codecs
import contextlib
import io
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from aliasproof.processes.interrupts import signal_handler

INTERRUPTED = 130
_COMPILER_CACHE = "TORCHINDUCTOR_CACHE_DIR"
# What reports print beyond ASCII.
_ASCII_FORMS = {"≠": "!=", "→": "->", "…": "...", "─": "-", "×": "x", "–": "-", "≤": "<=", "·": "."}


@contextlib.contextmanager
def quitting_at_ctrl_c() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM end this process at once, where nobody sets another handler.

    A `KeyboardInterrupt` that is raised while modules are imported can end up anywhere. Torch turns
    it into other errors.
    """
    with contextlib.ExitStack() as stack:
        for number in (signal.SIGINT, signal.SIGTERM):
            stack.enter_context(signal_handler(number, lambda *given: quit_now()))
        yield


def quit_now() -> None:
    """End this process at once."""
    # Not by `print`: the signal may have come in the middle of one.
    show_cursor = b"\x1b[?25h" if os.isatty(2) else b""
    os.write(2, show_cursor + b"aliasproof: interrupted\n")
    os._exit(INTERRUPTED)


def use_own_compiler_cache() -> None:
    """Let Inductor write into a folder of this tool, unless the user names one.

    torch's bisector leaves a file in Inductor's folder if it is interrupted. While it is there,
    every backend of `torch.compile` in every process acts as the file says (`get_backend` in
    torch/_inductor/compiler_bisector.py). A folder with such a file is not used, and it is named.
    """
    named = os.environ.get(_COMPILER_CACHE)
    temporary = Path(tempfile.gettempdir())
    folders = [Path(named)] if named else temporary.glob("torchinductor_*")
    states = [folder / "bisect" / "bisect_status.txt" for folder in folders]
    for state in states:
        if state.is_file() and state.stat().st_uid == os.getuid():
            named = None
            print(
                f"aliasproof: torch's bisector is active: {state} decides which backend every"
                " torch.compile runs. Commands of aliasproof do not read it; your own programs do,"
                " until 'python -m torch._inductor.compiler_bisector end'",
                file=sys.stderr,
            )
    if not named:
        os.environ[_COMPILER_CACHE] = str(temporary / f"aliasproof_inductor_{os.getuid()}")


def print_in_any_encoding() -> None:
    """Let standard output and standard error print ASCII forms where their encoding ends."""
    codecs.register_error("aliasproof", _ascii_form)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="aliasproof")


def _ascii_form(error: UnicodeError) -> tuple[str, int]:
    """An error handler for `codecs`: the ASCII forms of characters that cannot be encoded."""
    assert isinstance(error, UnicodeEncodeError)
    text = error.object[error.start : error.end]
    return "".join(_ASCII_FORMS.get(character, "?") for character in text), error.end
