"""Wrong passes, planted on purpose, and what kills them: the measure of the oracles and of the programs that are drawn."""
