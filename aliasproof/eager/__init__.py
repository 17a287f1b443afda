"""What eager defines, and how exactly: definedness, rounding, and a trace of a run."""
