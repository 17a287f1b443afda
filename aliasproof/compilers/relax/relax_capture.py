"""A function of tensors as a Relax function, captured while it runs in eager.

A dispatch mode sees each ATen call with real tensors, so sizes, strides and sharing are known. A
call becomes an operator of Relax if there is an equivalent one (`relax_forms`), and a packed
function otherwise. Relax has values in place of memory: a write gives the tensor a new value, and
other tensors on its storage are read from the contents of the storage, a vector that is built on
demand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from tvm.relax import op as R

from aliasproof.compilers.relax.patches import Spelling
from aliasproof.compilers.relax.relax_forms import FORMS, VIEWS, CapturedCall, opaque_line
from aliasproof.compilers.relax.relax_lines import Lines, RelaxParameter, Value, require_dtype
from aliasproof.ir.errors import Rejected
from aliasproof.ir.regions import Region, overlaps_itself
from aliasproof.ir.schemas import facts

aten = torch.ops.aten


@dataclass(frozen=True, slots=True)
class StridedLayout:
    """Where the elements of a tensor are in its storage, counted in elements."""

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int

    @classmethod
    def of(cls, tensor: torch.Tensor) -> StridedLayout:
        return cls(tuple(tensor.shape), tensor.stride(), int(tensor.storage_offset()))

    @property
    def overlaps_itself(self) -> bool:
        """Whether two of its elements may share a location."""
        return overlaps_itself(Region(self.offset, self.sizes, self.strides, 1))

    @property
    def numel(self) -> int:
        return torch.Size(self.sizes).numel()

    @property
    def is_dense(self) -> bool:
        """Whether its elements are contiguous, the last dim first."""
        return torch.empty_strided(self.sizes, self.strides, device="meta").is_contiguous()


@dataclass(slots=True)
class Contents:
    """The contents of a storage of `length` elements: a vector, and later writes.

    `version` counts the writes.
    """

    dtype: torch.dtype
    length: int
    vector: Value | None = None
    writes: list[tuple[StridedLayout, Value]] = field(default_factory=list)
    version: int = 0

    def covers(self, layout: StridedLayout) -> bool:
        """Whether a tensor of that layout has exactly the storage's elements, in their order."""
        return layout.is_dense and layout.numel == self.length


@dataclass(frozen=True, slots=True)
class Known:
    """The value of a tensor while its storage has this version, and the tensor this layout."""

    value: Value
    version: int
    layout: StridedLayout
    tensor: torch.Tensor  # kept, so that no other tensor gets its address


@dataclass(slots=True)
class Captured:
    """A function as lines. `parameters` and `written` name inputs of the function by storages.

    A parameter is an input itself, or the contents of the storage of several inputs: for each
    parameter, `prologue` has the input that it comes from, and the length of that storage or None.
    `epilogue` has the same for the storages that the function writes, whose new contents follow its
    outputs.
    """

    lines: Lines
    parameters: list[RelaxParameter]
    outputs: list[Value]
    prologue: list[tuple[int, int | None]]
    epilogue: list[tuple[int, int | None]]
    returns_one: bool  # in place of a tuple

    @property
    def returned(self) -> int:
        """How many values are outputs of the function."""
        return len(self.outputs) - len(self.epilogue)

    def module(self) -> Any:
        """The module of Relax."""
        return self.lines.module(self.parameters, self.outputs)

    def run(
        self,
        main: Callable[[Sequence[Any]], Sequence[Any]],
        inputs: Sequence[Any],
        call: Callable[..., Any],
    ) -> Any:
        """Run `main` of the module, and apply the writes that Relax returns as values.

        An input that shares its storage, or has gaps, is first copied to a vector. `call` makes a
        call of an ATen operator, or a node of a graph for it.
        """

        def storage(index: int, length: int) -> Any:
            return call(aten.as_strided.default, inputs[index], [length], [1], 0)

        arguments = [
            inputs[index] if length is None else call(aten.clone.default, storage(index, length))
            for index, length in self.prologue
        ]
        values = main(arguments)
        if self.epilogue:
            # A value may be in the memory of an input, and must then outlive a write to it.
            values = [call(aten.clone.default, it) for it in values]
        for (index, length), new in zip(self.epilogue, values[self.returned :], strict=False):
            old = inputs[index] if length is None else storage(index, length)
            call(aten.copy_.default, old, new)
        return values[0] if self.returns_one else tuple(values[: self.returned])


class Capture(TorchDispatchMode):
    """Collects the lines of all calls within it. Raises `Rejected` for calls that Relax lacks."""

    def __init__(self, inputs: Sequence[torch.Tensor], spelling: Spelling) -> None:
        super().__init__()
        self.lines = Lines(spelling)
        self.inputs = list(inputs)
        self.known: dict[int, Known] = {}
        self.kept: list[torch.Tensor] = []  # alive, so that no storage address is reused
        self.contents: dict[int, Contents] = {}
        self.parameters: list[RelaxParameter] = []
        self.prologue: list[tuple[int, int | None]] = []
        for index, tensor in enumerate(inputs):
            storage = tensor.untyped_storage()._cdata
            taken, contents = storage in self.contents, self.contents_of(tensor)
            if taken:
                continue
            # It becomes a parameter, or the storage of several inputs does.
            layout = StridedLayout.of(tensor)
            on_it = [it for it in self.inputs if it.untyped_storage()._cdata == storage]
            whole = contents.covers(layout) and len(on_it) == 1
            sizes = layout.sizes if whole else (contents.length,)
            parameter = RelaxParameter(sizes, tensor.dtype)
            self.parameters.append(parameter)
            self.prologue.append((index, None if whole else contents.length))
            if whole:
                contents.writes.append((layout, parameter))
                self._know(tensor, parameter)
            else:
                contents.vector = parameter

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        require_captured(op, args)
        call = CapturedCall(op, args, kwargs, self._operands(op, args, kwargs), self.lines)
        result = op(*args, **kwargs)
        self._record(call, result)
        return result

    # --- reading ----------------------------------------------------------------------------------

    def read(self, tensor: torch.Tensor) -> Value:
        """The value of a tensor now."""
        contents, layout = self.contents_of(tensor), StridedLayout.of(tensor)
        known = self.known.get(id(tensor))
        if known is not None and (known.version, known.layout) == (contents.version, layout):
            return known.value
        value = self._region(self._vector(contents), contents, layout)
        self._know(tensor, value)
        return value

    def contents_of(self, tensor: torch.Tensor) -> Contents:
        """The contents of its storage, which are uninitialised at first."""
        if tensor.is_neg() or tensor.is_conj() or tensor.layout is not torch.strided:
            raise Rejected("Relax has no tensors with lazy bits, and no sparse ones")
        storage = tensor.untyped_storage()
        contents = self.contents.get(storage._cdata)
        if contents is None:
            contents = Contents(tensor.dtype, storage.nbytes() // tensor.element_size())
            self.contents[storage._cdata] = contents
        if not tensor.numel():
            raise Rejected("reshape of Relax takes a size of 0 for the size of its operand")
        if contents.dtype != tensor.dtype:
            raise Rejected("Relax has no view of another dtype")
        if contents.length != storage.nbytes() // tensor.element_size():
            raise Rejected("Relax has no tensor that is resized")
        return contents

    def _operands(self, op: OpOverload, args: Any, kwargs: Any) -> list[tuple[torch.Tensor, Value]]:
        if torch.Tag.inplace_view in op.tags:
            return []
        tensors = [it for it in tree_leaves((args, kwargs)) if isinstance(it, torch.Tensor)]
        return [(tensor, self.read(tensor)) for tensor in {id(it): it for it in tensors}.values()]

    def _vector(self, contents: Contents) -> Value:
        """The contents of a storage as a vector."""
        vector = contents.vector
        if contents.writes and contents.covers(contents.writes[0][0]):
            vector = self.lines.reshaped(contents.writes.pop(0)[1], (contents.length,))
        elif vector is None:
            vector = self.lines.constant(torch.zeros(contents.length, dtype=contents.dtype))
        like = torch.empty(contents.length, dtype=contents.dtype, device="meta")
        for layout, value in contents.writes:
            vector = self._by_layout(aten.as_strided_scatter.default, layout, like, vector, value)
        contents.vector, contents.writes = vector, []
        return vector

    def _region(self, vector: Value, contents: Contents, layout: StridedLayout) -> Value:
        """A part of the contents of a storage."""
        if not layout.is_dense:
            like = torch.empty(layout.sizes, dtype=contents.dtype, device="meta")
            return self._by_layout(aten.as_strided.default, layout, like, vector)
        if layout.numel != contents.length:
            start, end = layout.offset, layout.offset + layout.numel
            vector = self.lines.add(lambda it: R.strided_slice(it, [0], [start], [end]), vector)
        return self.lines.reshaped(vector, layout.sizes)

    def _by_layout(
        self, op: OpOverload, layout: StridedLayout, like: torch.Tensor, *operands: Value
    ) -> Value:
        where = layout.sizes, layout.strides, layout.offset
        return opaque_line(self.lines, op, operands, where, like)

    # --- writing ----------------------------------------------------------------------------------

    def write(self, tensor: torch.Tensor, value: Value) -> None:
        """Give a tensor another value."""
        contents, layout = self.contents_of(tensor), StridedLayout.of(tensor)
        if layout.overlaps_itself:
            raise Rejected("a tensor is written that overlaps itself")
        if contents.covers(layout):
            contents.writes.clear()
        contents.writes.append((layout, value))
        contents.version += 1
        self._know(tensor, value)

    def _know(self, tensor: torch.Tensor, value: Value) -> None:
        version = self.contents_of(tensor).version
        self.known[id(tensor)] = Known(value, version, StridedLayout.of(tensor), tensor)

    # --- calls ------------------------------------------------------------------------------------

    def _record(self, call: CapturedCall, result: Any) -> None:
        """Add the results of a call, after it has run."""
        written = call.written
        if len({it.untyped_storage()._cdata for it in written}) != len(written):
            raise Rejected("a call writes two tensors on one storage")
        indexed = [(i, it) for i, it in enumerate(tree_leaves(result)) if it is not None]
        results = [it for _, it in indexed]
        for it in results:
            if not isinstance(it, torch.Tensor):
                raise Rejected(f"{call.op} gives no tensor")
            require_dtype(it.dtype)
        self.kept += results
        if torch.Tag.inplace_view in call.op.tags:
            return
        fresh = [(i, it) for i, it in indexed if it.untyped_storage()._cdata not in self.contents]
        form = FORMS.get(call.name)
        values = None if form is None else form(call, written or results)
        if written:
            values = values or call.opaque(written, fresh)
        elif len(fresh) == len(results):
            values = values or call.opaque([], fresh)
        elif fresh:
            raise Rejected(f"{call.op} gives a view and a fresh tensor")
        else:
            # A result that is no view in Relax is read from the storage when it is used.
            views = [] if values is None or call.name not in VIEWS else values
            for tensor, value in zip(results, views, strict=False):
                self._know(tensor, value)
            return
        for tensor, value in zip([*written, *(it for _, it in fresh)], values, strict=True):
            self.write(tensor, value)

    def finish(self, outputs: Sequence[torch.Tensor], *, returns_one: bool) -> Captured:
        """The function that returns these tensors."""
        values = [self.read(tensor) for tensor in outputs]
        epilogue = []
        for index, length in self.prologue:
            contents = self.contents_of(self.inputs[index])
            if contents.version:
                whole = length is None
                value = self.read(self.inputs[index]) if whole else self._vector(contents)
                values.append(value)
                epilogue.append((index, length))
        return Captured(self.lines, self.parameters, values, self.prologue, epilogue, returns_one)


def require_captured(op: OpOverload, args: Sequence[Any]) -> None:
    """Raises `Rejected` for calls that a Relax function cannot contain."""
    if op.namespace not in ("aten", "prims"):
        raise Rejected(f"{op} may ask for the strides of its operands")
    if facts(op).random:
        raise Rejected(f"{op} draws random numbers")
    tags = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
    positions = op.overloadpacket.__name__ == "index" and not any(
        isinstance(it, torch.Tensor) and it.dtype in (torch.bool, torch.uint8) for it in args[1]
    )
    if tags & {*op.tags} and not positions:
        raise Rejected(f"the sizes of {op} depend on data")
    if op.overloadpacket.__name__ in ("as_strided_scatter", "as_strided_copy"):
        raise Rejected(f"{op} reads the memory around its operand")


def captured(function: Any, inputs: Sequence[torch.Tensor], spelling: Spelling) -> Captured:
    """The function, captured with these inputs, which it may change."""
    capture = Capture(inputs, spelling)
    with capture:
        outputs = function(*inputs)
    one = isinstance(outputs, torch.Tensor)
    return capture.finish([outputs] if one else list(outputs or ()), returns_one=one)
