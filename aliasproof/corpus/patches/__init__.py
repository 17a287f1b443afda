"""Patches of compilers for known bugs: one module per layer, as in `corpus/bugs`."""

# Imported first: if they come first, modules of `torch._functorch._aot_autograd` import in a
# circle.
from torch._functorch import aot_autograd  # noqa: F401
