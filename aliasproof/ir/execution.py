"""Running a program, as calls, a Python callable or an `fx.Graph`, and gluing several into one."""

from __future__ import annotations

import contextlib
import operator
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import torch
from torch import fx
from torch.autograd import forward_ad

from aliasproof.ir.program import Argument, Input, Instruction, Program, Ref, Storage
from aliasproof.ir.schemas import resolve
from aliasproof.ir.values import storage_data, texts_of

Tensors = Sequence[torch.Tensor]

SEED = 0  # of all generators when a program starts


def seed_generators() -> None:
    """Give the generators of torch, Python and NumPy the state of a program's start.

    Call it before each run: eager and target must draw the same numbers.
    """
    # `torch.manual_seed` formats the stack for each kind of device that is not in use: 1 ms.
    torch.default_generator.manual_seed(SEED)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(SEED)
    random.seed(SEED)
    np.random.seed(SEED)  # noqa: NPY002 - code without a generator of its own draws from this one


@contextlib.contextmanager
def keep_random_state() -> Iterator[None]:
    """Restore the states of these generators at the end."""
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
    of_python, of_numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
    try:
        with torch.random.fork_rng(devices=devices):
            yield
    finally:
        random.setstate(of_python)
        np.random.set_state(of_numpy)  # noqa: NPY002


@contextlib.contextmanager
def leaving_forward_levels() -> Iterator[None]:
    """Leave the level of forward-mode autograd that the code in this context enters, if it raises.

    A graph that Dynamo captured enters and leaves a level by two calls, and after an error between
    them the level stays. Torch has one level at most, so `torch.func.jvp` would fail afterwards.
    """
    within = forward_ad._current_level >= 0
    try:
        yield
    except BaseException:
        if not within:
            with contextlib.suppress(RuntimeError):  # no level was kept
                torch._C._exit_dual_level(level=0)
            forward_ad._current_level = -1
        raise


def run(program: Program, tensors: Tensors) -> tuple[torch.Tensor, ...]:
    """Execute the instructions in order on the input tensors and return the outputs.

    The instructions may mutate the input tensors.
    """
    values = {view.name: tensor for view, tensor in zip(program.inputs, tensors, strict=True)}
    for instruction in program.instructions:
        execute(instruction, values)
    return tuple(values[name] for name in program.outputs)


def execute(instruction: Instruction, values: dict[str, torch.Tensor]) -> None:
    """Run one instruction on the values by name and add its results to them."""
    returned = call(instruction, values)
    if instruction.results:
        values.update(zip(instruction.results, returned, strict=True))


def call(instruction: Instruction, values: dict[str, torch.Tensor]) -> list[torch.Tensor]:
    """Run one instruction on the values by name and return the tensors that the op returns."""
    args = [materialise(argument, values) for argument in instruction.args]
    kwargs = {key: materialise(argument, values) for key, argument in instruction.kwargs}
    with contextlib.nullcontext() if instruction.grad else torch.no_grad():
        returned = resolve(instruction.op)(*args, **kwargs)
    # Some ops return nothing, such as `_foreach_add_`.
    return [returned] if isinstance(returned, torch.Tensor) else list(returned or ())


def materialise(argument: Argument, values: Mapping[str, Any]) -> Any:
    """The Python value to pass for an argument: values for references, lists for tuples."""
    if isinstance(argument, Ref):
        return values[argument.name]
    if isinstance(argument, tuple):
        return [materialise(element, values) for element in argument]
    return argument


@dataclass(frozen=True, slots=True)
class ProgramFunction:
    """A program as a function of its input tensors.

    A target that needs the program itself, and not only calls of it, reads `program`.
    """

    program: Program

    def __call__(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return run(self.program, tensors)


def as_graph(program: Program) -> fx.Graph:
    """The program as a graph of ATen calls, one node per instruction.

    If an op returns several tensors, each named result is a getitem node. If gradients are on now,
    instructions without gradients are between calls that switch them, as in a graph of Dynamo.
    """
    graph = fx.Graph()
    switched = torch.is_grad_enabled()
    grad = True
    nodes = {view.name: graph.placeholder(view.name) for view in program.inputs}
    for instruction in program.instructions:
        if switched and instruction.grad is not grad:
            grad = instruction.grad
            graph.call_function(torch._C._set_grad_enabled, (grad,))
        op = resolve(instruction.op)
        args = tuple(materialise(argument, nodes) for argument in instruction.args)
        kwargs = {key: materialise(argument, nodes) for key, argument in instruction.kwargs}
        node = graph.call_function(op, args, kwargs)
        if returns_one_tensor(op):
            # At most one result: the call itself is the value.
            nodes.update(dict.fromkeys(instruction.results, node))
        else:
            for index, name in enumerate(instruction.results):
                nodes[name] = graph.call_function(operator.getitem, (node, index))
    if not grad:
        graph.call_function(torch._C._set_grad_enabled, (True,))
    graph.output(tuple(nodes[name] for name in program.outputs))
    return graph


def returns_one_tensor(op: torch._ops.OpOverload) -> bool:
    """True if calling the overload returns a tensor rather than a list or tuple of them."""
    returns = op._schema.returns
    return len(returns) == 1 and isinstance(returns[0].type, torch._C.TensorType)


# --- gluing ---------------------------------------------------------------------------------------
#
# A compiler costs nearly the same for one program and for twenty. The members of a glued program
# share no storage, and none uses a value of another. So each member computes the same as by itself.


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class GluedMember:
    """A program in a glued one: the indices of its storages, inputs and outputs there."""

    program: Program
    storages: range
    inputs: range
    outputs: range


@dataclass(frozen=True, slots=True)
class Glued:
    """A program made of others, which are its members in order."""

    program: Program
    members: tuple[GluedMember, ...]


def glue(programs: Sequence[Program]) -> Glued:
    """One program that runs these programs one after the other.

    Storages, inputs, instructions and outputs of the members follow each other. Names begin with
    the number of their member. The data in storages are those of the members. All members must be
    on one device.
    """
    storages: list[Storage] = []
    inputs: list[Input] = []
    instructions: list[Instruction] = []
    outputs: list[str] = []
    members = []
    for number, program in enumerate(programs):
        defined = [view.name for view in program.inputs]
        defined += (name for call in program.instructions for name in call.results)
        named = program.with_names({name: f"p{number}_{name}" for name in defined})
        first = len(storages), len(inputs), len(outputs)
        # A fill depends on the index of a storage and on the seed. In a glued program both differ.
        storages += (
            storage
            if storage.values
            else replace(storage, values=texts_of(storage_data(program, index)))
            for index, storage in enumerate(program.storages)
        )
        inputs += (replace(view, storage=first[0] + view.storage) for view in named.inputs)
        instructions += named.instructions
        outputs += named.outputs
        ends = len(storages), len(inputs), len(outputs)
        members.append(GluedMember(program, *map(range, first, ends)))
    whole = Program(tuple(storages), tuple(inputs), tuple(instructions), tuple(outputs))
    if programs:
        whole = replace(whole, device=programs[0].device)
    return Glued(whole, tuple(members))


def part(values: Sequence[T], indices: range) -> Sequence[T]:
    """The values of a member, out of those of the glued program."""
    return values[indices.start : indices.stop]
