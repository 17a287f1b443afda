"""The systems under test, one per file, each with its `Contract`."""
