"""`torch.compile(model, backend="aliasproof")`: Dynamo, the passes, and the graph run in eager.

Each graph of Dynamo is `Compiled`, once per layout of its inputs. If an input or a parameter
requires a gradient, AOTAutograd makes the forward and the backward graph, and the passes compile
each of them. A graph that writes is functionalized before that, also once per layout
(`differentiation`).
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import torch
from torch import fx
from torch._dynamo.backends.common import aot_autograd
from torch._functorch._aot_autograd.descriptors import AOTInput
from torch._subclasses.fake_tensor import DataDependentOutputException

from aliasproof.reference_pass.backend.calls_on_copies import on_copies_again
from aliasproof.reference_pass.backend.compiled import Compiled
from aliasproof.reference_pass.backend.dynamo_graphs import (
    is_beyond_aot,
    is_traced_whole,
    may_write,
    with_regions_called,
)
from aliasproof.reference_pass.backend.inputs_and_outputs import with_flat_inputs
from aliasproof.reference_pass.backend.observed_run import without_collections
from aliasproof.reference_pass.backend.partitioning import (
    donate_nothing,
    has_wrappers,
    needs_autograd,
    partition,
)
from aliasproof.reference_pass.capture.aten_graphs import composites_of_eager, differentiable_lstm
from aliasproof.reference_pass.eager.history import LostHistory, lost_where_torch_raises
from aliasproof.reference_pass.exceptions import DataDependent
from aliasproof.reference_pass.functionalize import Views
from aliasproof.reference_pass.pipeline import PipelineOptions

_log = logging.getLogger(__name__)


def aliasproof(
    graph_module: fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    views: Views = "alias",
    strict: bool = False,
    plan_memory: bool = False,
    non_aliasing: Collection[object] = (),
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """The backend: from Dynamo's graph and example inputs to a callable that takes such inputs.

    `views` and `strict` are those of `functionalize`, `plan_memory` turns memory planning on, and
    operators in `non_aliasing` do not retain their arguments; these may be in the `options` of
    `torch.compile`. A `mode` is for Inductor, and has no effect here. Raises `Refused` for another
    option, and for a graph that cannot be compiled correctly.
    """
    asked = PipelineOptions(views, strict, plan_memory, non_aliasing).updated(options)
    if any(isinstance(each, list) for each in example_inputs):
        compiler = functools.partial(aliasproof, options=asdict(asked))
        return with_flat_inputs(graph_module, example_inputs, compiler)
    try:
        with without_collections():
            return _compile(graph_module, example_inputs, asked)
    except DataDependent as error:
        raise _BreaksGraph(str(error)) from error


class _BreaksGraph(DataDependent, DataDependentOutputException):
    """One graph cannot do this, and two can. Dynamo breaks the graph where it sees this class."""

    def __init__(self, reason: str) -> None:
        Exception.__init__(self, reason)


def _compile(
    graph_module: fx.GraphModule, example_inputs: Sequence[Any], options: PipelineOptions
) -> Callable[..., Any]:
    if not needs_autograd(graph_module, example_inputs):
        return Compiled(graph_module, example_inputs, options)
    if options.strict:
        # The graphs of AOTAutograd no longer show what the program writes.
        Compiled(graph_module, example_inputs, options)
    # AOTAutograd unpacks wrapper subclasses itself.
    if has_wrappers(graph_module) or not (may_write(graph_module) or is_beyond_aot(graph_module)):
        try:
            with lost_where_torch_raises():
                return _differentiated(options, graph_module, example_inputs)
        except LostHistory as reason:
            _log.info("not compiled: %s", reason)
            return graph_module
    graph_module = with_regions_called(graph_module)
    if not is_traced_whole(graph_module):
        # AOTAutograd would functionalize it, and silently compile some of these wrong.
        return graph_module
    differentiate = functools.partial(_differentiated, options)
    return Compiled(graph_module, example_inputs, options, differentiate=differentiate)


def _differentiated(
    options: PipelineOptions,
    graph_module: fx.GraphModule,
    example_inputs: Sequence[Any],
    overwritten: frozenset[AOTInput] = frozenset(),
) -> Callable[..., Any]:
    """Compile a graph with AOTAutograd, with `compile_boxed` for both graphs that it makes."""
    compiler = functools.partial(compile_boxed, options)
    compile_both = aot_autograd(
        fw_compiler=compiler,
        bw_compiler=compiler,
        partition_fn=functools.partial(partition, overwritten=overwritten),
        # Writes that autograd does not see stay in the graph: AOTAutograd's own epilogue would copy
        # under autograd, and the input would lose its gradient.
        keep_inference_input_mutations=True,
    )
    (output,) = graph_module.graph.find_nodes(op="output")
    is_tuple = isinstance(output.args[0], (tuple, list))
    if not is_tuple:
        # AOTAutograd takes graphs that return a tuple, as those of Dynamo do.
        graph = fx.Graph()
        graph.output((graph.graph_copy(graph_module.graph, {}),))
        graph_module = fx.GraphModule(graph_module, graph)
    # The backward graph is compiled now, so that what is refused in it is refused now.
    with (
        torch._functorch.config.patch(force_non_lazy_backward_lowering=True),
        # Eager also draws random numbers that nothing uses. FX keeps such calls only with this.
        torch._inductor.config.patch(fallback_random=True),
        differentiable_lstm(),
        composites_of_eager(),
    ):
        compiled = compile_both(graph_module, example_inputs)
    return compiled if is_tuple else lambda *inputs: compiled(*inputs)[0]


def compile_boxed(
    options: PipelineOptions, graph_module: fx.GraphModule, example_inputs: Sequence[Any]
) -> Callable[[list[Any]], Any]:
    """The compiler that AOTAutograd calls: the list of inputs is cleared, so they can be freed."""
    graph_module = on_copies_again(graph_module)
    compiled = Compiled(graph_module, example_inputs, options, by_autograd=True)
    donate_nothing()
    plain = [
        index
        for index, value in enumerate(example_inputs)
        if isinstance(value, torch.Tensor) and not (value.is_conj() or value.is_neg())
    ]

    def run(inputs: list[Any]) -> Any:
        # The graph was traced for the lazy bits of its examples, and a gradient may have others.
        for index in plain:
            inputs[index] = _resolved(inputs[index])
        return compiled.run(inputs)

    run._boxed_call = True  # type: ignore[attr-defined]
    return run


def _resolved(value: torch.Tensor | None) -> torch.Tensor | None:
    """A tensor without lazy bits, which most are. A local of the caller would keep the input."""
    has_lazy_bits = value is not None and (value.is_conj() or value.is_neg())
    return value.resolve_conj().resolve_neg() if value is not None and has_lazy_bits else value
