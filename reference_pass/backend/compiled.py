"""A graph of Dynamo, compiled once per layout of its inputs.

Dynamo guards the sizes and strides of inputs, but not how they share storage. What the passes
decide depends on both. So the graph is compiled once per layout of its inputs (`input_layouts`):
for the example inputs at once, so that Dynamo can fall back to eager where the passes refuse, and
for any other layout at the first call with it. If an int among the inputs changes, the graph is
compiled with symbols for the ints.
"""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Callable, Sequence
from typing import Any
from unittest import mock

import torch
from torch import fx
from torch._functorch._aot_autograd.descriptors import AOTInput
from torch._guards import TracingContext
from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from aliasproof.reference_pass.backend.constants import expand_constants
from aliasproof.reference_pass.backend.differentiation import (
    TRAINING,
    Differentiate,
    Runnable,
    Trained,
    grad_at_end,
    refuse_flattened,
    require_saved_unwritten,
    split,
)
from aliasproof.reference_pass.backend.dynamo_graphs import may_write, writes_plainly
from aliasproof.reference_pass.backend.general_graphs import (
    General,
    Template,
    allocates_more,
    exactly,
    fake_settings,
    floats_in,
    has_symbols,
    is_int,
    keep,
    template_of,
    with_dynamo_symbols,
    with_floats,
    without_ints,
    without_tensors,
)
from aliasproof.reference_pass.backend.input_layouts import (
    Detail,
    InputLayout,
    are_apart,
    are_transformed,
    fakes_of,
    has_places,
    input_layouts,
    shares_with_attribute,
)
from aliasproof.reference_pass.backend.list_inputs import taking_a_list
from aliasproof.reference_pass.backend.observed_run import Observed, compiling
from aliasproof.reference_pass.backend.output_views import detach_new_outputs
from aliasproof.reference_pass.backend.partitioning import SavesOverwrittenError
from aliasproof.reference_pass.calls.graphs import copied
from aliasproof.reference_pass.capture.aten_graphs import is_aten, normalised
from aliasproof.reference_pass.capture.footprint import has_higher_peak
from aliasproof.reference_pass.capture.function_trace import capture
from aliasproof.reference_pass.capture.locations import depends_on_location
from aliasproof.reference_pass.capture.size_guards import writes_inputs
from aliasproof.reference_pass.eager.history import (
    LostHistory,
    is_of_torch,
    lost_where_torch_raises,
)
from aliasproof.reference_pass.exceptions import Refused
from aliasproof.reference_pass.pipeline import (
    DEFAULT_OPTIONS,
    Functionalize,
    PipelineOptions,
    RemoveNoOps,
    functionalize,
    last_pass,
    run_passes,
)

_log = logging.getLogger(__name__)


class Compiled:
    """A graph module that is compiled once per layout of its inputs (`input_layouts`).

    `graphs` has the results by the layouts of tensors and the values of other inputs. `general` has
    graphs that are right for all sizes, or all ints, that meet their guards. If Dynamo passes
    symbols, there is a `template`, and one graph for it. Each has at most `MOST_LAYOUTS` graphs.
    """

    MOST_LAYOUTS = 64

    def __init__(
        self,
        graph_module: fx.GraphModule,
        example_inputs: Sequence[Any],
        options: PipelineOptions = DEFAULT_OPTIONS,
        *,
        noted: bool = False,
        differentiate: Differentiate | None = None,
    ) -> None:
        self.graph_module, self.options = graph_module, options
        self.differentiate = differentiate  # AOTAutograd, for each graph without mutation
        self.writes_plainly = differentiate is not None and writes_plainly(graph_module)
        # What Dynamo's guards are enough for, if inputs share no storage.
        self.apart: Runnable | None = None
        self.noted = noted  # whether the graph has the metadata of a run on fakes
        self.attributes = [*graph_module.parameters(), *graph_module.buffers()]
        self.graphs: dict[Any, Runnable] = {}
        self.general: dict[Any, General | None] = {}
        self.floats = floats_in(graph_module)
        self.by_value = False  # whether a graph is right for one value of these floats only
        # What the graphs depend on, as far as it is known now.
        self.detail = Detail.SHARING if differentiate or may_write(graph_module) else Detail.SIZES
        if depends_on_location(graph_module):
            self.detail = Detail.LOCATIONS
        self.template: Template | None = None
        self.is_aten = differentiate is None and is_aten(graph_module, example_inputs)
        self.settings = fake_settings(example_inputs) if self.is_aten else {}
        # The fakes are ours alone: those of Dynamo would get symbols from our trace.
        with torch._guards.tracing(None), unset_fake_temporarily():
            self._compile_examples(example_inputs)

    def __call__(self, *inputs: Any) -> Any:
        """Run on these inputs."""
        return self.run(list(inputs))

    def run(self, inputs: list[Any]) -> Any:
        """Run on these inputs, and clear the list."""
        if are_transformed(inputs):
            return self.graph_module(*inputs)
        if self.apart is not None and are_apart(inputs, self.attributes):
            return self.apart(inputs)
        compiled = self._compiled(inputs)
        with torch._C._DisableAutocast():  # the casts are calls of the graph already
            return compiled(inputs)

    def _compile_examples(self, inputs: Sequence[Any]) -> None:
        layouts = with_dynamo_symbols(
            self._layouts(inputs),
            self.graph_module.graph.find_nodes(op="placeholder"),
        )
        if not has_symbols(layouts, inputs):
            of_examples = self._compiled(inputs)
            # The build may have found that it depends on where inputs are.
            anywhere = self.writes_plainly and not has_places(self._layouts(inputs))
            if anywhere and are_apart(inputs, self.attributes):
                self.apart = of_examples
            return
        if (template := template_of(layouts, inputs)) is None:
            return  # without numbers, there is nothing to compile for before the first call
        # Sizes of zero or one, and floats, are no symbols there. Nor are offsets.
        if template.symbolic and not has_places(layouts):
            self.template = template
            if self._for_template(inputs) is not None or self.by_value:
                return
        # For these sizes alone, so that what is refused for all sizes is refused now.
        given, values = template.with_hints()
        if (compiled := self._built_for(given, values, None)) is not None:
            self.graphs[self._key_of(given, values)] = compiled

    def _compiled(self, inputs: Sequence[Any]) -> Runnable:
        # Dynamo calls this again for inputs of the same sizes that share storage in another way.
        layouts = self._layouts(inputs)
        key = self._key_of(layouts, inputs)
        if (compiled := self.graphs.get(key)) is not None:
            return compiled
        with compiling():
            general = self._general(layouts, inputs)
            if general is not None and general.accepts(inputs):
                compiled = general.graph_module
            else:
                layouts, compiled = self._built_or_given(layouts, inputs)
                # The build may have found that more of the inputs matters.
                key = self._key_of(layouts, inputs)
            keep(self.graphs, key, compiled, self.MOST_LAYOUTS)
        return compiled

    def _key_of(self, layouts: tuple[Any, ...], inputs: Sequence[Any]) -> tuple[Any, Any]:
        values = map(exactly, without_tensors(layouts, inputs))
        return layouts, (*values, *self._values_of_floats(inputs))

    def _values_of_floats(self, inputs: Sequence[Any]) -> tuple[str, ...]:
        floats = self.floats if self.by_value else ()
        return tuple(exactly(inputs[index].item()) for index in floats)

    def _layouts(self, inputs: Sequence[Any]) -> tuple[Any, ...]:
        # Only a trace asks who requires a gradient. The examples of AOTAutograd do not say it.
        return input_layouts(inputs, self.attributes, self.detail, graded=not self.is_aten)

    def _built_or_given(
        self, layouts: tuple[Any, ...], inputs: Sequence[Any]
    ) -> tuple[tuple[Any, ...], Runnable]:
        """The compiled graph; the given one, if another layout was compiled, and this is refused.

        It is too late for Dynamo to fall back to eager. Also if an input shares with an attribute.
        """
        if shares_with_attribute(layouts):
            return layouts, Trained(self.graph_module, None)
        try:
            return self._built(layouts, inputs)
        except Refused:
            if not self.graphs:
                raise
            return self._layouts(inputs), Trained(self.graph_module, None)

    def _built(
        self, layouts: tuple[Any, ...], inputs: Sequence[Any]
    ) -> tuple[tuple[Any, ...], Runnable]:
        """The compiled graph for such inputs, and the layouts that it is right for."""
        while True:
            compiled = self._built_for(layouts, inputs, None)
            before, layouts = layouts, self._layouts(inputs)
            # A graph that depends on more of the inputs is right where they have no more.
            if compiled is not None and layouts == before:
                return layouts, compiled

    def _built_for(
        self, layouts: Sequence[Any], values: Sequence[Any], env: ShapeEnv | None
    ) -> Runnable | None:
        """The compiled graph for inputs, or the given one where torch cannot do what that takes.

        If eager cannot, either, the given one raises its error. With symbols, raises `Refused` for
        an error of torch: for numbers it may be none.
        """
        try:
            return self._compiled_for(layouts, values, env)
        except LostHistory as reason:
            _log.info("not compiled: %s", reason)
        except Exception as error:
            if self.noted or not is_of_torch(error):  # AOTAutograd is given up as a whole
                raise
            if env is not None:
                raise Refused(f"not for all sizes: {error}") from error
            _log.info("not compiled: %s: %s", type(error).__name__, error)
        return Trained(self.graph_module, None)

    def _compiled_for(
        self, layouts: Sequence[Any], values: Sequence[Any], env: ShapeEnv | None
    ) -> Runnable | None:
        """The compiled graph for inputs, which may have symbols of an environment.

        It may find that graphs depend on more `detail`. None if it depends on the location of an
        input that has none.
        """
        mode = FakeTensorMode(
            shape_env=env or ShapeEnv(**self.settings),
            static_shapes=True,
            allow_non_fake_inputs=True,
        )
        # New ones for each use, since a trace may change the metadata of its arguments.
        new_fakes = functools.partial(fakes_of, layouts, values, mode)
        tensors = [layout for layout in layouts if isinstance(layout, InputLayout)]
        if self.writes_plainly and not has_places(layouts):
            return Trained(self._differentiated(mode, self.graph_module, new_fakes()), None)
        # A trace finds the mode, and the environment of its symbols, in a tensor among the inputs.
        with contextlib.nullcontext() if tensors else mode:
            captured = self._captured(new_fakes, values)
        anywhere = any(layout.location is None for layout in tensors)
        if anywhere and self._depends_on_location(captured):
            return None
        if self.differentiate is not None:
            require_saved_unwritten(self.graph_module, new_fakes(), mode)
            return self._trained(mode, captured, new_fakes, anywhere=anywhere)
        again = functools.partial(self._built_for, layouts, without_tensors(layouts, values), None)
        once = env is not None or self.by_value  # guards, and numbers of tensors, are read already
        return self._observed(captured, new_fakes, None if once else again, anywhere=anywhere)

    def _observed(
        self,
        captured: fx.GraphModule,
        new_fakes: Callable[[], list[Any]],
        again: Callable[[], Runnable | None] | None,
        *,
        anywhere: bool,
    ) -> Observed | None:
        """The captured graph after all passes."""
        views, strict = self.options.views, self.options.strict
        first = Functionalize(*new_fakes(), views=views, strict=strict, noted=self.noted)
        kept = self.options.non_aliasing
        functional = run_passes(captured, first, RemoveNoOps(non_aliasing=kept))
        # Before reinplacing, it may show whole storages, whose sizes are those of fakes.
        is_located = not anywhere or not depends_on_location(functional)
        pure = detach_new_outputs(copied(functional), captured) if is_located else None
        expand_constants(functional)
        last = last_pass(planned=self.options.plan_memory, non_aliasing=kept)
        compiled = run_passes(functional, last)
        if anywhere and self._depends_on_location(compiled):
            return None
        self._depends_on_sharing(compiled)
        if views == "alias" and has_higher_peak(compiled):
            compiled = copied(captured)
        compiled = taking_a_list(detach_new_outputs(compiled, captured))
        return Observed(compiled, pure, self.graph_module, again, frees=self.noted)

    def _depends_on_sharing(self, graph_module: fx.GraphModule) -> None:
        if writes_inputs(graph_module):
            self.detail = max(self.detail, Detail.SHARING)

    def _depends_on_location(self, graph_module: fx.GraphModule) -> bool:
        if depends_on_location(graph_module):
            self.detail = Detail.LOCATIONS
        return self.detail is Detail.LOCATIONS

    def _trained(
        self,
        mode: FakeTensorMode,
        captured: fx.GraphModule,
        new_fakes: Callable[[], list[Any]],
        *,
        anywhere: bool,
    ) -> Trained | None:
        """The captured graph without mutation, differentiated, and its epilogue."""
        functional = functionalize(captured, *new_fakes(), rules=TRAINING, views=self.options.views)
        if anywhere and self._depends_on_location(functional):
            return None
        refuse_flattened(captured, functional)
        self._depends_on_sharing(functional)
        parts = split(functional, new_fakes())
        if not parts.has_values:
            return Trained(None, parts.epilogue, grad_at_end(self.graph_module))
        differentiated = functools.partial(self._differentiated, mode)
        try:
            compiled = differentiated(parts.pure, new_fakes(), parts.overwritten)
        except SavesOverwrittenError:  # as eager does for `x.mul_(w)`, the graph keeps a copy of x
            copying = parts.pure_on_copies(new_fakes())
            compiled = differentiated(copying, new_fakes(), parts.overwritten)
        return Trained(compiled, parts.epilogue, grad_at_end(self.graph_module))

    def _differentiated(
        self,
        mode: FakeTensorMode,
        graph_module: fx.GraphModule,
        fakes: Sequence[Any],
        overwritten: frozenset[AOTInput] = frozenset(),
    ) -> Callable[..., Any]:
        assert self.differentiate is not None
        # The casts of autocast are calls of a captured graph already.
        is_captured = graph_module is not self.graph_module
        autocast = torch._C._DisableAutocast() if is_captured else contextlib.nullcontext()
        switched = is_captured and grad_at_end(self.graph_module) is not None
        grad = torch.set_grad_enabled(switched or torch.is_grad_enabled())
        tracing = torch._guards.tracing(TracingContext(mode))
        with grad, lost_where_torch_raises(), tracing, autocast:
            return self.differentiate(graph_module, fakes, overwritten)

    def _captured(
        self, new_fakes: Callable[[], Sequence[Any]], inputs: Sequence[Any]
    ) -> fx.GraphModule:
        if self.is_aten:
            return normalised(self.graph_module)
        if not self.by_value:
            try:
                return self._traced(self.graph_module, new_fakes())
            # A branch on the probability of dropout; a kernel that takes no symbol for a float.
            except (Refused, TypeError):
                if not self.floats:
                    raise
                self.by_value = True
        return self._traced(with_floats(self.graph_module, self.floats, inputs), new_fakes())

    def _traced(self, graph_module: fx.GraphModule, fakes: Sequence[Any]) -> fx.GraphModule:
        if self.differentiate is None:
            return capture(graph_module, fakes)
        with lost_where_torch_raises():
            return capture(graph_module, fakes, gradients=True)

    def _general(self, layouts: tuple[Any, ...], inputs: Sequence[Any]) -> General | None:
        """The graph for all sizes, or for all ints; None if there is none."""
        if self.template is not None:
            if self.template.pattern_of(layouts, inputs) != self.template.pattern:
                return None
            return self._for_template(inputs)
        # It is built for the second ints.
        key = without_ints(self._key_of(layouts, inputs))
        if key in self.general:
            return self.general[key]
        others = [graph for other, graph in self.graphs.items() if without_ints(other) == key]
        if not others or not any(map(is_int, inputs)):
            return None
        general = self._general_for(Template.with_int_symbols(layouts, inputs), inputs)
        # With symbols, less can be decided, so it may allocate more than the graph for one value.
        if general is not None and allocates_more(general.graph_module, others[0]):
            general = None
        key = without_ints(self._key_of(self._layouts(inputs), inputs))
        keep(self.general, key, general, self.MOST_LAYOUTS)
        return general

    def _for_template(self, inputs: Sequence[Any]) -> General | None:
        assert self.template is not None
        floats = self._values_of_floats(inputs)
        if floats not in self.general:
            general = self._general_for(self.template, inputs)
            floats = self._values_of_floats(inputs)  # the build may have found that they matter
            keep(self.general, floats, general, self.MOST_LAYOUTS)
        return self.general[floats]

    def _general_for(self, template: Template, inputs: Sequence[Any]) -> General | None:
        values = list(template.values)
        for index in self.floats:
            values[index] = inputs[index]
        # What fakes log before they raise is no news: it is compiled for these sizes alone then.
        quiet = mock.patch.object(torch._subclasses.fake_tensor.log, "disabled", True)
        with contextlib.suppress(Refused), quiet:
            built = self._built_for(template.layouts, values, template.env)
            return General(built, template) if built is not None else None
        return None
