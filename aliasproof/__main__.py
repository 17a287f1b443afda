"""`python -m aliasproof`."""

from __future__ import annotations

from aliasproof.commands.startup import quitting_at_ctrl_c


def main() -> None:
    """The entry point."""
    with quitting_at_ctrl_c():
        from aliasproof.commands import command_line  # noqa: PLC0415 - it takes a moment
    command_line.main()


if __name__ == "__main__":  # workers import this module too, under another name
    main()
