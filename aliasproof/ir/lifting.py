"""Lifting: a function that runs in eager, as the `Program` of the ATen calls that it makes.

The function runs once. Everything that Python or tensor data decide in that run becomes fixed in
the program: branches, loops, the numbers of `.item()`. If a program cannot express a call, it is
refused with the name of the operator and of the argument.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch._ops import OpOverload
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from aliasproof.ir.devices import CPU, SUPPORTED, on_device
from aliasproof.ir.errors import UserError, shown
from aliasproof.ir.program import Argument, Input, Instruction, Program, Ref, Storage
from aliasproof.ir.schemas import facts
from aliasproof.ir.validation import call_schema, first_defect, fits
from aliasproof.ir.values import STATIC, has_bytes, texts_of

# Elements. A longer storage gets the values of the fill, since a program has each value as text.
MOST_VALUES = 10_000


@dataclass(frozen=True, slots=True)
class LiftedProgram:
    """A program, and notes on the properties of the lifted function that it leaves out."""

    program: Program
    notes: tuple[str, ...] = ()


def lift_program(
    function: Callable[..., object],
    inputs: Sequence[torch.Tensor],
    originals: Sequence[torch.Tensor] = (),
) -> LiftedProgram:
    """Run a function in eager on tensors, and record its ATen calls as a program.

    The inputs keep layout, mutual sharing and values. A tensor that the function captures becomes
    a further input. The function may mutate its inputs, so pass copies. With `originals`, each
    input is a leaf of autograd, a result, or neither, like its original, and calls are without
    gradients where the function switches them off. Raises `UserError` for calls that a program
    cannot express; errors of the function itself are passed on.
    """
    # Without inputs, the device is that of the first tensor that the function captures.
    recorder = _Recorder(inputs[0].device if inputs else None, with_modes=bool(originals))
    for tensor in inputs:
        recorder.require_here(tensor)
        recorder.add_input(tensor)
    with recorder:
        returned = function(*inputs)
    leaves = pytree.tree_leaves(returned)
    outputs = tuple(recorder.name_of(leaf) for leaf in leaves if isinstance(leaf, torch.Tensor))
    storages = recorder.storages
    if originals:
        # As autograd sees them: the first inputs are like their originals.
        kinds: dict[int, str] = {}
        for view, original in zip(recorder.inputs, originals, strict=False):
            if original.requires_grad:
                kinds[view.storage] = "leaf" if original.is_leaf else "computed"
        storages = [
            replace(storage, gradient=kinds.get(number, "none"))
            for number, storage in enumerate(storages)
        ]
    program = Program(
        tuple(storages),
        tuple(recorder.inputs),
        tuple(recorder.instructions),
        outputs,
    ).renamed()
    program = on_device(program, str(recorder.device or CPU))
    defect = first_defect(program)
    if defect is not None:
        raise UserError(f"the function cannot be a program: {defect}")
    return LiftedProgram(program, tuple(recorder.notes()))


def as_inputs(
    values: Mapping[str, torch.Tensor],
) -> tuple[tuple[Input, ...], tuple[Storage, ...]]:
    """Inputs with the names, layouts and sharing of these tensors, and their storages.

    Two names of one tensor become two inputs. The storages have no explicit values.
    """
    numbers: dict[int, int] = {}
    inputs: list[Input] = []
    storages: list[Storage] = []
    for name, tensor in values.items():
        storage = tensor.untyped_storage()
        if storage._cdata not in numbers:
            numbers[storage._cdata] = len(storages)
            storages.append(_storage_of(tensor))
        inputs.append(_input_of(name, tensor, numbers[storage._cdata]))
    return tuple(inputs), tuple(storages)


def _storage_of(tensor: torch.Tensor) -> Storage:
    """The storage of a tensor, in elements of its dtype, the last one rounded up."""
    return Storage(tensor.dtype, -(-tensor.untyped_storage().nbytes() // tensor.dtype.itemsize))


def _input_of(name: str, tensor: torch.Tensor, storage: int) -> Input:
    layout = (tuple(tensor.shape), tensor.stride(), int(tensor.storage_offset()))
    return Input(name, storage, tensor.dtype, *layout, static=hasattr(tensor, STATIC))


# --- recording ------------------------------------------------------------------------------------

# These arguments only affect how fast a call is.
_LEFT_OUT = {"pin_memory", "non_blocking"}
# The integers of the C++ enumeration. None of them is the default of most ops.
_MEMORY_FORMATS = {
    torch.contiguous_format: 0,
    torch.preserve_format: None,
    torch.channels_last: 2,
    torch.channels_last_3d: 3,
}


@dataclass(eq=False)
class _Recorder(TorchDispatchMode):
    """Records each ATen call as an instruction, and names the tensors that it sees."""

    device: torch.device | None = None
    with_modes: bool = False
    storages: list[Storage] = field(default_factory=list)
    inputs: list[Input] = field(default_factory=list)
    instructions: list[Instruction] = field(default_factory=list)
    # Kept alive, so that no identity and no storage address is used twice.
    _tensors: list[torch.Tensor] = field(default_factory=list)
    _names: dict[int, str] = field(default_factory=dict)
    _by_layout: dict[tuple[object, ...], str] = field(default_factory=dict)
    _storage_numbers: dict[int, int | None] = field(default_factory=dict)
    _constants: Counter[str] = field(default_factory=Counter)
    _unnamed_values: list[str] = field(default_factory=list)
    supports_higher_order_operators = True  # so that they arrive here, and are refused by name

    def __post_init__(self) -> None:
        super().__init__()

    def notes(self) -> list[str]:
        """The properties of the function that the program leaves out."""
        notes = [
            f"{count} call{'s' * (count > 1)} of {op} became constants of the program"
            for op, count in self._constants.items()
        ]
        if self._unnamed_values:
            names = ", ".join(self._unnamed_values)
            notes.append(f"the storages of {names} are too long to keep their values")
        return notes

    def __torch_dispatch__(
        self,
        func: Any,
        types: object,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if not isinstance(func, OpOverload):
            raise UserError(f"a program cannot call the higher-order operator {func}")
        if func is torch.ops.aten.lift_fresh.default and self._name_of(args[0]) is None:
            return self._make_constant(args[0], func(*args))
        # Made before the call, which may change an argument that is new here.
        instruction = self._instruction(func, args, kwargs or {})
        returned = func(*args, **kwargs or {})
        self._append(func, instruction, returned)
        return returned

    def _append(self, op: OpOverload, instruction: Instruction, returned: Any) -> None:
        values = [returned] if isinstance(returned, torch.Tensor) else pytree.tree_leaves(returned)
        tensors = [value for value in values if isinstance(value, torch.Tensor)]
        if not tensors and not facts(op).writes:
            self._constants[str(op)] += 1  # such as `_local_scalar_dense`, which is `.item()`
            return
        if all(id(tensor) in self._names for tensor in tensors):  # it returns its arguments
            self.instructions.append(instruction)
            return
        if any(value is not None and not isinstance(value, torch.Tensor) for value in values):
            raise UserError(f"{op} returns other things than tensors; a program cannot name those")
        results = tuple(f"v{len(self.instructions)}_{index}" for index in range(len(values)))
        for value, name in zip(values, results, strict=True):
            if value is not None:
                self._note(value, name)
        self.instructions.append(replace(instruction, results=results))

    def _make_constant(self, given: torch.Tensor, returned: torch.Tensor) -> torch.Tensor:
        """Record a tensor that the function makes from numbers (`torch.tensor`); returns it."""
        name, dtype = f"v{len(self.instructions)}_0", (("dtype", given.dtype),)
        first = None if given.numel() == 0 or given.is_complex() else given.reshape(-1)[0].item()
        if first is not None and bool((given == first).all()):
            full = (tuple(given.shape), first)
            made = Instruction("aten.full.default", full, dtype, (name,))
        else:
            # An input has its values. It is copied, since the function may write the tensor.
            source = Ref(self.add_input(given.clone()))
            made = Instruction("aten.clone.default", (source,), (), (name,))
        self.instructions.append(made)
        self._note(returned, name)
        return returned

    def _note(self, tensor: torch.Tensor, name: str) -> None:
        _require_plain(tensor, "the result of a call")
        self._tensors.append(tensor)
        self._names.setdefault(id(tensor), name)
        self._by_layout[_layout(tensor)] = name
        self._storage_numbers.setdefault(tensor.untyped_storage()._cdata, None)

    # --- tensors ---

    def name_of(self, tensor: torch.Tensor) -> str:
        """The name of a tensor. One that no call made is captured, and becomes an input."""
        known = self._name_of(tensor)
        if known is not None:
            return known
        self.require_here(tensor)
        return self.add_input(tensor)

    def require_here(self, tensor: torch.Tensor) -> None:
        """Raises `UserError` if a tensor is on another device than the inputs before it."""
        self.device = self.device or tensor.device
        if tensor.device != self.device:
            raise UserError(
                f"tensors are on {self.device} and on {tensor.device}; a program is on one device"
            )

    def _name_of(self, tensor: torch.Tensor) -> str | None:
        """The name of a tensor, or of one that is the same part of the same storage."""
        _require_plain(tensor, "a tensor that a call uses")
        if id(tensor) in self._names:
            return self._names[id(tensor)]
        # Autograd passes on a shallow copy of the result of a view op.
        return self._by_layout.get(_layout(tensor))

    def add_input(self, tensor: torch.Tensor) -> str:
        """Make a tensor an input, as it is now, and return its name."""
        name = f"x{len(self.inputs)}"
        _require_plain(tensor, name)
        key = tensor.untyped_storage()._cdata
        if self._storage_numbers.get(key, 0) is None:
            raise UserError(
                "a tensor shares memory with the result of a call, and no call made it (as with"
                " `.data` and `set_`); a program cannot say that"
            )
        if key not in self._storage_numbers:
            self._storage_numbers[key] = len(self.storages)
            storage = _storage_of(tensor)
            if storage.length and tensor.untyped_storage().nbytes() % tensor.dtype.itemsize == 0:
                buffer = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
                buffer = buffer.set_(tensor.untyped_storage(), 0, (storage.length,), (1,))
                # Values are repeated, so one is enough for a buffer of equal values.
                same = bool((buffer == buffer[0]).all())
                if same or storage.length <= MOST_VALUES:
                    storage = replace(storage, values=texts_of(buffer[:1] if same else buffer))
                else:
                    self._unnamed_values.append(name)
            self.storages.append(storage)
        number = self._storage_numbers[key]
        assert number is not None
        self.inputs.append(_input_of(name, tensor, number))
        self._tensors.append(tensor)
        self._names[id(tensor)] = self._by_layout[_layout(tensor)] = name
        return name

    # --- calls ---

    def _instruction(
        self, op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Instruction:
        parameters = [argument.name for argument in op._schema.arguments]
        given = dict(zip(parameters, args, strict=False)) | dict(kwargs)
        taken = _overload_for(op, given)
        for argument in taken._schema.arguments:
            # Python passes a number for a tensor. No overload accepts it, so it becomes a tensor.
            value: Any = given.get(argument.name)
            number = _takes_tensor(argument) and isinstance(value, (bool, int, float))
            if number and not fits(value, call_schema(str(taken)).by_name[argument.name]):
                # Without dimensions, so that it promotes other operands as the number does.
                made = torch.scalar_tensor(value, dtype=torch.tensor(value).dtype)
                name, dtype = f"v{len(self.instructions)}_0", (("dtype", made.dtype),)
                scalar = Instruction("aten.scalar_tensor.default", (value,), dtype, (name,))
                self.instructions.append(scalar)
                self._note(made, name)
                given[argument.name] = made
        said = {name: self._argument(value, op, name) for name, value in given.items()}
        positional = tuple(said[name] for name in parameters[: len(args)])
        keywords = tuple(
            (name, said[name])
            for name in kwargs
            if said[name] is not None and name not in _LEFT_OUT
        )
        grad = torch.is_grad_enabled() or not self.with_modes
        return Instruction(str(taken), positional, keywords, grad=grad)

    def _argument(self, value: Any, op: OpOverload, name: str) -> Argument:
        if isinstance(value, torch.Tensor):
            return Ref(self.name_of(value))
        if isinstance(value, (list, tuple)):
            return tuple(self._argument(element, op, name) for element in value)
        if isinstance(value, torch.memory_format):
            return _MEMORY_FORMATS[value]
        if value is None or isinstance(value, (bool, int, float, str, torch.dtype)):
            return value
        if value == torch.strided:  # a program has dense tensors
            return None
        if isinstance(value, torch.device):
            here = self.device or torch.device(CPU)
            # The results of a factory op on the CPU are made on the device of the program.
            from_numbers = not any(map(_takes_tensor, op._schema.arguments))
            same = value.type == here.type and value.index in (None, here.index)
            if same or (from_numbers and value.type == CPU):
                return None
        raise UserError(f"a program cannot say the argument {name!r} of {op}: {shown(value)}")


def _takes_tensor(argument: Any) -> bool:
    return str(argument.real_type) in ("Tensor", "Optional[Tensor]")


def _overload_for(op: OpOverload, given: Mapping[str, Any]) -> OpOverload:
    """The overload that takes numbers, if Python passed numbers for tensors and one is needed.

    A program can call some overloads as Python did, and targets then get the same calls.
    """
    numbers = {
        argument.name
        for argument in op._schema.arguments
        if _takes_tensor(argument) and isinstance(given.get(argument.name), (bool, int, float))
    }
    if all(fits(given[name], call_schema(str(op)).by_name[name]) for name in numbers):
        return op
    names = [argument.name for argument in op._schema.arguments]
    for overload in op.overloadpacket.overloads() if numbers else ():
        other: OpOverload = getattr(op.overloadpacket, overload)
        arguments = other._schema.arguments
        if [argument.name for argument in arguments] != names:
            continue
        if all(
            _takes_tensor(argument) == (_takes_tensor(old) and argument.name not in numbers)
            for argument, old in zip(arguments, op._schema.arguments, strict=True)
        ):
            return other
    return op


def _layout(tensor: torch.Tensor) -> tuple[object, ...]:
    storage = tensor.untyped_storage()._cdata
    return storage, tensor.dtype, tensor.shape, tensor.stride(), tensor.storage_offset()


def _require_plain(tensor: torch.Tensor, name: str) -> None:
    if not has_bytes(tensor) or tensor.device.type not in SUPPORTED:
        raise UserError(
            f"{name} is a {tensor.layout} tensor on {tensor.device.type}; a program has dense"
            f" tensors on {' or '.join(SUPPORTED)}"
        )
