"""Builds for inputs: a graph of Dynamo after all passes, or one of AOTAutograd.

Which properties of the inputs matter is found while graphs are built. So the keys of the caches may
become more detailed.
"""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch._functorch._aot_autograd.descriptors import AOTInput
from torch._guards import TracingContext
from torch._subclasses.fake_tensor import FakeTensorMode
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
    exactly,
    fake_settings,
    floats_in,
    with_floats,
    without_tensors,
)
from aliasproof.reference_pass.backend.input_layouts import (
    Detail,
    InputLayout,
    fakes_of,
    has_places,
    input_layouts,
)
from aliasproof.reference_pass.backend.inputs_and_outputs import detach_new_outputs, taking_a_list
from aliasproof.reference_pass.backend.observed_run import Observed
from aliasproof.reference_pass.backend.partitioning import SavesOverwrittenError
from aliasproof.reference_pass.calls.graphs import copied
from aliasproof.reference_pass.capture.aten_graphs import is_aten, normalise
from aliasproof.reference_pass.capture.function_trace import capture
from aliasproof.reference_pass.capture.size_guards import depends_on_location, writes_inputs
from aliasproof.reference_pass.eager.history import (
    LostHistory,
    is_of_torch,
    lost_where_torch_raises,
)
from aliasproof.reference_pass.exceptions import Refused
from aliasproof.reference_pass.pipeline import (
    Functionalize,
    PipelineOptions,
    RemoveNoOps,
    functionalize,
    last_pass,
    run_passes,
)
from aliasproof.reference_pass.planning.timeline import footprint

_log = logging.getLogger(__name__)


class Keys:
    """The keys of inputs: the layouts of tensors, the values of other inputs.

    `detail` says which part of the layouts matters, and `by_value` whether a graph is right for
    only one value of the `floats`, both as far as known now. If `graded`, it matters which inputs
    require a gradient.
    """

    def __init__(self, graph_module: fx.GraphModule, *, trains: bool, graded: bool) -> None:
        self.attributes = [*graph_module.parameters(), *graph_module.buffers()]
        self.floats = floats_in(graph_module)
        self.by_value = False
        self.graded = graded
        self.detail = Detail.SHARING if trains or may_write(graph_module) else Detail.SIZES
        self.note_location(graph_module)

    def layouts(self, inputs: Sequence[Any]) -> tuple[Any, ...]:
        """The layouts of inputs, in the detail that matters."""
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
        """Note that shared storages of inputs matter, if a graph writes to inputs."""
        if writes_inputs(graph_module):
            self.detail = max(self.detail, Detail.SHARING)

    def note_location(self, graph_module: fx.GraphModule) -> bool:
        """Note that the locations of inputs matter, if a graph depends on them; True if they do."""
        if depends_on_location(graph_module):
            self.detail = Detail.LOCATIONS
        return self.detail is Detail.LOCATIONS


class Builder:
    """Builds graphs for inputs. It notes in `keys` on which of their properties they depend.

    `differentiate` is AOTAutograd, for each graph without mutation. `by_autograd` says whether the
    graph is one that AOTAutograd made.
    """

    def __init__(
        self,
        graph_module: fx.GraphModule,
        example_inputs: Sequence[Any],
        options: PipelineOptions,
        *,
        by_autograd: bool,
        differentiate: Differentiate | None,
    ) -> None:
        self.graph_module, self.options = graph_module, options
        self.by_autograd = by_autograd
        self.differentiate = differentiate
        self.writes_plainly = differentiate is not None and writes_plainly(graph_module)
        self.is_aten = differentiate is None and is_aten(graph_module, example_inputs)
        self.settings = fake_settings(example_inputs) if self.is_aten else {}
        # Only a trace depends on `requires_grad`. The examples of AOTAutograd do not have it.
        self.keys = Keys(graph_module, trains=differentiate is not None, graded=not self.is_aten)

    def build_for(
        self, layouts: Sequence[Any], values: Sequence[Any], env: ShapeEnv | None
    ) -> Runnable | None:
        """The compiled graph for inputs; the given one if torch cannot trace or differentiate it.

        If eager cannot run it either, the given one raises its error. With symbols, raises
        `Refused` for an error of torch: with numbers there may be none.
        """
        try:
            return self._compiled_for(layouts, values, env)
        except LostHistory as reason:
            _log.info("not compiled: %s", reason)
        except Exception as error:
            if self.by_autograd or not is_of_torch(error):  # AOTAutograd is given up as a whole
                raise
            if env is not None:
                raise Refused(f"not for all sizes: {error}") from error
            _log.info("not compiled: %s: %s", type(error).__name__, error)
        return Trained(self.graph_module, None)

    def _compiled_for(
        self, layouts: Sequence[Any], values: Sequence[Any], env: ShapeEnv | None
    ) -> Runnable | None:
        """The compiled graph for inputs, which may have symbols of an environment.

        The build may find that graphs depend on more `detail`. Returns None if the graph depends on
        the location of an input, and the layouts do not have it.
        """
        mode = FakeTensorMode(
            shape_env=env or ShapeEnv(**self.settings),
            static_shapes=True,
            allow_non_fake_inputs=True,
        )
        # New fakes for each use, since a trace may change the metadata of its arguments.
        new_fakes = functools.partial(fakes_of, layouts, values, mode)
        tensors = [layout for layout in layouts if isinstance(layout, InputLayout)]
        if self.writes_plainly and not has_places(layouts):
            return Trained(self._differentiated(mode, self.graph_module, new_fakes()), None)
        # A trace finds the mode, and the environment of its symbols, in a tensor among the inputs.
        with contextlib.nullcontext() if tensors else mode:
            captured = self._captured(new_fakes, values)
        anywhere = any(layout.location is None for layout in tensors)
        if anywhere and self.keys.note_location(captured):
            return None
        if self.differentiate is not None:
            require_saved_unwritten(self.graph_module, new_fakes(), mode)
            return self._trained(mode, captured, new_fakes, anywhere=anywhere)
        again = functools.partial(self.build_for, layouts, without_tensors(layouts, values), None)
        # With symbols, or by value, guards and numbers of tensors have been read already.
        once = env is not None or self.keys.by_value
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
        first = Functionalize(*new_fakes(), views=views, strict=strict)
        kept = self.options.non_aliasing
        functional = run_passes(captured, first, RemoveNoOps(non_aliasing=kept))
        # Before reinplacing, the graph may have views of whole storages, with the sizes of fakes.
        is_located = not anywhere or not depends_on_location(functional)
        pure = detach_new_outputs(copied(functional), captured) if is_located else None
        expand_constants(functional)
        last = last_pass(planned=self.options.plan_memory, non_aliasing=kept)
        compiled = run_passes(functional, last)
        if anywhere and self.keys.note_location(compiled):
            return None
        self.keys.note_sharing(compiled)
        # The passes do not put all mutation back: not through interleaved views of one input. The
        # captured graph, which writes where the program does, is right as it is.
        peak = footprint(compiled.graph).peak
        if views == "alias" and compiled.meta["captured_footprint"].peak < peak:
            compiled = copied(captured)
        compiled = taking_a_list(detach_new_outputs(compiled, captured))
        return Observed(compiled, pure, self.graph_module, again, frees=self.by_autograd)

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
        if anywhere and self.keys.note_location(functional):
            return None
        refuse_flattened(captured, functional)
        self.keys.note_sharing(functional)
        parts = split(functional, new_fakes())
        if not any(node.op == "call_function" for node in parts.pure.graph.nodes):
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
            return normalise(self.graph_module)
        if not self.keys.by_value:
            try:
                return self._traced(self.graph_module, new_fakes())
            # A branch on the probability of dropout, or a kernel that takes no symbol for a float.
            except (Refused, TypeError):
                if not self.keys.floats:
                    raise
                self.keys.by_value = True
        return self._traced(with_floats(self.graph_module, self.keys.floats, inputs), new_fakes())

    def _traced(self, graph_module: fx.GraphModule, fakes: Sequence[Any]) -> fx.GraphModule:
        if self.differentiate is None:
            return capture(graph_module, fakes)
        with lost_where_torch_raises():
            return capture(graph_module, fakes, gradients=True)
