"""Uninterpreted execution: whatever runs is followed op by op on *tokens* in place of numbers.

Each byte of memory has a token of 64 bits, beside the number that it holds anyway. The rules:

- The bytes of the inputs start with tokens of their own, also where their numbers are equal.
- A view makes no tokens: it sees those of its storage.
- Moves (copies, scatters, concatenation, ...) move tokens, byte by byte.
- What an op computes is a hash of the op, its plain arguments and the tokens that it reads. Of a
  pointwise op, an element is a hash of the elements at its position; of another op, a hash of its
  position and of all that is read.
- An op that writes is its functional form, and a move into what it writes.
- A higher-order op is the ops that it calls.
- Numbers that come from no input (`zeros`, `fill_`) have the tokens of their bytes.
- Negation and conjugation are involutions on tokens, so their lazy bits, set and cleared again,
  leave no trace.

Tokens belong to bytes since views of one storage may have other dtypes. An element is read as one
combination of the tokens of its bytes, and stored as one token a byte.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from oracles.calls import (
    BATCH_NORMS,
    TORCH,
    BoundCall,
    bound,
    commutes,
    honest_batch_norm,
    is_constant,
    is_out,
    is_random,
    item,
    matters,
    plain_name,
    steps,
    stores,
    takes_lists,
    torch_name,
    unread,
)
from oracles.forms import SCATTERS, functional_form, view_of_copy
from oracles.value_hashes import (
    OPERANDS,
    Array,
    Names,
    bytes_in,
    bytes_of,
    combined,
    conjugated,
    digest,
    element,
    grown,
    hashed,
    mixed,
    negative,
    of_bytes,
    sequence,
    spread,
    tokens_of,
    with_bits,
)
from programs.definedness import ALLOCATES, tensors_in
from programs.schemas import Kind, facts
from programs.storage_bytes import entries_of

aten = torch.ops.aten


@dataclass(slots=True)
class HashedStorage:
    """The tokens of one storage. It is held, so that its identity is not reused."""

    storage: torch.UntypedStorage
    tokens: Array


class UninterpretedMode(TorchDispatchMode):
    """Follows the terms of all that runs within it.

    `concrete` names the first op that let numbers into the open (`item`, `nonzero`): what follows
    may go by them.
    """

    supports_higher_order_operators = True

    def __init__(self, inputs: Sequence[torch.Tensor], names: Names | None = None) -> None:
        super().__init__()
        self.names = names
        self.concrete: str | None = None
        self._draws = 0
        self._memory: dict[int, HashedStorage] = {}
        for each in inputs:
            storage = each.untyped_storage()
            if storage._cdata not in self._memory:
                tokens = tokens_of("storage", len(self._memory), storage.nbytes())
                self._memory[storage._cdata] = HashedStorage(storage, tokens.copy())
        self._inputs = list(self._memory.values())
        if names is not None:
            for number, each in enumerate(inputs):
                names.note(
                    self._elements(each),
                    functools.partial(element, f"x{number}", tuple(each.shape)),
                )

    def of_inputs(self) -> list[Array]:
        """The tokens of the storages that the inputs came with, as they are now."""
        return [self._tokens(each.storage) for each in self._inputs]

    # Memory. --------------------------------------------------------------------------------------

    def _tokens(self, storage: torch.UntypedStorage) -> Array:
        memory = self._memory.get(storage._cdata)
        if memory is None:  # a constant
            memory = self._memory[storage._cdata] = HashedStorage(
                storage, of_bytes(bytes_in(storage))
            )
        if storage.nbytes() > memory.tokens.size:  # it was resized
            memory.tokens = grown(memory.tokens, storage.nbytes())
        return memory.tokens

    def _place(self, tensor: torch.Tensor) -> Array:
        """The tokens of a tensor in the memory of its storage: its sizes, then the bytes of an element."""
        tokens, offset = self._tokens(tensor.untyped_storage()), int(tensor.storage_offset())
        return entries_of(tokens, tensor.shape, tensor.stride(), offset, tensor.element_size())

    def read(self, tensor: torch.Tensor) -> Array:
        """The tokens that a tensor shows: its sizes, then the bytes of an element."""
        return with_bits(tensor, self._place(tensor))

    def _elements(self, tensor: torch.Tensor) -> Array:
        return combined(self.read(tensor))

    def _write(self, tensor: torch.Tensor, tokens: Array) -> None:
        self._place(tensor)[...] = with_bits(tensor, tokens)

    def _move(self, source: torch.Tensor, dtype: torch.dtype) -> Array:
        """What a tensor shows, converted."""
        return self._converted(self.read(source), source.dtype, dtype)

    def _converted(self, tokens: Array, old: torch.dtype, new: torch.dtype) -> Array:
        if old == new:
            return tokens
        read = combined(tokens)
        made = spread(mixed(read + hashed("to", old, new)), new.itemsize)
        if self.names is not None:
            self.names.note(combined(made), lambda index: str(new), [read])
        return made

    def _new(self, tensor: torch.Tensor, tokens: Array | None = None) -> None:
        """A tensor that an op made, and what it shows. What lies around it is unwritten."""
        storage = tensor.untyped_storage()
        if storage._cdata in self._memory and storage.nbytes():
            return  # the op handed on memory that was there
        self._memory[storage._cdata] = HashedStorage(
            storage, tokens_of("unwritten", 0, storage.nbytes()).copy()
        )
        if tokens is not None:
            self._write(tensor, tokens)

    def _constant(self, tensor: torch.Tensor) -> Array:
        """The tokens of numbers that come from no input."""
        made = of_bytes(bytes_of(tensor))
        if self.names is not None:
            numbers = tensor.flatten().tolist()
            self.names.note(combined(made), lambda index: str(numbers[index]))
        return made

    # Running. -------------------------------------------------------------------------------------

    def __torch_dispatch__(
        self,
        func: Any,
        types: object,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = dict(kwargs or {})
        if (made_of := steps(func)) is not None:
            with self:
                return made_of(*args, **kwargs)
        if func in BATCH_NORMS:
            func, args, kwargs = honest_batch_norm(func, args, kwargs)
        known = facts(func)
        if known.writes:
            return self._mutation(func, args, kwargs)
        result = func(*args, **kwargs)
        if known.kind is Kind.VIEW:
            return result
        self._note_concrete(func, args, result)
        made = self._computed(func, args, kwargs, result)
        for tensor, tokens in zip(tensors_in(result), made, strict=True):
            self._new(tensor, tokens)
        if stores(func):
            self._store(func, args, kwargs, result)
        return result

    def _note_concrete(self, op: OpOverload, args: Sequence[Any], result: Any) -> None:
        leaves = result if isinstance(result, tuple) else [result]
        plain = not all(
            isinstance(each, (torch.Tensor, list, tuple, type(None))) for each in leaves
        )
        if plain and op.namespace not in TORCH:  # torch's have a tag if that is more than metadata
            self.concrete = self.concrete or str(op)
        if op is aten.index.Tensor and all(
            each.dtype != torch.bool for each in tensors_in(args[1])
        ):
            return  # only masks have a number of elements that hangs on numbers
        if torch.Tag.dynamic_output_shape in op.tags or torch.Tag.data_dependent_output in op.tags:
            self.concrete = self.concrete or str(op)

    def _mutation(self, op: OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """An op that writes: what its functional form gives, moved into what it writes."""
        if op is aten.copy_.default:
            tokens = self._move(args[1], args[0].dtype).copy()
            result = op(*args, **kwargs)
            self._write(args[0], tokens)
            return result
        if (
            torch.Tag.inplace_view in op.tags or torch_name(op) in ALLOCATES
        ):  # t_, set_, resize_: no byte is written
            return op(*args, **kwargs)
        given = bound(op, args, kwargs)
        in_order = sorted(
            facts(op).writes, key=lambda index: not is_out(op, index)
        )  # as a functional form returns them
        written = [
            each
            for index in in_order
            for each in tensors_in(given[op._schema.arguments[index].name])
        ]
        form = functional_form(op)
        if form is None or is_random(op):
            left, dtypes, result = self._opaque_mutation(op, given, args, kwargs, written)
        else:
            values = [
                given[each.name]
                for index, each in enumerate(op._schema.arguments)
                if not is_out(op, index)
            ]
            named = dict(zip((each.name for each in form._schema.arguments), values, strict=True))
            if (
                named.get("dtype", written) is None
            ):  # kernels compute in the dtype of what they write
                named["dtype"] = written[0].dtype
            call = BoundCall(form, named)
            shadow = call.run()
            left = self._shown(form, call.args, call.kwargs, shadow)
            dtypes = [each.dtype for each in tensors_in(shadow)]
            result = op(*args, **kwargs)
        fresh = len(left) - len(written)
        returned = [each for each in tensors_in(result) if not any(each is one for one in written)]
        for tensor, tokens in zip(returned, left[:fresh], strict=False):
            self._new(tensor, tokens)
        for tensor, tokens, dtype in zip(written, left[fresh:], dtypes[fresh:], strict=True):
            self._write(tensor, self._converted(tokens, dtype, tensor.dtype))
        return result

    def _opaque_mutation(
        self,
        op: OpOverload,
        given: dict[str, Any],
        args: Sequence[Any],
        kwargs: dict[str, Any],
        written: list[torch.Tensor],
    ) -> tuple[list[Array], list[torch.dtype], Any]:
        """An op of which only the schema is known, and random fills: what they write hangs on all that they read."""
        key = None if is_constant(op, given) else self._opaque_key(op, given)
        result = op(*args, **kwargs)
        fresh = [each for each in tensors_in(result) if not any(each is one for one in written)]
        left = [*fresh, *written]
        tokens = [
            self._constant(each) if key is None else self._opaque(key, index, each)
            for index, each in enumerate(left)
        ]
        return tokens, [each.dtype for each in left], result

    def _store(
        self, op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any], result: torch.Tensor
    ) -> None:
        """Scatters and `copy` clone all of the storage of their first operand, if they can, and store a part anew."""
        given = bound(op, args, kwargs)
        base, source = given.pop("self"), given.pop("src")
        whole, old = self._tokens(result.untyped_storage()), self._tokens(base.untyped_storage())
        same_place = (result.stride(), result.storage_offset()) == (
            base.stride(),
            base.storage_offset(),
        )
        if same_place and whole.size == old.size:
            whole[:] = old
        shown = result
        if op in SCATTERS:
            shown = SCATTERS[op](result, *given.values())
        self._write(shown, self._move(source, result.dtype))

    def _shown(
        self, op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any
    ) -> list[Array]:
        """What each tensor shows that a functional op gave."""
        made = [each for each in self._computed(op, args, kwargs, result) if each is not None]
        if not stores(op):
            return made
        self._new(result, made[0])
        self._store(op, args, kwargs, result)
        return [self.read(result)]

    # Functional ops. ------------------------------------------------------------------------------

    def _computed(
        self, op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any
    ) -> list[Array | None]:
        """The tokens of each tensor that a functional op gives."""
        results = list(tensors_in(result))
        name = torch_name(op)
        if name in ALLOCATES:
            return [None] * len(results)
        if (rule := _RULES.get(name)) is not None:
            return [rule(self, args, kwargs, results[0])]
        if stores(op):
            return [self.read(args[0])]
        if (
            view := view_of_copy(op)
        ) is aten.view.default:  # the copy can also be had where no view can
            return [_moved(self, args, kwargs, results[0])]
        if view is not None:
            return [self.read(each) for each in tensors_in(view(*args, **kwargs))]
        given = bound(op, args, kwargs)
        if is_constant(op, given):
            return [self._constant(each) for each in results]
        if name == "_foreach_copy":
            pairs = zip(given["self"], given["src"], strict=True)
            return [
                np.broadcast_to(self._move(b, a.dtype), (*a.shape, a.element_size()))
                for a, b in pairs
            ]
        if name.startswith("_foreach_") and isinstance(result, (list, tuple)):
            return [
                self._opaque(self._opaque_key(op, item(given, i, len(results))), 0, t)
                for i, t in enumerate(results)
            ]
        if (
            facts(op).pointwise
            and len(results) == 1
            and not is_random(op)
            and not takes_lists(given)
        ):
            return [self._pointwise(op, given, results[0])]
        key = self._opaque_key(op, given)
        if (
            name in _SUMS
            and _is_narrow_integer(results[0])
            and not any(map(_is_inexact, tensors_in(list(given.values()))))
        ):
            wide = torch.empty(results[0].shape, dtype=torch.int64, device="meta")
            return [self._converted(self._opaque(key, 0, wide), torch.int64, results[0].dtype)]
        return [self._opaque(key, index, each) for index, each in enumerate(results)]

    def _pointwise(self, op: OpOverload, given: dict[str, Any], result: torch.Tensor) -> Array:
        names, operands, plain = [], [], []
        for name, value in given.items():
            if isinstance(value, torch.Tensor):
                names.append(name)
                operands.append(value)
            elif matters(op, name, value):
                plain.append((name, value))
        same = 0 if commutes(op, given) else 1
        start = _start(
            plain_name(op),
            repr(plain),
            tuple(names),
            tuple(each.dtype for each in operands),
            result.dtype,
        )
        read = [self._elements(each) for each in operands]
        total: Any = start
        for place, each in enumerate(read):
            total = total + each * OPERANDS[place * same]
        sizes = tuple(result.shape)
        made = spread(mixed(np.broadcast_to(total, sizes)), result.element_size())
        if self.names is not None:
            label = _label(op, plain)
            self.names.note(
                combined(made), lambda index: label, [np.broadcast_to(each, sizes) for each in read]
            )
        return made

    def _opaque_key(self, op: OpOverload, given: dict[str, Any]) -> tuple[np.uint64, str]:
        """A token of an op, its plain arguments and all that it reads; and a name for that."""
        left_out = unread(op, given)
        plain: list[tuple[str, Any]] = []
        read: list[tuple[str, Any]] = []
        for argument, value in given.items():
            if any(True for _ in tensors_in(value)):
                read += [(argument, self._contents(value))] if argument not in left_out else []
            elif matters(op, argument, value):
                plain.append((argument, value))
        if is_random(op):
            self._draws += 1
            plain.append(("draw", self._draws))
        return hashed(plain_name(op), plain, read), "" if self.names is None else _label(op, plain)

    def _contents(self, value: Any) -> Any:
        """An argument, with what is read in place of its tensors.

        Lists may hold None beside them.
        """
        if isinstance(value, torch.Tensor):
            return str(value.dtype), digest(self._elements(value))
        return (
            [self._contents(each) for each in value] if isinstance(value, (list, tuple)) else value
        )

    def _opaque(self, key: tuple[np.uint64, str], index: int, result: torch.Tensor) -> Array:
        start, label = key
        made = sequence(
            start + hashed("result", index, tuple(result.shape), result.dtype), result.numel()
        )
        made = spread(made.reshape(tuple(result.shape)), result.element_size())
        if self.names is not None:
            self.names.note(
                combined(made), functools.partial(element, f"{label} {index}", tuple(result.shape))
            )
        return made


# --- moves ----------------------------------------------------------------------------------------

HashRule: TypeAlias = Callable[
    [UninterpretedMode, Sequence[Any], Mapping[str, Any], torch.Tensor], Array
]


def _moved(
    tokens: UninterpretedMode, args: Sequence[Any], kwargs: Mapping[str, Any], result: torch.Tensor
) -> Array:
    """All elements in order, in the sizes of the result."""
    moved = tokens._move(args[0], result.dtype)
    return (
        moved
        if moved.shape[:-1] == tuple(result.shape)
        else moved.reshape(*result.shape, result.element_size())
    )


def _filled(
    tokens: UninterpretedMode, args: Sequence[Any], kwargs: Mapping[str, Any], result: torch.Tensor
) -> Array:
    """One number everywhere, of a tensor or plain."""
    value = args[1] if len(args) > 1 else kwargs["value"]
    if isinstance(value, torch.Tensor):
        return np.broadcast_to(
            tokens._move(value, result.dtype), (*result.shape, result.element_size())
        )
    return tokens._constant(result)


def _negative(
    tokens: UninterpretedMode, args: Sequence[Any], kwargs: Mapping[str, Any], result: torch.Tensor
) -> Array:
    return negative(tokens.read(args[0]), result.dtype)


def _conjugate(
    tokens: UninterpretedMode, args: Sequence[Any], kwargs: Mapping[str, Any], result: torch.Tensor
) -> Array:
    return (
        conjugated(tokens.read(args[0]), result.dtype)
        if result.is_complex()
        else tokens.read(args[0])
    )


def _arranged(op: OpOverload) -> HashRule:
    """Elements in another order: the op itself says which, on their numbers."""

    def rule(
        tokens: UninterpretedMode,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        result: torch.Tensor,
    ) -> Array:
        parts: list[Array] = []
        count = 0

        def numbered(value: Any) -> Any:
            nonlocal count
            if isinstance(value, torch.Tensor):
                parts.append(tokens._move(value, result.dtype).reshape(-1, result.element_size()))
                count += value.numel()
                return torch.arange(count - value.numel(), count).view(value.shape)
            return [numbered(each) for each in value] if isinstance(value, (list, tuple)) else value

        order = op(
            *(numbered(each) for each in args),
            **{name: numbered(each) for name, each in kwargs.items()},
        )
        arranged: Array = np.concatenate(parts)[order.numpy()]
        return arranged

    return rule


_RULES: dict[str, HashRule] = {
    "clone": _moved, "_to_copy": _moved, "_unsafe_view": _moved, "lift_fresh_copy": _moved, "_reshape_copy": _moved,
    "contiguous": _moved, "positive": _moved, "fill": _filled, "neg": _negative,
    "conj_physical": _conjugate, "_conj_physical": _conjugate, "resolve_conj": _moved, "resolve_neg": _moved,
    "cat": _arranged(aten.cat.default), "stack": _arranged(aten.stack.default), "flip": _arranged(aten.flip.default),
    "roll": _arranged(aten.roll.default), "repeat": _arranged(aten.repeat.default),
}  # fmt: skip

# Of integers, these come out the same in a narrow dtype or cut down to it afterwards.
_SUMS = {"sum", "prod", "cumsum", "cumprod"}


# --- names and kinds ------------------------------------------------------------------------------


def _is_narrow_integer(tensor: torch.Tensor) -> bool:
    return not _is_inexact(tensor) and tensor.dtype not in (torch.bool, torch.int64)


def _is_inexact(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


@functools.lru_cache(maxsize=1 << 14)
def _start(*parts: object) -> np.uint64:
    return hashed(*parts)


def _label(op: OpOverload, plain: Sequence[tuple[str, Any]]) -> str:
    shown = ", ".join(
        f"{name}={value}"
        for name, value in plain
        if value is not None and (name, value) != ("alpha", 1)
    )
    name: str = op.overloadpacket.__name__.removesuffix("_")
    return f"{name}[{shown}]" if shown else name
