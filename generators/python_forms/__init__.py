"""How people write statements: one file for each kind, one `Form` for each way."""
