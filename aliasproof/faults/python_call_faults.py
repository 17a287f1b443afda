"""Wrong compilers whose later calls, or whose gradients, are wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch

from aliasproof.faults.python_fault import on_outputs, python_fault, within
from aliasproof.ir.object_graph import leaves

# --- later calls ----------------------------------------------------------------------------------


@python_fault("no guard: the result of the first call serves all")
def first_result(program: Callable[..., Any]) -> Callable[..., Any]:
    results: list[Any] = []

    def run(*args: Any) -> Any:
        if not results:
            results.append(program(*args))
        return results[0]

    return run


@python_fault("no guard on Python numbers")
def first_flag(program: Callable[..., Any]) -> Callable[..., Any]:
    first: list[Any] = []

    def run(*args: Any) -> Any:
        first[:] = first or args
        pairs = zip(args, first, strict=False)
        return program(*(old if isinstance(new, int) else new for new, old in pairs))

    return run


@python_fault("no guard on what inputs share")
def unshared_later(program: Callable[..., Any]) -> Callable[..., Any]:
    calls: list[int] = []

    def run(*args: Any) -> Any:
        calls.append(1)
        if len(calls) == 1:
            return program(*args)
        # Each argument has memory of its own, and is copied back.
        made = [it.clone() if _may_copy(it) else it for it in args]
        result = program(*made)
        for it, new in zip(args, made, strict=True):
            if it is not new and it.shape == new.shape:
                it.data.copy_(new.detach())
        return result

    return run


def _may_copy(value: object) -> bool:
    return isinstance(value, torch.Tensor) and not value.requires_grad


@python_fault("later calls run without gradients")
def later_without_gradients(program: Callable[..., Any]) -> Callable[..., Any]:
    calls: list[int] = []

    def run(*args: Any) -> Any:
        calls.append(1)
        with torch.set_grad_enabled(len(calls) == 1):
            return program(*args)

    return run


# --- gradients ------------------------------------------------------------------------------------


@python_fault("outputs without their history")
@on_outputs
def detached_outputs(output: torch.Tensor) -> torch.Tensor:
    return output.detach()


@python_fault("gradients that are twice too large")
@on_outputs
def doubled_gradients(output: torch.Tensor) -> torch.Tensor:
    if output.requires_grad and not output.is_leaf:
        output.register_hook(lambda gradient: gradient * 2)
    return output


@python_fault("no_grad within the program has no effect")
@within
@contextmanager
def recorded_always(args: tuple[Any, ...]) -> Iterator[None]:
    nothing: dict[str, Any] = {
        "__enter__": lambda self: None,
        "__exit__": lambda self, *error: None,
    }
    with mock.patch.multiple(torch.no_grad, **nothing):
        yield


@python_fault("gradients of the call are lost")
@within
@contextmanager
def lost_gradients(args: tuple[Any, ...]) -> Iterator[None]:
    tensors = [it for _, it in leaves(list(args)) if isinstance(it, torch.Tensor) and it.is_leaf]
    before = [(it, it.grad) for it in tensors]
    yield
    for it, gradient in before:
        it.grad = gradient


@python_fault("the grad mode of the caller is another afterwards")
def left_mode(program: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: Any) -> Any:
        result = program(*args)
        torch.set_grad_enabled(False)
        return result

    return run


@python_fault(
    "saved tensors are copies: a write between forward and backward raises nothing",
    shows="does not raise RuntimeError",
)
def missed_version_errors(program: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: Any) -> Any:
        with torch.autograd.graph.saved_tensors_hooks(lambda x: x.detach().clone(), lambda x: x):
            return program(*args)

    return run


@python_fault("a leaf that requires gradients stops to")
@within
@contextmanager
def forgotten_requirement(args: tuple[Any, ...]) -> Iterator[None]:
    yield
    for it in args:
        if isinstance(it, torch.Tensor) and it.is_leaf and it.requires_grad:
            it.requires_grad_(False)


@python_fault("metadata of inputs is as before the call")
@within
@contextmanager
def lost_metadata(args: tuple[Any, ...]) -> Iterator[None]:
    tensors = [it for it in args if isinstance(it, torch.Tensor) and not it.requires_grad]
    before = [(it, it.shape, it.stride(), it.storage_offset()) for it in tensors]
    yield
    for it, shape, stride, offset in before:
        if it.shape.numel() == shape.numel():
            it.data = it.data.as_strided(shape, stride, offset)
