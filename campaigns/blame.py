"""`Blame`: which program a worker process was running when it died."""

from __future__ import annotations

import contextlib
import mmap


class Blame:
    """A file with the index of the running program, which others can read after the process died.

    The file is mapped into memory, so a note costs no system call, and it survives a segfault.
    """

    def __init__(self, path: str) -> None:
        with open(path, "r+b") as file:  # noqa: PTH123 - mmap wants the descriptor
            self._memory = mmap.mmap(file.fileno(), 8)

    def __call__(self, index: int) -> None:
        """Note that this program is about to run."""
        self._memory[:8] = (index + 1).to_bytes(8, "little")  # 0 means that none has run

    @staticmethod
    def create(path: str) -> None:
        """Make the file. It says that no program has run."""
        with open(path, "wb") as file:  # noqa: PTH123
            file.write(bytes(8))

    @staticmethod
    def read(path: str) -> int | None:
        """The last index noted, None if there is none."""
        with contextlib.suppress(OSError), open(path, "rb") as file:  # noqa: PTH123
            noted = int.from_bytes(file.read(8), "little")
            return noted - 1 if noted else None
        return None
