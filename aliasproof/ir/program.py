"""`Program`: the value that all parts of aliasproof exchange.

A program is a straight line of ATen calls over inputs that are views into storages. Each input
names its storage, so two inputs can share one. All parts are frozen and compare by value. A program
contains no tensors.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

import torch

from aliasproof.ir.schemas import facts, resolve


@dataclass(frozen=True, slots=True)
class Ref:
    """The use of a value (an input or a result) by name."""

    name: str


Argument: TypeAlias = "bool | int | float | str | torch.dtype | Ref | tuple[Argument, ...] | None"


GRADIENTS = ("computed", "leaf", "none")


@dataclass(frozen=True, slots=True)
class Storage:
    """An untyped buffer of `length` elements of `dtype`.

    The dtype says how the buffer is filled; a view may read it as another dtype. `values` are its
    elements as text, such as "1", "-0.0", "nan" or "(inf+1j)", repeated up to `length`. Without
    values, the fill of the program decides. The values are text because two programs are equal
    exactly if their values are: as numbers, 0.0 equals -0.0, and NaN does not equal itself.

    `gradient` matters only under autograd (see `aliasproof.targets.gradients`). It is one of
    `GRADIENTS`: views are computed from a leaf that requires gradients, are such leaves, or require
    no gradients.
    """

    dtype: torch.dtype
    length: int
    values: tuple[str, ...] = ()
    gradient: str = "computed"

    @property
    def nbytes(self) -> int:
        return self.length * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class Input:
    """A view into the storage with index `storage`.

    Strides and offset count elements of `dtype`. A `static` input stays at its address in all
    calls, as buffers and parameters of a module do (see `torch._dynamo.mark_static_address`).
    """

    name: str
    storage: int
    dtype: torch.dtype
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0
    static: bool = False


@dataclass(frozen=True, slots=True)
class Instruction:
    """One call of an operator overload, such as `aten.add_.Tensor`.

    `results` names the returned tensors, one name per tensor (a list of tensors is unpacked). It
    may be empty if the result is not used, as with most in-place ops. A named result of an in-place
    op is the same object as the argument. Without `grad`, the call is under `torch.no_grad()`.
    """

    op: str
    args: tuple[Argument, ...]
    kwargs: tuple[tuple[str, Argument], ...] = ()
    results: tuple[str, ...] = ()
    grad: bool = True

    @property
    def refs(self) -> tuple[str, ...]:
        """The names of all values used, in order, with repetition."""
        return tuple(names_in((self.args, tuple(value for _, value in self.kwargs))))

    @property
    def written(self) -> list[str]:
        """The names of the values that the call writes, in the order of the schema."""
        known = facts(resolve(self.op))
        parameters = known.op._schema.arguments
        given = dict(self.kwargs) | {
            parameter.name: value for parameter, value in zip(parameters, self.args, strict=False)
        }
        written = [parameters[index].name for index in known.writes]
        return [name for parameter in written for name in names_in(given.get(parameter))]

    def mutates(self) -> bool:
        """True if the schema of the op says that it writes to an argument."""
        return bool(facts(resolve(self.op)).writes)


def names_in(argument: Argument) -> Iterator[str]:
    """All names that an argument refers to, at any nesting."""
    if isinstance(argument, Ref):
        yield argument.name
    elif isinstance(argument, tuple):
        for element in argument:
            yield from names_in(element)


def rename(argument: Argument, names: dict[str, str]) -> Argument:
    """The argument with its references renamed; a name without an entry in `names` stays."""
    if isinstance(argument, Ref):
        return Ref(names.get(argument.name, argument.name))
    if isinstance(argument, tuple):
        return tuple(rename(element, names) for element in argument)
    return argument


@dataclass(frozen=True, slots=True)
class Program:
    """Storages, inputs that view them, instructions, and the names of the values returned.

    `fill` ("plain" or "special") and `seed` only decide the data in storages without values of
    their own (see `aliasproof.ir.values.storage_data`). The storages are on `device`, such as
    "cuda:0" (see `aliasproof.ir.devices`).
    """

    storages: tuple[Storage, ...]
    inputs: tuple[Input, ...]
    instructions: tuple[Instruction, ...]
    outputs: tuple[str, ...]
    seed: int = 0
    fill: str = "plain"
    device: str = "cpu"

    def __len__(self) -> int:
        return len(self.instructions)

    def with_instruction(self, index: int, instruction: Instruction) -> Program:
        """The same program with another instruction at that index."""
        instructions = (*self.instructions[:index], instruction, *self.instructions[index + 1 :])
        return replace(self, instructions=instructions)

    def with_input(self, index: int, view: Input) -> Program:
        """The same program with another input at that index."""
        return replace(self, inputs=(*self.inputs[:index], view, *self.inputs[index + 1 :]))

    def without_unused_storages(self) -> Program:
        """The same program without the storages that no input views.

        If an input names a storage that does not exist, all stay, and validation rejects it.
        """
        used = sorted({view.storage for view in self.inputs})
        if len(used) == len(self.storages) or any(it >= len(self.storages) for it in used):
            return self
        inputs = tuple(replace(view, storage=used.index(view.storage)) for view in self.inputs)
        return replace(self, storages=tuple(self.storages[it] for it in used), inputs=inputs)

    def renamed(self) -> Program:
        """The same program with canonical names: inputs x0, x1, ...; results v0, v1, ..."""
        # Each name is defined once, so one table covers the whole program.
        names = {view.name: f"x{index}" for index, view in enumerate(self.inputs)}
        for instruction in self.instructions:
            for result in instruction.results:
                names[result] = f"v{len(names) - len(self.inputs)}"
        return self.with_names(names)

    def with_names(self, names: dict[str, str]) -> Program:
        """The same program with values renamed; a name without an entry in `names` stays."""
        return replace(
            self,
            inputs=tuple(
                replace(view, name=names.get(view.name, view.name)) for view in self.inputs
            ),
            instructions=tuple(rename_instruction(call, names) for call in self.instructions),
            outputs=tuple(names.get(name, name) for name in self.outputs),
        )


def rename_instruction(instruction: Instruction, names: dict[str, str]) -> Instruction:
    """The instruction with uses and results renamed."""
    return Instruction(
        instruction.op,
        tuple(rename(argument, names) for argument in instruction.args),
        tuple((key, rename(value, names)) for key, value in instruction.kwargs),
        tuple(names.get(result, result) for result in instruction.results),
        instruction.grad,
    )
