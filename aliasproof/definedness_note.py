"""What `explain` and `prove` say of a function that eager does not define."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from aliasproof.eager.definedness import Undefined
from aliasproof.ir.values import clone_inputs
from aliasproof.oracles.observation import observe_eager


def definedness_note(function: Callable[..., object], inputs: Sequence[torch.Tensor]) -> str | None:
    """'undefined in eager: ...' or 'unspecified in eager: ...'; None if eager defines it.

    The function runs once, on clones of the inputs. Its errors are not reported here.
    """
    try:
        _, trace = observe_eager(function, clone_inputs(inputs))
    except Undefined as undefined:
        return f"it is undefined in eager, so a compiler may do anything: {undefined}"
    if trace.unspecified is not None:
        return f"it is unspecified in eager, so a compiler may change it: {trace.unspecified}"
    return None
