"""Trials: one case through one target, from the eager run to verdicts and the target at fault."""
