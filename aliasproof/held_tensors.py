"""Tensors that a function holds (parameters, buffers, globals, closures), turned into inputs.

Compilers take a function of its inputs: AOTAutograd refuses a real tensor that it was not given,
and what a function writes to such a tensor is state that no comparison of inputs and outputs sees.
Dynamo turns them into inputs of the graph. So do we, at the level of the torch API: while the
function runs, the input that stands for a held tensor takes its place in every call.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from aliasproof.user_file import not_comparable
from programs.values import clone_inputs
from targets.target import Function


@dataclass(frozen=True, slots=True)
class Lifted:
    """A function of its own inputs and of the tensors that it holds, in this order."""

    function: Function
    inputs: tuple[torch.Tensor, ...]
    held: tuple[torch.Tensor, ...]

    def __call__(self, *tensors: torch.Tensor) -> object:
        standing = {
            id(each): tensor
            for each, tensor in zip((*self.inputs, *self.held), tensors, strict=True)
        }
        with _Replacing(lambda tensor: standing.get(id(tensor), tensor)):
            returned = self.function(*tensors[: len(self.inputs)])
        return pytree.tree_map_only(
            torch.Tensor, lambda tensor: standing.get(id(tensor), tensor), returned
        )


def lifted(function: Function, inputs: Sequence[torch.Tensor]) -> Lifted | None:
    """The function with all that it holds as further inputs; None if it holds nothing. No tensor of the user is written."""
    first, second = _used(function, inputs), _used(function, inputs)
    # A tensor made where no mode sees it (such as `torch.Tensor(3)`) is new in each run, and
    # `first` keeps the old one.
    used = {
        key: each for key, each in second.items() if key in first and not_comparable(each) is None
    }
    given = {
        id(each) for each in inputs
    }  # a function may also use a global that is one of its inputs
    held = tuple(each for key, each in used.items() if key not in given)
    return Lifted(function, tuple(inputs), held) if used else None


def _used(function: Function, inputs: Sequence[torch.Tensor]) -> dict[int, torch.Tensor]:
    """The tensors, by identity, that the function uses and neither gets nor makes, as far as it runs."""
    copies = clone_inputs(inputs)
    finding = _Finding({id(each): each for each in copies})
    try:
        with torch.no_grad(), _Replacing(finding.replacement, finding.returned):
            function(*copies)
    except Exception:  # noqa: BLE001 - whoever observes the function says so
        return finding.held
    return finding.held


class _Replacing(TorchFunctionMode):
    """Replaces tensors in the arguments of each call of the torch API, and tells what each call returns."""

    def __init__(
        self,
        replacement: Callable[[torch.Tensor], torch.Tensor],
        returned: Callable[[object], None] = lambda result: None,
    ) -> None:
        super().__init__()
        self.replacement, self.returned = replacement, returned

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: object,
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        args, kwargs = pytree.tree_map_only(
            torch.Tensor, self.replacement, (tuple(args), kwargs or {})
        )
        result = func(*args, **kwargs)
        self.returned(result)
        return result


@dataclass(slots=True)
class _Finding:
    """Notes each tensor that is not `known`, and lets the function work on a copy of it.

    All tensors seen are kept, so that no identity is used twice.
    """

    known: dict[int, torch.Tensor]
    held: dict[int, torch.Tensor] = field(default_factory=dict)
    copies: dict[int, torch.Tensor] = field(default_factory=dict)
    storages: dict[int, torch.UntypedStorage] = field(default_factory=dict)

    def replacement(self, tensor: torch.Tensor) -> torch.Tensor:
        if id(tensor) in self.known:
            return tensor
        if id(tensor) not in self.held:
            self.held[id(tensor)] = tensor
            self.copies[id(tensor)] = tensor if not_comparable(tensor) else self._copy(tensor)
        return self.copies[id(tensor)]

    def _copy(self, tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in self.storages:
            self.storages[storage._cdata] = storage.clone()
        empty: Any = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
        copy: torch.Tensor = empty.set_(
            self.storages[storage._cdata], tensor.storage_offset(), tensor.shape, tensor.stride()
        )
        self.known[id(copy)] = copy
        return copy

    def returned(self, result: object) -> None:
        for each in pytree.tree_leaves(result):
            if isinstance(each, torch.Tensor):
                self.known[id(each)] = each


def names(lifted_function: Lifted) -> list[str]:
    """What the author calls each held tensor, as far as it is found: `model.weight`, or else 'a tensor'."""
    found: dict[int, str] = {}
    for name, value in _surroundings(lifted_function.function):
        if isinstance(value, torch.Tensor):
            found.setdefault(id(value), name)
        elif isinstance(value, torch.nn.Module):
            for inner, tensor in (*value.named_parameters(), *value.named_buffers()):
                found.setdefault(id(tensor), f"{name}.{inner}" if name else inner)
    return [found.get(id(each), "a tensor") for each in lifted_function.held]


def _surroundings(function: Function) -> Iterator[tuple[str, object]]:
    """What the function is, is bound to, closes over, finds among its globals and has as defaults, by name."""
    yield "", function
    yield "self", getattr(function, "__self__", None)
    code = inspect.unwrap(function)
    if inspect.isfunction(code):
        variables = inspect.getclosurevars(code)
        yield from (*variables.nonlocals.items(), *variables.globals.items())
        parameters = inspect.signature(code).parameters.items()
        yield from ((name, each.default) for name, each in parameters)
