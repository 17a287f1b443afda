"""What is defined in eager, and how exactly: definedness, rounding, and a trace of a run."""
