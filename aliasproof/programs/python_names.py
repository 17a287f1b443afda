"""The names that a `PythonProgram` may use: no other name of Python or torch can be reached."""

from __future__ import annotations

import functools

import torch

BUILTINS = frozenset(
    "bool classmethod dict enumerate float int isinstance len list locals max min next print property"
    " range reversed staticmethod sum super tuple type zip".split()
)
IMPORTED = frozenset({"torch", "dataclasses"})

# What torch has besides ATen operators.
_OF_TORCH = frozenset(
    "Function Module Parameter ParameterList ParameterDict ModuleList ModuleDict Sequential Linear"
    " BatchNorm1d LayerNorm Embedding Dropout ReLU Tensor T AdamW Adam SGD optim Size"
    " autograd backward bool bfloat16 buffers checkpoint clip_grad_norm_ complex64 cond data dtype"
    " enable_grad eval float float16 float32 float64 forward func function functional grad grad_fn"
    " graph_break gradcheck inference_mode init int int32 int64 is_grad_enabled is_leaf item jvp"
    " mark_dirty mark_non_differentiable named_parameters nn no_grad numel numpy parameters"
    " register_buffer register_forward_hook register_hook register_parameter requires_grad"
    " requires_grad_ retain_grad save_for_backward saved_tensors set_grad_enabled"
    " set_materialize_grads shape size step storage_offset stride strides swap_tensors tolist train"
    " training type untyped_storage utils vmap while_loop zero_grad apply dataclass field"
    " ndim mT mH H real imag nbytes element_size is_contiguous data_ptr ops higher_order scan"
    " _dynamo __init__ default_factory".split()
)
_OF_CONTAINERS = frozenset("append extend insert pop clear update setdefault keys values items get".split())
# The attributes that classes of a program have.
OWN_ATTRIBUTES = frozenset(
    "weight bias buffer other cache count first second history inner last scale shared state"
    " total tied view_of memory".split()
)


@functools.cache
def attributes() -> frozenset[str]:
    """The attributes that a program may name."""
    return _operators() | _OF_TORCH | _OF_CONTAINERS | OWN_ATTRIBUTES


@functools.cache
def _operators() -> frozenset[str]:
    """The names of ATen operators, but for those that open files."""
    schemas = torch._C._jit_get_all_schemas()
    aten = {
        schema.name.partition("::")[2]
        for schema in schemas
        if schema.name.startswith("aten::") and not any("file" in one.name for one in schema.arguments)
    }
    return frozenset(name for name in aten if not name.startswith("_"))
