"""The page of a run: one HTML file that needs no other file, and no network."""
