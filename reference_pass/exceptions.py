"""The errors of the passes: `Refused` for a program, `Broken` for a graph.

The first chapter has only `Refused`. With several passes `Broken` is needed, too, because a graph
may come from a wrong pass, and to refuse the program would hide that.
"""

from __future__ import annotations


class Refused(Exception):
    """The passes cannot compile the program correctly; the message says why, and what to change.

    A pass raises this instead of guessing. So it never returns a wrong program.
    """


class DataDependent(Refused):
    """A branch or a size of the program depends on data; one graph must be right for all data."""


class Broken(Exception):
    """A graph breaks an invariant that a pass requires of its input or ensures for its output."""
