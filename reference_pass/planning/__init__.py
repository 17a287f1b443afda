"""In-place memory planning: in which memory each result of a functional graph is."""
