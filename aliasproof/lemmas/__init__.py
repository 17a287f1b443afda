"""Overlap predicates, ours and those of torch, proved or refuted for all sizes with z3."""
