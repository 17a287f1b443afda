"""What a compiled graph depends on: the key under which it is kept.

Dynamo guards the sizes and strides of inputs, but not how they share storage, nor where they are in
it. How much of that matters is found while graphs are built, so a key may become more detailed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import fx

from aliasproof.reference_pass.backend.dynamo_graphs import may_write
from aliasproof.reference_pass.backend.general_graphs import exactly, floats_in, without_tensors
from aliasproof.reference_pass.backend.input_layouts import Detail, input_layouts
from aliasproof.reference_pass.capture.locations import depends_on_location
from aliasproof.reference_pass.capture.size_guards import writes_inputs


class Keys:
    """The keys of inputs: the layouts of tensors, the values of other inputs.

    `detail` says what of the layouts matters, and `by_value` whether a graph is right for one value
    of the `floats` only, both as far as it is known now. If `graded`, it matters who requires a
    gradient.
    """

    def __init__(self, graph_module: fx.GraphModule, *, trains: bool, graded: bool) -> None:
        self.attributes = [*graph_module.parameters(), *graph_module.buffers()]
        self.floats = floats_in(graph_module)
        self.by_value = False
        self.graded = graded
        self.detail = Detail.SHARING if trains or may_write(graph_module) else Detail.SIZES
        self.note_location(graph_module)

    def layouts(self, inputs: Sequence[Any]) -> tuple[Any, ...]:
        """The layouts of inputs, as detailed as it matters."""
        return input_layouts(inputs, self.attributes, self.detail, graded=self.graded)

    def of(self, layouts: tuple[Any, ...], inputs: Sequence[Any]) -> tuple[Any, Any]:
        """The key of inputs with these layouts."""
        values = map(exactly, without_tensors(layouts, inputs))
        return layouts, (*values, *self.floats_of(inputs))

    def floats_of(self, inputs: Sequence[Any]) -> tuple[str, ...]:
        """The values of floats among the inputs, if they matter."""
        floats = self.floats if self.by_value else ()
        return tuple(exactly(inputs[index].item()) for index in floats)

    def note_sharing(self, graph_module: fx.GraphModule) -> None:
        """Note that it matters which inputs share a storage, if a graph writes to inputs."""
        if writes_inputs(graph_module):
            self.detail = max(self.detail, Detail.SHARING)

    def note_location(self, graph_module: fx.GraphModule) -> bool:
        """Note that it matters where inputs are, if a graph depends on it; True if it does now."""
        if depends_on_location(graph_module):
            self.detail = Detail.LOCATIONS
        return self.detail is Detail.LOCATIONS
