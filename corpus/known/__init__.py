"""Known bugs, one per file. Each module defines `BUG`, and `corpus.known_bugs` lists it."""
