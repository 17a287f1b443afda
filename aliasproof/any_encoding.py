"""Output in every encoding: ASCII forms of the signs that standard output cannot encode."""

from __future__ import annotations

import codecs
import io
import sys

# What reports print beyond ASCII.
_ASCII_FORMS = {"≠": "!=", "→": "->", "…": "...", "─": "-", "×": "x", "–": "-", "≤": "<=", "·": "."}


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
