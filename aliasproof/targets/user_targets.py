"""What a user's target can be: a pass on graphs, a backend of `torch.compile`, or a `Target`.

The signature decides. A *pass* has one required argument, a graph: it changes it in place, or
returns another. A *backend* has two, a graph and example inputs, and returns a callable.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from aliasproof.ir.errors import UserError
from aliasproof.targets.target import Target
from aliasproof.targets.user_names import CodeName, frame_of_user

EXAMPLES = "example_inputs"  # an optional argument of a pass
EXPECTED = (
    "a pass (it takes a torch.fx.GraphModule, and returns one, or None if it changed it in place)"
    " or a torch.compile backend (it takes a GraphModule and example inputs, and returns a"
    " callable)"
)
# Interfaces of `torch._inductor.custom_graph_pass` for what is no graph of ATen calls.
OTHER_INTERFACES = (
    "CustomSchedulerPass",
    "CustomPartitionerFn",
    "CustomRuntimeEstimator",
    "CustomKnapsackSolver",
)


def after_pass(graph: Any, returned: Any) -> Any:
    """The graph that a pass returned, or that it changed in place."""
    result = getattr(returned, "graph_module", returned)  # of a `PassResult`
    if result is None or isinstance(result, int):  # some passes say whether they changed anything
        result = graph
    if isinstance(result, torch.fx.Graph):
        result = torch.fx.GraphModule(graph, result)
    if not isinstance(result, torch.fx.GraphModule):
        raise TypeError(f"the pass returned {type(result).__name__}, not a GraphModule or None")
    result.recompile()
    return result


@dataclass(frozen=True, slots=True)
class UserPass:
    """A pass. It gets an `fx.Graph` if `on_graph`, and example inputs if it has that argument."""

    function: Callable[..., object]
    on_graph: bool = False
    with_examples: bool = False

    @property
    def __name__(self) -> str:
        return name_of(self.function)

    def __call__(self, module: fx.GraphModule) -> fx.GraphModule:
        """The graph after the pass. An exception says where in the user's code it was raised."""
        given = module.graph if self.on_graph else module
        inputs = [node.meta.get("val") for node in module.graph.find_nodes(op="placeholder")]
        more = {EXAMPLES: inputs} if self.with_examples else {}
        try:
            returned = self.function(given, **more)
        except Exception as error:
            _note_frame(error)
            raise
        changed: fx.GraphModule = after_pass(module, returned)
        return changed

    def source(self, name: str) -> str:
        """The call as source: of the pass with this name, on `graph`."""
        given = "graph.graph" if self.on_graph else "graph"
        return f"{name}({given}{f', {EXAMPLES}={EXAMPLES}' if self.with_examples else ''})"


@dataclass(frozen=True, slots=True)
class UserBackend:
    """A backend of `torch.compile`."""

    function: Callable[..., Any]

    @property
    def __name__(self) -> str:  # Dynamo puts it into messages
        return name_of(self.function)

    def __call__(self, module: fx.GraphModule, examples: list[Any], **options: Any) -> Any:
        """What the backend returns. An exception says where in the user's code it was raised."""
        try:
            return self.function(module, examples, **options)
        except Exception as error:
            _note_frame(error)
            raise


def name_of(function: Callable[..., object]) -> str:
    """The name of a function; that of its type, if it is an instance."""
    return str(getattr(function, "__name__", type(function).__name__))


def _note_frame(error: Exception) -> None:
    where = frame_of_user(error)
    if where is not None:
        error.add_note(f"raised at {where}")


# --- what it is -----------------------------------------------------------------------------------


def classify(value: object, code: CodeName) -> UserPass | UserBackend | Target:
    """What a user's target is. Raises `UserError` for anything that is none of these."""
    if isinstance(value, Target):
        return value
    value = instance(value, code)
    if any(kind.__name__ in OTHER_INTERFACES for kind in type(value).__mro__):
        raise _refusal(code, f"is a {type(value).__name__}, which works on no graph of ATen calls")
    if not callable(value):
        raise _refusal(code, f"is of type {type(value).__name__}, not callable")
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError) as error:
        raise _refusal(code, "has no signature that Python can read") from error
    parameters = [*signature.parameters.values()]
    required = [parameter.name for parameter in parameters if _is_required(parameter)]
    positional = [parameter for parameter in parameters if parameter.kind in _POSITIONAL]
    if len(required) == 1 and required[0] == positional[0].name:
        named = EXAMPLES in signature.parameters
        return UserPass(value, _takes_graph(value, positional[0].name), named)
    # Inductor says also whether there is a backward pass; these graphs are those of inference.
    if required == ["graph", "is_inference"]:
        return UserPass(_Inference(value), on_graph=True)
    if len(required) == 2 and required == [parameter.name for parameter in positional[:2]]:
        return UserBackend(value)
    unclear = ""
    if not required and any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        unclear = " (if a decorator made it so, functools.wraps keeps the signature)"
    raise _refusal(code, f"takes {signature}{unclear}")


_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


@dataclass(frozen=True, slots=True)
class _Inference:
    function: Callable[..., object]

    @property
    def __name__(self) -> str:
        return name_of(self.function)

    def __call__(self, graph: fx.Graph) -> object:
        return self.function(graph, True)


def instance(value: object, code: CodeName) -> object:
    """An instance of a class, made without arguments; any other value as it is."""
    if not isinstance(value, type):
        return value
    try:
        return value()
    except Exception as error:
        raise _refusal(
            code,
            f"is a class, and {value.__name__}() raises {type(error).__name__}: {error}; give an"
            " instance of it a name",
        ) from error


def _is_required(parameter: inspect.Parameter) -> bool:
    if parameter.kind is parameter.KEYWORD_ONLY and parameter.name == EXAMPLES:
        return False
    variadic = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    return parameter.default is parameter.empty and not variadic


def _takes_graph(value: Callable[..., object], name: str) -> bool:
    """Whether the argument is annotated as an `fx.Graph`, and not a `GraphModule`."""
    annotation = inspect.signature(value).parameters[name].annotation
    # Annotations are text under `from __future__ import annotations`.
    return annotation is fx.Graph or str(annotation).strip("'\"").split(".")[-1] == "Graph"


def _refusal(code: CodeName, what: str) -> UserError:
    return UserError(f"target '{code.name}' {what}; expected {EXPECTED}")
