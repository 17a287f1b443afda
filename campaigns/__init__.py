"""Shards, workers, the store of findings, resume and replay."""
