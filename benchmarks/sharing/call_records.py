"""Runs a program through its calls, and records all that a caller can see after each of them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from benchmarks.sharing.shared_arguments import SharedCall, SharingProgram, View

AnyCallable: TypeAlias = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class PlaceRecord:
    """A tensor or a plain value after a call. The facts are what a tensor has beside its values."""

    value: Any
    facts: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class SharedCallRecord:
    """What is seen after a call, by place: `result 0`, `argument 1`, `gradient of base 0`.

    `call` is its number and label.
    """

    call: str
    places: Mapping[str, PlaceRecord]


class SharedCallError(Exception):
    """A call raised, or the backward of its results did."""

    def __init__(self, number: int, call: str, error: Exception) -> None:
        super().__init__(f"{call}: {type(error).__name__}: {error}")
        self.number, self.call, self.error = number, call, error


def call_records(
    program: SharingProgram,
    compiler: Callable[[AnyCallable], AnyCallable],
    *,
    training: bool,
    seed: int = 0,
    without: Collection[int] = (),
) -> list[SharedCallRecord]:
    """Compile the program and make its calls, except those with these numbers.

    Raises `SharedCallError` at the first call that raises.
    """
    torch.manual_seed(seed)
    target = program.target() if program.factory else program.target
    if isinstance(target, nn.Module) and not training:
        target.requires_grad_(requires_grad=False)
    compiled = compiler(target)
    records = []
    for number, call in enumerate(program.calls(seed)):
        if number in without:
            continue
        name = f"call {number} ({call.label})"
        if isinstance(target, nn.Module):
            target.zero_grad(set_to_none=True)
        inputs = _inputs(program, call, training=training)
        torch.manual_seed(seed + 1000 + number)
        try:
            with contextlib.nullcontext() if training else torch.no_grad():
                result = compiled(*inputs.arguments)
            places = _places(target, inputs, result, training=training)
        except Exception as error:
            raise SharedCallError(number, name, error) from error
        records.append(SharedCallRecord(name, places))
    return records


# --- inputs ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _CallInputs:
    """Arguments, and the tensors behind them: what they are views of, and leaves by their place."""

    arguments: list[Any]
    roots: list[Tensor]
    leaves: dict[str, Tensor]


def _inputs(program: SharingProgram, call: SharedCall, *, training: bool) -> _CallInputs:
    """The arguments of a call. In training, they require the gradients that the program says."""
    letters = (program.gradients if training else "").ljust(len(call.arguments), "n")
    pairs = list(zip(call.arguments, letters, strict=True))
    roots, leaves = [], {}
    for number, base in enumerate(call.bases):
        letters_of_base = {
            letter
            for argument, letter in pairs
            if isinstance(argument, View) and argument.base == number and _differentiable(base)
        }
        if letters_of_base & {"x", "l"}:
            leaves[f"base {number}"] = base.requires_grad_()
        roots.append(base * 1 if "x" in letters_of_base else base)
    arguments = []
    for number, (argument, letter) in enumerate(pairs):
        value = argument.of(roots[argument.base]) if isinstance(argument, View) else argument
        if letter == "p" and _differentiable(value):
            value = leaves[f"argument {number}"] = value.detach().requires_grad_()
        elif letter == "n" and isinstance(value, Tensor) and value.requires_grad:
            value = value.detach()
        arguments.append(value)
    return _CallInputs(arguments, roots, leaves)


def _differentiable(tensor: Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


# --- what a caller sees ---------------------------------------------------------------------------


def _places(
    target: AnyCallable, inputs: _CallInputs, result: object, *, training: bool
) -> dict[str, PlaceRecord]:
    """Records of results, arguments, their bases and the state; in training, of gradients too."""
    results = {f"result {k}": value for k, value in enumerate(pytree.tree_leaves(result))}
    tensors = {place: value for place, value in results.items() if isinstance(value, Tensor)}
    arguments = {f"argument {k}": value for k, value in enumerate(inputs.arguments)}
    arguments = {place: value for place, value in arguments.items() if isinstance(value, Tensor)}
    state = _state(target)
    roots = {f"base {k}": root for k, root in enumerate(inputs.roots)}
    lasting = {**arguments, **state, **roots}
    places = {place: _of_result(place, results, lasting) for place in results}
    places |= {place: _of_tensor(tensor, offset=True) for place, tensor in lasting.items()}
    if training:
        inner = [root for root in inputs.roots if not root.is_leaf]
        _backward([*tensors.values(), *arguments.values(), *inner])
        leaves = inputs.leaves | {place: value for place, value in state.items() if value.is_leaf}
        for place, leaf in leaves.items():
            gradient = leaf.grad
            places[f"gradient of {place}"] = (
                PlaceRecord(None, {}) if gradient is None else _of_tensor(gradient, offset=False)
            )
    return places


def _state(target: AnyCallable) -> dict[str, Tensor]:
    """Parameters and buffers, by place."""
    if not isinstance(target, nn.Module):
        return {}
    named = [*target.named_parameters(), *target.named_buffers()]
    return {f"state {name}": tensor for name, tensor in named}


def _of_result(
    place: str, results: Mapping[str, object], lasting: Mapping[str, Tensor]
) -> PlaceRecord:
    """The record of a result, with the tensors that share its memory."""
    result = results[place]
    if not isinstance(result, Tensor):
        return PlaceRecord(result, {})
    sharing = [name for name, other in lasting.items() if _share(result, other)]
    # Where a new result is in its storage is nobody's business.
    record = _of_tensor(result, offset=bool(sharing))
    sharing += [
        name
        for name, other in results.items()
        if name != place and isinstance(other, Tensor) and _share(result, other)
    ]
    same = [name for name, other in lasting.items() if other is result]
    names = {"memory shared with": sharing, "object": same}
    return PlaceRecord(
        record.value,
        {**record.facts, **{fact: ", ".join(found) or "none" for fact, found in names.items()}},
    )


def _share(one: Tensor, other: Tensor) -> bool:
    address = one.untyped_storage().data_ptr()
    return address != 0 and address == other.untyped_storage().data_ptr()


def _of_tensor(tensor: Tensor, *, offset: bool) -> PlaceRecord:
    pairs = zip(tensor.shape, tensor.stride(), strict=True)
    facts = {
        "shape": tuple(tensor.shape),
        # The others locate no element.
        "strides": tuple(stride for size, stride in pairs if size != 1 and tensor.numel()),
        "dtype": tensor.dtype,
        "requires_grad": tensor.requires_grad,
        "is_conj": tensor.is_conj(),
        "is_neg": tensor.is_neg(),
    }
    if offset:
        facts["storage offset"] = tensor.storage_offset()
    return PlaceRecord(tensor.detach().clone(), facts)


def _backward(tensors: Sequence[Tensor]) -> None:
    """Differentiate a sum over all different tensors that require gradients, if there are any."""
    different = {id(tensor): tensor for tensor in tensors if tensor.requires_grad}
    terms = [_weighted(tensor, number) for number, tensor in enumerate(different.values())]
    if terms:
        torch.stack(terms).sum().backward()


def _weighted(tensor: Tensor, number: int) -> Tensor:
    """A sum with weights of few bits: gradients add up to the same bits in any order."""
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    positions = torch.arange(tensor.numel()).reshape(tensor.shape)
    return (tensor.double() * (((positions * 7 + number * 3) % 13 - 6) / 4)).sum()
