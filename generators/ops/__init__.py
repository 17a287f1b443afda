"""The tables of ops that programs are drawn from: a file per group, one line per op."""
