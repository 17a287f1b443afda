"""Known bugs, one per file. Each module defines `BUG`; `known_bugs` collects them by rank."""
