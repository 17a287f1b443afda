"""Targets *reference* and *reference-copy*: the passes of `reference_pass`, run in eager.

They promise all that eager does, with one waiver: graphs need not be equivalent on symbolic values
where two decompositions of one operator compute the same.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import fx

from aliasproof.oracles.contract import Contract, Refusal, depends_on_data, is_python_function
from aliasproof.oracles.stage import Stage
from aliasproof.programs.errors import Rejected
from aliasproof.programs.execution import ProgramFunction, as_graph
from aliasproof.programs.trace import Trace
from aliasproof.reference_pass.functionalize import Views, functionalize
from aliasproof.reference_pass.noops import remove_noops
from aliasproof.reference_pass.reinplace import reinplace
from aliasproof.reference_pass.size_guards import SizeGuards
from aliasproof.targets import dynamo
from aliasproof.targets.target import Build, Function, Target
from aliasproof.targets.torch_functionalize import DATA_OF_A_TRACER, OTHER_DECOMPOSITION
from aliasproof.targets.tracing import PLAIN, Tracing


def _anything(trace: Trace) -> bool:
    """The message names the operator, and only such operators get it."""
    return True


CONTRACT = Contract(
    waivers=(OTHER_DECOMPOSITION,),
    refusals=(
        # `Refused`, and its subclass `DataDependent`, are what `reference_pass` raises.
        Refusal(
            "data-dependent call",
            r"^DataDependent: ",
            "one graph must be right for all tensor data, so sizes and branches must not depend on"
            " it (docs/reference_pass.md)",
            depends_on_data,
        ),
        Refusal(
            "what no graph of ATen calls shows",
            r"^Refused: .*(is a higher-order operator|cannot be traced|goes past the dispatcher"
            r"|did not get as an argument|is not an ATen operator|is not an ATen call"
            r"|has no strides to reason about|one tensor is passed twice|an explicit generator"
            r"|seeds the default generator|a scale beside its storage|loop body writes)",
            "what Python code does beside ATen calls on its arguments is refused by name"
            " (docs/reference_pass.md)",
            is_python_function,
        ),
        Refusal(
            "operator whose schema hides what it writes",
            r"^Refused: .*(its schema does not say so|no functional form that tells)",
            "cudnn_batch_norm in training and out= arguments of another size change what their"
            " schemas do not tell (docs/reference_pass.md)",
            _anything,
        ),
        DATA_OF_A_TRACER,
    ),
)


# Of the variant *symbolic*.
NEEDS_NUMBERS = Refusal(
    "symbolic sizes for a kernel that needs numbers",
    r"^Refused: .*(of symbolic size; trace it|a resize_ of input|depends on symbolic sizes)",
    "a graph for all sizes needs the size of each result without data; trace such a program with"
    " fixed sizes (docs/reference_pass.md)",
    _anything,
)


def build(
    function: Function, inputs: Sequence[torch.Tensor], tracing: Tracing = PLAIN, *, views: Views
) -> Build:
    """Run the passes one by one, and keep the graph after each.

    A program is taken as its graph, without a trace, unless sizes are to be symbols.
    """
    if tracing.symbolic:
        functional = functionalize(function, *inputs, views=views, sizes="symbolic")
    else:
        functional = functionalize(untraced(function), *inputs, views=views)
    # Each pass changes its argument, so it gets a copy, and the stage before is kept for oracles.
    plain = remove_noops(copy.deepcopy(functional))
    found = staged(functional, plain, reinplace(copy.deepcopy(plain)))
    return _within_guards(found, inputs) if tracing.symbolic else found


def _within_guards(found: Build, inputs: Sequence[torch.Tensor]) -> Build:
    """A build whose function raises `Rejected` for inputs that break the guards of its trace.

    These must hold for the inputs of the trace.
    """
    graph_module = found.function
    assert isinstance(graph_module, fx.GraphModule)
    hooks = graph_module._forward_pre_hooks.values()
    guards = [hook for hook in hooks if isinstance(hook, SizeGuards)]
    for each in guards:
        assert (broken := each.broken(inputs)) is None, broken

    def checked(*inputs: torch.Tensor) -> object:
        for each in guards:
            if (broken := each.broken(inputs)) is not None:
                raise Rejected(broken)
        return graph_module(*inputs)

    return replace(found, function=checked)


def untraced(function: Function) -> Function:
    """A program as its graph; any other function as it is."""
    if isinstance(function, ProgramFunction):
        return _as_module(function)
    return function


def _as_module(function: ProgramFunction) -> fx.GraphModule:
    return fx.GraphModule(torch.nn.Module(), as_graph(function.program))


def staged(functional: fx.GraphModule, plain: fx.GraphModule, reinplaced: fx.GraphModule) -> Build:
    """The graphs after each pass as a build, which runs the last one."""
    stages = [
        Stage("functional", functional, functional=True),
        Stage("without no-ops", plain, functional=True),
        Stage("reinplaced", reinplaced, functional=False),
    ]
    return Build(reinplaced, stages)


def recipe(tracing: Tracing = PLAIN, *, views: Views) -> str:
    """The source of `build`."""
    sizes = ', sizes="symbolic"' if tracing.symbolic else ""
    return f"""
from aliasproof.reference_pass import pipeline  # of aliasproof


def compiled(program, inputs):
    return pipeline(program, *inputs, views="{views}"{sizes})
"""


def recipe_untraced(*, views: Views) -> str:
    """The source of `build` for a program, which is taken as its graph.

    A trace would show other calls: the dispatcher resolves lazy bits before it. `fx.symbolic_trace`
    alone calls what has no tensor among its arguments, such as `arange`, and keeps a constant.
    """
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
    return pipeline(fx.GraphModule(tracer.root, graph), *inputs, views="{views}")
"""


def build_by_backend(
    function: Function, inputs: Sequence[torch.Tensor], tracing: Tracing = PLAIN, *, views: Views
) -> Build:
    """Compile as `torch.compile(backend="aliasproof")`: for many calls, and with gradients.

    A program goes to the backend as its graph, without Dynamo.
    """
    # Imported here: it imports Dynamo, which takes two seconds, and the plain targets need it not.
    from aliasproof.reference_pass.backend import aliasproof  # noqa: PLC0415

    backend = functools.partial(aliasproof, views=views)
    if isinstance(function, ProgramFunction):
        compiled = backend(_as_module(function), inputs)
    else:
        compiled = dynamo.compiled(function, backend, tracing)
    return Build(compiled, [], "the backend compiles once per layout of its inputs")


def recipe_by_backend(tracing: Tracing = PLAIN, *, views: Views) -> str:
    """The source of `build_by_backend`."""
    return f"""
import functools

from aliasproof.reference_pass.backend import aliasproof  # of aliasproof


def compiled(program, inputs):
    return torch.compile(program, backend=functools.partial(aliasproof, views="{views}"))
"""


REFERENCE = Target(
    name="reference",
    summary="reference_pass: functionalize, remove_noops, reinplace; run in eager",
    contract=CONTRACT,
    build=functools.partial(build, views="alias"),
    recipe=recipe_untraced(views="alias"),
)
REFERENCE_COPY = Target(
    name="reference-copy",
    summary="the same with view-copy ops in place of views",
    contract=CONTRACT,
    build=functools.partial(build, views="copy"),
    recipe=recipe_untraced(views="copy"),
)
