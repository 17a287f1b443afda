"""Compilers beyond torch, one folder each: targets, contracts and graphs."""
