"""Target *functionalize*: `make_fx(functionalize(f))`, the graph run in eager."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.func import functionalize

from aliasproof.oracles.contract import (
    Contract,
    Dispute,
    Precondition,
    Promise,
    Refusal,
    Waiver,
    as_strided_stays_inside,
    as_written,
    calls_a_custom_write,
    changes_metadata,
    comes_from_expand,
    depends_on_data,
    differentiates,
    draws_nothing,
    has_no_fake_kernel,
    no_overlapping_as_strided,
    overlapping_writes_come_from_expand,
    reads_before_it_writes,
    shows_no_location,
    writes_overlapping_input,
    writes_through_as_strided,
    written_inputs_disjoint,
)
from aliasproof.oracles.stage import Stage
from aliasproof.targets.target import Build, Function, Target
from aliasproof.targets.tracing import PLAIN, Tracing, traced

# Clauses that several contracts share, since these targets are built on the same code of torch.

AS_STRIDED_IN_CHAIN = Refusal(
    "write through a chain of views with as_strided",
    r"view chain of length .* as_strided\(\)",
    "functionalization bans writes through a chain of views that contains as_strided, and says so"
    " in the error (pytorch/pytorch#104505)",
    writes_through_as_strided,
)
DATA_DEPENDENT_SHAPE = Refusal(
    "data-dependent shape",
    r"DynamicOutputShapeException|DataDependentOutputException|GuardOnDataDependentSymNode",
    "fake tensors have no data, so data-dependent shapes cannot be traced",
    depends_on_data,
)
NO_FAKE_KERNEL = Refusal(
    "no kernel for fake tensors",
    r"there was no fake impl or Meta kernel registered",
    "a trace needs the sizes of results without data; the error says how to register a kernel for"
    " it (torch.library.register_fake)",
    has_no_fake_kernel,
)
DATA_OF_A_TRACER = Refusal(
    "tensor data in a trace",
    r"trying to get value out of a tracing tensor|tolist\(\) shouldn't be called"
    r"|\.numpy\(\) is not supported"
    r"|symbolically trace a dynamo-optimized function|Please convert all Tensors to FakeTensors",
    "a trace can neither read tensor data nor enter other compiled code, as the error says"
    " (torch/fx/experimental/proxy_tensor.py)",
    depends_on_data,
)
AUTOGRAD_INSIDE = Refusal(
    "autograd inside of a transform",
    r"inside (of a function being transformed by )?a functorch transform",
    "torch.func.functionalize is a functorch transform, and these neither set requires_grad nor run"
    " backward, as the error says (torch/csrc/functorch/init.cpp)",
    differentiates,
)
CUSTOM_WRITE = Refusal(
    "custom operator that writes",
    r"Found a custom \(non-ATen\) operator whose output has alias annotations",
    "functionalization in C++ knows ATen operators alone, as the error says; AOTAutograd wraps"
    " custom operators in auto_functionalized",
    calls_a_custom_write,
)
SET_TO_PLACE = Refusal(
    "set_ to a place in a storage",
    r"aten::set_\.source_Tensor_storage_offset"
    r'|Attempted to set the storage of a tensor on device "meta" to a storage on different device',
    "functionalization supports set_ with a tensor alone, and Dynamo breaks the graph"
    " at set_ with an offset (torch/_dynamo/variables/tensor.py, pytorch/pytorch#111554)",
    changes_metadata,
)
# Only oracle *equivalence* sees these: the values are equal up to rounding.
OTHER_DECOMPOSITION = Waiver(
    Promise.EQUIVALENCE,
    "a composite operator may be decomposed differently than in eager (linear as mm and add, matmul"
    " by strides)",
    unless=as_written,
)
# Only oracle *invariants* sees these, and only as notes.
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
# What custom operators may rely on: the tags of torch speak of strides, and of nothing else.
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
    # Inductor's scatter takes this error of a copy for one of shapes, and names two equal ones.
    r"more than one element of the written-to tensor refers to a single memory location"
    r"|shape error in scatter op, can not broadcast torch\.Size\((.*)\) to torch\.Size\(\1\)",
    "no epilogue can copy_ new contents into an input that overlaps itself; maintainers reject such"
    " writes (pytorch/pytorch#89301, #153861)",
    writes_overlapping_input,
)
DISPUTED_EXPAND = Dispute(
    "write through expand",
    "the docs of torch.Tensor.expand warn of writes to an expanded tensor; maintainers are not sure"
    " that compilers should support them (pytorch/pytorch#152425), and track wrong results as bugs"
    " (#114302 closed, #197448 open)",
    comes_from_expand,
)

RANDOM_ORDER = (
    "a random kernel fills memory in the order of its layout, and the docstring of"
    " torch.func.functionalize says nothing about layouts"
)

CONTRACT = Contract(
    waivers=(
        Waiver(Promise.VALUES, RANDOM_ORDER, unless=draws_nothing),
        Waiver(Promise.INPUTS, RANDOM_ORDER, unless=draws_nothing),
        Waiver(
            Promise.IDENTITY,
            "the docstring of torch.func.functionalize copies new data back to mutated inputs and"
            " promises equal outputs; it says nothing about an output that is an input",
        ),
        Waiver(
            Promise.KEEPS_ALIASES,
            "its docstring shows a mutated input returned as the functional value, which no longer"
            " shares its storage",
        ),
        Waiver(
            Promise.STRIDE,
            "its docstring promises equivalent outputs and says nothing about their layout",
        ),
        Waiver(
            Promise.OFFSET,
            "its docstring promises equivalent outputs and says nothing about their layout",
        ),
        Waiver(
            Promise.INPUT_METADATA,
            "mutation of an input's metadata is not among what its docstring copies back",
        ),
        Waiver(
            Promise.SAME_OVERLAP_ERROR,
            "a functional op does not raise on overlapping memory where its in-place form must",
        ),
        OTHER_DECOMPOSITION,
        Waiver(
            Promise.GRAPHS,
            "its docstring promises nothing about the graph, and an op below it may mutate",
        ),
        FORGETFUL_CACHE,
    ),
    preconditions=(
        Precondition(
            "written inputs are disjoint",
            "each input is wrapped as a base of its own; AOTAutograd handles inputs that share"
            " memory before it calls this",
            written_inputs_disjoint,
        ),
        Precondition(
            "no as_strided with overlapping memory",
            "listed as failure mode (4) in the docstring of torch.func.functionalize",
            no_overlapping_as_strided,
        ),
        Precondition(
            "as_strided stays inside",
            "each input is wrapped as a base of its own, so the bytes around it in its storage"
            " cannot be read",
            as_strided_stays_inside,
        ),
        OVERLAP_BEYOND_EXPAND,
        LOCATION_IS_OPEN,
        READS_BEFORE_WRITES,
    ),
    refusals=(
        AS_STRIDED_IN_CHAIN,
        DATA_OF_A_TRACER,
        NO_FAKE_KERNEL,
        OVERLAPPING_INPUT,
        AUTOGRAD_INSIDE,
        CUSTOM_WRITE,
        SET_TO_PLACE,
    ),
    disputes=(DISPUTED_EXPAND,),
)


def recipe(tracing: Tracing = PLAIN) -> str:
    """The source of `build`."""
    return f"""
{tracing.imports}from torch.func import functionalize
from torch.fx.experimental.proxy_tensor import make_fx


def compiled(program, inputs):
    return make_fx(functionalize(program){tracing.arguments()})(*inputs)
"""


def build(function: Function, inputs: Sequence[torch.Tensor], tracing: Tracing = PLAIN) -> Build:
    """Trace the functionalized function with these inputs."""
    graph = traced(functionalize(function), inputs, tracing)
    return Build(graph, [Stage("functionalized", graph, functional=True)])


TARGET = Target(
    name="functionalize",
    summary="make_fx(torch.func.functionalize(f)), run in eager",
    contract=CONTRACT,
    build=build,
    recipe=recipe(),
)
