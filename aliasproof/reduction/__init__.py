"""Reduction: makes a failing `Program` smaller while the caller's predicate holds."""
