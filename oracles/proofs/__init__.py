"""Proofs for all sizes, and lemmas about overlap predicates.

No oracle imports this package: a verdict on one run needs no proof.
"""
