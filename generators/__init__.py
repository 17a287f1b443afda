"""`Program`, the value that everything passes around, and Hypothesis strategies for inputs, arguments and programs."""
