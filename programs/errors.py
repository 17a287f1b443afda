"""The three kinds of error in aliasproof: the user's, the program's, ours."""


class UserError(Exception):
    """Something the user gave is wrong.

    The message says what was given, what was expected and what to change.
    """


class Rejected(Exception):
    """This program is not for this target, or eager gives it no single meaning: draw another one."""


class InternalError(Exception):
    """A mistake of aliasproof itself. The message says what to send us."""
