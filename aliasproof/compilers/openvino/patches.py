"""Patches of the backend of OpenVINO."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._guards import tracing
from torch.func import functionalize

from aliasproof.corpus.patching import Patch, replaces_outside, together

_BACKEND = "openvino.frontend.pytorch.torchdynamo"


def changes_results(change_for: Callable[..., Callable[[Any], Any]]) -> Patch:
    """Each result of a model is changed: `change_for` gets the inputs and options of the call."""

    def execute(original: Callable[..., Any], graph: Any, *inputs: Any, **options: Any) -> Any:
        results = original(graph, *inputs, **options)
        change = change_for(inputs, **options)
        return [*map(change, results)] if isinstance(results, list) else change(results)

    return replaces_outside(f"{_BACKEND}.execute:openvino_execute")(execute)


def _memory_of(inputs: Any) -> set[int]:
    return {x.untyped_storage().data_ptr() for x in inputs if isinstance(x, torch.Tensor)}


@replaces_outside(f"{_BACKEND}.backend:make_fx")
def _trace_functions(original: Callable[..., Any], graph: Any, **options: Any) -> Any:
    """The trace has no writes except those to inputs at its end."""
    return original(functionalize(graph), **options)


@replaces_outside(f"{_BACKEND}.op_support:OperatorSupport.is_node_supported")
def _write_in_eager(original: Callable[..., bool], made: Any, modules: Any, node: Any) -> bool:
    """No partition has writes."""
    schema = getattr(node.target, "_schema", None)
    return not (schema is not None and schema.is_mutable) and original(made, modules, node)


openvino_writes_lost = together(_trace_functions, _write_in_eager)


# `openvino_execute` in openvino/frontend/pytorch/torchdynamo/execute.py calls one infer request
# with `share_outputs=True`, and returns tensors over the memory of its outputs.
@changes_results
def openvino_outputs_reused(inputs: Any, **options: Any) -> Callable[[Any], Any]:
    """Each call returns its own memory. Memory shared with an input is another bug."""
    given = _memory_of(inputs)
    return lambda y: y if y.untyped_storage().data_ptr() in given else y.clone()


# A clone is no operation of OpenVINO, so the input is an output of the model, and
# `openvino_execute` in openvino/frontend/pytorch/torchdynamo/execute.py shares the memory of both.
@changes_results
def openvino_clone_shares(inputs: Any, **options: Any) -> Callable[[Any], Any]:
    """Outputs share no memory with inputs, nor with each other."""
    taken = _memory_of(inputs)

    def apart(y: Any) -> Any:
        memory = y.untyped_storage().data_ptr()
        own = y.clone() if memory in taken else y
        taken.add(memory)
        return own

    return apart


# `fx_openvino` in openvino/frontend/pytorch/torchdynamo/backend.py calls `make_fx` with
# `tracing_mode="fake"` while Dynamo compiles. A query of the strides of a tensor with gaps then
# adds a guard on symbols that have no source in Dynamo. `x[1:, ::2]` is enough.
@replaces_outside(f"{_BACKEND}.backend:make_fx")
def openvino_gap_guards(original: Callable[..., Any], graph: Any, **options: Any) -> Any:
    """The trace has its own symbols, and leaves no guards."""
    trace = original(graph, **options)

    def apart(*inputs: Any) -> Any:
        with tracing(None):
            return trace(*inputs)

    return apart


# numpy has no bfloat16. `openvino_execute` converts numpy arrays to tensors of torch.
@changes_results
def openvino_bfloat16_as_float16(inputs: Any, **options: Any) -> Callable[[Any], Any]:
    """A result has the dtype of the output of the model."""
    from openvino.frontend.pytorch.torchdynamo import execute  # noqa: PLC0415 - may be missing

    ports = iter(execute.compiled_cache[options["partition_id"]].outputs)

    def right(y: Any) -> Any:
        kind = next(ports).get_element_type().get_type_name()
        return y.view(torch.bfloat16) if kind == "bf16" else y

    return right
