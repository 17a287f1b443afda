"""Wrong passes, planted on purpose, and what kills them.

They measure the oracles, and the programs that are drawn.
"""
