"""A graph of Dynamo, compiled once per layout of its inputs.

Dynamo guards the sizes and strides of inputs, but not how they share storage. The passes depend on
both. So the graph is compiled once per layout of its inputs (`input_layouts`): for the example
inputs at once, so that Dynamo can fall back to eager if the passes refuse, and for any other layout
at the first call with it. If an int among the inputs changes, the graph is compiled with symbols
for the ints.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any
from unittest import mock

import torch
from torch import fx
from torch._subclasses.fake_tensor import unset_fake_temporarily

from aliasproof.reference_pass.backend.building import Builder
from aliasproof.reference_pass.backend.differentiation import Differentiate, Runnable, Trained
from aliasproof.reference_pass.backend.general_graphs import (
    General,
    Template,
    allocates_more,
    has_symbols,
    is_int,
    keep,
    template_of,
    with_dynamo_symbols,
    without_ints,
)
from aliasproof.reference_pass.backend.input_layouts import (
    are_apart,
    are_transformed,
    has_places,
    shares_with_attribute,
)
from aliasproof.reference_pass.backend.observed_run import compiling
from aliasproof.reference_pass.exceptions import Refused
from aliasproof.reference_pass.pipeline import DEFAULT_OPTIONS, PipelineOptions


class Compiled:
    """A graph module that is compiled once per layout of its inputs (`input_layouts`).

    `graphs` has the results by the layouts of tensors and the values of other inputs (`keys`).
    `general` has graphs that are right for all sizes, or all ints, that meet their guards. If
    Dynamo passes symbols, there is a `template`, and one graph for it. Each of these caches has at
    most `MOST_LAYOUTS` graphs.
    """

    MOST_LAYOUTS = 64

    def __init__(
        self,
        graph_module: fx.GraphModule,
        example_inputs: Sequence[Any],
        options: PipelineOptions = DEFAULT_OPTIONS,
        *,
        by_autograd: bool = False,
        differentiate: Differentiate | None = None,
    ) -> None:
        self.graph_module = graph_module
        self.builder = Builder(
            graph_module,
            example_inputs,
            options,
            by_autograd=by_autograd,
            differentiate=differentiate,
        )
        self.keys = self.builder.keys
        # The graph to run if inputs share no storage, for which Dynamo's guards suffice.
        self.apart: Runnable | None = None
        self.graphs: dict[Any, Runnable] = {}
        self.general: dict[Any, General | None] = {}
        self.template: Template | None = None
        # The fakes are only ours: those of Dynamo would get symbols from our trace.
        with torch._guards.tracing(None), unset_fake_temporarily():
            self._compile_examples(example_inputs)

    def __call__(self, *inputs: Any) -> Any:
        """Run on these inputs."""
        return self.run(list(inputs))

    def run(self, inputs: list[Any]) -> Any:
        """Run on these inputs, and clear the list."""
        if are_transformed(inputs):
            return self.graph_module(*inputs)
        if self.apart is not None and are_apart(inputs, self.keys.attributes):
            return self.apart(inputs)
        compiled = self._compiled(inputs)
        with torch._C._DisableAutocast():  # the casts are calls of the graph already
            return compiled(inputs)

    def _compile_examples(self, inputs: Sequence[Any]) -> None:
        layouts = with_dynamo_symbols(
            self.keys.layouts(inputs),
            self.graph_module.graph.find_nodes(op="placeholder"),
        )
        if not has_symbols(layouts, inputs):
            of_examples = self._compiled(inputs)
            # The build may have found that the graph depends on the locations of inputs.
            anywhere = self.builder.writes_plainly and not has_places(self.keys.layouts(inputs))
            if anywhere and are_apart(inputs, self.keys.attributes):
                self.apart = of_examples
            return
        if (template := template_of(layouts, inputs)) is None:
            return  # some sizes have no value before the first call, so nothing can be compiled yet
        # Sizes of zero or one, floats, and offsets are not symbols in the template.
        if template.symbolic and not has_places(layouts):
            self.template = template
            if self._for_template(inputs) is not None or self.keys.by_value:
                return
        # For these sizes only, so that what is refused for all sizes is refused now.
        given, values = template.with_hints()
        if (compiled := self.builder.build_for(given, values, None)) is not None:
            self.graphs[self.keys.of(given, values)] = compiled

    def _compiled(self, inputs: Sequence[Any]) -> Runnable:
        # Dynamo calls this again for inputs of the same sizes that share storage in another way.
        layouts = self.keys.layouts(inputs)
        key = self.keys.of(layouts, inputs)
        if (compiled := self.graphs.get(key)) is not None:
            return compiled
        with compiling():
            general = self._general(layouts, inputs)
            if general is not None and general.accepts(inputs):
                compiled = general.graph_module
            else:
                layouts, compiled = self._built_or_given(layouts, inputs)
                # The build may have found that more properties of the inputs matter.
                key = self.keys.of(layouts, inputs)
            keep(self.graphs, key, compiled, self.MOST_LAYOUTS)
        return compiled

    def _built_or_given(
        self, layouts: tuple[Any, ...], inputs: Sequence[Any]
    ) -> tuple[tuple[Any, ...], Runnable]:
        """The compiled graph; the given one if this layout is refused after another was compiled.

        Then it is too late for Dynamo to fall back to eager. The given one also runs if an input
        shares memory with an attribute.
        """
        if shares_with_attribute(layouts):
            return layouts, Trained(self.graph_module, None)
        while True:
            try:
                compiled = self.builder.build_for(layouts, inputs, None)
            except Refused:
                if not self.graphs:
                    raise
                return self.keys.layouts(inputs), Trained(self.graph_module, None)
            before, layouts = layouts, self.keys.layouts(inputs)
            # If the layouts now have more detail, the graph is built once more for them.
            if compiled is not None and layouts == before:
                return layouts, compiled

    def _general(self, layouts: tuple[Any, ...], inputs: Sequence[Any]) -> General | None:
        """The graph for all sizes, or for all ints; None if there is none."""
        if self.template is not None:
            if self.template.pattern_of(layouts, inputs) != self.template.pattern:
                return None
            return self._for_template(inputs)
        # The general graph is built when a second value of the ints comes.
        key = without_ints(self.keys.of(layouts, inputs))
        if key in self.general:
            return self.general[key]
        others = [graph for other, graph in self.graphs.items() if without_ints(other) == key]
        if not others or not any(map(is_int, inputs)):
            return None
        general = self._general_for(Template.with_int_symbols(layouts, inputs), inputs)
        # With symbols, less can be decided, so it may allocate more than the graph for one value.
        if general is not None and allocates_more(general.graph_module, others[0]):
            general = None
        key = without_ints(self.keys.of(self.keys.layouts(inputs), inputs))
        keep(self.general, key, general, self.MOST_LAYOUTS)
        return general

    def _for_template(self, inputs: Sequence[Any]) -> General | None:
        assert self.template is not None
        floats = self.keys.floats_of(inputs)
        if floats not in self.general:
            general = self._general_for(self.template, inputs)
            floats = self.keys.floats_of(inputs)  # the build may have found that they matter
            keep(self.general, floats, general, self.MOST_LAYOUTS)
        return self.general[floats]

    def _general_for(self, template: Template, inputs: Sequence[Any]) -> General | None:
        values = list(template.values)
        for index in self.keys.floats:
            values[index] = inputs[index]
        # Fakes log before they raise. The log is off: then the graph is compiled for these sizes.
        quiet = mock.patch.object(torch._subclasses.fake_tensor.log, "disabled", True)
        with contextlib.suppress(Refused), quiet:
            built = self.builder.build_for(template.layouts, values, template.env)
            return General(built, template) if built is not None else None
        return None
