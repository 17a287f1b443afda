"""Campaigns, in four rooms: `run`, one `failure`, `store`, `publish`."""
