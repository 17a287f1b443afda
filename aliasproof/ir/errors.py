"""The three kinds of error in aliasproof (the user's, the program's, ours), and message parts.

Two more errors are about the process: it is out of memory, or its device is lost.
"""

from __future__ import annotations

import difflib
import re
import reprlib
from collections.abc import Iterable, Sequence
from typing import Any


class UserError(Exception):
    """Something that the user passed is wrong.

    The message says what was given, what was expected and what to change.
    """


class Rejected(Exception):
    """This program is not for this target, or it is undefined in eager: draw another one."""


class InternalError(Exception):
    """A bug of aliasproof itself. The message says what to send us."""


class DeviceLost(BaseException):
    """After this error of a device, no call on it works in this process, which must end.

    It is not an `Exception`, since no result that comes after it can be trusted.
    """


class OutOfMemory(BaseException):
    """This process could not allocate memory. Its last action need not be the cause.

    It is not an `Exception`: only a new process can show what the cause is.
    """


_NO_MEMORY = "MemoryError|can't allocate memory|not enough memory|bad_alloc|out of memory"


def out_of_memory(error: BaseException | None) -> bool:
    """True if an error, or the message in it, says that memory could not be allocated."""
    # Torch raises a plain RuntimeError for memory of the CPU.
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError | InternalError)
        and re.search(_NO_MEMORY, str(error)) is not None
    )


# The messages of CUDA errors after which "the process must be terminated and relaunched"
# (https://docs.nvidia.com/cuda/cuda-runtime-api, `cudaError`).
_LOST = re.compile(
    "CUDA error: .*(device-side assert|illegal memory access|illegal instruction|misaligned address"
    "|invalid program counter|unspecified launch failure|hardware stack error|ECC error)"
)


def require_sound_process(error: BaseException) -> None:
    """Raises an error of the process if this error, or the message in it, is one.

    That is `OutOfMemory`, or `DeviceLost` if no call on the device works any more.
    """
    if out_of_memory(error):
        raise OutOfMemory(str(error)) from error
    if match := _LOST.search(str(error)):
        raise DeviceLost(f"a CUDA kernel ends with: {match[1]}") from error


def watch_failed(watched: object, reason: Exception) -> InternalError:
    """The error for an exception in a watch: it is neither eager's error nor the program's."""
    # But the error of a kernel is raised where its result is first read.
    require_sound_process(reason)
    return InternalError(f"watching {watched} failed: {type(reason).__name__}: {reason}")


def printable(text: str) -> str:
    """A text from a file, for a terminal: control characters and lone surrogates are escaped."""
    return "".join(
        character if character.isprintable() or character in "\n\t" else ascii(character)[1:-1]
        for character in text
    )


def printable_json(data: Any) -> Any:
    """JSON values with all their texts printable. Raises `RecursionError` for very deep ones."""
    if isinstance(data, str):
        return printable(data)
    if isinstance(data, list):
        return [printable_json(element) for element in data]
    if isinstance(data, dict):
        return {printable(key): printable_json(value) for key, value in data.items()}
    return data


# --- parts of messages ----------------------------------------------------------------------------


def did_you_mean(name: str, known: Iterable[str], otherwise: str = "", most: int = 1) -> str:
    """The end of a message about an unknown name: up to `most` known names that are similar.

    If none is similar, it is the advice `otherwise`. It starts with a semicolon or is empty.
    """
    near = difflib.get_close_matches(name, list(known), n=most)
    return suggestion(near) or (otherwise and f"; {otherwise}")


def suggestion(names: Sequence[str]) -> str:
    """The end of a message that offers these names; empty without any."""
    return f"; did you mean {', '.join(map(repr, names))}?" if names else ""


class _Shown(reprlib.Repr):
    """A one-line form of any value, short enough for an error message."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel, self.maxstring, self.maxother = 3, 60, 60

    def repr_int(self, x: int, level: int) -> str:
        # Python refuses to write integers of more than 4,300 digits.
        return f"an integer of {x.bit_length()} bits" if x.bit_length() > 128 else str(x)

    # reprlib finds this method by the name of the class, so `Ref` need not be imported here.
    def repr_Ref(self, x: Any, level: int) -> str:  # noqa: N802
        return f"the tensor {self.repr1(x.name, level)}"


shown = _Shown().repr
