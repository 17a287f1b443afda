"""Reduction: makes a failing `Program` smaller while a predicate that the caller gives holds."""
