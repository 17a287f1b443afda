"""Options of ExecuTorch's lowering, each a variant of target *executorch*, and the recipe."""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from typing import Any

from aliasproof.compilers.executorch import (
    COPIED_VIEWS,
    NAIVE,
    NO_INPUTS,
    NO_OUTPUTS,
    POOLS,
    REINPLACED,
    SHARED,
)
from aliasproof.targets.target import MODULE
from aliasproof.targets.tracing import Tracing


def configured(chosen: frozenset[str], initial: Sequence[str]) -> Any:
    """The config of `to_executorch`. `initial` are placeholders of buffers that keep contents."""
    from executorch.exir import ExecutorchBackendConfig  # noqa: PLC0415
    from executorch.exir.dialects._ops import ops  # noqa: PLC0415
    from executorch.exir.memory_planning import (  # noqa: PLC0415
        MemoryPlanningAlgorithmSuite,
        naive,
    )
    from executorch.exir.passes import MemoryPlanningPass  # noqa: PLC0415
    from executorch.exir.passes.init_mutable_pass import (  # noqa: PLC0415
        InitializedMutableBufferPass,
    )

    plan = MemoryPlanningPass(
        MemoryPlanningAlgorithmSuite([naive]) if NAIVE in chosen else None,
        alloc_graph_input=NO_INPUTS not in chosen,
        alloc_graph_output=NO_OUTPUTS not in chosen,
    )
    more = {ops.edge.aten.minimum.default, ops.edge.aten.maximum.default}
    return ExecutorchBackendConfig(
        passes=[InitializedMutableBufferPass(list(initial))],
        emit_mutable_buffer_names=True,
        memory_planning_pass=in_two_pools(plan) if POOLS in chosen else plan,
        remove_view_copy=COPIED_VIEWS not in chosen,
        run_reinplace_pass=REINPLACED in chosen,
        reinplace_extra_ops=frozenset(more) if SHARED in chosen else None,
    )


def in_two_pools(planning: Any) -> Any:
    """The memory planning in two arenas by turns, as ExecuTorch's documentation shows."""
    plain = planning.run

    def run(graph_module: Any, graph_signature: Any = None) -> Any:
        for number, node in enumerate(graph_module.graph.nodes):
            specs = node.meta.get("spec")
            for spec in specs if isinstance(specs, list | tuple) else [specs]:
                if hasattr(spec, "mem_id") and spec.mem_id is None and not spec.const:
                    spec.mem_id = 1 + number % 2
        return plain(graph_module, graph_signature)

    planning.run = run
    return planning


# --- the recipe -----------------------------------------------------------------------------------

_BODY = (
    MODULE
    + """
def compiled(program, inputs):
    exported = torch.export.export(Module(program), tuple(inputs))
    edge = to_edge(exported)
    signature = edge.exported_program().graph_signature
    mutated = [*signature.user_inputs_to_mutate.values()]
    buffers = {name: place for place, name in signature.inputs_to_buffers.items()}
    buffers = {name: buffers[name] for name in signature.buffers_to_mutate.values()}
    config = ExecutorchBackendConfig(
{config}    )
    lowered = edge.to_executorch(config)
    loaded = Runtime.get().load_program(lowered.buffer)

    def run(*tensors):
        outputs = list(loaded.load_method("forward").execute(tensors))
        for name in mutated:  # their new contents come before the outputs
            {contents}
        for name in buffers:
            exported.state_dict[name].copy_(loaded.load_method("forward")._method.get_attribute(name))
        return pytree.tree_unflatten(outputs, exported.call_spec.out_spec)

    return run
"""
)
_IMPORTS = (
    "from executorch.exir import ExecutorchBackendConfig, to_edge",
    "from executorch.exir.dialects._ops import ops",
    "from executorch.exir.memory_planning import MemoryPlanningAlgorithmSuite, naive",
    "from executorch.exir.passes import MemoryPlanningPass",
    "from executorch.exir.passes.init_mutable_pass import InitializedMutableBufferPass",
    "from executorch.runtime import Runtime",
    "from torch.utils import _pytree as pytree",
)


def recipe(tracing: Tracing) -> str:
    """The source of `build`."""
    chosen = tracing.options
    planning = {
        "MemoryPlanningAlgorithmSuite([naive])": NAIVE in chosen,
        "alloc_graph_input=False": NO_INPUTS in chosen,
        "alloc_graph_output=False": NO_OUTPUTS in chosen,
    }
    plan = f"MemoryPlanningPass({', '.join(text for text, used in planning.items() if used)})"
    if POOLS in chosen:
        plan = f"in_two_pools({plan})"
    more = "frozenset({ops.edge.aten.minimum.default, ops.edge.aten.maximum.default})"
    config = {
        "passes=[InitializedMutableBufferPass([*buffers.values()])],": True,
        "emit_mutable_buffer_names=True,": True,
        f"memory_planning_pass={plan},": bool({NAIVE, NO_INPUTS, NO_OUTPUTS, POOLS} & chosen),
        "remove_view_copy=False,": COPIED_VIEWS in chosen,
        "run_reinplace_pass=True,": REINPLACED in chosen,
        f"reinplace_extra_ops={more},": SHARED in chosen,
    }
    copied = "tensors[signature.user_inputs.index(name)].copy_(outputs.pop(0))"
    lines = "".join(f"        {line}\n" for line, used in config.items() if used)
    contents = "outputs.pop(0)" if NO_INPUTS in chosen else copied
    body = _BODY.replace("{config}", lines).replace("{contents}", contents)
    pools = f"from typing import Any\n\n\n{inspect.getsource(in_two_pools)}\n"
    body = (pools if POOLS in chosen else "") + body
    imports = [line for line in _IMPORTS if _imported(line) & {*re.findall(r"\w+", body)}]
    return "\n".join(imports) + "\n" + body


def _imported(line: str) -> set[str]:
    return {*re.findall(r"\w+", line.partition(" import ")[2].rpartition(" as ")[2])}
