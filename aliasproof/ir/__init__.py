"""`Program` and `PythonProgram`, the values that all other packages use; how eager runs them."""
