"""Campaigns: running them (`run`), one `failure`, their `store`, and what they `publish`."""
