"""Clauses that several contracts share, since targets are built on the same code of torch."""

from __future__ import annotations

from aliasproof.oracles.contract import (
    NATIVE,
    Dispute,
    Precondition,
    Promise,
    Refusal,
    Waiver,
    always,
    as_written,
    changes_metadata,
    comes_from_expand,
    depends_on_data,
    differentiates,
    has_no_fake_kernel,
    is_merged,
    is_python_function,
    overlapping_writes_come_from_expand,
    reads_before_it_writes,
    shows_no_location,
    writes_overlapping_input,
    writes_through_as_strided,
)

AS_STRIDED_IN_CHAIN = Refusal(
    "write through a chain of views with as_strided",
    r"view chain of length .* as_strided\(\)",
    "functionalization bans writes through a chain of views that contains as_strided, and says so"
    " in the error (pytorch/pytorch#104505)",
    writes_through_as_strided,
)
DATA_DEPENDENT_SHAPE = Refusal(
    "data-dependent shape",
    "",
    "fake tensors have no data, so data-dependent shapes cannot be traced",
    depends_on_data,
    (
        "DynamicOutputShapeException",
        "DataDependentOutputException",
        "GuardOnDataDependentSymNode",
    ),
    ("torch._subclasses", "torch.fx.experimental"),
)
DATA_DEPENDENT_CUSTOM_SHAPE = Refusal(
    "data-dependent shape of a custom operator",
    "",
    "fake tensors have no data, and the operator's own fake kernel asks for a size that depends on"
    " it (new_dynamic_size in torch/_library/fake_impl.py)",
    is_python_function,
    ("DynamicOutputShapeException",),
    ("torch._library",),
)
NO_FAKE_KERNEL = Refusal(
    "no kernel for fake tensors",
    r"there was no fake impl or Meta kernel registered",
    "a trace needs the sizes of results without data; the error says how to register a kernel for"
    " it (torch.library.register_fake)",
    has_no_fake_kernel,
    ("NotImplementedError",),
)
DATA_OF_A_TRACER = Refusal(
    "tensor data in a trace",
    r"trying to get value out of a tracing tensor|tolist\(\) shouldn't be called"
    r"|\.numpy\(\) is not supported",
    "a trace cannot read tensor data, as the error says (torch/fx/experimental/proxy_tensor.py)",
    depends_on_data,
    raised_by=("torch.fx.experimental.proxy_tensor", NATIVE),
)
COMPILED_CODE_OR_REAL_TENSOR = Refusal(
    "compiled code, or a tensor that is no input, in a trace",
    r"symbolically trace a dynamo-optimized function|Please convert all Tensors to FakeTensors",
    "a trace can neither enter other compiled code nor take a tensor with data that is no input, as"
    " the errors say (torch/_dynamo/eval_frame.py, torch/_subclasses/fake_tensor.py)",
    is_python_function,
    ("RuntimeError", "AssertionError"),
    ("torch._dynamo.eval_frame", "torch._subclasses.fake_tensor"),
    during="torch.fx.experimental.proxy_tensor",
)
BODY_CAPTURED_WHOLE = Refusal(
    "body of a higher-order operator",
    "",
    "Dynamo must capture the functions that torch.cond, while_loop, scan or a nested compile region"
    " gets as a whole, without aliases of their inputs, as the error says"
    " (torch/_dynamo/variables/higher_order_ops.py)",
    is_python_function,
    ("UncapturedHigherOrderOpError",),
    ("torch._dynamo", "torch._higher_order_ops"),
)
SET_TO_PLACE = Refusal(
    "set_ to a place in a storage",
    r"aten::set_\.source_Tensor_storage_offset"
    r'|Attempted to set the storage of a tensor on device "meta" to a storage on different device',
    "functionalization supports set_ with a tensor alone, and Dynamo breaks the graph"
    " at set_ with an offset (torch/_dynamo/variables/tensor.py, pytorch/pytorch#111554)",
    changes_metadata,
)
MEMORY_LEFT_BY_SET = Refusal(
    "write to memory that set_ took from a tensor",
    r"cannot mutate tensors with frozen storage",
    "functionalization bans writes to the memory that x had before x.set_(y)"
    " (FunctionalTensorWrapper::set__impl in aten/src/ATen/FunctionalTensorWrapper.cpp)",
    changes_metadata,
)
GROWTH_BESIDE_VIEWS = Refusal(
    "resize_ to a larger size beside views",
    r"Attempted to resize a view tensor to a larger size",
    "functionalization bans it, as the error says (Note [resize_() in functionalization pass] in"
    " aten/src/ATen/FunctionalTensorWrapper.cpp)",
    changes_metadata,
)
NO_OVERLAP_ERROR = Waiver(
    Promise.SAME_OVERLAP_ERROR,
    "a functional op does not raise on overlapping memory where its in-place form must",
)
# Only the oracle *equivalence* sees these: the values are equal up to rounding.
OTHER_DECOMPOSITION = Waiver(
    Promise.EQUIVALENCE,
    "a composite operator may be decomposed differently than in eager (linear as mm and add, matmul"
    " by strides)",
    unless=as_written,
)
# Only the oracle *invariants* sees these, and only as notes.
FORGETFUL_CACHE = Waiver(
    Promise.GRAPH_METADATA,
    "the cache of FakeTensor keeps neither the storage offset nor the storage size of a result that"
    " is no view, so the metadata in a graph depends on what was traced before it"
    " (_get_output_tensor_from_cache_entry in torch/_subclasses/fake_tensor.py)",
)
OVERLAP_BEYOND_EXPAND = Precondition(
    "overlapping writes come from expand",
    "the docs of torch.as_strided leave writes through an overlapping view undefined; those through"
    " unfold are banned",
    overlapping_writes_come_from_expand,
)
# Custom operators may rely on what the tags of torch promise: strides, and nothing else.
LOCATION_IS_OPEN = Precondition(
    "no operator shows an offset or a storage size",
    "the tags of custom operators speak of strides (needs_exact_strides, needs_fixed_stride_order,"
    " flexible_layout in aten/src/ATen/native/tags.yaml)",
    shows_no_location,
)
READS_BEFORE_WRITES = Precondition(
    "no operator reads an argument again after it wrote it through another one",
    "auto_functionalized copies what is written, so an argument that is only read keeps its old"
    " values; maintainers take a clone of it for the same graph (pytorch/pytorch#198031)",
    reads_before_it_writes,
)
OVERLAPPING_INPUT = Refusal(
    "write into an input that overlaps itself",
    # Inductor's scatter reports this error of a copy as a shape error that names two equal shapes.
    r"more than one element of the written-to tensor refers to a single memory location"
    r"|shape error in scatter op, can not broadcast torch\.Size\((.*)\) to torch\.Size\(\1\)",
    "no epilogue can copy_ new contents into an input that overlaps itself; maintainers reject such"
    " writes (pytorch/pytorch#89301, #153861)",
    writes_overlapping_input,
    raised_by=(NATIVE, "torch._meta_registrations", "torch._inductor.fx_passes.reinplace"),
)
DISPUTED_EXPAND = Dispute(
    "write through expand",
    "the docs of torch.Tensor.expand warn of writes to an expanded tensor; maintainers are not sure"
    " that compilers should support them (pytorch/pytorch#152425), and track wrong results as bugs"
    " (#114302 closed, #197448 open)",
    comes_from_expand,
)
DOUBLE_BACKWARD = Refusal(
    "double backward",
    r"torch\.compile with aot_autograd does not currently support double backward",
    "a compiled backward pass cannot be differentiated again, as the error says"
    " (_double_backward in torch/_functorch/_aot_autograd/runtime_wrappers.py)",
    differentiates,
    raised_by=("torch._functorch",),
)
# Dynamo splits a function at a graph break, and the second part gets views as inputs.
MIXED_BASES = Refusal(
    "overlapping inputs with and without an autograd base",
    r"does not yet handle non-differentiable view input mutations",
    "overlapping inputs of which some are views in autograd and others are not, are not supported"
    " yet if one is written, as the error says (merge_view_inputs in torch/_functorch)",
    lambda trace: any(is_merged(trace, index) for index in range(len(trace.inputs))),
    ("AssertionError",),
    ("torch._functorch",),
)
MISSING_METADATA = Waiver(
    Promise.NOTED,
    "a pass may leave a node without metadata, and Inductor computes it again between its passes"
    " (FakeTensorUpdater in torch/_inductor/fx_utils.py)",
)
# Only in the variant *symbolic*.
NEEDS_NUMBERS = Refusal(
    "symbolic sizes for a kernel that needs numbers",
    r"of symbolic size; trace it|a resize_ of input|depends on symbolic sizes",
    "a graph for all sizes needs the size of each result without data; trace such a program with"
    " fixed sizes (docs/reference_pass.md)",
    always,
    ("Refused",),
    ("aliasproof.reference_pass",),
)
