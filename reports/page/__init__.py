"""The page of a run: one file in HTML that needs nothing else, and no network."""
