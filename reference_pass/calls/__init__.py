"""Properties of operator calls, and tensors on fakes: the words that the algorithm uses."""
