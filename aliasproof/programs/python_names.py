"""The names that a `PythonProgram` may use: no other name of Python or torch can be reached."""

from __future__ import annotations

import functools

import torch

from aliasproof.programs import custom_operators


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


BUILTINS = _words("""
    bool classmethod dict enumerate float int isinstance len list locals max min next print
    property range reversed staticmethod sum super tuple type zip
""")
IMPORTED = frozenset({"torch", "dataclasses"})
# What a program can raise and catch. None of them is a parent of what ends a run.
ERRORS = _words("IndexError KeyError RuntimeError StopIteration ValueError ZeroDivisionError")
# The special methods that its classes can have. None of them runs by itself.
METHODS = _words("__call__ __getitem__ __iadd__ __init__ __setitem__")

# What torch has besides ATen operators.
_OF_TORCH = _words("""
    Adagrad Adam AdamW BatchNorm1d Dropout Embedding Function H LayerNorm Linear Module ModuleDict
    ModuleList Parameter ParameterDict ParameterList RMSprop ReLU SGD Sequential Size T Tensor
    __init__ _base _dynamo _foreach_add_ _foreach_copy_ _foreach_mul_ _foreach_zero_
    _higher_order_ops aliasproof apply associative_scan autograd backward bfloat16 bool buffers
    checkpoint clip_grad_norm_ clip_grad_value_ compiler complex64 cond data data_ptr dataclass
    default_factory detach_ disable double dtype element_size enable_grad eval field float float16
    float32 float64 forward func function functional functional_call grad grad_and_value grad_fn
    gradcheck graph graph_break half higher_order imag inference_mode init int int32 int64
    is_contiguous is_grad_enabled is_inference is_leaf is_set_to item jacrev jvp load_state_dict mH
    mT manual_seed map mark_dirty mark_non_differentiable maybe_mark_dynamic momentum named_buffers
    named_parameters nbytes ndim needs_input_grad nested_compile_region nn no_grad
    num_batches_tracked numel numpy once_differentiable ops optim param_groups parameters real
    register_buffer register_forward_hook register_forward_pre_hook register_full_backward_hook
    register_hook register_parameter register_post_accumulate_grad_hook relu_ remove requires_grad
    requires_grad_ retain_grad retains_grad running_mean running_var save_for_backward saved_tensors
    saved_tensors_hooks scan set_grad_enabled set_materialize_grads setter setup_context shape size
    state_dict step storage_offset stride strides swap_tensors to tolist train training type
    untyped_storage utils vjp vmap while_loop zero_grad
""")
_OF_CONTAINERS = _words("""
    append clear copy count extend get index insert items keys pop popitem remove replace reverse
    setdefault update values
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
    own = frozenset(custom_operators.names())
    return _operators() | _OF_TORCH | _OF_CONTAINERS | OWN_ATTRIBUTES | own


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
