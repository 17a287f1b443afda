"""Show stored findings and run them again: `show` and `report`."""
