"""Target *inductor-reinplace*: AOTAutograd, then only Inductor's reinplacing pass, run in eager.

Inductor reinplaces ops at the end of its post-grad passes. Here the pass gets the graph of
AOTAutograd unchanged, so a violation comes from this pass and from no other.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from aliasproof.targets import aot
from aliasproof.targets.target import Build, Function, Target
from aliasproof.targets.tracing import PLAIN, Tracing
from aliasproof.targets.variants import DECOMPOSE, GRADS, KEPT_OUTPUTS, SYMBOLIC

CONTRACT = aot.CONTRACT


def build(function: Function, inputs: Sequence[torch.Tensor], tracing: Tracing = PLAIN) -> Build:
    """Compile in the first call, as target *aot* does, with one more pass."""
    return aot.build(function, inputs, tracing, keep_input_mutations=True, further=reinplacing)


def reinplacing(graph: fx.GraphModule) -> fx.GraphModule:
    """Run Inductor's reinplacing on a graph, in place, and return the graph."""
    # Imported here: this takes two seconds, and other targets do not need it.
    from torch._guards import detect_fake_mode  # noqa: PLC0415
    from torch._inductor.fx_passes.post_grad import (  # noqa: PLC0415
        decompose_auto_functionalized,
        fix_auto_functionalized_dtype_views,
    )
    from torch._inductor.fx_passes.reinplace import reinplace_inplaceable_ops  # noqa: PLC0415
    from torch._inductor.fx_utils import FakeTensorUpdater  # noqa: PLC0415
    from torch._inductor.virtualized import V  # noqa: PLC0415

    metas = [node.meta.get("val") for node in graph.graph.find_nodes(op="placeholder")]
    with V.set_fake_mode(detect_fake_mode(metas)):
        reinplace_inplaceable_ops(FakeTensorUpdater(graph), graph.graph)
        fix_auto_functionalized_dtype_views(graph.graph)
        decompose_auto_functionalized(graph.graph)
    give_foreach_results(graph)
    return graph


def give_foreach_results(graph: fx.GraphModule) -> None:
    """Replace the results of in-place foreach calls by their operands.

    Inductor lowers `_foreach_add_` to a list of the written tensors. The operator returns nothing.
    """
    for node in graph.graph.find_nodes(op="call_function", target=operator.getitem):
        call: Any = node.args[0]
        if isinstance(call, fx.Node) and call.target in _foreach_in_place():
            operands: Any = call.args[0]
            node.replace_all_uses_with(operands[node.args[1]])
            graph.graph.erase_node(node)
    graph.recompile()


@functools.cache
def _foreach_in_place() -> frozenset[object]:
    from torch._inductor.lowering import inplaceable_foreach_ops  # noqa: PLC0415

    return frozenset(inplaceable_foreach_ops.values())


# `give_foreach_results` for a reproducer: a function, and the line that calls it.
FOREACH_RESULTS = """

def foreach_results(graph):
    in_place = lowering.inplaceable_foreach_ops.values()
    for node in graph.graph.find_nodes(op="call_function", target=operator.getitem):
        call, index = node.args
        if call.target in in_place:
            node.replace_all_uses_with(call.args[0][index])
            graph.graph.erase_node(node)
    graph.recompile()
"""
FOREACH_IMPORTS = "import operator\nfrom torch._inductor import lowering\n"
FOREACH_CALL = "    foreach_results(graph)\n"


def without_foreach(recipe: str) -> str:
    """The recipe without the code for foreach calls, which the program does not make."""
    for part in (FOREACH_RESULTS, FOREACH_IMPORTS, FOREACH_CALL):
        recipe = recipe.replace(part, "")
    return recipe


def recipe(tracing: Tracing = PLAIN) -> str:
    """The source of `build`."""
    plain = aot.recipe(tracing, keep_input_mutations=True, compiler="reinplaced")
    imports, compiled = plain.strip().split("\n\n", 1)
    return f"""
{FOREACH_IMPORTS}{imports}
from torch._guards import detect_fake_mode
from torch._inductor.fx_passes import post_grad
from torch._inductor.fx_passes.reinplace import reinplace_inplaceable_ops
from torch._inductor.fx_utils import FakeTensorUpdater
from torch._inductor.virtualized import V
{FOREACH_RESULTS}

def reinplaced(graph, inputs):
    with V.set_fake_mode(detect_fake_mode(inputs)):
        reinplace_inplaceable_ops(FakeTensorUpdater(graph), graph.graph)
        post_grad.fix_auto_functionalized_dtype_views(graph.graph)
        post_grad.decompose_auto_functionalized(graph.graph)
{FOREACH_CALL}    graph.recompile()
    return graph

{compiled}"""


TARGET = Target(
    name="inductor-reinplace",
    summary="AOTAutograd, then the reinplacing pass of Inductor alone, run in eager",
    contract=CONTRACT,
    build=build,
    traced_recipe=recipe,
    variants=(DECOMPOSE, SYMBOLIC, *GRADS, KEPT_OUTPUTS),
    after=aot.AOT,
)
