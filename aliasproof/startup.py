"""The start of a command: Ctrl-C ends it without a traceback, and output has every encoding."""

from __future__ import annotations

import codecs
import contextlib
import io
import os
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType

INTERRUPTED = 130
# What reports print beyond ASCII.
_ASCII_FORMS = {"≠": "!=", "→": "->", "…": "...", "─": "-", "×": "x", "–": "-", "≤": "<=", "·": "."}


@contextlib.contextmanager
def quitting_at_ctrl_c() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM end this process at once, where nobody sets another handler.

    A `KeyboardInterrupt` that is raised while modules are imported can end up anywhere. Torch turns
    it into other errors.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, _quit) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def quit_now() -> None:
    """End this process at once."""
    # Not by `print`: the signal may have come in the middle of one.
    show_cursor = b"\x1b[?25h" if os.isatty(2) else b""
    os.write(2, show_cursor + b"aliasproof: interrupted\n")
    os._exit(INTERRUPTED)


def _quit(number: int, frame: FrameType | None) -> None:
    quit_now()


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
