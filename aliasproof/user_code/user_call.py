"""`UserCall`: a user's function, called as the user calls it: with gradients, on given inputs.

Each run gets copies of all tensors that the function can reach. Autograd cannot distinguish them
from the originals: leaves, results of autograd, views of one base, Parameters, hooks, gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any, Self
from unittest import mock

import torch
from torch.utils._python_dispatch import _disable_current_modes

from aliasproof.ir.errors import Rejected
from aliasproof.ir.values import clone_inputs
from aliasproof.judge.python_case import Left
from aliasproof.judge.rounding_control import widened
from aliasproof.targets.target import Function
from aliasproof.user_code.surroundings import Surroundings, distinctly_named
from aliasproof.user_code.user_file import CallArguments, not_comparable

RETURNED, SECOND = "output", "second "  # names of the outputs of a call, and of a second call


@dataclass(frozen=True, slots=True)
class UserCall:
    """A user's function with its arguments, and the variables that they use.

    See `Runnable`. If `differentiated`, a backward pass follows the call. The inputs are moved to
    `device`, if one is given. If made `twice`, a second call follows, on new copies of the inputs
    and with the state that the first call left; before it, `between` gets the values after the
    first. A `wide` call uses float64 instead of narrower dtypes; `run` raises `Rejected` if there
    are none.
    """

    surroundings: Surroundings
    device: str | None = None
    differentiated: bool = False
    wide: bool = False
    twice: bool = False
    between: Callable[[Left], None] = lambda left: None

    @classmethod
    def of(cls, function: Function, given: object, device: str | None = None) -> UserCall:
        """The call of a function. `given` is in a form of `CallArguments`."""
        return cls(Surroundings.of(function, CallArguments.of(given)), device)

    def run(self, transform: Callable[[Any], Any], then: Callable[[Left], None]) -> Left:
        """Call `transform(function)`; return all values that the caller can reach afterwards."""
        given, memo = self.surroundings, dict[int, Any]()
        # Before the call, which may leave other tensors in variables.
        tensors = given.tensors()
        names = {key: name for key, (name, _) in tensors.items()}
        comparable = [it for _, it in tensors.values() if not_comparable(it) is None]
        with _disable_current_modes():  # a watch notes what the function does, not this copying
            copies = Copies.of(comparable, self.device, wide=self.wide)
            more = Copies.of(comparable, self.device, wide=self.wide) if self.twice else None
        with given.copy_with(copies.made, memo) as copied:
            function = transform(copied.function)
            returned = replace(copied, function=function).call()

            def left() -> list[tuple[str, object]]:
                return [(RETURNED, returned), *copied.compared().roots(), *_sources(copies, names)]

            if self.differentiated:
                then(dict(distinctly_named(left())))
            if more is None:
                return dict(distinctly_named(left()))
            self.between(dict(distinctly_named(left())))
            again = given.for_second_call(more.made, memo)
            result = replace(again, function=function).call()
            state = {id(value) for value in memo.values()}
            inputs = [it for it in again.arguments.by_name() if id(it[1]) not in state]
            own = [(RETURNED, result), *inputs, *_sources(more, names)]
            second = [(f"{SECOND}{name}", value) for name, value in own]
            if self.differentiated:
                then(dict(distinctly_named(second)))
            return dict(distinctly_named([*left(), *second]))

    def widened(self) -> UserCall:
        return replace(self, wide=True)


def _sources(copies: Copies, names: Mapping[int, str]) -> Iterator[tuple[str, object]]:
    """The sources, whose gradients are those of the tensors that were computed from them."""
    for key, source in copies.sources.items():
        yield f"what {names.get(key, 'a base')} is made of", source


@dataclass(slots=True)
class Copies:
    """Copies of tensors by the identity of the originals.

    A tensor that autograd computed is recomputed from a leaf with the same data, its source.
    """

    plain: Mapping[int, torch.Tensor]
    made: dict[int, torch.Tensor] = field(default_factory=dict)
    sources: dict[int, torch.Tensor] = field(default_factory=dict)
    bare: bool = False

    @classmethod
    def of(
        cls,
        tensors: Sequence[torch.Tensor],
        device: str | None = None,
        *,
        wide: bool = False,
        bare: bool = False,
    ) -> Copies:
        """Copies with equal data, layouts and sharing of storages.

        `bare` copies have no gradients, hooks or attributes. Raises `Rejected` for `wide` copies if
        no dtype is narrower than float64.
        """
        known = {id(tensor): tensor for tensor in _with_relatives(tensors, bare=bare)}
        plain: Sequence[torch.Tensor] | None = clone_inputs(list(known.values()), device)
        plain = widened(plain or ()) if wide else plain
        if plain is None:
            raise Rejected("the inputs have no dtype that is narrower than float64")
        copies = cls(dict(zip(known, plain, strict=True)), bare=bare)
        for tensor in known.values():
            copies._copy(tensor)
        return copies

    def _copy(self, tensor: torch.Tensor) -> torch.Tensor:
        if id(tensor) in self.made:
            return self.made[id(tensor)]
        base = tensor._base
        if base is not None and id(base) in self.plain and base.dtype == tensor.dtype:
            place = tensor.shape, tensor.stride(), tensor.storage_offset()
            # A view made without gradients, of a tensor that requires them, may not be written.
            with torch.set_grad_enabled(tensor.requires_grad or not base.requires_grad):
                copy = self._copy(base).as_strided(*place)
        elif tensor.is_leaf:
            copy = self.plain[id(tensor)]
        else:
            copy = self._computed(tensor)
        if isinstance(tensor, torch.nn.Parameter):
            copy = torch.nn.Parameter(copy, requires_grad=False)
        if tensor.is_leaf and tensor.requires_grad:
            copy.requires_grad_()
        self.made[id(tensor)] = copy
        self._give_attributes(tensor, copy)
        return copy

    def _computed(self, tensor: torch.Tensor) -> torch.Tensor:
        data = self.plain[id(tensor)]
        source = self.sources[id(tensor)] = data.clone().requires_grad_()
        with torch.enable_grad():
            copy = source.clone()
        copy.data = data  # the memory that it shares with other copies
        return copy

    def _give_attributes(self, tensor: torch.Tensor, copy: torch.Tensor) -> None:
        if self.bare:
            return
        copy.__dict__.update(vars(tensor))
        if tensor.is_leaf and tensor.grad is not None and id(tensor.grad) in self.plain:
            copy.grad = self._copy(tensor.grad)
        for hook in (tensor._backward_hooks or {}).values():
            copy.register_hook(hook)
        for hook in (getattr(tensor, "_post_accumulate_grad_hooks", None) or {}).values():
            copy.register_post_accumulate_grad_hook(hook)


def _with_relatives(tensors: Sequence[torch.Tensor], *, bare: bool) -> Iterator[torch.Tensor]:
    """The tensors, their bases, and their gradients if they are not bare."""
    for tensor in tensors:
        yield tensor
        others = (tensor._base, tensor.grad if tensor.is_leaf and not bare else None)
        comparable = [it for it in others if it is not None and not_comparable(it) is None]
        yield from _with_relatives(comparable, bare=bare)


class GradientUse(ExitStack):
    """Notes how runs within this context use autograd, in eager."""

    def __init__(self) -> None:
        super().__init__()
        self.calls_backward = self.seen = False

    def __enter__(self) -> Self:
        apply: Any = torch.autograd.Function.apply
        for owner, name, noted in (
            (torch.autograd, "backward", self._noted(torch.autograd.backward)),
            (torch.autograd, "grad", self._noted(torch.autograd.grad)),
            (torch.autograd.Function, "apply", classmethod(self._noted(apply.__func__))),
        ):
            self.enter_context(mock.patch.object(owner, name, noted))
        return self

    def _noted(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            self.seen = True
            self.calls_backward |= call.__name__ == "backward"
            return call(*args, **kwargs)

        return run
