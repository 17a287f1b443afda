"""Target *inductor-fx*: all joint and post-grad passes of Inductor, the graph run in eager.

Inductor compiles the program to the graph that it would lower, and that graph runs in eager. So
this target needs no C++ compiler, and its violations come from passes, not from code generation.
"""

from __future__ import annotations

import contextlib
import functools
import operator
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, cast
from unittest import mock

import torch
from torch import fx
from torch._functorch import config as functorch_config
from torch._inductor import config as inductor_config

from aliasproof.ir.execution import ProgramFunction, as_graph
from aliasproof.ir.program import Program
from aliasproof.oracles.contract import Dispute, Promise, Waiver, writes_overlapping_input
from aliasproof.oracles.stage import Stage
from aliasproof.targets import aot, aot_eager, dynamo, inductor_reinplace, variants
from aliasproof.targets.buffers import ProgramWithBuffers
from aliasproof.targets.dynamo import DRAWS_AS_EAGER, CapturedGraph
from aliasproof.targets.target import Build, Function, Target
from aliasproof.targets.tracing import PLAIN, Tracing

# Clauses of every target that runs Inductor's passes. Their promises without a clause:
# - aliasing: "our passes are not allowed to cause any additional inputs/outputs to alias"
#   (torch/_inductor/fx_passes/README.md); views are realized "so that outputs are correctly
#   aliased" (`GraphLowering.run_node` in torch/_inductor/graph.py);
# - NaN, infinities and signs of zeros: PyTorch treats their loss as a bug (#187580, #189799).
NO_ROUNDING_BETWEEN = Waiver(
    Promise.ROUNDING,
    "between two fused bfloat16 or float16 ops, the intermediate rounding is left out, unless"
    " emulate_precision_casts is set (torch/_inductor/config.py); so is the first of two casts"
    " (pointless_convert in torch/_inductor/fx_passes/joint_graph.py)",
)
OTHER_ARITHMETIC = Waiver(
    Promise.EQUIVALENCE,
    "a decomposition computes the same by other operators (torch/_inductor/decomposition.py), and"
    " constants are folded (torch/_inductor/fx_passes/joint_graph.py)",
)
OVERLAPPING_INPUT = Dispute(
    "write into an input that overlaps itself",
    "AOTAutograd refuses most writes into an input that overlaps itself, and maintainers reject"
    " them (pytorch/pytorch#89301, #153861); generated code writes without a check",
    lambda difference, trace: writes_overlapping_input(trace),
)

CONTRACT = replace(
    aot.CONTRACT,
    waivers=(
        *(waiver for waiver in aot.CONTRACT.waivers if waiver.promise is not Promise.EQUIVALENCE),
        OTHER_ARITHMETIC,
        NO_ROUNDING_BETWEEN,
        Waiver(
            Promise.STRIDE,
            "code generation gives an output the strides that the graph has noted for it"
            " (record_original_output_strides in torch/_inductor/compile_fx.py), and the run of the"
            " graph does not",
        ),
    ),
    refusals=aot_eager.CONTRACT.refusals,
    disputes=(*aot.CONTRACT.disputes, OVERLAPPING_INPUT),
)

# No cached compilation is used. Reproducers do not need these settings: they run in a new process.
CONFIG = {"fx_graph_cache": False, "fx_graph_remote_cache": False}


def build(function: Function, inputs: Sequence[torch.Tensor], tracing: Tracing = PLAIN) -> Build:
    """Compile without code generation."""
    stages: list[Stage] = []
    made = compiled(function, inputs, tracing, functools.partial(passes_only, stages))
    return Build(made, stages, replay=made.replay if isinstance(made, CapturedGraph) else None)


def compiled(
    function: Function,
    inputs: Sequence[torch.Tensor],
    tracing: Tracing,
    inner_compile: Callable[..., Any] | None = None,
) -> Function:
    """The function, compiled by Inductor with this `inner_compile`.

    A program is compiled without Dynamo, which costs 0.1 s and is a target of its own.
    """
    # Imported here: this takes two seconds, and other targets do not need it.
    from torch._inductor.compile_fx import compile_fx, compile_fx_inner  # noqa: PLC0415

    settings = {**CONFIG, **settings_of(tracing)}

    def backend(graph: fx.GraphModule, given: Sequence[Any]) -> Function:
        with functorch_config.patch(enable_autograd_cache=False), inductor_config.patch(settings):
            result: Any = compile_fx(graph, given, inner_compile or compile_fx_inner)
        return cast(Function, result)

    if isinstance(function, ProgramFunction) and not (
        # Dynamo passes on which inputs are static.
        tracing.symbolic or tracing.guarded or any(view.static for view in function.program.inputs)
    ):
        return _by_first_use(function.program, backend, inputs)
    if not tracing.symbolic and isinstance(function, ProgramWithBuffers):
        return backend(function, list(inputs))
    return dynamo.compiled(function, backend, tracing)


def _by_first_use(
    program: Program, backend: Callable[..., Function], inputs: Sequence[torch.Tensor]
) -> Function:
    """The program, compiled as the graph that Dynamo would capture from it.

    The order of the graph's inputs decides which inputs are merged, and the order of their writes.
    """
    passed, graph = as_dynamo_does(program)
    run_graph: Callable[..., Any] = backend(graph, [inputs[index] for index in passed])
    names = [view.name for view in program.inputs]
    made = list(dict.fromkeys(name for name in program.outputs if name not in names))

    def run(*given: torch.Tensor) -> list[torch.Tensor]:
        outputs = dict(zip(made, run_graph(*(given[index] for index in passed)), strict=True))
        outputs |= dict(zip(names, given, strict=True))
        return [outputs[name] for name in program.outputs]

    return run


def as_dynamo_does(program: Program) -> tuple[Sequence[int], fx.GraphModule]:
    """The graph that Dynamo captures from a program, and the indices of the inputs that it takes.

    Its inputs are in the order of their first use. It returns each value that it computed once.
    """
    names = [view.name for view in program.inputs]
    used = dict.fromkeys(name for call in program.instructions for name in call.refs)
    passed = [names.index(name) for name in used if name in names]
    graph = as_graph(
        replace(
            program,
            inputs=tuple(program.inputs[index] for index in passed),
            outputs=tuple(dict.fromkeys(name for name in program.outputs if name not in names)),
        )
    )
    for node in graph.find_nodes(op="call_function", target=operator.getitem):
        if not node.users:
            graph.erase_node(node)
    return passed, fx.GraphModule(torch.nn.Module(), graph)


def passes_only(
    stages: list[Stage], graph: fx.GraphModule, inputs: Sequence[Any], **options: Any
) -> Callable[..., object]:
    """An `inner_compile` that does what Inductor does before lowering, and returns the graph."""
    from torch._inductor import compile_fx  # noqa: PLC0415
    from torch._inductor.fx_passes.post_grad import view_to_reshape  # noqa: PLC0415
    from torch._inductor.virtualized import V  # noqa: PLC0415

    view_to_reshape(graph)
    with torch.no_grad():
        mode = compile_fx.fake_tensor_prop(graph, inputs)
    compile_fx._recursive_record_original_output_strides(graph)
    with V.set_fake_mode(mode), _without_lowered_matches():
        compile_fx._recursive_post_grad_passes(graph, options.get("is_inference", False))
    inductor_reinplace.give_foreach_results(graph)
    return aot.record_stage(stages, Stage("post-grad graph", graph, functional=False, whole=False))


@contextlib.contextmanager
def _without_lowered_matches() -> Iterator[None]:
    """Skip patterns that replace calls by functions which only lowering can run.

    A function that returns an operand runs in eager as well. Any other function (one that uses
    global names) calls Inductor's code generation, so the calls that it would replace stay.
    """
    from torch._inductor.pattern_matcher import LoweringPatternEntry  # noqa: PLC0415

    replace_match = LoweringPatternEntry.apply

    def apply(entry: LoweringPatternEntry, *match: Any) -> None:
        if not entry.handler.__code__.co_names:
            replace_match(entry, *match)

    with mock.patch.object(LoweringPatternEntry, "apply", apply):
        yield


def settings_of(tracing: Tracing) -> dict[str, object]:
    """The settings of `torch._inductor.config`, for the build and for the reproducer."""
    return {**DRAWS_AS_EAGER, **tracing.config}


def options(tracing: Tracing) -> str:
    """In a recipe, the argument of `torch.compile` that sets these settings."""
    return f", options={settings_of(tracing)}"


def without_random(recipe: str) -> str:
    """The recipe without the settings that only random numbers need."""
    drawn = str(DRAWS_AS_EAGER)[1:-1]
    recipe = re.sub(rf", (options|config_patches|inductor_configs)={{{drawn}}}", "", recipe)
    return recipe.replace(f"{drawn}, ", "")


# `_without_lowered_matches` for a reproducer.
LOWERED_IMPORT = "from torch._inductor.pattern_matcher import LoweringPatternEntry\n"
LOWERED_MATCHES = """
apply = LoweringPatternEntry.apply
LoweringPatternEntry.apply = lambda entry, *match: (
    None if entry.handler.__code__.co_names else apply(entry, *match)
)
"""
# Parts of the names of operators that such patterns match.
_LOWERED = ("cat", "mm", "conv", "quantize")


def without_lowered(recipe: str, program: Program) -> str:
    """The recipe without `LOWERED_MATCHES`, if no such pattern matches the program."""
    if any(word in call.op for call in program.instructions for word in _LOWERED):
        return recipe
    return recipe.replace(LOWERED_IMPORT, "").replace(LOWERED_MATCHES, "")


def recipe(tracing: Tracing = PLAIN) -> str:
    """The source of `build`, through Dynamo."""
    settings = f"config_patches={settings_of(tracing)}"
    return f"""
{inductor_reinplace.FOREACH_IMPORTS}from torch._inductor import compile_fx
{LOWERED_IMPORT}from torch._inductor.virtualized import V
{inductor_reinplace.FOREACH_RESULTS}{LOWERED_MATCHES}

def passes_only(graph, inputs, is_inference=False, **options):
    compile_fx.view_to_reshape(graph)
    with torch.no_grad():
        mode = compile_fx.fake_tensor_prop(graph, inputs)
    compile_fx._recursive_record_original_output_strides(graph)
    with V.set_fake_mode(mode):
        compile_fx._recursive_post_grad_passes(graph, is_inference)
{inductor_reinplace.FOREACH_CALL}    run = lambda args: graph(*args)
    run._boxed_call = True
    return run


def compiled(program, inputs):
    backend = lambda graph, args: compile_fx.compile_fx(graph, args, passes_only, {settings})
    return torch.compile(program, backend=backend{tracing.dynamic})
"""


# Only Dynamo recompiles for later calls.
BY_DYNAMO = tuple(map(variants.by_dynamo, (variants.AS_WRITTEN, *variants.SECOND_CALLS)))
VARIANTS = (
    variants.SYMBOLIC,
    *variants.GRADS,
    variants.GUARDED_CAPTURED,
    variants.GUARDED_BUFFERS,
    variants.SAME_INPUT,
)
TARGET = Target(
    name="inductor-fx",
    summary="all joint and post-grad passes of Inductor, the graph run in eager",
    contract=CONTRACT,
    build=build,
    traced_recipe=recipe,
    has_settings=True,
    variants=(
        *VARIANTS,
        *(replace(variant, after=aot_eager.TARGET) for variant in BY_DYNAMO),
        *variants.CONTROL_FLOW,
        variants.FREEZING,
    ),
    after=inductor_reinplace.TARGET,
    cost=2,
)
