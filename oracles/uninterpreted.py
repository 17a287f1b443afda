"""Uninterpreted execution: each op runs on value hashes in addition to the real values.

Each byte of memory has a value hash of 64 bits. The rules:

- The bytes of the inputs start with different hashes, also where their values are equal.
- A view makes no hashes: it shows the hashes of its storage.
- A move (copy, scatter, concatenation, ...) moves hashes, byte by byte.
- The result of a computing op is a hash of the op, its plain arguments and the hashes that it reads
  (see `op_hashes`).
- An op that writes runs as its functional form, followed by a move into its written operands.
- A higher-order op runs as the ops that it calls.
- Values that depend on no input (`zeros`, `fill_`) have the hashes of their bytes.
- Negation and conjugation are involutions on hashes, so a lazy bit that is set and cleared again
  changes nothing.

Hashes are per byte, not per element, since views of one storage may have different dtypes. An
element is read as one combination of its bytes' hashes, and stored as one hash per byte.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from aliasproof.eager.uninitialised import ALLOCATES
from aliasproof.ir.eager_call import (
    BATCH_NORMS,
    batch_norm_with_true_schema,
    is_foreach,
    tensors_in,
)
from aliasproof.ir.schemas import Kind, facts
from aliasproof.oracles.forms import SCATTERS, functional_form
from aliasproof.oracles.op_hashes import (
    TORCH,
    OpHashes,
    arguments_by_name,
    call_name,
    is_constant,
    is_out,
    item,
    steps,
    stores,
    torch_name,
)
from aliasproof.oracles.value_hashes import (
    HashedMemory,
    SymbolicValues,
    are_constants,
)

aten = torch.ops.aten


class UninterpretedMode(TorchDispatchMode):
    """Computes the value hashes of all ops that run within it.

    `data_dependent_op` names the first op that returned tensor data to Python or as a size (`item`,
    `nonzero`). Later ops may depend on it. `composites` are the composite ops that computed
    something; the mode sees them in inference mode only.
    """

    supports_higher_order_operators = True

    def __init__(
        self, inputs: Sequence[torch.Tensor], symbols: SymbolicValues | None = None, seed: int = 0
    ) -> None:
        super().__init__()
        self.memory = HashedMemory(inputs, symbols, seed)
        self.data_dependent_op: str | None = None
        self.composites: dict[str, None] = {}
        self._ops = OpHashes(self.memory)

    @property
    def computing(self) -> Counter[str]:
        """How often each computing op ran, by its name with plain arguments."""
        return self._ops.computing

    def __torch_dispatch__(
        self,
        func: Any,
        types: object,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = dict(kwargs or {})
        if (run_steps := steps(func)) is not None:
            before = self.computing.total()
            with self:
                result = run_steps(*args, **kwargs)
            if isinstance(func, OpOverload) and self.computing.total() > before:
                self.composites[str(func)] = None
            return result
        # The schema of these ops hides that they write the running statistics.
        if func in BATCH_NORMS:
            func, args, kwargs = batch_norm_with_true_schema(func, args, kwargs)
        known, given = facts(func), arguments_by_name(func, args, kwargs)
        if known.writes:
            return self._mutation(func, given)
        result = func(*args, **kwargs)
        # A view shows the hashes of its storage.
        if known.kind is Kind.VIEW:
            return result
        self._note_data_dependence(func, args, result)
        made = self._ops.hashes_of_results(func, given, result)
        for tensor, hashes in zip(tensors_in(result), made, strict=True):
            self.memory.make(tensor, hashes)
        if stores(func):
            self._store(func, given, result)
        return result

    def _note_data_dependence(self, op: OpOverload, args: Sequence[Any], result: Any) -> None:
        leaves = result if isinstance(result, tuple) else [result]
        returns_number = not all(
            isinstance(leaf, (torch.Tensor, list, tuple, type(None))) for leaf in leaves
        )
        # Ops of torch have a tag if they return data. An op without tensor arguments reads none.
        if returns_number and op.namespace not in TORCH and any(True for _ in tensors_in(args)):
            self.data_dependent_op = self.data_dependent_op or str(op)
        if op is aten.index.Tensor and all(
            index.dtype != torch.bool for index in tensors_in(args[1])
        ):
            return  # it has the tag, but its sizes depend on data only if an index is a mask
        if torch.Tag.dynamic_output_shape in op.tags or torch.Tag.data_dependent_output in op.tags:
            self.data_dependent_op = self.data_dependent_op or str(op)

    # Ops that write. ------------------------------------------------------------------------------

    def _mutation(self, op: OpOverload, given: dict[str, Any]) -> Any:
        """Run an op that writes: move its functional form's results into the written operands."""
        if op is aten.copy_.default:
            # Read first: the source may share bytes with the target.
            hashes = self.memory.read_as(given["src"], given["self"].dtype).copy()
            result = op(**given)
            self.memory.write(given["self"], hashes)
            return result
        if torch.Tag.inplace_view in op.tags or torch_name(op) in ALLOCATES:
            return op(**given)  # t_, set_, resize_ write no byte
        written = _written_tensors(op, given)
        if is_foreach(op) and (calls := _item_by_item(op, given, written)):
            for call in calls:
                self._mutation(*call)
            return None
        # A random op may draw only once; its functional form would draw other values.
        form = functional_form(op)
        if form is None or facts(op).random:
            key = None if is_constant(op, given) else self._ops.opaque_key(op, given)
            if key is not None:
                self.computing[call_name(op, given)] += 1
            result = op(**given)
            # New results first, as a functional form would return them.
            made = [*_not_in(written, result), *written]
            left = [
                self.memory.constant(tensor)
                if key is None
                else self._ops.opaque(key, index, tensor)
                for index, tensor in enumerate(made)
            ]
        else:
            # It takes the arguments of the op in the same order, without `out=`.
            values = [
                given[argument.name]
                for index, argument in enumerate(op._schema.arguments)
                if not is_out(op, index)
            ]
            names = (argument.name for argument in form._schema.arguments)
            named = dict(zip(names, values, strict=True))
            # Without a given dtype, a kernel computes in the dtype of the tensor that it writes.
            if named.get("dtype", written) is None:
                named["dtype"] = written[0].dtype
            shadow = form(**named)
            made, computed = [*tensors_in(shadow)], self._ops.hashes_of_results(form, named, shadow)
            left = [hashes for hashes in computed if hashes is not None]
            if stores(form):
                self.memory.make(shadow, left[0])
                self._store(form, named, shadow)
                left = [self.memory.read(shadow)]
            result = op(**given)
        # A functional form returns new results first, then the new contents of the written
        # operands.
        new = len(left) - len(written)
        for tensor, hashes in zip(_not_in(written, result), left[:new], strict=False):
            self.memory.make(tensor, hashes)
        for tensor, hashes, source in zip(written, left[new:], made[new:], strict=True):
            # A converted constant is a constant, as in a graph that converts it by a separate op.
            constant = source.dtype != tensor.dtype and are_constants(hashes)
            converted = self.memory.converted(hashes, source.dtype, tensor.dtype)
            self.memory.write(tensor, self.memory.constant(tensor) if constant else converted)
        return result

    def _store(self, op: OpOverload, given: Mapping[str, Any], result: torch.Tensor) -> None:
        """Finish a scatter or `copy`: clone the storage of its base, then store its source."""
        # `hashes_of_results` covers the elements; the bytes around them are copied here.
        self.memory.copy_storage(given["self"], result)
        target = result
        if op in SCATTERS:
            where = {name: value for name, value in given.items() if name not in ("self", "src")}
            target = SCATTERS[op](result, **where)
        self.memory.write(target, self.memory.read_as(given["src"], result.dtype))


def _item_by_item(
    op: OpOverload, given: dict[str, Any], written: list[torch.Tensor]
) -> list[tuple[OpOverload, dict[str, Any]]]:
    """The calls that a `_foreach_` op makes one after the other, since its items may overlap.

    Empty if there is one item, or if the device works on all items at once.
    """
    if op is aten._foreach_copy_.default:
        pairs = zip(given["self"], given["src"], strict=True)
        return [
            (aten.copy_.default, {**given, "self": target, "src": source})
            for target, source in pairs
        ]
    count = len(written)
    if count == 1 or any(tensor.device.type != "cpu" for tensor in written):
        return []
    items = (item(given, index, count) for index in range(count))
    return [
        (op, {name: own[name] if own[name] is given[name] else [own[name]] for name in own})
        for own in items
    ]


def _written_tensors(op: OpOverload, given: Mapping[str, Any]) -> list[torch.Tensor]:
    """The tensors that an op writes, in the order in which its functional form returns them."""
    in_order = sorted(facts(op).writes, key=lambda index: not is_out(op, index))
    names = (op._schema.arguments[index].name for index in in_order)
    return [tensor for name in names for tensor in tensors_in(given[name])]


def _not_in(written: list[torch.Tensor], result: Any) -> list[torch.Tensor]:
    """The tensors in a result that are not among the written ones."""
    return [
        tensor for tensor in tensors_in(result) if not any(tensor is other for other in written)
    ]
