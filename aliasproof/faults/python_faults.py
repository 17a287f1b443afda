"""Wrong compilers of Python programs: each loses something that a caller can see.

A fault gets `program` and returns what is called in its place. It runs in eager, so that a program
tells it from the right one only by the mistake.
"""

from __future__ import annotations

import copy
import ctypes
import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias
from unittest import mock

import torch
from torch.utils import _pytree as pytree

from aliasproof.ir.guarded_memory import GuardedMemory, empty_strided_cpu
from aliasproof.ir.object_graph import leaves

Wrong: TypeAlias = Callable[[Callable[..., Any]], Callable[..., Any]]


@dataclass(frozen=True, slots=True)
class PythonFault:
    """A wrong compiler; `source` says what it breaks.

    `shows` is a regular expression for the kind of the violation that counts: a fault that dies of
    an error of its own is not found.
    """

    name: str
    source: str
    make: Wrong
    shows: str = r"^(?!raises)"
    summary = "A wrong compiler of Python programs."


PYTHON_FAULTS: dict[str, PythonFault] = {}


def python_fault(source: str, shows: str = r"^(?!raises)") -> Callable[[Wrong], Wrong]:
    """Add a fault with the name of the function."""

    def added(make: Wrong) -> Wrong:
        name = make.__name__.replace("_", " ")
        PYTHON_FAULTS[name] = PythonFault(name, source, make, shows)
        return make

    return added


def on_outputs(change: Callable[[torch.Tensor], Any]) -> Wrong:
    """A wrong compiler that changes each tensor that is returned."""

    @functools.wraps(change)
    def make(program: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            return pytree.tree_map_only(torch.Tensor, change, program(*args))

        return run

    return make


def on_calls(call: Callable[[Callable[..., Any], tuple[Any, ...]], Any]) -> Wrong:
    """A wrong compiler that calls this function with the right program and the arguments."""

    @functools.wraps(call)
    def make(program: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args: call(program, args)

    return make


def within(context: Callable[[tuple[Any, ...]], Iterator[None]]) -> Wrong:
    """A wrong compiler whose call runs where a generator, which gets the arguments, yields."""
    entered = contextmanager(context)

    @on_calls
    @functools.wraps(context)
    def make(program: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        with entered(args):
            return program(*args)

    return make


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
        made = [
            it.clone() if isinstance(it, torch.Tensor) and not it.requires_grad else it
            for it in args
        ]
        result = program(*made)
        for it, new in zip(args, made, strict=True):
            if it is not new and it.shape == new.shape:
                it.data.copy_(new.detach())
        return result

    return run


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
def recorded_always(args: tuple[Any, ...]) -> Iterator[None]:
    nothing: dict[str, Any] = {
        "__enter__": lambda self: None,
        "__exit__": lambda self, *error: None,
    }
    with mock.patch.multiple(torch.no_grad, **nothing):
        yield


@python_fault("gradients of the call are lost")
@within
def lost_gradients(args: tuple[Any, ...]) -> Iterator[None]:
    tensors = [it for _, it in leaves(list(args)) if isinstance(it, torch.Tensor) and it.is_leaf]
    before = [(it, it.grad) for it in tensors]
    yield
    for it, gradient in before:
        it.grad = gradient


@python_fault("the grad mode of the caller is another afterwards")
@on_calls
def left_mode(program: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    result = program(*args)
    torch.set_grad_enabled(False)
    return result


@python_fault(
    "saved tensors are copies: a write between forward and backward raises nothing",
    shows="does not raise RuntimeError",
)
@on_calls
def missed_version_errors(program: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    with torch.autograd.graph.saved_tensors_hooks(lambda x: x.detach().clone(), lambda x: x):
        return program(*args)


@python_fault("a leaf that requires gradients stops to")
@within
def forgotten_requirement(args: tuple[Any, ...]) -> Iterator[None]:
    yield
    for it in args:
        if isinstance(it, torch.Tensor) and it.is_leaf and it.requires_grad:
            it.requires_grad_(False)


@python_fault("metadata of inputs is as before the call")
@within
def lost_metadata(args: tuple[Any, ...]) -> Iterator[None]:
    tensors = [it for it in args if isinstance(it, torch.Tensor) and not it.requires_grad]
    before = [(it, it.shape, it.stride(), it.storage_offset()) for it in tensors]
    yield
    for it, shape, stride, offset in before:
        if it.shape.numel() == shape.numel():
            it.data = it.data.as_strided(shape, stride, offset)


def _objects(values: object) -> Iterator[Any]:
    """The objects with attributes among arguments."""
    for value in pytree.tree_leaves(values):
        if hasattr(value, "__dict__") and not isinstance(value, torch.Tensor | type):
            yield value


# --- state ----------------------------------------------------------------------------------------


@python_fault("side effects of Dynamo: attributes of objects")
@within
def lost_attributes(args: tuple[Any, ...]) -> Iterator[None]:
    before = [(one, dict(vars(one))) for one in _objects(args)]
    yield
    for one, attributes in before:
        vars(one).clear()
        vars(one).update(attributes)


@python_fault("side effects of Dynamo: class attributes")
@within
def lost_class_attributes(args: tuple[Any, ...]) -> Iterator[None]:
    kinds = {type(one) for one in _objects(args)}
    before = [(kind, vars(kind)["shared"]) for kind in kinds if "shared" in vars(kind)]
    yield
    for kind, value in before:
        setattr(kind, "shared", value)  # noqa: B010 - the class has it


@python_fault("side effects of Dynamo: globals")
@on_calls
def lost_global_bindings(program: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    names = program.__globals__
    before = {name: value for name, value in names.items() if name.startswith("global")}
    result = program(*args)
    names.update(before)
    return result


@python_fault("side effects of Dynamo: lists")
@within
def lost_appends(args: tuple[Any, ...]) -> Iterator[None]:
    lists = [it for it in _containers(args) if isinstance(it, list)]
    before = [(it, list(it)) for it in lists]
    yield
    for it, items in before:
        it[:] = items


@python_fault("side effects of Dynamo: dicts")
@within
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
def copied_items(args: tuple[Any, ...]) -> Iterator[None]:
    yield
    for it in _containers(args):
        if isinstance(it, list):
            it[:] = [x.clone() if isinstance(x, torch.Tensor) else x for x in it]


@python_fault("defaults of functions outlive the call")
@on_calls
def fresh_defaults(program: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    functions = [it for it in program.__globals__.values() if hasattr(it, "__defaults__")]
    before = [(it, copy.copy(it.__defaults__)) for it in functions if it.__defaults__]
    lengths = [len(defaults[0]) for _, defaults in before if isinstance(defaults[0], list)]
    result = program(*args)
    for (_, defaults), length in zip(before, lengths, strict=False):
        del defaults[0][length:]
    return result


@python_fault("a module goes on in another mode")
@within
def switched_to_eval(args: tuple[Any, ...]) -> Iterator[None]:
    yield
    for one in _objects(args):
        if isinstance(one, torch.nn.Module):
            one.eval()


@python_fault("buffers are written on copies")
@within
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
@on_calls
def reversed_dicts(program: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    result = program(*args)
    return dict(reversed(result.items())) if isinstance(result, dict) else result


@python_fault("swapped outputs")
@on_calls
def swapped_outputs(program: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    result = program(*args)
    if isinstance(result, tuple | list) and len(result) > 1:
        return type(result)([result[1], result[0], *result[2:]])
    return result


@python_fault("an error of eager is swallowed", shows="does not raise")
@on_calls
def swallowed_errors(program: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    try:
        return program(*args)
    except RuntimeError:
        return None


# --- memory ---------------------------------------------------------------------------------------


def _stored(output: torch.Tensor, store: Callable[[torch.Tensor, torch.Tensor], Any]) -> Any:
    """What `store` makes of an output and a buffer for it, as a wrapper of Inductor allocates it.

    What is written around a buffer destroys the heap, so it must be guarded.
    """
    dense = output.layout is torch.strided and output.device.type == "cpu" and output.numel()
    if not GuardedMemory.entered or not dense or output.requires_grad:
        return output
    with torch.no_grad():
        return store(output, empty_strided_cpu(output.shape, output.stride(), output.dtype))


@python_fault("a tail that stores a whole vector", shows="^writes behind the end of a buffer")
@on_outputs
def one_element_too_far(output: torch.Tensor) -> Any:
    def store(output: torch.Tensor, buffer: torch.Tensor) -> torch.Tensor:
        ctypes.memset(buffer.data_ptr() + buffer.untyped_storage().nbytes(), 0, output.itemsize)
        return buffer.copy_(output)

    return _stored(output, store)


@python_fault("a tail without its last element", shows="^depends on memory that nothing wrote")
@on_outputs
def last_element_skipped(output: torch.Tensor) -> Any:
    def store(output: torch.Tensor, buffer: torch.Tensor) -> torch.Tensor:
        last = [length - 1 for length in output.shape]
        kept = buffer[tuple(last)].clone()
        buffer.copy_(output)[tuple(last)] = kept
        return buffer

    return _stored(output, store)


@python_fault("a plan frees a live buffer", shows="^depends on memory that nothing wrote")
@on_outputs
def live_buffer_is_freed(output: torch.Tensor) -> Any:
    def store(output: torch.Tensor, buffer: torch.Tensor) -> torch.Tensor:
        result = output.clone()
        nbytes, address = buffer.untyped_storage().nbytes(), buffer.copy_(output).data_ptr()
        del buffer
        ctypes.memmove(result.data_ptr(), address, min(nbytes, result.untyped_storage().nbytes()))
        return result

    return _stored(output, store)
