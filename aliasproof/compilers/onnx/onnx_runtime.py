"""Targets *onnx*: `torch.onnx.export` of an exported program, run by ONNX Runtime on the CPU.

A model has neither views nor writes: its graph is in static single assignment form, and operators
are functions (https://onnx.ai/onnx/repo-docs/IR.html). The exporter drops writes to inputs, since
it keeps only outputs of the kind `USER_OUTPUT` (`_exported_program_to_onnx_program` in
torch/onnx/_internal/exporter/_core.py). So the exported module returns the new contents of inputs,
and the caller copies them back.

Three targets add one optimizer after the other, so that a violation is attributed to the first. A
fourth binds inputs and outputs to memory of torch.
"""

from __future__ import annotations

import functools
import inspect
import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

import torch

from aliasproof.compilers.functional_module import (
    SOURCE,
    functional_module,
    kept_composites,
    of_values_alone,
)
from aliasproof.compilers.onnx import PLUGIN
from aliasproof.ir.errors import Rejected
from aliasproof.oracles.contract import Precondition, Promise, Waiver, draws_nothing
from aliasproof.targets import clauses, export
from aliasproof.targets.target import Build, Function, Target
from aliasproof.targets.variants import FEED_BACK, KEPT_OUTPUTS

OPAQUE = "a model of ONNX does not call operators of torch"

IR = "https://onnx.ai/onnx/repo-docs/IR.html"
VALUES_ALONE = (
    f"an output of a model is a value: no operator makes a view or writes an argument ({IR})"
)
CONTRACT = replace(
    export.CONTRACT,
    waivers=(
        *of_values_alone(VALUES_ALONE, f"a tensor of ONNX has a shape and no strides ({IR})"),
        Waiver(
            Promise.ROUNDING,
            "operators without a kernel for float16 or bfloat16 run in float32, and casts between"
            " them are removed (onnxruntime/core/optimizer/insert_cast_transformer.cc)",
        ),
        Waiver(Promise.EQUIVALENCE, "operators of torch are translated to others (torch.onnx)"),
        clauses.NO_OVERLAP_ERROR,
    ),
    preconditions=(
        *export.CONTRACT.preconditions,
        Precondition(
            "no random numbers",
            "the random operators of ONNX have seeds of their own"
            " (https://onnx.ai/onnx/operators/onnx__RandomNormal.html)",
            draws_nothing,
        ),
    ),
)


class Bound:
    """A model that reads the caller's memory, and writes its outputs into memory of torch."""

    def __init__(self, session: Any, graph: Any, results: Any) -> None:
        self.session, self.graph, self.results = session, graph, results

    def __call__(self, *inputs: Any) -> Any:
        binding, dense = self.session.io_binding(), [self.pairs(x).contiguous() for x in inputs]
        for value, x in zip(self.graph.inputs, dense, strict=True):
            binding.bind_input(value.name, "cpu", 0, int(value.dtype), [*x.shape], self.memory(x))
        made = [self.pairs(torch.empty(y.shape, dtype=y.dtype)) for y in self.results]
        for value, y in zip(self.graph.outputs, made, strict=True):
            binding.bind_output(value.name, "cpu", 0, int(value.dtype), [*y.shape], self.memory(y))
        self.session.run_with_iobinding(binding)
        return made

    def pairs(self, x: Any) -> Any:
        return torch.view_as_real(x.resolve_conj()) if x.is_complex() else x

    def memory(self, x: Any) -> int:
        return x.data_ptr() or 1  # a tensor without elements has none


def recipe(*, fold: bool, level: str, bind: bool) -> str:
    """The source of `build`."""
    run = "Bound(model._inference_session, model.model.graph, module.results)" if bind else "model"
    return f"""
import onnxruntime
{SOURCE}
{inspect.getsource(Bound) if bind else ""}

def session(model):
    options = onnxruntime.SessionOptions()
    levels = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = levels.{level}
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def compiled(program, inputs):
    module = FunctionalModule(program, inputs).eval()
    exported = torch.export.export(module, tuple(inputs))
    model = torch.onnx.export(exported, dynamo=True, optimize={fold}, verbose=False)
    model.initialize_inference_session(session)
    run = {run}
    return lambda *inputs: module.run(run, inputs)
"""


def build(
    function: Function, inputs: Sequence[torch.Tensor], *, fold: bool, level: str, bind: bool
) -> Build:
    """Export, translate, and load. Raises `Rejected` if a translation or a kernel is missing."""
    module, exported = functional_module(function, inputs)
    with _rejecting():
        with _kept_tables():
            model: Any = torch.onnx.export(exported, dynamo=True, optimize=fold, verbose=False)
        model.initialize_inference_session(functools.partial(_session, level))
    run = model
    if bind:
        run = Bound(model._inference_session.session, model.model.graph, module.results)

    @_rejecting()  # a kernel that lacks the dtypes raises when it runs
    def call(*inputs: Any) -> Any:
        return run(*inputs)

    return Build(lambda *inputs: module.run(call, inputs), [], OPAQUE)


# Messages of the exporter and the runtime about missing operators, and their meanings.
REFUSALS = {
    r"No ONNX function found for <OpOverload\(op='([\w.]+)', overload='(\w+)'\)>"
    r".*?for the (real|complex)-valued": "torch.onnx does not translate {0}.{1} of {2} numbers",
    r"Error when translating node %(auto_functionalized\w*) ": "torch.onnx does not translate {0}",
    r"Could not find an implementation for (\w+)\(": "ONNX Runtime has no kernel for {0}",
    # Some kernels have no table entry for unsupported dtypes, and fail with one of several codes.
    r"running (\w+) node\.[^:]*:.*?Status Message: .*?(?:\w+ (?:data )?type(?: is)? not supported"
    r"|[Uu]nsupported (?:\w+ )*type|[Nn]ot implemented)": (
        "ONNX Runtime has no kernel for {0} of a dtype"
    ),
    r"Type Error: Type 'tensor\((\w+)\)' of input parameter \(\w+\) of operator \((\w+)\)": (
        "ONNX has no {1} of {0}"
    ),
}


@contextmanager
def _rejecting() -> Iterator[None]:
    """Raises `Rejected` if an export or a session reports an unsupported operator."""
    try:
        yield
    except Exception as error:
        for said, means in REFUSALS.items():
            if match := re.search(said, str(error), re.DOTALL):
                raise Rejected(means.format(*match.groups())) from error
        raise


def _session(level: str, model: Any) -> Any:
    import onnxruntime  # noqa: PLC0415

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    options.intra_op_num_threads = 1  # there is one worker per core
    options.log_severity_level = SILENT
    return _Silent(onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"]))


# Errors are raised; nothing else is written to the terminal.
SILENT = 4


class _Silent:
    """A session for `ONNXProgram`, which would print errors on the terminal."""

    def __init__(self, session: Any) -> None:
        self.session = session

    def run_with_ort_values(self, names: Any, inputs: Any, run_options: Any) -> Any:
        run_options.log_severity_level = SILENT
        return self.session.run_with_ort_values(names, inputs, run_options=run_options)


# --- what exports have in common ------------------------------------------------------------------


@contextmanager
def _kept_tables() -> Iterator[None]:
    """Cache the parts of an export that do not depend on the program: making them takes 3 s."""
    from torch.onnx._internal.exporter import _decomp, _registration  # noqa: PLC0415

    registry, table = _tables()
    with (
        kept_composites(),
        mock.patch.object(_registration.ONNXRegistry, "from_torchlib", registry),
        mock.patch.object(_decomp, "create_onnx_friendly_decomposition_table", table),
    ):
        yield


@functools.cache
def _tables() -> tuple[Any, Any]:
    """The registry of translations, and the table of decompositions; each is made once."""
    from torch.onnx._internal.exporter import _decomp, _registration  # noqa: PLC0415

    make = functools.cache(_decomp.create_onnx_friendly_decomposition_table)
    registry = functools.cache(_registration.ONNXRegistry.from_torchlib)
    for name in ("onnx_ir", "onnxscript", "torch.onnx"):  # they log each step
        logging.getLogger(name).setLevel(logging.CRITICAL)
    return staticmethod(registry), lambda operators: make(frozenset(operators))


def _target(
    name: str,
    summary: str,
    after: Target,
    *,
    fold: bool = True,
    level: str = "ORT_ENABLE_ALL",
    bind: bool = False,
) -> Target:
    return Target(
        name=name,
        summary=summary,
        contract=CONTRACT,
        build=functools.partial(build, fold=fold, level=level, bind=bind),
        recipe=recipe(fold=fold, level=level, bind=bind),
        after=after,
        variants=(FEED_BACK, KEPT_OUTPUTS),
        needs=PLUGIN,
        cost=6,
    )


TRANSLATED = _target(
    "onnx-translated",
    "torch.onnx.export without its optimizer, run by ONNX Runtime without its own",
    export.TARGET,
    fold=False,
    level="ORT_DISABLE_ALL",
)
FOLDED = _target(
    "onnx-folded",
    "torch.onnx.export with its optimizer, run by ONNX Runtime without its own",
    TRANSLATED,
    level="ORT_DISABLE_ALL",
)
TARGET = _target(
    "onnx",
    "torch.onnx.export, run by ONNX Runtime with all graph optimizations",
    FOLDED,
)
BOUND = _target(
    "onnx-bound",
    "the same, with inputs and outputs bound to memory of torch (I/O binding)",
    TARGET,
    bind=True,
)
