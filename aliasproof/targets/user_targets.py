"""Kinds of a user's target: a pass on graphs, a backend of `torch.compile`, or a `Target`.

The signature decides. A *pass* has one required argument, a graph, which it changes in place or
replaces. A *backend* has two, a graph and example inputs, and returns a callable.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import fx

from aliasproof.ir.errors import UserError
from aliasproof.ir.execution import ProgramFunction
from aliasproof.oracles.contract import Promise, Waiver
from aliasproof.targets import aot, aot_eager, buffers, dynamo, variants
from aliasproof.targets.target import Build, Function, Target
from aliasproof.targets.tracing import PLAIN, Tracing
from aliasproof.targets.user_names import CodeName, folder_of, frame_of_user, load, source_of

EXAMPLES = "example_inputs"  # an optional argument of a pass
EXPECTED = (
    "a pass (it takes a torch.fx.GraphModule, and returns one, or None if it changed it in place)"
    " or a torch.compile backend (it takes a GraphModule and example inputs, and returns a"
    " callable)"
)
# Interfaces of `torch._inductor.custom_graph_pass` for objects that are no graph of ATen calls.
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
    """A pass. It gets an `fx.Graph` if `on_graph`, and example inputs if it has that argument.

    With `says_inference`, it is also given whether there is no backward pass.
    """

    function: Callable[..., object]
    on_graph: bool = False
    with_examples: bool = False
    says_inference: bool = False

    @property
    def __name__(self) -> str:
        return name_of(self.function)

    def __call__(self, module: fx.GraphModule) -> fx.GraphModule:
        """The graph after the pass. A note on an exception says where the user's code raised it."""
        given = module.graph if self.on_graph else module
        inputs = [node.meta.get("val") for node in module.graph.find_nodes(op="placeholder")]
        more = {EXAMPLES: inputs} if self.with_examples else {}
        try:
            returned = self.function(given, *[True] * self.says_inference, **more)
        except Exception as error:
            _note_frame(error)
            raise
        changed: fx.GraphModule = after_pass(module, returned)
        return changed

    def source(self, name: str) -> str:
        """The call as source: of the pass with this name, on `graph`."""
        given = "graph.graph" if self.on_graph else "graph"
        given += ", True" if self.says_inference else ""
        return f"{name}({given}{f', {EXAMPLES}={EXAMPLES}' if self.with_examples else ''})"


@dataclass(frozen=True, slots=True)
class UserBackend:
    """A backend of `torch.compile`."""

    function: Callable[..., Any]

    @property
    def __name__(self) -> str:  # Dynamo shows it in messages
        return name_of(self.function)

    def __call__(self, module: fx.GraphModule, examples: list[Any], **options: Any) -> Any:
        """Call the backend. A note on an exception says where the user's code raised it."""
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


# --- kinds of user code ---------------------------------------------------------------------------


def classify(value: object, code: CodeName) -> UserPass | UserBackend | Target:
    """The kind of a user's target. Raises `UserError` for any other value."""
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
        # An annotation is text under `from __future__ import annotations`.
        given = positional[0].annotation
        on_graph = given is fx.Graph or str(given).strip("'\"").split(".")[-1] == "Graph"
        return UserPass(value, on_graph, EXAMPLES in signature.parameters)
    # Inductor also passes whether there is a backward pass; these graphs are for inference.
    if required == ["graph", "is_inference"]:
        return UserPass(value, on_graph=True, says_inference=True)
    if len(required) == 2 and required == [parameter.name for parameter in positional[:2]]:
        return UserBackend(value)
    unclear = ""
    if not required and any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        unclear = " (if a decorator made it so, functools.wraps keeps the signature)"
    raise _refusal(code, f"takes {signature}{unclear}")


_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def instance(value: object, code: CodeName) -> object:
    """An instance of a class, made without arguments; any other value unchanged."""
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


def _refusal(code: CodeName, what: str) -> UserError:
    return UserError(f"target '{code.name}' {what}; expected {EXPECTED}")


# --- user builds ----------------------------------------------------------------------------------
#
# A pass gets the graphs of AOTAutograd, which then run in eager. A backend gets the graphs of
# Dynamo. The recipe imports the user's code by name, so a reproducer needs torch and that code.


# The variants of targets from a user's code, and how messages call such targets.
PASS_VARIANTS = (variants.DECOMPOSE, variants.SYMBOLIC, *variants.GRADS, variants.KEPT_OUTPUTS)
# A backend may use AOTAutograd in all variants.
BACKEND_VARIANTS = tuple(
    replace(variant, layer=aot_eager.TARGET)
    for variant in (
        variants.SYMBOLIC,
        replace(variants.CAPTURED, build=buffers.build_captured_by_dynamo),
        variants.GUARDED_BUFFERS,
        variants.AS_WRITTEN,
        *variants.SECOND_CALLS,
        *variants.CONTROL_FLOW,
    )
)
YOUR_PASS, YOUR_BACKEND = "your pass", "your backend"
KINDS = {YOUR_PASS: PASS_VARIANTS, YOUR_BACKEND: BACKEND_VARIANTS}

NO_GRAPHS = "a backend of a user shows no graphs"
# What one call cannot show: inputs that a backend keeps, and outputs that it uses again.
LATER_CALLS = (variants.SECOND_VALUES, variants.KEPT_OUTPUTS)
OTHER_ARITHMETIC = Waiver(
    Promise.EQUIVALENCE, "a pass of a user may compute the same by other operators"
)


def is_plain_backend(target: Target) -> bool:
    """Whether it is a user's backend, in no variant."""
    named = {variant.name for variant in BACKEND_VARIANTS} & set(target.name.split(":"))
    return target.yours.startswith(YOUR_BACKEND) and not named


def of_code(code: CodeName) -> Target:
    """The target that a name denotes.

    Raises `UserError` if it cannot be imported, or is neither a pass nor a backend nor a `Target`.
    """
    value = load(code)
    found = _of_value(value, code, _import(code, value))
    # In the form of `rounding_name`, among other names.
    matches = _OPS.finditer(source_of(code, value))
    names = ((it[1] or it[2]).removeprefix("_foreach_").rstrip("_") for it in matches)
    return replace(found, favored=frozenset(names))


# `aten.add`, `torch.add`, `F.relu`, and in a string `aten::add`, `aten.add_.Tensor` or `add`.
_OPS = re.compile(r"""\b(?:aten|torch|F)(?:\.|::)(\w+)|["'](\w+)["']""")


def of_value(value: object) -> Target:
    """The target from a pass or a backend of this process, such as a function of a test.

    No script can import it, so it has no usable recipe. Raises `UserError` as `of_code` does.
    """
    module, name = getattr(value, "__module__", "?"), getattr(value, "__qualname__", None)
    attribute = str(name or type(value).__name__)
    code = CodeName(f"{module}:{attribute}", str(module), attribute)
    return _of_value(value, code, Import((), attribute))


def _of_value(value: object, code: CodeName, imported: Import) -> Target:
    user_code = classify(value, code)
    if isinstance(user_code, Target):
        yours = f"your target `{code.attribute}`"
        return replace(user_code, name=code.name, variants=(), has_settings=False, yours=yours)
    if isinstance(user_code, UserPass):
        return Target(
            name=code.name,
            summary=f"AOTAutograd's graphs through your pass {code.source}, run in eager",
            contract=replace(aot_eager.CONTRACT, waivers=(*aot.CONTRACT.waivers, OTHER_ARITHMETIC)),
            build=functools.partial(_build_pass, user_code),
            after=aot.AOT,
            layer=aot_eager.TARGET,
            traced_recipe=functools.partial(_recipe_of_pass, user_code, imported),
            variants=PASS_VARIANTS,
            backend=functools.partial(_run_backend, user_code),
            yours=f"{YOUR_PASS} `{user_code.__name__}`",
        )
    return Target(
        name=code.name,
        summary=f"torch.compile(backend=...) with your backend {code.source}",
        # It may use AOTAutograd, whose documented limits are not the backend's fault.
        contract=aot_eager.CONTRACT,
        build=lambda function, inputs, tracing=PLAIN: Build(
            dynamo.compiled(function, user_code, tracing), [], NO_GRAPHS
        ),
        after=dynamo.TARGET,
        layer=aot_eager.TARGET,
        traced_recipe=functools.partial(_recipe_of_backend, imported),
        variants=BACKEND_VARIANTS,
        backend=user_code,
        yours=f"{YOUR_BACKEND} `{user_code.__name__}`",
    )


def _build_pass(
    user_pass: UserPass,
    function: Function,
    inputs: Sequence[torch.Tensor],
    tracing: Tracing = PLAIN,
) -> Build:
    """Run a pass on the graphs of AOTAutograd, behind Dynamo where `torch.compile` needs it.

    A program consists of ATen calls, which Dynamo would not change. With symbolic sizes, the inputs
    are fake tensors, on which Dynamo does not run.
    """
    if isinstance(function, ProgramFunction) or tracing.symbolic:
        return aot.build(function, inputs, tracing, keep_input_mutations=True, further=user_pass)
    return aot_eager.build(function, inputs, tracing, further=user_pass)


def _run_backend(user_pass: UserPass, graph: fx.GraphModule, examples: Sequence[object]) -> Any:
    """The pass as a backend of `torch.compile`."""
    return aot_eager.backend(user_pass)(graph, examples)


# --- backends for whole Python programs -----------------------------------------------------------


class BackendSource(NamedTuple):
    """A backend of `torch.compile` as source: lines of a script, and an expression."""

    lines: str
    expression: str


def source_of_backend(code: CodeName) -> BackendSource:
    """A user's pass or backend as source. Raises `UserError` if the code is neither."""
    value = load(code)
    user_code, imported = classify(value, code), _import(code, value)
    lines = imported.modules + "\n".join(imported.lines)
    if isinstance(user_code, Target):
        raise UserError(f"{code.name} is a Target; give a pass, or a torch.compile backend")
    if isinstance(user_code, UserBackend):
        return BackendSource(lines, imported.expression)
    lines = f"""from typing import Any

from torch._dynamo.backends.common import aot_autograd
from torch._functorch.aot_autograd import make_boxed_func

{lines}


{inspect.getsource(after_pass)}

def compiler(graph, {EXAMPLES}):
    return make_boxed_func(after_pass(graph, {user_code.source(imported.expression)}))
"""
    expression = "aot_autograd(fw_compiler=compiler, keep_inference_input_mutations=True)"
    return BackendSource(lines, expression)


# --- recipes --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Import:
    """The lines that import a user's code in a script, and the expression for it after that."""

    lines: Sequence[str]
    expression: str

    @property
    def modules(self) -> str:
        """The modules that the lines need, as import lines."""
        text = "\n".join(self.lines)
        return "".join(f"import {name}\n" for name in ("runpy", "sys") if f"{name}." in text)

    def indented(self) -> str:
        """The lines in a function, below a comment."""
        return "".join(f"    {line}\n" for line in ("# Your code, by its name.", *self.lines))


def _import(code: CodeName, value: object) -> Import:
    call = "()" if isinstance(value, type) else ""
    folder, (first, *rest) = folder_of(code), code.attribute.split(".")
    lines = [] if folder is None else [f"sys.path.insert(0, {folder!r})"]
    if code.in_file:
        path = f"{folder}/{code.module.rpartition('/')[2]}"
        lines.append(f"{first} = runpy.run_path({path!r})[{first!r}]")
    else:
        lines.append(f"from {code.module} import {first}")
    return Import(lines, ".".join((first, *rest)) + call)


def _recipe_of_pass(user_pass: UserPass, imported: Import, tracing: Tracing) -> str:
    plain = aot.recipe(tracing, keep_input_mutations=True, compiler="compiler")
    head, returned, tail = plain.rpartition("    return aot_function(")
    return f"""
{imported.modules}from typing import Any

{head.strip().removesuffix("def compiled(program, inputs):")}
{inspect.getsource(after_pass)}

def compiled(program, inputs):
{imported.indented()}
    def compiler(graph, example_inputs):
        return after_pass(graph, {user_pass.source(imported.expression)})

{returned}{tail}"""


def _recipe_of_backend(imported: Import, tracing: Tracing) -> str:
    return f"""
{imported.modules}

def compiled(program, inputs):
{imported.indented()}
    return torch.compile(program, backend={imported.expression}{tracing.dynamic})
"""
