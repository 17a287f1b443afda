"""Proofs for all sizes.

No oracle imports this package: a verdict on one run needs no proof.
"""
