"""`torch.compile(model, backend="aliasproof")`: Dynamo, the passes, and the graph run in eager.

Dynamo guards the sizes and strides of inputs, but not how they share storage. What the passes
decide depends on both. So the graph is compiled once per layout of its inputs (`_layout`): for the
example inputs at once, so that Dynamo can fall back to eager where the passes refuse, and for any
other layout at the first call with it.

If an input or a parameter requires a gradient, AOTAutograd makes the forward and the backward
graph, and the passes compile each of them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch._dynamo.backends.common import aot_autograd
from torch.fx.graph import _BoxedCodeGen

from reference_pass.capture import capture
from reference_pass.exceptions import Refused
from reference_pass.functionalize import Views
from reference_pass.nested import tensors_in
from reference_pass.output_views import detach_new_outputs
from reference_pass.pipeline import pipeline


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
    compile_both = aot_autograd(
        fw_compiler=compiler, bw_compiler=compiler, keep_inference_input_mutations=True
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
    """A graph module that is compiled once per layout of its inputs.

    `graphs` has the results, by layout: those of the last `MOST_LAYOUTS` layouts.
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
        self.graphs: dict[Any, fx.GraphModule] = {}
        # Inputs that are Python floats in the program. Dynamo notes that only while it compiles.
        self.floats = [
            index
            for index, node in enumerate(graph_module.graph.find_nodes(op="placeholder"))
            if getattr(node.meta.get("grapharg"), "pass_arg_as_tensor", False)
        ]
        self.by_value = False  # whether a graph is right for one value of these floats only
        if (inputs := _without_symbols(example_inputs)) is not None:
            # The fakes of Dynamo would get symbols from our trace, and guards on them.
            with torch._guards.tracing(None):
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
        if (compiled := self.graphs.get(self._key(inputs))) is None:
            captured = self._captured(inputs)
            compiled = pipeline(captured, *inputs, views=self.views, strict=self.strict)
            compiled = detach_new_outputs(compiled, captured)
            # The graph takes its inputs out of a list, so it can free them after their last use.
            compiled.graph.set_codegen(_BoxedCodeGen())
            compiled.recompile()
            self.graphs[self._key(inputs)] = compiled
            if len(self.graphs) > self.MOST_LAYOUTS:
                del self.graphs[next(iter(self.graphs))]
        return compiled

    def _key(self, inputs: Sequence[Any]) -> Any:
        values = tuple(inputs[index].item() for index in self.floats) if self.by_value else ()
        return _layout(inputs), values

    def _captured(self, inputs: Sequence[Any]) -> fx.GraphModule:
        if not self.by_value:
            try:
                return capture(self.graph_module, inputs)
            # A branch on the probability of dropout; a kernel that takes no symbol for a float.
            except (Refused, TypeError):
                if not self.floats:
                    raise
                self.by_value = True
        return capture(_with_floats(self.graph_module, self.floats, inputs), inputs)


def _with_floats(
    graph_module: fx.GraphModule, floats: Sequence[int], inputs: Sequence[Any]
) -> fx.GraphModule:
    """A copy of a graph module with numbers for inputs that are floats in the program.

    With `dynamic=True`, Dynamo passes a float as a tensor `x`, and reads it by `x.item()`.
    """
    graph = fx.Graph()
    graph.output(graph.graph_copy(graph_module.graph, {}))
    placeholders = graph.find_nodes(op="placeholder")
    for index in floats:
        for user in list(placeholders[index].users):
            if user.target == "item":
                user.replace_all_uses_with(inputs[index].item())
                graph.erase_node(user)
    return fx.GraphModule(graph_module, graph)


def _without_symbols(example_inputs: Sequence[Any]) -> list[Any] | None:
    """The example inputs with a number for each symbol; None if a tensor has symbolic sizes."""
    inputs = [
        value.node.hint if isinstance(value, (torch.SymInt, torch.SymFloat)) else value
        for value in example_inputs
    ]
    symbolic = any(tensor._has_symbolic_sizes_strides for tensor in tensors_in(inputs))
    return None if symbolic or None in inputs else inputs


def _layout(inputs: Sequence[Any]) -> tuple[Any, ...]:
    """All that the decisions of the passes depend on, as a key.

    That is which inputs share a storage, its size in bytes, and the layout of each input in it.
    """
    numbers: dict[int, int] = {}
    layout: list[Any] = []
    for value in inputs:
        if not isinstance(value, torch.Tensor):
            layout.append(value)
            continue
        storage = value.untyped_storage()
        # Numbers in order of first use: addresses differ from call to call.
        number = numbers.setdefault(storage._cdata, len(numbers))
        layout.append(
            (
                number,
                storage.nbytes(),
                value.dtype,
                tuple(value.shape),
                value.stride(),
                value.storage_offset(),
            )
        )
    return tuple(layout)
