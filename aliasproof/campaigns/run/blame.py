"""`Blame`: which programs a worker process was running when it died."""

from __future__ import annotations

import contextlib
import mmap
from collections.abc import Sequence


class Blame:
    """A file with the indices of the running programs, to be read after the process died.

    Programs that run together have a first and a last index. The file is mapped into memory, so a
    note costs no system call, and it survives a segfault.
    """

    def __init__(self, path: str) -> None:
        with open(path, "r+b") as file:  # noqa: PTH123 - mmap wants the descriptor
            self._memory = mmap.mmap(file.fileno(), 8)

    def __call__(self, indices: Sequence[int]) -> None:
        """Note that these programs are about to run together."""
        # From 1, since 0 means that none has run.
        ends = min(indices) + 1, max(indices) + 1
        self._memory[:8] = b"".join(end.to_bytes(4, "little") for end in ends)

    @staticmethod
    def create(path: str) -> None:
        """Make the file. It says that no program has run."""
        with open(path, "wb") as file:  # noqa: PTH123
            file.write(bytes(8))

    @staticmethod
    def read(path: str) -> range:
        """The indices noted last, from the first to the last; empty if there are none."""
        with contextlib.suppress(OSError), open(path, "rb") as file:  # noqa: PTH123
            noted = file.read(8)
            first, last = (int.from_bytes(noted[at : at + 4], "little") for at in (0, 4))
            return range(first - 1, last) if first else range(0)
        return range(0)
