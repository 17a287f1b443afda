"""Targets *aot* and *aot-epilogue*: AOTAutograd for inference, its graph run in eager.

They differ in how mutated inputs are written back. `aot` keeps these writes in the graph, as
Inductor requests. `aot-epilogue` returns the new contents, and the runtime wrapper copies them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
from torch import fx
from torch._guards import active_fake_mode
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from aliasproof.ir.execution import ProgramFunction
from aliasproof.ir.values import clone_inputs
from aliasproof.oracles.contract import (
    Contract,
    Promise,
    Refusal,
    Waiver,
    is_merged,
    writes_inputs_of_two_dtypes,
)
from aliasproof.oracles.stage import Stage
from aliasproof.targets import clauses, torch_functionalize
from aliasproof.targets.target import Build, Function, Target
from aliasproof.targets.tracing import PLAIN, Tracing, copied
from aliasproof.targets.variants import (
    BUFFERS,
    DECOMPOSE,
    GRADS,
    KEPT_OUTPUTS,
    SAME_INPUT,
    SYMBOLIC,
    WITHOUT_LOOP,
)

Pass: TypeAlias = Callable[[fx.GraphModule], fx.GraphModule]

CONTRACT = Contract(
    waivers=(
        Waiver(
            Promise.IDENTITY,
            "inputs that share a written storage are merged into a synthetic base, and outputs that"
            " are such inputs are regenerated from it"
            " (torch/_functorch/_aot_autograd/input_output_analysis.py)",
            only=is_merged,
        ),
        Waiver(
            Promise.KEEPS_OBJECTS,
            "an output that is a view of an input is made again from it, once for each output"
            " (gen_alias_from_base in torch/_functorch/_aot_autograd/functional_utils.py); Dynamo"
            " returns each object once",
        ),
        clauses.NO_OVERLAP_ERROR,
        clauses.OTHER_DECOMPOSITION,
        clauses.FORGETFUL_CACHE,
        clauses.MISSING_METADATA,
    ),
    preconditions=(
        clauses.OVERLAP_BEYOND_EXPAND,
        clauses.LOCATION_IS_OPEN,
        clauses.READS_BEFORE_WRITES,
    ),
    refusals=(
        clauses.AS_STRIDED_IN_CHAIN,
        clauses.DATA_OF_A_TRACER,
        clauses.COMPILED_CODE_OR_REAL_TENSOR,
        clauses.NO_FAKE_KERNEL,
        clauses.OVERLAPPING_INPUT,
        clauses.DATA_DEPENDENT_SHAPE,
        clauses.DATA_DEPENDENT_CUSTOM_SHAPE,
        clauses.SET_TO_PLACE,
        clauses.MEMORY_LEFT_BY_SET,
        clauses.GROWTH_BESIDE_VIEWS,
        Refusal(
            "overlapping inputs of different dtypes",
            r"does not yet handle input mutations on views with different dtypes",
            "inputs that overlap under different dtypes are not supported yet if one is written, as"
            " the error says (merge_view_inputs in torch/_functorch/_aot_autograd)",
            writes_inputs_of_two_dtypes,
            ("AssertionError",),
            ("torch._functorch",),
        ),
    ),
    disputes=(clauses.DISPUTED_EXPAND,),
)


def build(
    function: Function,
    inputs: Sequence[torch.Tensor],
    tracing: Tracing = PLAIN,
    *,
    keep_input_mutations: bool,
    further: Pass | None = None,
) -> Build:
    """Compile in the first call: AOTAutograd traces with the inputs of that call.

    A call with gradients gives two graphs, another call one. If there is a `further` pass, each
    graph runs as this pass returns it, and the result is one more stage.
    """
    stages: list[Stage] = []  # filled by the first call
    # Imported here: it imports Dynamo, which takes two seconds, and other targets do not need it.
    from torch._functorch.aot_autograd import aot_function, aot_module  # noqa: PLC0415

    # `aot_module` lifts the buffers of a module to inputs.
    compile_one: Any = aot_module if isinstance(function, torch.nn.Module) else aot_function
    compiled = compile_one(
        _with_shape_env(function),
        fw_compiler=functools.partial(compile_graph, stages, further, "forward graph"),
        bw_compiler=functools.partial(compile_graph, stages, further, "backward graph"),
        inference_compiler=functools.partial(compile_graph, stages, further, "inference graph"),
        decompositions=tracing.table,
        keep_inference_input_mutations=keep_input_mutations,
        dynamic=tracing.symbolic,
        enable_log=False,
    )
    return Build(compiled, stages)


def _with_shape_env(function: Function) -> Function:
    """The function, traced by a fake mode with a `ShapeEnv`, as under Dynamo.

    Operators such as `while_loop` need it, and `aot_function` makes none for static sizes. The
    sizes stay static. Programs cannot call these operators, so recipes leave it out.
    """
    if isinstance(function, ProgramFunction | torch.nn.Module):
        return function

    @functools.wraps(function, updated=())
    def traced(*inputs: torch.Tensor) -> object:
        mode = active_fake_mode()
        if mode is not None and mode.shape_env is None:
            # Reads of tensor data are still refused, as without a `ShapeEnv`.
            mode.shape_env = ShapeEnv(
                allow_scalar_outputs=False, allow_dynamic_output_shape_ops=False
            )
        return function(*inputs)

    return traced


def compile_graph(
    stages: list[Stage], further: Pass | None, name: str, graph: fx.GraphModule, _: Sequence[object]
) -> Callable[..., object]:
    """Append the graph, and its version after a `further` pass, to the stages; return what runs."""
    # Not `whole`: the runtime wrapper of AOTAutograd does some of the work outside the graph.
    functional = Stage(name, graph, functional=True, whole=False)
    if further is None:
        return record_stage(stages, functional)
    functional.graph = copied(graph.graph, graph)
    last = Stage(f"{name} after {further.__name__}", further(graph), functional=False, whole=False)
    stages.append(functional)
    return record_stage(stages, last)


def record_stage(stages: list[Stage], stage: Stage) -> Callable[..., object]:
    """Append a stage, and return its graph in the form that AOTAutograd expects from a compiler.

    The first real run clones its inputs before it mutates them, for oracles that run the stage.
    """
    stages.append(stage)

    def run(args: list[object]) -> object:
        if stage.inputs is None and not any(isinstance(arg, FakeTensor) for arg in args):
            stage.inputs = clone_inputs(args)
        return stage.graph(*args)

    # AOTAutograd then passes a list. Otherwise it warns if there is a backward graph.
    run._boxed_call = True  # type: ignore[attr-defined]
    return run


def recipe(
    tracing: Tracing = PLAIN,
    *,
    keep_input_mutations: bool,
    compiler: str = "lambda graph, _: graph",
) -> str:
    """The source of `build`. `compiler` compiles the graphs."""
    chosen = {
        "decompositions=decompositions": tracing.decompose,
        "dynamic=True": tracing.symbolic,
    }
    options = "".join(f"\n        {option}," for option, used in chosen.items() if used)
    return f"""
{tracing.imports}from torch._functorch.aot_autograd import aot_function


def compiled(program, inputs):
    return aot_function(
        program,
        fw_compiler={compiler},
        keep_inference_input_mutations={keep_input_mutations},{options}
    )
"""


VARIANTS = (DECOMPOSE, SYMBOLIC, *GRADS, BUFFERS, SAME_INPUT, KEPT_OUTPUTS, *WITHOUT_LOOP)
AOT = Target(
    name="aot",
    summary="AOTAutograd, inference, input mutations kept in the graph, run in eager",
    contract=CONTRACT,
    build=functools.partial(build, keep_input_mutations=True),
    traced_recipe=functools.partial(recipe, keep_input_mutations=True),
    variants=VARIANTS,
    # Both functionalize with the same C++ (FunctionalTensorWrapper, FunctionalInverses).
    layer=torch_functionalize.TARGET,
)

AOT_EPILOGUE = Target(
    name="aot-epilogue",
    summary="AOTAutograd, inference, input mutations applied by its runtime wrapper, run in eager",
    contract=CONTRACT,
    build=functools.partial(build, keep_input_mutations=False),
    traced_recipe=functools.partial(recipe, keep_input_mutations=False),
    variants=VARIANTS,
    after=AOT,
)
