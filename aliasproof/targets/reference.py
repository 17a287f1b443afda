"""Targets *reference*, *reference-copy* and *reference-planned*: `reference_pass`, run in eager.

They promise everything that eager does, with one waiver: graphs need not be equivalent on symbolic
values where two decompositions of one operator compute the same.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import torch
from torch import fx

from aliasproof.ir.errors import Rejected
from aliasproof.ir.execution import ProgramFunction
from aliasproof.oracles.contract import (
    Contract,
    Refusal,
    always,
    depends_on_data,
    is_python_function,
)
from aliasproof.oracles.stage import Stage
from aliasproof.reference_pass.capture.size_guards import SizeGuards
from aliasproof.reference_pass.memory_plan import plan_memory
from aliasproof.reference_pass.pipeline import (
    PipelineOptions,
    functionalize,
    reinplace,
    remove_noops,
)
from aliasproof.targets import dynamo, variants
from aliasproof.targets.clauses import (
    BODY_CAPTURED_WHOLE,
    COMPILED_CODE_OR_REAL_TENSOR,
    DATA_OF_A_TRACER,
    DOUBLE_BACKWARD,
    OTHER_DECOMPOSITION,
)
from aliasproof.targets.target import NOTHING, Build, Function, Target, Variant
from aliasproof.targets.tracing import PLAIN, Tracing, untraced

BY_THE_PASS = ("aliasproof.reference_pass",)
CONTRACT = Contract(
    waivers=(OTHER_DECOMPOSITION,),
    refusals=(
        BODY_CAPTURED_WHOLE,
        DOUBLE_BACKWARD,  # as the backend of `torch.compile`
        # `reference_pass` raises `Refused`, and its subclass `DataDependent`.
        Refusal(
            "data-dependent call",
            "",
            "one graph must be right for all tensor data, so sizes and branches must not depend on"
            " it (docs/reference_pass.md)",
            depends_on_data,
            ("DataDependent", "_BreaksGraph"),
            BY_THE_PASS,
        ),
        Refusal(
            "what no graph of ATen calls shows",
            r"(is a higher-order operator|cannot be traced|goes past the dispatcher"
            r"|did not get as an argument|is not an ATen operator|is not an ATen call"
            r"|has no strides to reason about|one tensor is passed twice|an explicit generator"
            r"|seeds the default generator|a scale beside its storage|loop body writes)",
            "what Python code does beside ATen calls on its arguments is refused by name"
            " (docs/reference_pass.md)",
            is_python_function,
            ("Refused",),
            BY_THE_PASS,
        ),
        Refusal(
            "operator whose schema hides what it writes",
            r"its schema does not say so|no functional form that tells",
            "cudnn_batch_norm in training and out= arguments of another size change what their"
            " schemas do not tell (docs/reference_pass.md)",
            always,
            ("Refused",),
            BY_THE_PASS,
        ),
        Refusal(
            "kernel without data that refuses what eager accepts",
            r" raises on tensors without data, and not in eager: ",
            "the passes reason about the results of torch's fake kernels (docs/reference_pass.md)",
            always,
            ("Refused",),
            BY_THE_PASS,
        ),
        DATA_OF_A_TRACER,
        COMPILED_CODE_OR_REAL_TENSOR,
    ),
)


def build(
    function: Function,
    inputs: Sequence[torch.Tensor],
    tracing: Tracing = PLAIN,
    *,
    options: PipelineOptions,
) -> Build:
    """Run the passes one by one, and keep the graph after each.

    A program is converted to a graph without tracing, unless sizes are symbolic. If a variant calls
    the function, it is compiled by the backend of the pass.
    """
    if tracing.symbolic:
        functional = functionalize(function, *inputs, views=options.views, sizes="symbolic")
    elif tracing.called:
        # As `torch.compile(backend="aliasproof")` does: for many calls, and with gradients.
        # Imported here: it imports Dynamo, which takes two seconds. Plain targets do not need it.
        from aliasproof.reference_pass.backend import aliasproof  # noqa: PLC0415

        backend = functools.partial(aliasproof, options=asdict(options))
        opaque = "the backend compiles once per layout of its inputs"
        # A program goes to the backend as a graph, without Dynamo unless its guards are needed.
        if isinstance(function, ProgramFunction) and not tracing.guarded:
            graph: Any = untraced(function)
            return Build(backend(graph, inputs), [], opaque)
        return Build(dynamo.compiled(function, backend), [], opaque)
    else:
        functional = functionalize(untraced(function), *inputs, views=options.views)
    # Each pass changes its argument, so it gets a copy: oracles need the earlier stage.
    plain = remove_noops(copy.deepcopy(functional))
    last = plan_memory if options.plan_memory else reinplace
    unguarded = staged(functional, plain, last(copy.deepcopy(plain)))
    return _within_guards(unguarded, inputs) if tracing.symbolic else unguarded


def _within_guards(build: Build, inputs: Sequence[torch.Tensor]) -> Build:
    """A build whose function raises `Rejected` for inputs that break the guards of its trace.

    The inputs of the trace must satisfy these guards.
    """
    graph_module = build.function
    assert isinstance(graph_module, fx.GraphModule)
    hooks = graph_module._forward_pre_hooks.values()
    guards = [hook for hook in hooks if isinstance(hook, SizeGuards)]
    for guard in guards:
        assert (broken := guard.broken(inputs)) is None, broken

    def checked(*inputs: torch.Tensor) -> object:
        for guard in guards:
            if (broken := guard.broken(inputs)) is not None:
                raise Rejected(broken)
        return graph_module(*inputs)

    return replace(build, function=checked)


def staged(functional: fx.GraphModule, plain: fx.GraphModule, reinplaced: fx.GraphModule) -> Build:
    """A build with the graph after each pass as a stage; it runs the last one."""
    stages = [
        Stage("functional", functional, functional=True),
        Stage("without no-ops", plain, functional=True),
        Stage("reinplaced", reinplaced, functional=False),
    ]
    return Build(reinplaced, stages)


def recipe(tracing: Tracing = PLAIN, *, options: PipelineOptions) -> str:
    """The source of `build`."""
    arguments = f'views="{options.views}"' + (", planned=True" if options.plan_memory else "")
    if tracing.symbolic:
        return f"""
from aliasproof.reference_pass import pipeline  # of aliasproof


def compiled(program, inputs):
    return pipeline(program, *inputs, {arguments}, sizes="symbolic")
"""
    if tracing.called:
        asked = {name: value for name, value in asdict(options).items() if value}
        return f"""
import functools

from aliasproof.reference_pass.backend import aliasproof  # of aliasproof


def compiled(program, inputs):
    return torch.compile(program, backend=functools.partial(aliasproof, options={asked}))
"""
    # A trace by `make_fx` would show other calls, since the dispatcher resolves lazy bits first.
    # And `fx.symbolic_trace` would call an operator without tensor arguments, such as `arange`, and
    # keep its result as a constant.
    return f"""
from aliasproof.reference_pass import pipeline  # of aliasproof
from torch import fx
from torch.overrides import TorchFunctionMode


class Recorded(TorchFunctionMode):
    def __init__(self, tracer):
        super().__init__()
        self.tracer = tracer

    def __torch_function__(self, call, types, args=(), kwargs=None):
        return self.tracer.create_proxy("call_function", call, args, kwargs or {{}})


def compiled(program, inputs):
    tracer = fx.Tracer()
    with Recorded(tracer):
        graph = tracer.trace(program)
    return pipeline(fx.GraphModule(tracer.root, graph), *inputs, {arguments})
"""


def _by_backend(variant: Variant) -> Variant:
    """A variant that the backend compiles. It excludes *symbolic*.

    A symbolic graph is traced once, for one dtype and sharing of its inputs.
    """
    asks = "needs the backend, which asks Dynamo for the sizes that are symbols"
    return replace(variant, apart={"symbolic": f"'{variant.name}' {asks}"})


VARIANTS = (
    variants.SYMBOLIC,
    # The backend trains through AOTAutograd, whose limits are no excuse: users get the backend.
    *(replace(_by_backend(grad), clauses=NOTHING) for grad in variants.GRADS),
    # Only Dynamo compiles a module or a closure, or a function for both grad modes: AOTAutograd
    # compiles for inputs that require gradients, or for inputs that do not.
    _by_backend(variants.GUARDED_CAPTURED),
    _by_backend(variants.BUFFERS),
    _by_backend(variants.by_dynamo(variants.SAME_INPUT)),
    *map(_by_backend, (variants.SECOND_CALL, variants.SECOND_LAYOUT)),
    variants.SECOND_SIZE,
    *map(_by_backend, (variants.SECOND_DTYPE, variants.SECOND_VALUES)),
    _by_backend(variants.by_dynamo(variants.SECOND_GRAD)),
    _by_backend(variants.FEED_BACK),
    variants.KEPT_OUTPUTS,
    # Only the loops, whose body writes no operand: Dynamo refuses such writes, too.
    *map(_by_backend, variants.LOOPS),
)


def _target(
    name: str, summary: str, options: PipelineOptions, backend: str | None = None
) -> Target:
    return Target(
        name=name,
        summary=summary,
        contract=CONTRACT,
        build=functools.partial(build, options=options),
        traced_recipe=functools.partial(recipe, options=options),
        variants=VARIANTS,
        excused=False,
        backend=backend,
    )


REFERENCE = _target(
    "reference",
    "reference_pass: functionalize, remove_noops, reinplace; run in eager",
    PipelineOptions(),
    backend="aliasproof",
)
REFERENCE_COPY = _target(
    "reference-copy", "the same with view-copy ops in place of views", PipelineOptions(views="copy")
)
REFERENCE_PLANNED = _target(
    "reference-planned",
    "reference_pass: functionalize, remove_noops, plan_memory; run in eager",
    PipelineOptions(plan_memory=True),
)
