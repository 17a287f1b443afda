"""The target that a user's pass or backend makes.

The graphs of AOTAutograd go through a pass, and run in eager. A backend gets the graphs of Dynamo.
The recipe imports the user's code by its name, so a reproducer needs torch and that code.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import fx

from aliasproof.ir.errors import UserError
from aliasproof.ir.execution import ProgramFunction
from aliasproof.oracles.contract import Promise, Waiver
from aliasproof.targets import aot, aot_eager, captured, dynamo, variants
from aliasproof.targets.target import Build, Function, Target
from aliasproof.targets.tracing import PLAIN, Tracing
from aliasproof.targets.user_names import CodeName, folder_of, load
from aliasproof.targets.user_targets import EXAMPLES, UserBackend, UserPass, after_pass, classify

# How messages call targets that a user's code makes, and the variants of these.
PASS_VARIANTS = (variants.DECOMPOSE, variants.SYMBOLIC, *variants.GRADS, variants.KEPT_OUTPUTS)
# A backend may use AOTAutograd in all variants.
BACKEND_VARIANTS = tuple(
    replace(variant, layer=aot_eager.TARGET)
    for variant in (
        variants.SYMBOLIC,
        replace(variants.CAPTURED, build=captured.build_by_dynamo),
        variants.GUARDED_BUFFERS,
        *variants.SECOND_CALLS,
        *variants.CONTROL_FLOW,
    )
)
YOUR_PASS, YOUR_BACKEND = "your pass", "your backend"
KINDS = {YOUR_PASS: PASS_VARIANTS, YOUR_BACKEND: BACKEND_VARIANTS}

NO_GRAPHS = "a backend of a user shows no graphs"
OTHER_ARITHMETIC = Waiver(
    Promise.EQUIVALENCE, "a pass of a user may compute the same by other operators"
)


def of_code(code: CodeName) -> Target:
    """The target that a name stands for.

    Raises `UserError` if it cannot be imported, or is neither a pass nor a backend nor a `Target`.
    """
    value = load(code)
    return _of_value(value, code, _import(code, value))


def of_value(value: object) -> Target:
    """The target that a pass or a backend of this process makes, such as a function of a test.

    No script can import it, so its recipe is none. Raises `UserError` as `of_code` does.
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
        return _of_pass(user_code, code, imported)
    return _of_backend(user_code, code, imported)


def _of_pass(user_pass: UserPass, code: CodeName, imported: Import) -> Target:
    recipe = functools.partial(_recipe_of_pass, user_pass, imported)
    return Target(
        name=code.name,
        summary=f"AOTAutograd's graphs through your pass {code.source}, run in eager",
        contract=replace(aot_eager.CONTRACT, waivers=(*aot.CONTRACT.waivers, OTHER_ARITHMETIC)),
        build=functools.partial(_build_pass, user_pass),
        recipe=recipe(PLAIN),
        after=aot.AOT,
        layer=aot_eager.TARGET,
        traced_recipe=recipe,
        variants=PASS_VARIANTS,
        backend=functools.partial(_run_backend, user_pass),
        yours=f"{YOUR_PASS} `{user_pass.__name__}`",
    )


def _of_backend(backend: UserBackend, code: CodeName, imported: Import) -> Target:
    recipe = functools.partial(_recipe_of_backend, imported)
    return Target(
        name=code.name,
        summary=f"torch.compile(backend=...) with your backend {code.source}",
        # It may use AOTAutograd, whose documented limits are then not its fault.
        contract=aot_eager.CONTRACT,
        build=functools.partial(_build_backend, backend),
        recipe=recipe(PLAIN),
        after=dynamo.TARGET,
        layer=aot_eager.TARGET,
        traced_recipe=recipe,
        variants=BACKEND_VARIANTS,
        backend=backend,
        yours=f"{YOUR_BACKEND} `{backend.__name__}`",
    )


def _build_pass(
    user_pass: UserPass,
    function: Function,
    inputs: Sequence[torch.Tensor],
    tracing: Tracing = PLAIN,
) -> Build:
    """The graphs of AOTAutograd through a pass: those that `torch.compile` makes of a function.

    A program is ATen calls, of which Dynamo makes no others. With symbols, the inputs are fakes, on
    which Dynamo does not run.
    """
    if isinstance(function, ProgramFunction) or tracing.symbolic:
        return aot.build(function, inputs, tracing, keep_input_mutations=True, further=user_pass)
    return aot_eager.build(function, inputs, tracing, further=user_pass)


def _run_backend(user_pass: UserPass, graph: fx.GraphModule, examples: Sequence[object]) -> Any:
    """The same as a backend."""
    return aot_eager.backend(user_pass)(graph, examples)


def _build_backend(
    backend: UserBackend,
    function: Function,
    inputs: Sequence[torch.Tensor],
    tracing: Tracing = PLAIN,
) -> Build:
    return Build(dynamo.compiled(function, backend, tracing), [], NO_GRAPHS)


# --- backends for whole Python programs -----------------------------------------------------------


class BackendSource(NamedTuple):
    """A backend of `torch.compile` as source: lines of a script, and an expression."""

    lines: str
    expression: str


def source_of_backend(code: CodeName) -> BackendSource:
    """A user's pass or backend as a backend. Raises `UserError` if it is neither."""
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
    """The lines that import a user's code in a script, and the expression that names it then."""

    lines: Sequence[str]
    expression: str

    @property
    def modules(self) -> str:
        """The modules that the lines need, as import lines."""
        text = "\n".join(self.lines)
        return "".join(f"import {name}\n" for name in ("runpy", "sys") if f"{name}." in text)

    def indented(self) -> str:
        """The lines in a function, with what they are for."""
        return "".join(f"    {line}\n" for line in ("# Your code, by its name.", *self.lines))


def _import(code: CodeName, value: object) -> Import:
    call = "()" if isinstance(value, type) else ""
    folder, (first, *rest) = folder_of(code, value), code.attribute.split(".")
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
