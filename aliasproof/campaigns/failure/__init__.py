"""One failure: whether it is known, its cause, and the smallest program that shows it."""
