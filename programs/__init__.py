"""`Program`, the value that everything passes around: what it says, how it is run, stored, printed and judged."""
