"""Processes: run a call in one, limit what it takes, explain how it ended."""
