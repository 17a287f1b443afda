"""Functionalization, reinplacing and memory planning on `torch.fx` graphs, with an alias analysis of its own."""
