"""Commands for one function: `check`, `explain`, `prove`, `bisect`, `assert_equivalent`."""
