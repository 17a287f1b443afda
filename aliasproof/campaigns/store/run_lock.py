"""`RunLock`: one campaign per folder."""

from __future__ import annotations

import fcntl
import os
import re
import socket
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from aliasproof.campaigns.store.store_schema import NAME as STORE
from aliasproof.ir.errors import UserError

NAME = ".lock"
# All that a run folder may contain.
FILES = (NAME, "events.jsonl", "run.json", STORE, f"{STORE}-wal", f"{STORE}-shm")
# Folders of findings. A failure is unconfirmed if its reproducer did not show it, or not yet.
KINDS = FINDINGS, SUSPICIONS, UNCONFIRMED = "findings", "suspicions", "unconfirmed"
FOLDERS = (*KINDS, ".compiled")


@dataclass(slots=True)
class RunLock:
    """The lock of a run folder, from `take` to `release` or to the end of the process.

    The kernel holds it, so it ends with its process, however that ends. The file names the holder.
    `stale` is the name of a holder that was killed, or empty.
    """

    stale: str
    _descriptor: int

    @classmethod
    def take(cls, folder: Path) -> RunLock:
        """Take the lock. Raises `UserError` with the holder's pid if another process has it."""
        require_own_files(folder)
        descriptor = os.open(folder / NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = _read(descriptor)
            os.close(descriptor)
            raise UserError(
                f"run folder {folder} is in use by {holder or 'another process'}; wait for its end,"
                " or name another folder"
            ) from error
        stale = _read(descriptor)
        _write(descriptor, f"pid {os.getpid()} on {socket.gethostname()}")
        return cls(stale, descriptor)

    def release(self) -> None:
        """Release the lock."""
        # The file stays: if it were removed, two processes could each lock a file of this name.
        _write(self._descriptor, "")
        os.close(self._descriptor)


class Holder(NamedTuple):
    """Who runs a campaign in a folder. The name is empty if nobody does.

    A holder that ended normally has removed its name, so one whose name is left was `killed`.
    """

    name: str
    killed: bool = False

    @classmethod
    def of(cls, folder: Path) -> Holder:
        """The holder of a run folder.

        The lock is not tried: a campaign that starts at that moment would see it as taken.
        """
        try:
            descriptor = os.open(folder / NAME, os.O_RDONLY | os.O_CLOEXEC)
            try:
                name = _read(descriptor)
            finally:
                os.close(descriptor)
        except OSError:
            return cls("")
        match = re.fullmatch(r"pid (\d+) on (.*)", name)
        if match is None or match[2] != socket.gethostname():
            return cls(name)
        try:
            os.kill(int(match[1]), 0)
        except (ProcessLookupError, OverflowError):
            return cls(name, killed=True)
        except PermissionError:
            pass
        return cls(name)


def require_own_files(folder: Path) -> None:
    """Raises `UserError` if a run folder has what no run makes: a link, a pipe, a device.

    Writes to a link would leave the folder, and a pipe can be read without end.
    """
    for path in folder.iterdir():
        kind = path.lstat().st_mode
        is_right = stat.S_ISDIR if path.name in FOLDERS else stat.S_ISREG
        if not is_right(kind) and (path.name in FILES or not stat.S_ISDIR(kind)):
            what = "folder" if path.name in FOLDERS else "regular file"
            raise UserError(f"{path} is no {what}, as in a run; move it elsewhere")


def _read(descriptor: int) -> str:
    return os.pread(descriptor, 200, 0).decode(errors="replace").strip()


def _write(descriptor: int, text: str) -> None:
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, text.encode(), 0)
