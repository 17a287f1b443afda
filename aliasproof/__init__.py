"""The public face: re-exports, command line, pytest plugin."""
