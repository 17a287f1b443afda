"""Options of ExecuTorch's lowering, each a variant of target *executorch*, and the recipe."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
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


def configured(chosen: frozenset[str], buffers: Mapping[str, str]) -> Any:
    """The config of `to_executorch`. `buffers` maps mutated buffers to their placeholders."""
    scope: dict[str, Any] = {"buffers": buffers, in_two_pools.__name__: in_two_pools}
    exec("\n".join(_IMPORTS), scope)  # noqa: S102 - our own text
    # The default pass for planning is one object for all configs.
    return eval(_config(chosen, planned=True), scope)  # noqa: S307 - our own text


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
    config = {config}
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


def _config(chosen: frozenset[str], *, planned: bool = False) -> str:
    """The config as source; if `planned`, the pass for planning is given even if it is default."""
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
        f"memory_planning_pass={plan},": planned or chosen & {NAIVE, NO_INPUTS, NO_OUTPUTS, POOLS},
        "remove_view_copy=False,": COPIED_VIEWS in chosen,
        "run_reinplace_pass=True,": REINPLACED in chosen,
        f"reinplace_extra_ops={more},": SHARED in chosen,
    }
    lines = "".join(f"        {line}\n" for line, used in config.items() if used)
    return f"ExecutorchBackendConfig(\n{lines}    )"


def recipe(tracing: Tracing) -> str:
    """The source of `build`."""
    chosen = tracing.options
    copied = "tensors[signature.user_inputs.index(name)].copy_(outputs.pop(0))"
    contents = "outputs.pop(0)" if NO_INPUTS in chosen else copied
    body = _BODY.replace("{config}", _config(chosen)).replace("{contents}", contents)
    pools = f"from typing import Any\n\n\n{inspect.getsource(in_two_pools)}\n"
    body = (pools if POOLS in chosen else "") + body
    imports = [line for line in _IMPORTS if _imported(line) & {*re.findall(r"\w+", body)}]
    return "\n".join(imports) + "\n" + body


def _imported(line: str) -> set[str]:
    return {*re.findall(r"\w+", line.partition(" import ")[2].rpartition(" as ")[2])}
