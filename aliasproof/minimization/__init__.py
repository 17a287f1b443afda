"""`minimize`: the smallest program on which a check still finds the same difference."""
