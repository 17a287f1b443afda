"""Relax of TVM: its targets and how its graphs are read."""
