"""The systems under test, one per file, each with the `Contract` that it promises."""
