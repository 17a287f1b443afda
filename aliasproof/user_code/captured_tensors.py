"""Captured tensors (parameters, buffers, globals, closures), found by a run of the function.

Compilers expect a function of its inputs. AOTAutograd refuses a real tensor that is no input. A
write to such a tensor is state that no comparison of inputs and outputs sees. Dynamo lifts captured
tensors to graph inputs. This module does the same: each run gets inputs in their place.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils.weak import WeakTensorKeyDictionary

from aliasproof.ir.object_graph import leaves
from aliasproof.ir.values import clone_inputs, move_to_storage
from aliasproof.user_code.surroundings import Surroundings
from aliasproof.user_code.user_file import not_comparable

UNNAMED = "unnamed"


class Replacing(TorchFunctionMode):
    """Replaces tensors in the arguments of each torch API call, and reports each result."""

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


def with_gradients(
    originals: Sequence[torch.Tensor], tensors: Sequence[torch.Tensor]
) -> dict[int, torch.Tensor]:
    """For each tensor whose original requires gradients, by position: a leaf of autograd.

    The leaf shares the tensor's memory. With leaves, a function of plain tensors can run autograd
    inside, and a compiler for inference can compile it.
    """
    return {
        index: tensors[index].detach().requires_grad_()
        for index, original in enumerate(originals)
        if original.requires_grad
    }


def as_the_user_has(
    originals: Sequence[torch.Tensor], tensors: Sequence[torch.Tensor], *, gradients: bool
) -> dict[int, torch.Tensor]:
    """The tensors that a compiler must see instead, by position: parameters, leaves of autograd.

    They share the memory of the given tensors. With `gradients`, they require gradients if the
    originals do. Tensors that require gradients already are not replaced.
    """
    made = {} if not gradients else with_gradients(originals, tensors)
    for index, (original, tensor) in enumerate(zip(originals, tensors, strict=True)):
        if tensor.requires_grad:
            made.pop(index, None)
        elif isinstance(original, torch.nn.Parameter):
            requires = gradients and original.requires_grad
            made[index] = torch.nn.Parameter(tensor.detach(), requires)
    return made


@contextlib.contextmanager
def as_parameters(tensors: Sequence[torch.Tensor]) -> Iterator[None]:
    """Within this context, tensors count as parameters: `self.weight += x` may assign them.

    `isinstance(tensor, torch.nn.Parameter)` checks this attribute.
    """
    for tensor in tensors:
        tensor._is_param = True
    try:
        yield
    finally:
        for tensor in tensors:
            del tensor._is_param


@contextlib.contextmanager
def lend_memory(pairs: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> Iterator[None]:
    """Within this context, the first tensor of each pair has the memory of the second."""
    kept = [tensor.data for tensor, _ in pairs]
    for tensor, other in pairs:
        tensor.data = other
    try:
        yield
    finally:
        for (tensor, other), own in zip(pairs, kept, strict=True):
            other.data, tensor.data = tensor.data, own


@dataclass(frozen=True, slots=True)
class Found:
    """The tensors that a run of the function used.

    `used` are the identities of tensors in the surroundings. `hidden` are other tensors that the
    function neither got nor made, by identity. `error` is the exception that it raised.
    `left_gradients` says that it left a gradient in a leaf, or used an existing one.
    """

    used: frozenset[int]
    hidden: Mapping[int, torch.Tensor]
    error: Exception | None
    left_gradients: bool


def search(surroundings: Surroundings, *, gradients: bool) -> Found:
    """Run the function on copies, and note the tensors that it uses. No object of the user changes.

    If the function raises, these are the tensors that it used before.
    """
    first = _run(surroundings, gradients=gradients)
    if not first.hidden:
        return first
    # A tensor made where no mode sees it (such as `torch.Tensor(3)`) is new in each run, so only
    # one of the two runs has it. `first` keeps its tensors alive, so no identity is used twice.
    again = _run(surroundings, gradients=gradients)
    hidden = {key: tensor for key, tensor in again.hidden.items() if key in first.hidden}
    return replace(first, hidden=hidden)


def _run(surroundings: Surroundings, *, gradients: bool) -> Found:
    originals = comparable_tensors(surroundings)
    copies = clone_inputs([tensor for _, tensor in originals.values()])
    if gradients:
        parameters = with_gradients([tensor for _, tensor in originals.values()], copies)
        copies = [parameters.get(index, tensor) for index, tensor in enumerate(copies)]
    work = _Search({id(copy): key for key, copy in zip(originals, copies, strict=True)})
    for (_, original), copy in zip(originals.values(), copies, strict=True):
        if gradients and original.is_leaf and copy.is_leaf and original.grad is not None:
            copy.grad = original.grad.detach().clone()  # the gradient before the run
            work.gradients.add(id(copy.grad))
        work.storages[original.untyped_storage()._cdata] = copy.untyped_storage()
    error = None
    try:
        with (
            surroundings.copy_with(dict(zip(originals, copies, strict=True))) as copied,
            torch.enable_grad(),
            Replacing(work.replacement, work.note_result),
        ):
            # A tensor may also be returned without being passed to any call.
            for _, leaf in leaves(copied.call()):
                if id(leaf) in work.copies:
                    work.used.add(work.copies[id(leaf)])
    # Ignore what the user's function raises: the observed run reports it later.
    except Exception as raised:  # noqa: BLE001 - see above
        error = raised
    left = any(
        copy.grad is not None and (work.used_gradients or id(copy.grad) not in work.gradients)
        for copy in copies
        if copy.is_leaf
    )
    return Found(frozenset(work.used), work.hidden, error, left)


def comparable_tensors(surroundings: Surroundings) -> dict[int, tuple[str, torch.Tensor]]:
    """The tensors of the surroundings whose bytes can be compared, with their names."""
    return {
        key: (name, tensor)
        for key, (name, tensor) in surroundings.tensors().items()
        if not_comparable(tensor) is None
    }


@dataclass(slots=True)
class _Search:
    """Notes which of the copies are used, and each tensor that it does not know.

    `copies` maps the identity of a copy to that of its original. `made` has the tensors that the
    function makes, weakly: an entry must end before another tensor can reuse its identity.
    """

    copies: Mapping[int, int]
    used: set[int] = field(default_factory=set)
    hidden: dict[int, torch.Tensor] = field(default_factory=dict)
    made: WeakTensorKeyDictionary = field(default_factory=WeakTensorKeyDictionary)
    stand_ins: dict[int, torch.Tensor] = field(default_factory=dict)
    storages: dict[int, torch.UntypedStorage] = field(default_factory=dict)
    gradients: set[int] = field(default_factory=set)
    used_gradients: bool = False

    def replacement(self, tensor: torch.Tensor) -> torch.Tensor:
        if id(tensor) in self.copies:
            self.used.add(self.copies[id(tensor)])
            return tensor
        if id(tensor) in self.gradients:
            self.used_gradients = True
            return tensor
        if tensor in self.made:
            return tensor
        # The bytes of some tensors cannot be copied (sparse, meta): these are not replaced.
        if not_comparable(tensor) is not None:
            return tensor
        if id(tensor) not in self.hidden:
            self.hidden[id(tensor)] = tensor
            stand_in = self.stand_ins[id(tensor)] = self._copy(tensor)
            self.made[stand_in] = None
        return self.stand_ins[id(tensor)]

    def _copy(self, tensor: torch.Tensor) -> torch.Tensor:
        """A copy. Tensors that share a storage still do after the copy."""
        storage = tensor.untyped_storage()
        if storage._cdata not in self.storages:
            self.storages[storage._cdata] = storage.clone()
        return move_to_storage(self.storages[storage._cdata], tensor, tensor.dtype)

    def note_result(self, result: object) -> None:
        # A call returns new tensors, or views or copies of known ones: none is captured.
        for leaf in pytree.tree_leaves(result):
            if isinstance(leaf, torch.Tensor) and id(leaf) not in self.copies:
                self.made[leaf] = None
