"""One module per command, named as the command. Each reads options, calls, and prints a report."""
