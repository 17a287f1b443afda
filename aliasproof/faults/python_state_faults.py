"""Wrong compilers that lose state, writes to inputs, or what outputs are."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils import _pytree as pytree

from aliasproof.faults.python_fault import on_outputs, python_fault, within


def _objects(values: object) -> Iterator[Any]:
    """The objects with attributes among arguments."""
    for value in pytree.tree_leaves(values):
        if hasattr(value, "__dict__") and not isinstance(value, torch.Tensor | type):
            yield value


# --- state ----------------------------------------------------------------------------------------


@python_fault("side effects of Dynamo: attributes of objects")
@within
@contextmanager
def lost_attributes(args: tuple[Any, ...]) -> Iterator[None]:
    before = [(one, dict(vars(one))) for one in _objects(args)]
    yield
    for one, attributes in before:
        vars(one).clear()
        vars(one).update(attributes)


@python_fault("side effects of Dynamo: class attributes")
@within
@contextmanager
def lost_class_attributes(args: tuple[Any, ...]) -> Iterator[None]:
    kinds = {type(one) for one in _objects(args)}
    before = [(kind, vars(kind)["shared"]) for kind in kinds if "shared" in vars(kind)]
    yield
    for kind, value in before:
        setattr(kind, "shared", value)  # noqa: B010 - the class has it


@python_fault("side effects of Dynamo: globals")
def lost_global_bindings(program: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: Any) -> Any:
        names = program.__globals__
        before = {name: value for name, value in names.items() if name.startswith("global")}
        result = program(*args)
        names.update(before)
        return result

    return run


@python_fault("side effects of Dynamo: lists")
@within
@contextmanager
def lost_appends(args: tuple[Any, ...]) -> Iterator[None]:
    lists = [it for it in _containers(args) if isinstance(it, list)]
    before = [(it, list(it)) for it in lists]
    yield
    for it, items in before:
        it[:] = items


@python_fault("side effects of Dynamo: dicts")
@within
@contextmanager
def lost_keys(args: tuple[Any, ...]) -> Iterator[None]:
    dicts = [it for it in _containers(args) if type(it) is dict]
    before = [(it, dict(it)) for it in dicts]
    yield
    for it, items in before:
        it.clear()
        it.update(items)


def _containers(args: tuple[Any, ...]) -> Iterator[Any]:
    for value in args:
        yield value
        for one in _objects([value]):
            yield from vars(one).values()


@python_fault("a list of the caller gets copies of what was put in")
@within
@contextmanager
def copied_items(args: tuple[Any, ...]) -> Iterator[None]:
    yield
    for it in _containers(args):
        if isinstance(it, list):
            it[:] = [x.clone() if isinstance(x, torch.Tensor) else x for x in it]


@python_fault("defaults of functions outlive the call")
def fresh_defaults(program: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: Any) -> Any:
        functions = [it for it in program.__globals__.values() if hasattr(it, "__defaults__")]
        before = [(it, copy.copy(it.__defaults__)) for it in functions if it.__defaults__]
        lengths = [len(defaults[0]) for _, defaults in before if isinstance(defaults[0], list)]
        result = program(*args)
        for (_, defaults), length in zip(before, lengths, strict=False):
            del defaults[0][length:]
        return result

    return run


@python_fault("a module goes on in another mode")
@within
@contextmanager
def switched_to_eval(args: tuple[Any, ...]) -> Iterator[None]:
    yield
    for one in _objects(args):
        if isinstance(one, torch.nn.Module):
            one.eval()


@python_fault("buffers are written on copies")
@within
@contextmanager
def lost_buffer_writes(args: tuple[Any, ...]) -> Iterator[None]:
    modules = [one for one in _objects(args) if isinstance(one, torch.nn.Module)]
    before = [(it, it.detach().clone()) for one in modules for it in one.buffers()]
    yield
    with torch.no_grad():
        for buffer, kept in before:
            if buffer.shape == kept.shape and not buffer.requires_grad:
                buffer.data.copy_(kept)


# --- inputs and outputs ---------------------------------------------------------------------------


@python_fault("functionalization without its epilogue")
@within
@contextmanager
def lost_input_writes(args: tuple[Any, ...]) -> Iterator[None]:
    tensors = [it for it in args if isinstance(it, torch.Tensor)]
    before = [(it, it.detach().clone()) for it in tensors]
    yield
    for it, kept in before:
        if it.shape == kept.shape:
            it.data.copy_(kept)


@python_fault("an output is a copy of the view that it is in eager")
@on_outputs
def copied_outputs(output: torch.Tensor) -> torch.Tensor:
    return output.clone()


@python_fault("outputs that are contiguous")
@on_outputs
def dense_outputs(output: torch.Tensor) -> torch.Tensor:
    return output.contiguous()


@python_fault("outputs of another dtype")
@on_outputs
def narrowed_outputs(output: torch.Tensor) -> torch.Tensor:
    return output.float() if output.dtype is torch.float64 else output


@python_fault("an output that is an input is another object")
@on_outputs
def other_objects(output: torch.Tensor) -> torch.Tensor:
    return output.view_as(output)


@python_fault("a Parameter is returned as a tensor")
@on_outputs
def plain_parameters(output: torch.Tensor) -> torch.Tensor:
    return output.view_as(output) if isinstance(output, torch.nn.Parameter) else output


@python_fault("a dict is returned in another order")
def reversed_dicts(program: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: Any) -> Any:
        result = program(*args)
        return dict(reversed(result.items())) if isinstance(result, dict) else result

    return run


@python_fault("swapped outputs")
def swapped_outputs(program: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: Any) -> Any:
        result = program(*args)
        if isinstance(result, tuple | list) and len(result) > 1:
            return type(result)([result[1], result[0], *result[2:]])
        return result

    return run


@python_fault("an error of eager is swallowed", shows="does not raise")
def swallowed_errors(program: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: Any) -> Any:
        try:
            return program(*args)
        except RuntimeError:
            return None

    return run
