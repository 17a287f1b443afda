"""What a call of an operator is, and a tensor on fakes: the words that the algorithm uses."""
