"""What is proved for all sizes, and lemmas about predicates of overlap.

Nothing that judges a run imports it.
"""
