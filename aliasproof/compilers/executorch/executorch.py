"""Target *executorch*: torch.export, ExecuTorch's lowering, and its portable runtime.

`to_edge` functionalizes and decomposes. `to_executorch` writes mutated buffers and inputs back,
turns copies into views, assigns each tensor a location in an arena, and writes a file of bytes. The
runtime loads it, copies the inputs into the arena and calls its own kernels.

The runtime returns the new contents of each mutated input before the outputs (as the signature
says, and pytorch/executorch#11870), and the caller copies them back. With `unplanned-inputs`, the
runtime itself writes into the memory of the caller. A mutated buffer is state of the loaded
program; before and after a call, it has the contents of the module's buffer.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import io
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any
from unittest import mock

import torch
from torch.utils import _pytree as pytree

from aliasproof.compilers.executorch import (
    COPIED_VIEWS,
    NAIVE,
    NO_INPUTS,
    NO_OUTPUTS,
    PLUGIN,
    POOLS,
    REINPLACED,
    SHARED,
)
from aliasproof.compilers.executorch.executorch_graphs import Mutated, as_lowered, as_written_back
from aliasproof.compilers.functional_module import kept_composites
from aliasproof.oracles.contract import (
    NATIVE,
    Precondition,
    Promise,
    Refusal,
    Waiver,
    always,
    calls_a_custom_write,
)
from aliasproof.oracles.stage import Stage
from aliasproof.targets import export
from aliasproof.targets.export import FunctionModule
from aliasproof.targets.target import MODULE, Build, Function, Target
from aliasproof.targets.tracing import PLAIN, Tracing
from aliasproof.targets.variants import BUFFERS, FEED_BACK, KEPT_OUTPUTS, options_of

# --- executorch contract --------------------------------------------------------------------------
#
# The promises of ExecuTorch, with sources.


COPIES = (
    "an output is a new tensor: 'Outputs are copied out on every call' (executorch/runtime/__init__"
    ".py)"
)
DIM_ORDERS = (
    "'Currently ExecuTorch only supports dim order representation for contiguous and channels_last'"
    " (docs/source/concepts.md)"
)
EDGE = "executorch/exir/verification/verifier.py"

# The target adds the runtime's log to its errors.
EXECUTORCH = ("executorch", NATIVE, "aliasproof.compilers.executorch.executorch")


_refusal = functools.partial(Refusal, raises=(), raised_by=EXECUTORCH)
REFUSALS = (
    _refusal(
        "operator outside Core ATen",
        r"is not in Core ATen opset",
        f"the edge dialect has the operators of Core ATen, as the error says ({EDGE})",
        always,
    ),
    _refusal(
        "dtypes that the edge dialect does not have",
        r"taking Tensor inputs with mismatched dtypes",
        f"the edge dialect lists the dtypes of each operator, as the error says ({EDGE})",
        always,
    ),
    _refusal(
        "operator without an out variant",
        r"Missing out variants",
        "the memory plan needs operators that write into given memory, as the error says"
        " (ToOutVarPass in executorch/exir/passes/__init__.py)",
        always,
    ),
    _refusal(
        "operator without a kernel",
        r"Missing operator",
        "the runtime has the kernels of its portable library, and a loader that names what is"
        " missing (docs/source/kernel-library-overview.md)",
        always,
    ),
    _refusal(
        "arguments that a kernel does not take",
        r"^method->execute\(\) failed with error 0x1[02]: .*(Check failed|Unhandled dtype)",
        "'Kernels that support a subset of tensor dtypes and/or dim orders'"
        " (docs/source/concepts.md); the kernel names the check",
        always,
    ),
    _refusal(
        "custom operator without an out variant",
        r"'NoneType' object has no attribute 'kind'|Missing out variants",
        "a custom operator needs an out variant and a kernel of its own"
        " (docs/source/kernel-library-custom-aten-kernel.md)",
        calls_a_custom_write,
    ),
    _refusal(
        "layout of an input",
        r"should be contiguous or channels-last|0 in strides is not supported"
        r"|Failed to map a given dim_order",
        DIM_ORDERS,
        always,
    ),
)
# Features that most programs could only use to be refused.
REFUSED = frozenset(
    {"custom", "foreach", "metadata", "random"}
    | {"transposed", "gaps", "channels last", "expanded", "overlapping"}
    | {"complex64", "complex128", "float8_e4m3fn", "float8_e5m2"}
)
CONTRACT = replace(
    export.CONTRACT,
    waivers=(
        *(
            waiver
            for waiver in export.CONTRACT.waivers
            if waiver.promise not in {Promise.KEEPS_ALIASES, Promise.OFFSET}
        ),
        Waiver(Promise.KEEPS_ALIASES, COPIES),
        Waiver(Promise.IDENTITY, COPIES),
        Waiver(Promise.KEEPS_OBJECTS, COPIES),
        Waiver(Promise.OFFSET, COPIES),
        Waiver(Promise.STRIDE, DIM_ORDERS),
    ),
    preconditions=(
        *export.CONTRACT.preconditions,
        Precondition(
            "as_strided takes a dense tensor",
            "a tensor of the runtime has no storage around its data"
            " (docs/source/extension-tensor.md), and other strides than in eager",
            lambda trace: not trace.strided_layout,
        ),
    ),
    refusals=(*export.CONTRACT.refusals, *REFUSALS),
)


# --- executorch -----------------------------------------------------------------------------------


def build(function: Function, inputs: Sequence[torch.Tensor], tracing: Tracing = PLAIN) -> Build:
    """Lower for these inputs, and load the program."""
    from executorch.runtime import Runtime  # noqa: PLC0415

    with warnings.catch_warnings():  # about each mutated buffer, and of torch.export itself
        warnings.simplefilter("ignore")
        exported = torch.export.export(FunctionModule(function), tuple(inputs))
        edge = _to_edge(exported)
        mutated = Mutated.of(edge.exported_program())
        # Before the next step, which changes the same graph.
        meant = as_written_back(edge.exported_program(), mutated)
        lowered = edge.to_executorch(configured(tracing.options, mutated.buffers))
        program = lowered.exported_program()
        stages = [
            Stage("edge graph", meant, functional=True),
            *(
                Stage(name, as_lowered(program, mutated, planned=planned), functional=False)
                for name, planned in (("lowered graph", False), ("planned graph", True))
            ),
        ]
        with _logged():
            program_of_bytes = Runtime.get().load_program(lowered.buffer)
            # The program must outlive its method.
            loaded = program_of_bytes, program_of_bytes.load_method("forward")
    planned = NO_INPUTS not in tracing.options
    names = exported.graph_signature.user_inputs
    written = [names.index(name) for name in mutated.inputs]
    held = {name: exported.state_dict[name] for name in mutated.buffers}

    def run(*tensors: torch.Tensor) -> object:
        """Call the loaded method as an application does."""
        _, method = loaded
        with _logged():
            outputs = list(method.execute(tensors))
        for index in written:
            contents = outputs.pop(0)
            if planned:  # else the runtime wrote it
                tensors[index].copy_(contents)
        for name, buffer in held.items():
            buffer.copy_(method._method.get_attribute(name))
        return pytree.tree_unflatten(outputs, exported.call_spec.out_spec)

    def returning(*tensors: torch.Tensor) -> object:
        """The lowered graph, with the outputs in the form in which the program returns them."""
        return pytree.tree_unflatten(list(stages[1].graph(*tensors)), exported.call_spec.out_spec)

    return Build(run, stages, replay=lambda: returning)


def _to_edge(exported: Any) -> Any:
    """`to_edge` with cached tables of operators, which it otherwise collects for each program."""
    from executorch.exir import to_edge  # noqa: PLC0415
    from executorch.exir.program import _program  # noqa: PLC0415

    table: Callable[[], dict[Any, Any]] = functools.partial(dict, _decompositions())
    with kept_composites(), mock.patch.object(_program, "_default_decomposition_table", table):
        return to_edge(exported)


@functools.cache
def _decompositions() -> dict[Any, Any]:
    """The decompositions of `to_edge`; cached, as collecting them takes 0.5 s."""
    from executorch.exir.program import _program  # noqa: PLC0415

    table: Any = _program._default_decomposition_table()
    made: dict[Any, Any] = table.materialize()
    return made


@contextlib.contextmanager
def _logged() -> Iterator[None]:
    """The runtime only logs the reason of an error to standard error: put it into the exception.

    Kernels name the check that fails, and the loader names an operator without a kernel.
    """
    log = io.StringIO()
    with contextlib.redirect_stderr(log):
        try:
            yield
        except RuntimeError as error:
            reason = _reason(log.getvalue())
            raise RuntimeError(f"{error}: {reason}" if reason else str(error)) from error


def _reason(log: str) -> str:
    """The first line about a missing part or a failing check, without its source location."""
    lines = [line.partition("] ")[2] for line in log.splitlines()]
    reasons = [line for line in lines if "Check failed" in line or "Missing operator" in line]
    return (reasons or [*filter(None, lines), ""])[0]


# --- options, each a variant, and the recipe ------------------------------------------------------


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


TARGET = Target(
    name="executorch",
    summary="torch.export, then ExecuTorch: to_edge, to_executorch, its portable runtime",
    contract=CONTRACT,
    build=build,
    traced_recipe=recipe,
    variants=(BUFFERS, FEED_BACK, KEPT_OUTPUTS, *options_of(PLUGIN)),
    after=export.TARGET,
    needs=PLUGIN,
    cost=10,
    left_out=REFUSED,
)
