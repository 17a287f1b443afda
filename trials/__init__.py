"""One case through one target: run it in eager and through the target, judge, look into the stages, name who is at fault."""
