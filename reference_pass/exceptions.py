"""What the passes raise: `Refused` for a program, `Broken` for a graph."""

from __future__ import annotations

from torch._subclasses.fake_tensor import DataDependentOutputException


class Refused(Exception):
    """The passes cannot compile the program correctly; the message says why, and what to change.

    A pass raises this instead of guessing. So it never returns a wrong program.
    """


class DataDependent(Refused, DataDependentOutputException):
    """The program depends on data. Where a backend raises this class, Dynamo breaks the graph."""

    def __init__(self, reason: str) -> None:
        Exception.__init__(self, reason)


class Broken(Exception):
    """A graph breaks an invariant that a pass requires of its input or ensures for its output."""
