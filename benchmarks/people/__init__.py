"""Functions as people write them, through `check`: right ones, and again with one wrong pass.

The files `functions_*.py` are ordinary code: modules, optimizers, caches, control flow, autograd,
`torch.func`, custom operators, trees, random numbers, mixed precision, small language models. Each
is right under `torch.compile`, so *wrong* about it is a false alarm, and so is *wrong* about a pass
that changes nothing. A wrong pass that changes the result of a plain run, without aliasproof, is to
be flagged, with its name.

How to read a row: the verdict of `check` on each target. Of passes: *functions* that were checked;
plain runs whose result a wrong pass *changes*; how many of these `check` has *flagged*, and for
how many the line "first wrong after" has *named* the pass. Below, a line for each function that is
wrong or not judged, and for each wrong pass that is missed.

Of these, `torch.compile` refuses `autograd.gradient_penalty` and `physics_residual`, as documented
(double backward). Nothing is planted in `selective_scan` and `mamba_logits`: where gradients are
recorded, their plain run differs from eager. Missed are what is planted in `relative_bias` and
`t5_loss` (unknown: near a jump), and swapped outputs of graphs that are compiled for training
alone: without the variant *grad*, `check` detaches what requires gradients.
"""

from benchmarks.people.people_table import measure

__all__ = ["measure"]
