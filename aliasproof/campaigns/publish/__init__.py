"""Publish a finding: its reproducer, the confirmation in a fresh process, the text of an issue."""
