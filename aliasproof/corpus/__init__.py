"""Corpus: programs worth keeping. `corpus.known` has the bugs of compilers that are known."""
