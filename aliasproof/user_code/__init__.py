"""The function of a user: its file, its arguments, and all that it can reach."""
