"""Values that a graph has in its metadata, used in place of one more run on fakes.

AOTAutograd makes its graphs by a run on fakes, and notes each value (`meta["val"]`). For inputs of
the same sizes, strides and dtypes, another run gives the same results, on storages that are shared
in the same way. So a new fake with the noted layout replaces the call of a fake kernel, which takes
six times as long.

A node *agrees* with its note if its value has the noted layout, with a one-to-one mapping between
noted storages and ours. If all operands of a call agree, so does its result. Other calls run: those
that write, those whose result depends on where an operand is in its storage, and those whose fake
kernel needs a correction. Their results are compared with the notes.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import fx
from torch._guards import active_fake_mode
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor, in_kernel_invocation_manager

from aliasproof.reference_pass.calls.fake_inputs import fake_on
from aliasproof.reference_pass.calls.nested import leaves_in, on_values, tensors_in
from aliasproof.reference_pass.calls.operand_reads import OTHER_ITEM_SIZE, depends_on_location
from aliasproof.reference_pass.calls.operator_forms import aten, bind, facts, is_opaque
from aliasproof.reference_pass.calls.storages import encoding
from aliasproof.reference_pass.calls.view_forms import copied_view
from aliasproof.reference_pass.eager import fake_execution
from aliasproof.reference_pass.eager.fake_corrections import has_correction, may_be_corrected
from aliasproof.reference_pass.semantics import Values


class NotedValues:
    """Which nodes agree with their notes, and on which storages their values are.

    `storages` has for each noted storage ours, and the shift in bytes of a tensor's offset in it:
    the inputs may be at other offsets than in the notes.
    """

    def __init__(self) -> None:
        self.agree: set[fx.Node] = set()
        self.inputs: set[fx.Node] = set()  # the inputs that have been compared
        self.storages: dict[int, tuple[torch.UntypedStorage, int]] = {}
        self.taken: dict[int, int] = {}  # the noted storage for each of ours

    def run(self, node: fx.Node, values: Values) -> Any:
        """The value of a call, given those of its operands: noted, or made by a run."""
        # Compared before the first call that uses an input: a call may change its metadata.
        for operand in node.all_input_nodes:
            if operand.op != "call_function" and operand not in self.inputs:
                self.inputs.add(operand)
                self._compare(operand, values(operand))
        value = self._value(node, values)
        if value is None:
            value = fake_execution.run(node, values)
        self._compare(node, value)
        return value

    def _value(self, node: fx.Node, values: Values) -> Any:
        """The value of a call; None if it must run."""
        if not self.agree.issuperset(node.all_input_nodes):
            return None
        operand = node.args[0] if node.args else None
        if node.target is aten.copy_.default and isinstance(operand, fx.Node):
            return values(operand)  # it returns the tensor that it writes
        if node.target is operator.getitem and isinstance(operand, fx.Node):
            return values(operand)[node.args[1]]
        if not _is_as_noted(node.target) or _is_corrected(node, values):
            return None
        return self._from_note(node, node.target)

    def _from_note(self, node: fx.Node, op: Any) -> Any:
        note: Any = node.meta.get("val")
        # An optional result that was not requested is None.
        tensors = [leaf for leaf in leaves_in(note) if leaf is not None]
        if not tensors or not _has_form_of_result(note, op) or not all(map(_is_plain, tensors)):
            return None
        operands = tensors_in([operand.meta["val"] for operand in node.all_input_nodes])
        around = {operand.untyped_storage()._cdata for operand in operands}
        if not all(self._has_place(op, tensor, around) for tensor in tensors):
            return None
        self.agree.add(node)
        return self._fakes(note)

    def _compare(self, node: fx.Node, value: Any) -> None:
        """Note that a node agrees, if its value, which was given or made by a run, does."""
        if node in self.agree:
            return
        notes, values = leaves_in(node.meta.get("val")), leaves_in(value)
        if len(notes) == len(values) and all(map(self._agrees, notes, values)):
            self.agree.add(node)

    def _has_place(self, op: Any, note: torch.Tensor, around: set[int]) -> bool:
        """True if it is known on which of our storages a result is."""
        storage = note.untyped_storage()._cdata
        if storage in self.storages:
            shift = self.storages[storage][1]
            return storage in around and shift % note.itemsize == 0
        # A view must be on a known storage.
        is_view = any(returned.alias_info for returned in op._schema.returns)
        return not is_view and isinstance(note.untyped_storage().nbytes(), int)

    def _fakes(self, note: Any) -> Any:
        """Our fakes for noted fakes: a result may contain lists."""
        if isinstance(note, (list, tuple)):
            return type(note)(map(self._fakes, note))
        if note is None:
            return None
        storage, mode = note.untyped_storage(), active_fake_mode()  # notes may have another mode
        assert mode is not None
        if storage._cdata not in self.storages:
            with in_kernel_invocation_manager(mode):
                memory = torch.empty(storage.nbytes(), dtype=torch.uint8, device="meta")
            self._take(storage._cdata, memory.untyped_storage(), 0)
        ours, shift = self.storages[storage._cdata]
        return fake_on(ours, note.storage_offset() + shift // note.itemsize, note, mode)

    def _take(self, noted: int, ours: torch.UntypedStorage, shift: int) -> bool:
        """Map a noted storage to one of ours; False if this contradicts an earlier mapping."""
        before = self.storages.setdefault(noted, (ours, shift))
        known = before[0]._cdata == ours._cdata and before[1] == shift
        return known and self.taken.setdefault(ours._cdata, noted) == noted

    def _agrees(self, note: Any, value: Any) -> bool:
        if note is None and value is None:
            return True
        if not isinstance(value, torch.Tensor):
            return type(note) is type(value) and isinstance(value, (int, float)) and note == value
        if not _is_plain(note) or not _is_plain(value) or not _same_layout(note, value):
            return False
        shift = (value.storage_offset() - note.storage_offset()) * note.itemsize
        return self._take(note.untyped_storage()._cdata, value.untyped_storage(), shift)


def _same_layout(one: torch.Tensor, other: torch.Tensor) -> bool:
    """True if two tensors without symbols have the same sizes, strides and element encoding."""
    return (
        encoding(one) == encoding(other)
        and one.device == other.device
        and one.shape == other.shape
        and one.stride() == other.stride()
    )


@functools.cache
def _is_as_noted(op: Callable[..., Any]) -> bool:
    """True for a call whose result depends only on the layouts of its operands."""
    return (
        isinstance(op, OpOverload)
        and not is_opaque(op)
        and not facts(op).writes
        and copied_view(op) is None
        and not depends_on_location(op)
        and op not in OTHER_ITEM_SIZE
    )


def _is_corrected(node: fx.Node, values: Values) -> bool:
    if not has_correction(node.target):
        return False
    assert isinstance(node.target, OpOverload)
    given = on_values(bind(node.target, node.args, node.kwargs), values)
    return may_be_corrected(node.target, given)


def _is_plain(note: Any) -> bool:
    """True for a fake tensor without symbols."""
    return (
        isinstance(note, FakeTensor)
        and note.layout is torch.strided
        and not note._has_symbolic_sizes_strides
    )


def _has_form_of_result(note: Any, op: OpOverload) -> bool:
    """True if a note is a tensor, a list or a tuple, as the schema says."""
    returns = op._schema.returns
    if len(returns) != 1:
        return isinstance(note, tuple) and len(note) == len(returns)
    is_tensor = isinstance(returns[0].type, torch.TensorType)
    return isinstance(note, torch.Tensor if is_tensor else list)
