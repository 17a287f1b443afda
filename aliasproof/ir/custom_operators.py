"""Custom operators: a fixed set in the namespace `aliasproof`, defined as users define theirs.

Compilers know only the schema and the fake kernel of a custom operator, so its calls go through
code that no ATen op reaches: `auto_functionalized`, its decomposition, layout constraints. Each
operator here has one common shape of schema. Reproducers contain the text of a definition as it is
here (`definition`), so the text uses only `torch`.

Each operator is exact on small integers, and defined for every layout of its arguments. Arguments
may overlap each other: a kernel computes in memory of its own, and then stores with `copy_`, in
the order of its statements. Only an argument that overlaps itself is undefined.

No operator returns a view. In eager, `torch.library` allows that, with a schema such as
`(Tensor(a) x) -> Tensor(a)`. But functionalization refuses it: "We only support functionalizing
operators whose outputs do not have alias annotations" (`FunctionalizeFallbackKernel.cpp`). It does
support the two conventions of ATen: an in-place operator returns its first argument, and an `out=`
operator its buffer.
"""

import ast
import functools
import re
from pathlib import Path

import torch

NAMESPACE = "aliasproof"

# Their results show the offset of the operand and the size of its storage. No tag of torch requires
# a compiler to keep these.
READS_LOCATION = {"aliasproof.location.default"}
# These read an operand again after they have written another argument.
READS_AGAIN = {"aliasproof.add_twice.default"}


# --- operators that write -------------------------------------------------------------------------


# Two mutable arguments. The new value of `x` depends on that of `y`.
@torch.library.custom_op("aliasproof::add_both", mutates_args=("x", "y"))
def add_both(x: torch.Tensor, y: torch.Tensor) -> None:
    y.copy_(x + y)
    x.copy_(x + y)


# A mutable argument and one that is read, also after the first write.
@torch.library.custom_op("aliasproof::add_twice", mutates_args=("x",))
def add_twice(x: torch.Tensor, y: torch.Tensor) -> None:
    x.copy_(x + y)
    x.copy_(x + y)


# A mutable argument, and a new tensor as the result.
@torch.library.custom_op("aliasproof::double", mutates_args=("x",))
def double(x: torch.Tensor) -> torch.Tensor:
    before = x.clone()
    x.copy_(x + x)
    return before


@double.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


# An optional mutable argument.
@torch.library.custom_op("aliasproof::add_into", mutates_args=("total",))
def add_into(x: torch.Tensor, total: torch.Tensor | None = None) -> torch.Tensor:
    result = x + x
    if total is not None:
        total.copy_(x + total)
    return result


@add_into.register_fake
def _(x: torch.Tensor, total: torch.Tensor | None = None) -> torch.Tensor:
    return torch.empty_like(x + x)


# A list of mutable tensors.
@torch.library.custom_op("aliasproof::running_sum", mutates_args=("tensors",))
def running_sum(tensors: list[torch.Tensor]) -> None:
    for index in range(1, len(tensors)):
        tensors[index].copy_(tensors[index - 1] + tensors[index])


# It may leave its mutable argument unchanged.
@torch.library.custom_op("aliasproof::add_if", mutates_args=("x",))
def add_if(x: torch.Tensor, y: torch.Tensor, flag: bool) -> None:
    if flag:
        x.copy_(x + y)


# All arguments are mutable by the schema, though it writes one of them.
@torch.library.custom_op("aliasproof::store_sum", mutates_args="unknown")
def store_sum(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> None:
    x.copy_(y + z)


# The conventions of ATen for in-place and `out=` operators.
@torch.library.custom_op("aliasproof::add_", mutates_args=("x",), tags=torch.Tag.inplace)
def add_(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x.copy_(x + y)


@torch.library.custom_op("aliasproof::add_out", mutates_args=("out",), tags=torch.Tag.out)
def add_out(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor) -> torch.Tensor:
    return out.copy_(x + y)


# It has no kernel of its own: tracing goes through it.
torch.library.define("aliasproof::add_composite", "(Tensor(a!) x, Tensor y) -> ()")


@torch.library.impl("aliasproof::add_composite", "CompositeImplicitAutograd")
def add_composite(x: torch.Tensor, y: torch.Tensor) -> None:
    x.copy_(x + y)


# --- operators that write nothing -----------------------------------------------------------------


# A compiler may pass it other strides.
@torch.library.custom_op("aliasproof::plus", mutates_args=(), tags=torch.Tag.flexible_layout)
def plus(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x + y


@plus.register_fake
def _(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x + y)


# It returns the strides of its operand.
@torch.library.custom_op("aliasproof::strides", mutates_args=(), tags=torch.Tag.needs_exact_strides)
def strides(x: torch.Tensor) -> torch.Tensor:
    return torch.tensor(x.stride(), dtype=torch.int64, device=x.device)


@strides.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty(x.dim(), dtype=torch.int64, device=x.device)


# It returns the offset of its operand, and the size of its storage.
@torch.library.custom_op("aliasproof::location", mutates_args=())
def location(x: torch.Tensor) -> torch.Tensor:
    numbers = [x.storage_offset(), x.untyped_storage().nbytes()]
    return torch.tensor(numbers, device=x.device)


@location.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty(2, dtype=torch.int64, device=x.device)


# --- their text -----------------------------------------------------------------------------------

_FIRST_LINE = re.compile(
    r'@?torch\.library\.\w+\(\s*"aliasproof::(?P<defined>\w+)"|@(?P<faked>\w+)\.register_fake'
)


def names() -> list[str]:
    """The names of all operators, without the namespace."""
    return list(_definitions())


def definitions_in(source: str) -> list[str]:
    """The definitions that a text with calls of `torch.ops.aliasproof` needs."""
    called = dict.fromkeys(re.findall(rf"torch\.ops\.{NAMESPACE}\.(\w+)", source))
    return [definition(name) for name in called if name in _definitions()]


def definition(name: str) -> str:
    """The statements that define the operator of that name; they assume `import torch`."""
    return "\n\n\n".join(_definitions()[name])


@functools.cache
def _definitions() -> dict[str, list[str]]:
    """The statements of this file that define an operator, by its name."""
    text = Path(__file__).read_text(encoding="utf-8")
    definitions: dict[str, list[str]] = {}
    for node in ast.parse(text).body:
        decorators = node.decorator_list if isinstance(node, ast.FunctionDef) else []
        first = min([node.lineno, *(decorator.lineno for decorator in decorators)])
        statement = "\n".join(text.splitlines()[first - 1 : node.end_lineno])
        if match := _FIRST_LINE.match(statement):
            definitions.setdefault(match["defined"] or match["faked"], []).append(statement)
    return definitions
