"""In-place memory planning: which memory each result of a functional graph is in."""
