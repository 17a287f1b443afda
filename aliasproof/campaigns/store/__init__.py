"""The store of a run: what was drawn, what failed, and the findings (SQLite)."""
