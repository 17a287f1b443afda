"""Reading and writing the text of a stored file: a program, a finding, a run.

A file that is read can come from anywhere. It may be a pipe without an end, a device, gigabytes, or
a link to a file that the reader did not mean to read.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from aliasproof.ir.errors import UserError

MOST_BYTES = 32 * 2**20  # a program of 10,000 instructions needs two million


def read_text(path: Path, *, within: Path | None = None) -> str:
    """The text of a regular file in UTF-8. Raises `UserError` with the path.

    `within` is the folder that it belongs to, if any: then a link out of that folder is refused.
    """
    if within is not None and not path.resolve().is_relative_to(within.resolve()):
        raise UserError(f"{path} is a link out of its folder; put a copy in its place")
    try:
        # O_NONBLOCK: opening a pipe must not wait for a writer.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise UserError(f"{path} is not a regular file")
            if status.st_size > MOST_BYTES:
                raise UserError(
                    f"{path} has {status.st_size:,} bytes; at most {MOST_BYTES:,} are read"
                )
            return file.read(MOST_BYTES).decode("utf-8")
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path} is not text in UTF-8: {error.reason} at byte {error.start}"
        ) from error


def write_text(path: Path, text: str) -> None:
    """Write a file atomically: a reader sees all of it or none of it."""
    # In the same folder, since a file can only be renamed within one file system.
    partial = path.with_name(path.name + ".partial")
    partial.unlink(missing_ok=True)  # it may be a link
    with partial.open("x", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        # Without it, a file system may store the new name before the contents.
        os.fsync(file.fileno())
    partial.replace(path)


@contextlib.contextmanager
def writing(what: Path | str) -> Iterator[None]:
    """Name `what` if a file cannot be written within the context. Raises `UserError`."""
    try:
        yield
    except OSError as error:
        raise UserError(f"{what} cannot be written: {error.strerror}") from error
