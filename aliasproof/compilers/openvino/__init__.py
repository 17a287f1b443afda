"""OpenVINO: its targets and how its graphs are read."""
