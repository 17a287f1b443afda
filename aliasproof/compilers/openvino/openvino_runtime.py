"""Targets *openvino*, *openvino-aot*, *openvino-model* and *openvino-shared*: OpenVINO on the CPU.

*openvino* is `torch.compile(backend="openvino")`. Dynamo captures the graph, operators that
OpenVINO supports are grouped into partitions, and the rest runs in eager
(openvino/frontend/pytorch/torchdynamo/backend.py). With *openvino-aot*, AOTAutograd functionalizes
that graph first. The other targets run `openvino.convert_model` on an exported program, which
returns the new contents of inputs, as for ONNX.

When imported, OpenVINO sends telemetry (openvino/tools/ovc/__init__.py). These targets prevent
that.
"""

from __future__ import annotations

import functools
import inspect
import re
import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from unittest import mock

import torch
from torch.utils import _pytree as pytree

from aliasproof.compilers.functional_module import (
    SOURCE,
    functional_module,
    kept_composites,
    of_values_alone,
)
from aliasproof.compilers.openvino import PLUGIN, SILENT
from aliasproof.ir.errors import Rejected
from aliasproof.oracles.contract import Precondition, Promise, Waiver, draws_nothing
from aliasproof.targets import aot_eager, clauses, dynamo, export
from aliasproof.targets.target import Build, Function, Target
from aliasproof.targets.variants import FEED_BACK, KEPT_OUTPUTS

OPAQUE = "a model of OpenVINO does not call operators of torch"
# By default, the plugin computes in bfloat16 where the processor can
# (https://docs.openvino.ai/2026/openvino-workflow/running-inference/inference-devices-and-modes/cpu-device.html).
CONFIG = {"INFERENCE_PRECISION_HINT": "f32"}

GRAPH = (
    "a model describes a graph of operations on values"
    " (https://docs.openvino.ai/2026/openvino-workflow/running-inference/model-representation.html)"
)
WAIVERS = (
    *of_values_alone(GRAPH, f"a tensor has a dense layout; {GRAPH}"),
    Waiver(
        Promise.ROUNDING,
        "f16 and bf16 are computed with the precision of the hint, here f32"
        " (ov::hint::inference_precision)",
    ),
    Waiver(Promise.EQUIVALENCE, "operators of torch are translated to others"),
    clauses.NO_OVERLAP_ERROR,
)
NO_RANDOM = Precondition(
    "no random numbers",
    "RandomUniform has seeds of its own (https://docs.openvino.ai/2026/documentation/"
    "openvino-ir-format/operation-sets/operation-specs/generation/random-uniform-8.html)",
    draws_nothing,
)
BACKEND_CONTRACT = replace(
    aot_eager.CONTRACT,
    waivers=(*aot_eager.CONTRACT.waivers, *WAIVERS),
    preconditions=(*aot_eager.CONTRACT.preconditions, NO_RANDOM),
)
MODEL_CONTRACT = replace(
    export.CONTRACT,
    waivers=WAIVERS,
    preconditions=(*export.CONTRACT.preconditions, NO_RANDOM),
)


class Model:
    """A compiled model. Inputs that it does not use are none of its own."""

    def __init__(self, runs: Any, share_outputs: bool) -> None:
        self.runs, self.share_outputs = runs, share_outputs
        self.names = {name for port in runs.inputs for name in port.names}

    def __call__(self, *inputs: Any) -> Any:
        given = {f"inputs_{i}": x.numpy() for i, x in enumerate(inputs)}
        used = {name: array for name, array in given.items() if name in self.names}
        outputs = self.runs(used, share_outputs=self.share_outputs)
        return [torch.from_numpy(outputs[port]) for port in self.runs.outputs]


def backend_recipe(options: Mapping[str, object]) -> str:
    """The source of `build_backend`."""
    return f"""
{SILENT}

import openvino.torch


def compiled(program, inputs):
    options = {dict(options)}
    return torch.compile(program, backend="openvino", options=options)
"""


def model_recipe(*, share: bool) -> str:
    """The source of `build_model`."""
    return f"""
{SILENT}

import openvino
{SOURCE}

{inspect.getsource(Model)}

def compiled(program, inputs):
    module = FunctionalModule(program, inputs).eval()
    model = openvino.convert_model(torch.export.export(module, tuple(inputs)))
    runs = openvino.compile_model(model, "CPU", {CONFIG!r})
    return lambda *inputs: module.run(Model(runs, {share}), inputs)
"""


# --- torch.compile --------------------------------------------------------------------------------


def build_backend(
    function: Function, inputs: Sequence[torch.Tensor], *, options: Mapping[str, object]
) -> Build:
    """Compile in the first call. Raises `Rejected` then if nothing runs in OpenVINO."""
    _load()
    from openvino.frontend.pytorch.torchdynamo import backend, execute  # noqa: PLC0415

    execute.clear_caches()
    execute.req_cache.clear()
    backend.openvino_options = {}  # after one use of AOTAutograd, all later calls would use it
    partitions = _Partitions(backend, execute, options)
    compiled = dynamo.compiled(function, partitions)

    def run(*inputs: torch.Tensor) -> object:
        result = compiled(*inputs)
        partitions.require_one()
        return result

    return Build(run, [], OPAQUE)


class _Partitions:
    """The backend of OpenVINO. Graphs that it cannot compile go to Inductor, or run in eager."""

    def __init__(self, backend: Any, execute: Any, options: Mapping[str, object]) -> None:
        self.backend, self.execute, self.options = backend, execute, options
        self.error: BaseException | None = None
        self.rejected: Rejected | None = None

    def __call__(self, graph: Any, examples: Any) -> Any:
        try:
            _require_floats(graph.graph)
        except Rejected as reason:
            self.rejected = reason
            return graph
        with mock.patch.object(self.backend, "compile_fx", self._left):
            return self.backend.openvino(graph, examples, options=dict(self.options))

    def _left(self, graph: Any, examples: Any) -> Any:
        self.error = sys.exception()
        return graph

    def require_one(self) -> None:
        """Raises `Rejected` if no operator ran in OpenVINO."""
        if self.rejected is not None:
            raise self.rejected
        if self.error is not None:
            raise Rejected(f"OpenVINO leaves the graph to Inductor: {self.error}") from self.error
        graphs = self.execute.partitioned_modules.values()
        parts = [it for graph in graphs for it in graph.modules() if hasattr(it, "perm_fallback")]
        if all(part.perm_fallback for part in parts):
            raise Rejected("no operator runs in OpenVINO")


def _load() -> Any:
    """Import OpenVINO. It changes a setting of Dynamo; torch 2.13 ignores that, with a warning."""
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        import openvino.torch  # noqa: PLC0415
    return openvino


# --- convert_model --------------------------------------------------------------------------------


def build_model(function: Function, inputs: Sequence[torch.Tensor], *, share: bool) -> Build:
    """Export, convert and compile. Raises `Rejected` if an operator has no translation."""
    openvino = _load()
    module, exported = functional_module(function, inputs)
    for dtype in [*(x.dtype for x in inputs), *(y.dtype for y in module.results)]:
        if dtype in NO_ARRAYS:
            raise Rejected(f"no array of numpy has the numbers of an input or output: {dtype}")
    _require_floats(exported.graph)
    try:
        with kept_composites():
            model = openvino.convert_model(exported)
    except openvino.frontend.OpConversionFailure as error:
        missing = re.search(r"No conversion rule found for operations: ([\w.:, ]+)", str(error))
        reason = missing or re.search(r"(?m)^-- (.+) with a message:", str(error))
        if reason is None:
            raise
        raise Rejected(f"OpenVINO does not translate {reason[1]}") from error
    runs = openvino.compile_model(model, "CPU", CONFIG)
    run = Model(runs, share)
    return Build(lambda *inputs: module.run(run, inputs), [], OPAQUE)


# Dtypes that numpy lacks, or that a model represents as pairs.
NO_ARRAYS = (
    torch.bfloat16,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
    torch.complex32,
    torch.complex64,
    torch.complex128,
)


def _require_floats(graph: Any) -> None:
    """Raises `Rejected` for double precision, which the plugin for CPUs computes as float32."""
    values = [node.meta.get("val", node.meta.get("example_value")) for node in graph.nodes]
    tensors = [it for it in pytree.tree_leaves(values) if isinstance(it, torch.Tensor)]
    if any(it.dtype == torch.float64 for it in tensors):
        raise Rejected("OpenVINO computes float64 as float32")


OPTIONS: Mapping[str, object] = {"config": CONFIG}
AOT_OPTIONS = {**OPTIONS, "aot_autograd": True}
TARGET = Target(
    name="openvino",
    summary='torch.compile(backend="openvino") on the CPU',
    contract=BACKEND_CONTRACT,
    build=functools.partial(build_backend, options=OPTIONS),
    recipe=backend_recipe(OPTIONS),
    after=dynamo.TARGET,
    variants=(FEED_BACK, KEPT_OUTPUTS),
    needs=PLUGIN,
    cost=6,
)
AOT = replace(
    TARGET,
    name="openvino-aot",
    summary='torch.compile(backend="openvino") with its option aot_autograd',
    build=functools.partial(build_backend, options=AOT_OPTIONS),
    recipe=backend_recipe(AOT_OPTIONS),
    after=aot_eager.TARGET,
)
MODEL = Target(
    name="openvino-model",
    summary="openvino.convert_model of an exported program, run on the CPU",
    contract=MODEL_CONTRACT,
    build=functools.partial(build_model, share=False),
    recipe=model_recipe(share=False),
    after=export.TARGET,
    variants=(FEED_BACK, KEPT_OUTPUTS),
    needs=PLUGIN,
    cost=8,
)
SHARED = replace(
    MODEL,
    name="openvino-shared",
    summary="the same with share_outputs: outputs are memory of the model",
    build=functools.partial(build_model, share=True),
    recipe=model_recipe(share=True),
    after=MODEL,
    # "shared data can be modified or lost during runtime" (docstring of CompiledModel.__call__)
    variants=(),
)
