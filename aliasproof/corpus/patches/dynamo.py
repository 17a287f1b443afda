"""Patches of Dynamo."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aliasproof.corpus.patching import replaces


@replaces("torch._dynamo.output_graph:OutputGraph.remove_tensorify_specialized_graphargs")
def write_to_float64_number(original: Callable[..., None], graph: Any) -> None:
    """No node is removed from the graph because torch takes it for a Python float.

    Torch represents such a float as a tensor like this one. It removes each node with that tensor
    and without users, although an in-place call returns the tensor that it wrote.
    """
