"""Turns findings into what people read: HTML, issue text, JUnit, drawings."""
