"""Captured tensors (parameters, buffers, globals, closures), lifted to inputs.

Compilers expect a function of its inputs. AOTAutograd refuses a real tensor that it did not get as
an input. A write to such a tensor is state that no comparison of inputs and outputs sees. Dynamo
lifts captured tensors to graph inputs. This module does the same at the level of the torch API:
while the function runs, each call gets the input in place of the captured tensor.
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
class LiftedFunction:
    """A function of its own inputs followed by the tensors that it captures."""

    function: Function
    inputs: tuple[torch.Tensor, ...]
    captured: tuple[torch.Tensor, ...]

    def __call__(self, *tensors: torch.Tensor) -> object:
        originals = (*self.inputs, *self.captured)
        replacements = {
            id(original): tensor for original, tensor in zip(originals, tensors, strict=True)
        }
        with _Replacing(lambda tensor: replacements.get(id(tensor), tensor)):
            returned = self.function(*tensors[: len(self.inputs)])
        # A captured tensor can also be returned without passing through any call.
        return pytree.tree_map_only(
            torch.Tensor, lambda tensor: replacements.get(id(tensor), tensor), returned
        )


def lift(function: Function, inputs: Sequence[torch.Tensor]) -> LiftedFunction | None:
    """The function with its captured tensors as further inputs; None if it captures nothing.

    The function runs twice, on copies: no tensor of the user is written.
    """
    # One run is not enough to tell a captured tensor from a new one, see below.
    first, second = _captured(function, inputs), _captured(function, inputs)
    # A tensor made where no mode sees it (such as `torch.Tensor(3)`) is new in each run, so it is
    # in only one of the two. `first` keeps its tensors alive: no identity is used again.
    used = {
        key: tensor
        for key, tensor in second.items()
        if key in first and not_comparable(tensor) is None
    }
    # A function can use a global that is also one of its inputs.
    given = {id(tensor) for tensor in inputs}
    captured = tuple(tensor for key, tensor in used.items() if key not in given)
    # `used`, not `captured`: a global that is an input has to be replaced in the calls too.
    return LiftedFunction(function, tuple(inputs), captured) if used else None


def _captured(function: Function, inputs: Sequence[torch.Tensor]) -> dict[int, torch.Tensor]:
    """The tensors, by identity, that the function uses and neither gets nor makes.

    If the function raises: those until then.
    """
    # The copies are what the function gets, so they are known from the start.
    copies = clone_inputs(inputs)
    search = _Search({id(copy): copy for copy in copies})
    try:
        with torch.no_grad(), _Replacing(search.replacement, search.note_result):
            function(*copies)
    except Exception:  # noqa: BLE001 - the run that is observed later reports it
        return search.captured
    return search.captured


class _Replacing(TorchFunctionMode):
    """Replaces tensors in the arguments of each torch API call, and passes on each result."""

    def __init__(
        self,
        replacement: Callable[[torch.Tensor], torch.Tensor],
        note_result: Callable[[object], None] = lambda result: None,
    ) -> None:
        super().__init__()
        self.replacement, self.note_result = replacement, note_result

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
        self.note_result(result)
        return result


@dataclass(slots=True)
class _Search:
    """Notes each tensor that is not `known`, and gives the function a copy to work on.

    It keeps every tensor that it saw, so that no identity is used twice.
    """

    known: dict[int, torch.Tensor]
    captured: dict[int, torch.Tensor] = field(default_factory=dict)
    copies: dict[int, torch.Tensor] = field(default_factory=dict)
    storages: dict[int, torch.UntypedStorage] = field(default_factory=dict)

    def replacement(self, tensor: torch.Tensor) -> torch.Tensor:
        if id(tensor) in self.known:
            return tensor
        if id(tensor) not in self.captured:
            self.captured[id(tensor)] = tensor
            # The bytes of some tensors cannot be copied (sparse, meta): the function gets those.
            self.copies[id(tensor)] = tensor if not_comparable(tensor) else self._copy(tensor)
        return self.copies[id(tensor)]

    def _copy(self, tensor: torch.Tensor) -> torch.Tensor:
        """A copy of a captured tensor. Tensors that share a storage still do after the copy."""
        storage = tensor.untyped_storage()
        if storage._cdata not in self.storages:
            self.storages[storage._cdata] = storage.clone()
        empty: Any = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
        copy: torch.Tensor = empty.set_(
            self.storages[storage._cdata], tensor.storage_offset(), tensor.shape, tensor.stride()
        )
        self.known[id(copy)] = copy
        return copy

    def note_result(self, result: object) -> None:
        # What a call returns is a new tensor, or a view or a copy of a known one: not captured.
        for leaf in pytree.tree_leaves(result):
            if isinstance(leaf, torch.Tensor):
                self.known[id(leaf)] = leaf


def captured_names(lifted: LiftedFunction) -> list[str]:
    """What the author calls each captured tensor, such as `model.weight`; 'unnamed' if unknown."""
    # The first name wins: a parameter of a module often has several.
    found: dict[int, str] = {}
    for name, value in _surroundings(lifted.function):
        if isinstance(value, torch.Tensor):
            found.setdefault(id(value), name)
        elif isinstance(value, torch.nn.Module):
            for inner, tensor in (*value.named_parameters(), *value.named_buffers()):
                found.setdefault(id(tensor), f"{name}.{inner}" if name else inner)
    return [found.get(id(tensor), "unnamed") for tensor in lifted.captured]


def _surroundings(function: Function) -> Iterator[tuple[str, object]]:
    """The function, what it is bound to, its closure, its globals and its defaults, by name."""
    yield "", function  # it can be a module: then names are those of its parameters
    yield "self", getattr(function, "__self__", None)
    code = inspect.unwrap(function)
    if inspect.isfunction(code):
        variables = inspect.getclosurevars(code)
        yield from (*variables.nonlocals.items(), *variables.globals.items())
        parameters = inspect.signature(code).parameters.items()
        yield from ((name, parameter.default) for name, parameter in parameters)
