"""The functions that a stored graph may call, by name.

A graph comes from a file and is run, so a name stands for a registered operator, for a function of
torch that computes with tensors, or for arithmetic. No other name is looked up.
"""

from __future__ import annotations

import functools
import inspect
import math
import operator
import types
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._ops import HigherOrderOperator, OpOverload, OpOverloadPacket
from torch.overrides import get_overridable_functions

from aliasproof.ir.errors import UserError, did_you_mean, shown
from aliasproof.ir.schemas import resolve

_OPS, _HIGHER_ORDER = "torch.ops.", "torch.ops.higher_order."
# Factory functions that open a file, or read memory.
_NO_FACTORIES = {"from_file", "frombuffer", "from_numpy"}
_SYMBOLIC = "float int max min not ite sum"
# Functions that Dynamo puts into graphs beside calls with tensors.
_MODES: dict[str, Any] = {
    "torch._C._set_grad_enabled": torch._C._set_grad_enabled,
    "torch.amp.autocast_mode._enter_autocast": torch.amp.autocast_mode._enter_autocast,
    "torch.amp.autocast_mode._exit_autocast": torch.amp.autocast_mode._exit_autocast,
    "torch._check": torch._check,
    "torch._C._log_api_usage_once": torch._C._log_api_usage_once,
    **{f"torch.sym_{name}": getattr(torch, f"sym_{name}") for name in _SYMBOLIC.split()},
}
_BUILTINS = (len, int, float, bool, max, min, abs, sum, pow, round, divmod, getattr)
_NO_METHODS = {"share_memory_", "register_hook", "register_post_accumulate_grad_hook", "apply_"}
_ARITHMETIC = "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift"
_COMPARISONS = "eq ne lt le gt ge neg pos abs invert getitem setitem"
_DUNDERS = {
    *(f"__{form}{name}__" for name in _ARITHMETIC.split() for form in ("", "r", "i")),
    *(f"__{name}__" for name in _COMPARISONS.split()),
}


@functools.cache
def functions() -> dict[str, Callable[..., Any]]:
    """The functions that are not registered operators, by name."""
    named: dict[str, Any] = dict(_MODES)
    for owner, members in get_overridable_functions().items():
        if isinstance(owner, types.ModuleType):
            named |= {f"{owner.__name__}.{it.__name__}": it for it in members}
    for name in dir(torch._C._VariableFunctions):
        if not name.startswith("_") and name not in _NO_FACTORIES and hasattr(torch, name):
            named.setdefault(f"torch.{name}", getattr(torch, name))
    bindings: Any = torch._C  # the functions behind `torch.nn.functional` and the like
    inner = (bindings._nn, bindings._fft, bindings._linalg, bindings._special)
    for module in (operator, math, *inner):
        for name, value in vars(module).items():
            if inspect.isbuiltin(value) and not name.startswith("_") and name != "call":
                named[f"{module.__name__}.{name}"] = value
    named |= {f"builtins.{it.__name__}": it for it in _BUILTINS}
    return named


@functools.cache
def _names() -> dict[int, str]:
    """The first name of each function."""
    return {id(function): name for name, function in reversed(functions().items())}


def name_of_function(function: object) -> str:
    """The name of a function that a graph calls. Raises `UserError` if a file cannot name it."""
    if isinstance(function, OpOverload):
        return f"{_OPS}{function}"
    if isinstance(function, OpOverloadPacket):
        return f"{_OPS}{str(function).replace('::', '.')}"
    if isinstance(function, HigherOrderOperator):
        return f"{_HIGHER_ORDER}{function.name()}"
    name = _names().get(id(function))
    if name is None:
        where = getattr(function, "__module__", None)
        called = getattr(function, "__qualname__", type(function).__name__)
        raise UserError(f"a stored graph cannot call {where}.{called}")
    return name


def function_of_name(name: str) -> Callable[..., Any]:
    """The function with this name. Raises `UserError` for any other name."""
    if name.startswith(_HIGHER_ORDER):
        operators = vars(torch.ops.higher_order)
        found = getattr(torch.ops.higher_order, name.removeprefix(_HIGHER_ORDER), None)
        if isinstance(found, HigherOrderOperator):
            return found
        raise UserError(f"unknown operator {shown(name)}{did_you_mean(name, operators)}")
    if name.startswith(_OPS):
        own = name.removeprefix(_OPS)
        if own.count(".") == 2:
            return resolve(own)
        namespace, _, rest = own.partition(".")
        packet = getattr(torch.ops, namespace, None) if rest.isidentifier() else None
        packet = getattr(packet, rest, None)
        if not isinstance(packet, OpOverloadPacket):
            raise UserError(f"unknown operator {shown(own)}")
        for overload in packet.overloads():
            resolve(f"{own}.{overload}")  # refuses operators that open files
        return packet
    if name not in functions():
        hint = did_you_mean(name, functions())
        raise UserError(f"a stored graph may not call {shown(name)}{hint}")
    return functions()[name]


def require_method(name: str) -> str:
    """A method of tensors that a graph may call. Raises `UserError` for any other name."""
    method = getattr(torch.Tensor, name, None)
    public = not name.startswith("_") or name in _DUNDERS
    if not (public and name.isidentifier() and callable(method)) or name in _NO_METHODS:
        raise UserError(f"a stored graph may not call the method {shown(name)}")
    return name


def require_arguments(function: object, args: Sequence[object]) -> None:
    """Raises `UserError` unless a graph may call the function with these arguments."""
    if function is getattr:
        require_attribute(args[1] if len(args) == 2 else None)


def require_attribute(name: object) -> None:
    """Raises `UserError` unless a graph may read this attribute of a tensor."""
    if not isinstance(name, str) or name.startswith("_") or not hasattr(torch.Tensor, name):
        raise UserError(f"a stored graph may not read the attribute {shown(name)}")
