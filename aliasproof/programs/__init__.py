"""`Program`, the value that everything passes around: its parts, its forms, how eager runs it."""
