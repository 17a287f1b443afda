"""`torch.compile(model, backend="aliasproof")`: Dynamo, the passes, and the graph run in eager.

Dynamo guards the sizes and strides of inputs, but not how they share storage. What the passes
decide depends on both. So the graph is compiled once per layout of its inputs (`input_layouts`):
for the example inputs at once, so that Dynamo can fall back to eager where the passes refuse, and
for any other layout at the first call with it. If an int among the inputs changes, the graph is
compiled with symbols for the ints.

If an input or a parameter requires a gradient, AOTAutograd makes the forward and the backward
graph, and the passes compile each of them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.source import LocalSource
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv
from torch.fx.graph import _BoxedCodeGen

from reference_pass.aten_graphs import is_aten, normalised
from reference_pass.backtracking import Footprint, footprint
from reference_pass.capture import capture
from reference_pass.exceptions import Refused
from reference_pass.functionalize import Views
from reference_pass.input_layouts import (
    InputLayout,
    depends_on_location,
    fakes_of,
    input_layouts,
)
from reference_pass.nested import tensors_in
from reference_pass.output_views import detach_new_outputs
from reference_pass.pipeline import pipeline
from reference_pass.size_guards import SizeGuards


def aliasproof(
    graph_module: fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    views: Views = "alias",
    strict: bool = False,
) -> Callable[..., Any]:
    """The backend: from Dynamo's graph and example inputs to a callable that takes such inputs.

    `views` and `strict` are those of `functionalize`. Raises `Refused` for a graph that cannot be
    compiled correctly.
    """
    # Parameters are inputs, or attributes of the graph (`install_free_tensors`, `symbolic_trace`).
    tensors = [*tensors_in(example_inputs), *graph_module.parameters(), *graph_module.buffers()]
    if not torch.is_grad_enabled() or not any(tensor.requires_grad for tensor in tensors):
        return Compiled(graph_module, example_inputs, views, strict)
    if strict:
        # The graphs of AOTAutograd do not show any more what the program writes.
        Compiled(graph_module, example_inputs, views, strict)
    compiler = functools.partial(boxed, views, strict)
    # Writes that autograd does not see stay in the graph: AOTAutograd's own epilogue would copy
    # under autograd, and the input would lose its gradient.
    # What is saved for the backward is chosen as under `aot_eager`: it may be cheaper to repeat.
    compile_both = aot_autograd(
        fw_compiler=compiler,
        bw_compiler=compiler,
        partition_fn=min_cut_rematerialization_partition,
        keep_inference_input_mutations=True,
    )
    (output,) = graph_module.graph.find_nodes(op="output")
    if isinstance(output.args[0], (tuple, list)):
        return compile_both(graph_module, example_inputs)
    # AOTAutograd takes graphs that return a tuple, as those of Dynamo do.
    graph = fx.Graph()
    graph.output((graph.graph_copy(graph_module.graph, {}),))
    compiled = compile_both(fx.GraphModule(graph_module, graph), example_inputs)
    return lambda *inputs: compiled(*inputs)[0]


def boxed(
    views: Views, strict: bool, graph_module: fx.GraphModule, example_inputs: Sequence[Any]
) -> Callable[[list[Any]], Any]:
    """The same as AOTAutograd calls it: with a list that is cleared, so that inputs are freed."""
    compiled = Compiled(graph_module, example_inputs, views, strict)

    def run(inputs: list[Any]) -> Any:
        return compiled.run(inputs)

    run._boxed_call = True  # type: ignore[attr-defined]
    return run


class Compiled:
    """A graph module that is compiled once per layout of its inputs (`input_layouts`).

    `graphs` has the results by the layouts of tensors and the values of other inputs, and
    `general` by the layouts alone: graphs that are right for all ints that meet their guards. Each
    has those of the last `MOST_LAYOUTS` layouts.
    """

    MOST_LAYOUTS = 64

    def __init__(
        self,
        graph_module: fx.GraphModule,
        example_inputs: Sequence[Any],
        views: Views = "alias",
        strict: bool = False,
    ) -> None:
        self.graph_module, self.views, self.strict = graph_module, views, strict
        self.attributes = [*graph_module.parameters(), *graph_module.buffers()]
        self.graphs: dict[Any, fx.GraphModule] = {}
        self.general: dict[Any, General | None] = {}
        # Inputs that are Python floats in the program. Dynamo notes that only while it compiles.
        self.floats = [
            index
            for index, node in enumerate(graph_module.graph.find_nodes(op="placeholder"))
            if getattr(node.meta.get("grapharg"), "pass_arg_as_tensor", False)
        ]
        self.by_value = False  # whether a graph is right for one value of these floats only
        # Whether all graphs depend on the locations of inputs; and for which layouts they do.
        self.by_location = depends_on_location(graph_module)
        self.located: dict[Any, bool] = {}
        self.is_aten = is_aten(graph_module, example_inputs)
        # AOTAutograd has run its graph on fakes. Torch's cache has the results, by these settings.
        mode = torch._guards.detect_fake_mode(example_inputs)
        self.settings: dict[str, Any] = {}
        if mode is not None and mode.shape_env is not None and self.is_aten:
            self.settings = dataclasses.asdict(mode.shape_env.settings)
        if (inputs := _without_symbols(example_inputs)) is not None:
            # The fakes are ours alone: those of Dynamo would get symbols from our trace.
            with torch._guards.tracing(None), unset_fake_temporarily():
                self._compiled(inputs)

    def __call__(self, *inputs: Any) -> Any:
        """Run on these inputs."""
        return self.run(list(inputs))

    def run(self, inputs: list[Any]) -> Any:
        """Run on these inputs, and clear the list."""
        compiled = self._compiled(inputs)
        # The casts of autocast are calls of the graph, so a call must not cast once more.
        with torch._C._DisableAutocast():
            return compiled(inputs)

    def _compiled(self, inputs: Sequence[Any]) -> fx.GraphModule:
        # Dynamo calls this again for inputs of the same sizes that share storage in another way.
        key = self._key(inputs)
        if (compiled := self.graphs.get(key)) is not None:
            return compiled
        general = self._general(inputs)
        if general is not None and general.accepts(inputs):
            return general.graph_module
        compiled = self._built(inputs)
        # The build may have found that more of the inputs matters.
        _keep(self.graphs, self._key(inputs), compiled, self.MOST_LAYOUTS)
        return compiled

    def _key(self, inputs: Sequence[Any]) -> tuple[Any, Any]:
        values = [value for value in inputs if not isinstance(value, torch.Tensor)]
        if self.by_value:
            values += [inputs[index].item() for index in self.floats]
        return self._layouts(inputs), tuple(values)

    def _layouts(self, inputs: Sequence[Any]) -> tuple[Any, ...]:
        composite = not self.is_aten
        layouts = input_layouts(inputs, self.attributes, self.by_location, composite)
        if layouts in self.located:
            return input_layouts(inputs, self.attributes, True, composite)
        return layouts

    def _built(self, inputs: Sequence[Any]) -> fx.GraphModule:
        """The compiled graph for such inputs, which may have symbols for ints."""
        mode = FakeTensorMode(
            shape_env=_shape_env(inputs) or ShapeEnv(**self.settings),
            static_shapes=True,
            allow_non_fake_inputs=True,
        )
        layouts = self._layouts(inputs)
        # New ones for each use, since a trace may change the metadata of its arguments.
        new_fakes = functools.partial(fakes_of, layouts, inputs, mode)
        captured = self._captured(new_fakes, inputs)
        anywhere = any(isinstance(each, InputLayout) and each.location is None for each in layouts)
        if not (anywhere and depends_on_location(captured)):
            compiled = pipeline(captured, *new_fakes(), views=self.views, strict=self.strict)
            if not (anywhere and depends_on_location(compiled)):
                if self.views == "alias" and _has_higher_peak(compiled):
                    compiled = _copy(captured)
                compiled = detach_new_outputs(compiled, captured)
                # The graph takes its inputs out of a list, so that it can free them after their
                # last use.
                compiled.graph.set_codegen(_BoxedCodeGen())
                compiled.recompile()
                # Hooks would get that list; the sizes of tensors are part of the key.
                compiled._forward_pre_hooks.clear()
                return compiled
        _keep(self.located, layouts, True, self.MOST_LAYOUTS)
        return self._built(inputs)

    def _captured(
        self, new_fakes: Callable[[], Sequence[Any]], inputs: Sequence[Any]
    ) -> fx.GraphModule:
        if self.is_aten:
            return normalised(self.graph_module)
        if not self.by_value:
            try:
                return capture(self.graph_module, new_fakes())
            # A branch on the probability of dropout; a kernel that takes no symbol for a float.
            except (Refused, TypeError):
                if not self.floats:
                    raise
                self.by_value = True
        graph_module = _with_floats(self.graph_module, self.floats, inputs)
        return capture(graph_module, new_fakes())

    def _general(self, inputs: Sequence[Any]) -> General | None:
        """The graph for all ints, which is built for the second ones; None if there is none."""
        layouts = self._layouts(inputs)
        if layouts in self.general:
            return self.general[layouts]
        others = [graph for (known, _), graph in self.graphs.items() if known == layouts]
        if not others or not any(map(_is_int, inputs)):
            return None
        general = None
        # With symbols, less can be decided, so it may allocate more than the graph for one value.
        with contextlib.suppress(Refused):
            symbolic = _with_symbols(inputs)
            built = self._built(symbolic)
            if footprint(built.graph).calls <= footprint(others[0].graph).calls:
                general = General(built, symbolic)
        _keep(self.general, self._layouts(inputs), general, self.MOST_LAYOUTS)
        return general


class General:
    """A compiled graph with symbols for its ints, and the guards on these."""

    def __init__(self, graph_module: fx.GraphModule, symbolic: Sequence[Any]) -> None:
        self.graph_module = graph_module
        self.ints = [
            index for index, value in enumerate(symbolic) if isinstance(value, torch.SymInt)
        ]
        symbols = [symbolic[index] for index in self.ints]
        env = symbols[0].node.shape_env
        self.guards = SizeGuards(env, [f"i{index}" for index in self.ints], symbols)

    def accepts(self, inputs: Sequence[Any]) -> bool:
        """True if the graph is right for the ints among these inputs."""
        return self.guards.broken([inputs[index] for index in self.ints]) is None


def _has_higher_peak(compiled: fx.GraphModule) -> bool:
    """True if the captured graph, which writes where the program does, needs less memory.

    The passes remove each mutation, and do not put all of them back: not through views of one
    input that lie between each other, for example. The captured graph is right as it is.
    """
    captured: Footprint = compiled.meta["captured_footprint"]
    return captured.peak < footprint(compiled.graph).peak


def _copy(graph_module: fx.GraphModule) -> fx.GraphModule:
    graph = fx.Graph()
    graph.output(graph.graph_copy(graph_module.graph, {}))
    return fx.GraphModule(graph_module, graph)


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _with_symbols(inputs: Sequence[Any]) -> list[Any]:
    """The inputs with a new symbol for each int."""
    env = ShapeEnv()

    def symbol(value: int, name: str) -> Any:
        source = LocalSource(name)
        new = env.create_symbol(
            value, source, DimDynamic.DYNAMIC, positive=None, do_not_specialize_zero_one=True
        )
        return env.create_symintnode(new, hint=value, source=source)

    return [
        symbol(value, f"i{index}") if _is_int(value) else value
        for index, value in enumerate(inputs)
    ]


def _shape_env(inputs: Sequence[Any]) -> ShapeEnv | None:
    """The environment of the symbols among the inputs."""
    symbols = [value for value in inputs if isinstance(value, torch.SymInt)]
    return symbols[0].node.shape_env if symbols else None


def _keep(cache: dict[Any, Any], key: Any, value: Any, most: int) -> None:
    """Add an entry to a cache; the oldest one leaves if there are more than `most`."""
    cache[key] = value
    if len(cache) > most:
        del cache[next(iter(cache))]


def _with_floats(
    graph_module: fx.GraphModule, floats: Sequence[int], inputs: Sequence[Any]
) -> fx.GraphModule:
    """A copy of a graph module with numbers for inputs that are floats in the program.

    With `dynamic=True`, Dynamo passes a float as a tensor `x`, and reads it by `x.item()`.
    """
    copied = _copy(graph_module)
    placeholders = copied.graph.find_nodes(op="placeholder")
    for index in floats:
        for user in list(placeholders[index].users):
            if user.target == "item":
                user.replace_all_uses_with(inputs[index].item())
                copied.graph.erase_node(user)
    copied.recompile()
    return copied


def _without_symbols(example_inputs: Sequence[Any]) -> list[Any] | None:
    """The example inputs with a number for each symbol; None if a tensor has symbolic sizes."""
    inputs = [
        value.node.hint if isinstance(value, (torch.SymInt, torch.SymFloat)) else value
        for value in example_inputs
    ]
    symbolic = any(tensor._has_symbolic_sizes_strides for tensor in tensors_in(inputs))
    return None if symbolic or None in inputs else inputs
