"""Processes: run a call in a process, limit its resources, explain how it ended."""
