"""The names that a `PythonProgram` may use: no other name of Python or torch can be reached."""

from __future__ import annotations

import functools

import torch


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


BUILTINS = _words("""
    bool classmethod dict enumerate float int isinstance len list locals max min next print
    property range reversed staticmethod sum super tuple type zip
""")
IMPORTED = frozenset({"torch", "dataclasses"})

# What torch has besides ATen operators.
_OF_TORCH = _words("""
    Adam AdamW BatchNorm1d Dropout Embedding Function H LayerNorm Linear Module ModuleDict
    ModuleList Parameter ParameterDict ParameterList ReLU SGD Sequential Size T Tensor __init__
    _dynamo apply autograd backward bfloat16 bool buffers checkpoint clip_grad_norm_ complex64
    cond data data_ptr dataclass default_factory dtype element_size enable_grad eval field float
    float16 float32 float64 forward func function functional grad grad_fn gradcheck graph_break
    higher_order imag inference_mode init int int32 int64 is_contiguous is_grad_enabled is_leaf
    item jvp mH mT mark_dirty mark_non_differentiable named_parameters nbytes ndim nn no_grad
    numel numpy ops optim param_groups parameters real register_buffer register_forward_hook
    register_hook register_parameter remove requires_grad requires_grad_ retain_grad
    save_for_backward saved_tensors
    scan set_grad_enabled set_materialize_grads shape size step storage_offset stride strides
    swap_tensors tolist train training type untyped_storage utils vmap while_loop zero_grad
""")
_OF_CONTAINERS = _words("""
    append clear extend get insert items keys pop setdefault update values
""")
# The attributes that classes of a program have.
OWN_ATTRIBUTES = _words("""
    bias buffer cache count first history inner last memory other scale second shared state tied
    total view_of weight
""")


BEYOND_OPERATORS = _OF_TORCH


@functools.cache
def attributes() -> frozenset[str]:
    """The attributes that a program may name."""
    return _operators() | _OF_TORCH | _OF_CONTAINERS | OWN_ATTRIBUTES


@functools.cache
def _operators() -> frozenset[str]:
    """The names of ATen operators that take or make tensors, but for those that open files."""
    schemas = [it for it in torch._C._jit_get_all_schemas() if it.name.startswith("aten::")]
    names = {
        schema.name.partition("::")[2]
        for schema in schemas
        if any("Tensor" in str(one.type) for one in (*schema.arguments, *schema.returns))
        and not any("file" in one.name for one in schema.arguments)
    }
    return frozenset(name for name in names if not name.startswith("_"))
