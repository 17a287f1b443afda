"""`python -m aliasproof`."""

from __future__ import annotations

from aliasproof.command_line import main

if __name__ == "__main__":  # workers import this module too, under another name
    main()
