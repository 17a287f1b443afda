"""Stored findings, shown and run again: `show` and `report`."""
