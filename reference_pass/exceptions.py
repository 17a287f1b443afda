"""What the passes refuse, and what they say."""

from __future__ import annotations


class Refused(Exception):
    """The program cannot be compiled rightly; the message says why, and what to change.

    A pass raises this instead of guessing: nothing that it returns is a wrong program.
    """


class Broken(Exception):
    """A graph does not keep an invariant that a pass requires of what it is given, or ensures of what it gives."""
