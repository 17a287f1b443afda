"""`python -m aliasproof`."""

from __future__ import annotations

import sys

from aliasproof.shadowing import Shadowed, require_own_packages
from aliasproof.startup import quitting_at_ctrl_c


def main() -> None:
    """The entry point."""
    try:
        require_own_packages()
    except Shadowed as error:
        print("aliasproof:", error, file=sys.stderr)
        sys.exit(2)  # bad input
    with quitting_at_ctrl_c():
        from aliasproof import command_line  # noqa: PLC0415 - it takes a moment
    command_line.main()


if __name__ == "__main__":  # workers import this module too, under another name
    main()
