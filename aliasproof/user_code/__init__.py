"""A user's function: its file, its arguments, and all values that it can reach."""
