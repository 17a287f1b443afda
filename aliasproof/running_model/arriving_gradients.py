"""The gradients that arrive at a graph's outputs while the model's own backward pass runs.

Nothing of the model is changed for it: the nodes of autograd that made the outputs tell what
arrives. A node that other outputs of the graph were computed from gets their part, too. Eager and
target are both given the same, so this changes no verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from aliasproof.ir.values import clone_inputs
from aliasproof.running_model.graph_call import Overwritten, Tangents


@dataclass(slots=True, eq=False)
class ArrivingGradients:
    """Collects what arrives in one backward pass, and hands it over at its end, once.

    `overwritten` returns inputs of the call that were written before this pass begins: hooks of
    the model may write others in it, such as parameters.
    """

    then: Callable[[Overwritten, Tangents], None] | None
    overwritten: Callable[[], Overwritten]
    _overwritten: Overwritten = field(default_factory=dict)
    _arrived: dict[str, torch.Tensor] = field(default_factory=dict)

    def wait_at(self, place: str, tensor: torch.Tensor) -> None:
        """Look at the node of autograd that made this tensor."""
        assert tensor.grad_fn is not None
        tensor.grad_fn.register_prehook(self._hook(place, tensor.output_nr))

    def _hook(self, place: str, index: int) -> Callable[[Sequence[torch.Tensor | None]], None]:
        def note(gradients: Sequence[torch.Tensor | None]) -> None:
            if torch.compiler.is_compiling():
                return  # compiled autograd makes graphs of the backward pass, which are checked
            arrived = gradients[index]
            if self.then is None or arrived is None or arrived.layout is not torch.strided:
                return
            if not self._arrived:  # the first of this pass
                engine: Any = torch.autograd.Variable._execution_engine
                engine.queue_callback(self._end)
                self._overwritten = self.overwritten()
            self._arrived[place] = clone_inputs([arrived.detach()])[0]

        return note

    def _end(self) -> None:
        then, self.then = self.then, None
        arrived, self._arrived = self._arrived, {}
        if then is not None:
            then(self._overwritten, arrived)
