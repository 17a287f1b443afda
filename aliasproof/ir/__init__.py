"""`Program` and `PythonProgram`, the values that everything passes around; how eager runs them."""
