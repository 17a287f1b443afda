"""Scripts that print the performance tables."""
