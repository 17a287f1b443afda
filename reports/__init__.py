"""Everything that people read: tables, progress, side-by-side runs, text of findings and proofs.

A report prints values that others computed. It runs no program and no oracle.
"""
