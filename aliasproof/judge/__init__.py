"""Judge: one case on one target, from the eager run to verdicts and the layer at fault."""
