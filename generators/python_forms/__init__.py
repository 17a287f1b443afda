"""How people write statements: one file per kind, one form per statement."""
