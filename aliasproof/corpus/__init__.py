"""Corpus: programs worth keeping. `corpus.known` has the bugs of torch that are known."""
