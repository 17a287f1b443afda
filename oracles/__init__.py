"""Observations, contracts and verdicts; one oracle per file; the overlap model and its SMT form."""
