"""`CallArguments`: how a user's function is called.

`inputs()` in a user's file, and `inputs` of `aliasproof.check`, may be one of four forms:

- a tuple or a list: the positional arguments;
- a dict with names as keys: the keyword arguments;
- a pair of a tuple and a dict with names as keys: positional and keyword arguments;
- any other value: the only argument.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch

from aliasproof.ir.errors import UserError
from aliasproof.ir.object_graph import PLAIN, leaves

ONLY = "only {} tensors can be compared byte by byte"


@dataclass(frozen=True, slots=True)
class CallArguments:
    """Positional and keyword arguments, with a name for each."""

    args: tuple[object, ...]
    kwargs: Mapping[str, object]
    names: tuple[str, ...] = ()

    @classmethod
    def of(cls, given: object) -> CallArguments:
        """The arguments in one of the four forms."""
        # Exact types: a named tuple or a dict of a class of its own is an argument, not a form.
        if type(given) is tuple and len(given) == 2:
            first, second = given
            if type(first) is tuple and _has_names(second):
                return cls(first, dict(second))
        if type(given) in (tuple, list):
            return cls(tuple(given), {})  # type: ignore[arg-type]
        if _has_names(given):
            return cls((), dict(given))  # type: ignore[call-overload]
        return cls((given,), {})

    def named_for(self, function: Callable[..., object]) -> CallArguments:
        """The same with the names of the function's parameters, where it tells them."""
        # What a module is called with goes to its `forward`.
        function = function.forward if isinstance(function, torch.nn.Module) else function
        try:
            bound = inspect.signature(function).bind(*self.args, **self.kwargs)
        except (TypeError, ValueError):  # some builtins have none; a wrong call is eager's error
            return self
        names: list[str] = []
        for name in bound.arguments:
            kind = bound.signature.parameters[name].kind
            if kind is inspect.Parameter.VAR_POSITIONAL:
                names += [f"{name}[{index}]" for index in range(len(bound.arguments[name]))]
            elif kind is not inspect.Parameter.VAR_KEYWORD:
                names.append(name)
        return CallArguments(self.args, self.kwargs, tuple(names[: len(self.args)]))

    def by_name(self) -> Iterator[tuple[str, object]]:
        """Each argument with its name; `[0]` where the function does not tell it."""
        for index, value in enumerate(self.args):
            yield (self.names[index] if index < len(self.names) else f"[{index}]"), value
        yield from self.kwargs.items()

    def describe(self) -> str:
        """How many arguments there are: '1 positional argument and scale'."""
        positional = f"{len(self.args)} positional argument{'s' * (len(self.args) != 1)}"
        return " and ".join([positional, *self.kwargs])

    def tensors(self) -> dict[str, torch.Tensor]:
        """The tensors in the arguments by their paths, each object once."""
        tensors: dict[int, tuple[str, torch.Tensor]] = {}
        for name, value in self.by_name():
            for path, leaf in leaves(value, name):
                if isinstance(leaf, torch.Tensor):
                    tensors.setdefault(id(leaf), (path, leaf))
        return dict(tensors.values())

    def tensors_by_path(self) -> dict[str, torch.Tensor]:
        """The tensors by their paths; an object that occurs twice has both."""
        return {
            path: leaf
            for name, value in self.by_name()
            for path, leaf in leaves(value, name)
            if isinstance(leaf, torch.Tensor)
        }

    def constants(self) -> list[tuple[str, object]]:
        """The leaves that are no tensors, by their paths."""
        return [
            (path, leaf)
            for name, value in self.by_name()
            for path, leaf in leaves(value, name)
            if not isinstance(leaf, torch.Tensor)
        ]

    def unknown_types(self) -> list[str]:
        """The types of leaves that are neither tensors nor plain values."""
        plain = (*PLAIN, torch.dtype, torch.device, torch.layout, torch.memory_format)
        return sorted(
            {type(leaf).__name__ for _, leaf in self.constants() if not isinstance(leaf, plain)}
        )


def _has_names(value: object) -> bool:
    return type(value) is dict and all(isinstance(key, str) for key in value)


def check_arguments(given: object, place: str) -> CallArguments:
    """The arguments. Raises `UserError` with the path of a tensor that cannot be compared."""
    arguments = CallArguments.of(given)
    for path, tensor in arguments.tensors().items():
        reason = not_comparable(tensor)
        if reason is not None:
            raise UserError(f"{place}{path if path.startswith('[') else f': {path}'} is {reason}")
    return arguments


def not_comparable(tensor: torch.Tensor) -> str | None:
    """Why the bytes of a tensor cannot be compared, and what to do; None if they can."""
    # Not `isinstance`: a subclass can redefine what each op does, or have no storage at all.
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer):
        return f"of the subclass {type(tensor).__name__}; {ONLY.format('plain')}"
    if tensor.is_nested or tensor.layout != torch.strided:
        layout = "nested" if tensor.is_nested else tensor.layout
        return f"of layout {layout}; {ONLY.format('strided')}"
    if tensor.device.type == "meta":
        return "a meta tensor, which has no data"
    if tensor.is_quantized:
        return f"quantized; {ONLY.format('plain')}"
    if tensor.is_conj() or tensor.is_neg():
        return "a lazy conjugate or negation; call resolve_conj() and resolve_neg() on it"
    return None
