"""Programs drawn from the rules of the installed compiler."""
