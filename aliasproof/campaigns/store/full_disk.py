"""`DiskFull`: a run ends because its disk has no room. What was stored before stays."""

from __future__ import annotations

import contextlib
import errno
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from aliasproof.ir.errors import UserError

# A quota and a limit on file size mean the same as a full disk: nothing more can be written.
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_TOLD = re.compile(r"No space left on device|Disk quota exceeded|Errno 28\b")


class DiskFull(UserError):
    """Nothing more can be written."""


@contextlib.contextmanager
def explain_full_disk(folder: Path, advice: str = "") -> Iterator[None]:
    """Explain in one line why files of a run cannot be written. Raises `UserError`.

    `advice` says what to do when there is room; by default, how to resume the run.
    """
    try:
        yield
    except sqlite3.Error as error:
        name = getattr(error, "sqlite_errorname", "") or type(error).__name__
        # SQLite reports a full disk as SQLITE_FULL, and a quota as an I/O error.
        if name == "SQLITE_FULL" or name.startswith("SQLITE_IOERR"):
            raise _full(folder, str(error), advice) from error
        raise UserError(
            f"the store of {folder} cannot be used: {error}; name another folder"
        ) from error
    except OSError as error:
        if error.errno in _NO_ROOM:
            raise _full(folder, str(error.strerror), advice) from error
        raise


def require_room(text: str, folder: Path) -> None:
    """Raises `DiskFull` if a message of a worker reports a full disk: no target is at fault.

    Compilers write files, and report such errors in their own words.
    """
    if _TOLD.search(text):
        raise _full(folder, "a worker could not write")


def _full(folder: Path, reason: str, advice: str = "") -> DiskFull:
    otherwise = f"To go on when there is room, give the same command --run {folder}"
    return DiskFull(
        f"the disk is full ({reason}); all that was found is kept. {advice or otherwise}"
    )
