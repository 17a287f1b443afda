"""Known bugs, one per file. Each module defines `BUG`, and `known_bugs` lists it."""
