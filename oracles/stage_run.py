"""`run_stage`: one run of a stage on real tensors, with a record of each node.

The record has the locations of the node's tensors, its writes and its reads. It is taken after the
node has run (for operands: before it runs), since a later node may change a tensor's shape or
storage. Storages are numbered in the order in which the run meets them, so the runs of two stages
on equal inputs can be compared.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, NamedTuple

import numpy.typing as npt
import torch
from torch import fx
from torch._ops import OpOverload

from aliasproof.eager.indexed_stores import same_values, value_stored
from aliasproof.ir.eager_call import tensors_in
from aliasproof.ir.errors import InternalError, Rejected, require_sound_process
from aliasproof.ir.regions import Region, overlap
from aliasproof.ir.schemas import facts
from aliasproof.ir.values import Entry, clone_inputs, entries_of
from aliasproof.oracles.forms import functional_form, in_place_form
from aliasproof.oracles.stage import Stage

# --- location -------------------------------------------------------------------------------------
#
# `Location`: a tensor's storage and its layout in it, as numbers that outlive the tensor.


class Location(NamedTuple):
    """The number of a tensor's storage, and its metadata. `offset` and `strides` are in elements.

    Two locations can be compared if their storages are numbered alike.
    """

    storage: int
    offset: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    conj: bool
    neg: bool

    @property
    def region(self) -> Region:
        """The bytes that the tensor covers, counted from the start of its storage."""
        itemsize = self.dtype.itemsize
        # Overlap is decided in bytes: views of one storage may differ in item size.
        strides = tuple(stride * itemsize for stride in self.strides)
        return Region(self.offset * itemsize, tuple(self.sizes), strides, itemsize)

    def overlaps(self, other: Location) -> bool:
        """Whether the two have a byte in common."""
        return self.storage == other.storage and overlap(self.region, other.region)

    def same_elements(self, other: Location) -> bool:
        """Whether each element of both, after broadcasting, is at the same bytes."""
        return self.storage == other.storage and self._steps() == other._steps()

    def same_layout(self, other: Location) -> bool:
        """Whether the two differ only in their storage."""
        return self[1:] == other[1:]

    def entries(self, per_byte: npt.NDArray[Entry]) -> npt.NDArray[Entry]:
        """The entries for the tensor's bytes, as a view of an array with one entry per byte.

        The last dim are the bytes of an element.
        """
        return entries_of(per_byte, self.sizes, self.strides, self.offset, self.dtype.itemsize)

    def _steps(self) -> tuple[object, ...]:
        """The start and the dims in bytes.

        Broadcasting aligns dims at the last one, so they are counted from there. Dims of size 1 are
        left out: their strides are never used.
        """
        itemsize = self.dtype.itemsize
        pairs = zip(reversed(self.sizes), reversed(self.strides), strict=True)
        # Strides in bytes: two views of different item size have no element in common.
        dims = tuple(
            (dim, size, stride * itemsize) for dim, (size, stride) in enumerate(pairs) if size != 1
        )
        return self.offset * itemsize, itemsize, dims


def location_of(tensor: torch.Tensor, storage: int) -> Location:
    """The location of a strided tensor in storage number `storage`."""
    return Location(
        storage,
        int(tensor.storage_offset()),
        tensor.shape,
        tensor.stride(),
        tensor.dtype,
        tensor.is_conj(),
        tensor.is_neg(),
    )


# --- node call ------------------------------------------------------------------------------------
#
# A call of a Python function or a tensor method has no schema. Its writes are found by the version
# counters of its operands.


class Operand(NamedTuple):
    """A tensor among the arguments of a call, at its location before the call.

    `argument` is its name in the schema. `position` is its index among the arguments that are not
    `out=`; `out=` arguments have -1. So operands of a functional op and of its in-place form have
    equal positions. `written` and `overwritten` (written without being read) are about bytes: `t_`
    and `set_` write none.
    """

    position: int
    argument: str
    location: Location
    written: bool
    overwritten: bool


@dataclass(slots=True)
class NodeCall:
    """A call of a node.

    `op` is None if the call is no call of an operator; then all its tensors count as read.
    `computes` is the operator that does the work: `op`, or the first argument of a function that
    takes an operator (as higher-order operators do). `arguments` are as passed, by name in the
    schema (by position for other functions). `mutates` follows the schema; without a schema, it
    says whether the version counter of an operand (which its views share) changed. `conflicts`
    says that a `copy_` stored different values to one address.
    """

    op: OpOverload | None
    computes: OpOverload | None
    arguments: dict[str, Any]
    operands: tuple[Operand, ...]
    mutates: bool = False
    conflicts: bool = False

    @property
    def written(self) -> list[Operand]:
        """Operands with bytes that the call writes."""
        return [operand for operand in self.operands if operand.written]

    @property
    def read(self) -> list[Operand]:
        """Operands whose contents the call uses, not only their metadata or their memory."""
        unread = _unread(self.computes) if self.computes is not None else ()
        return [
            operand
            for operand in self.operands
            if not operand.overwritten and operand.argument not in unread
        ]

    @property
    def is_data_dependent(self) -> bool:
        """Whether it makes no tensor but reads tensor data, on which later nodes may depend."""
        return self.computes is not None and self.computes.overloadpacket in _DATA_READERS


Locate = Callable[[torch.Tensor], Location]


def operator_call(
    op: OpOverload | None,
    computes: OpOverload,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    locate: Locate,
) -> NodeCall:
    """A call of an operator, or (`op` is None) of a function that runs one."""
    known, schema = facts(computes), computes._schema.arguments
    names = {argument.name: index for index, argument in enumerate(schema)}
    # `out=` arguments are not counted, so that positions agree between forms.
    counted = [argument.name for argument in schema if not argument.is_out]
    # `t_`, `set_` and `resize_` change the metadata and not the bytes.
    writes = () if torch.Tag.inplace_view in computes.tags else known.writes
    # Positional arguments are in the order of the schema.
    passed = dict(zip(names, args, strict=False)) | dict(kwargs)
    # In the order of the schema, also where keywords were passed in another order.
    arguments = {name: passed[name] for name in names if name in passed} | passed
    operands: list[Operand] = []
    for name, value in arguments.items():
        index = names.get(name)
        # A function may pass copies to its operator, so what it writes is unknown.
        written = op is not None and index in writes
        # Such a function need not read the argument that the operator overwrites, either.
        overwritten = (written or op is None) and index in known.overwrites
        position = counted.index(name) if name in counted else -1
        operands += [
            Operand(position, name, locate(tensor), written, overwritten)
            for tensor in tensors_in(value)
        ]
    # Also writes of metadata: `t_` mutates and writes no byte.
    mutates = op is not None and bool(known.writes)
    return NodeCall(op, computes, arguments, tuple(operands), mutates)


# --- schemas --------------------------------------------------------------------------------------


# All other ops that make no tensor read only metadata.
_DATA_READERS = {
    torch.ops.aten.item,
    torch.ops.aten._local_scalar_dense,
    torch.ops.aten.is_nonzero,
    torch.ops.aten.equal,
    torch.ops.aten.allclose,
    torch.ops.aten._assert_async,
}


@functools.cache
def _unread(op: OpOverload) -> tuple[str, ...]:
    """The arguments that the op does not write and whose contents it does not use.

    Examples are the first arguments of `zeros_like` and of the functional `fill`.
    """
    if op.namespace != "aten":  # an op of another library may have the same name
        return ()
    name = op.overloadpacket.__name__
    names = tuple(argument.name for argument in op._schema.arguments)
    if torch.Tag.inplace_view in op.tags:
        return names
    # A functional form of an op that overwrites only its first argument: `fill`, `normal`.
    functional = functional_form(op) or op
    in_place = in_place_form(functional)
    overwrites = in_place is not None and (
        facts(in_place).overwrites and not facts(in_place).writes[1:]
    )
    # Its in-place form has another name, `normal_`.
    is_normal = functional is torch.ops.aten.normal_functional.default
    if name.endswith("_like") or name.startswith("new_") or overwrites or is_normal:
        return names[:1]
    # These use only the sizes of the second tensor.
    return names[1:] if name in ("view_as", "expand_as", "reshape_as") else ()


# --- stage run ------------------------------------------------------------------------------------


@dataclass(slots=True)
class NodeRun:
    """One node that ran: its value, the locations of the tensors in it, and its call, if any."""

    node: fx.Node
    value: object
    locations: tuple[Location, ...]
    call: NodeCall | None = None

    @property
    def new_locations(self) -> list[Location]:
        """The locations of results that are in a storage of no operand."""
        operands = () if self.call is None else self.call.operands
        known = {operand.location.storage for operand in operands}
        return [location for location in self.locations if location.storage not in known]


@dataclass(slots=True)
class StageRun:
    """The run of a stage.

    `inputs` are the storages of placeholders and attributes. `nbytes` is the largest size that each
    storage had in the run: it may grow, and it may be freed before the end. `error` is the node
    that raised and its error; if the error was in a call, the node is the last of `nodes`, without
    a value. `storages` keeps the storages alive, so that no identity is used twice.
    """

    stage: Stage
    nodes: list[NodeRun] = field(default_factory=list)
    storages: list[torch.UntypedStorage] = field(default_factory=list)
    nbytes: list[int] = field(default_factory=list)
    inputs: set[int] = field(default_factory=set)
    error: tuple[fx.Node, Exception] | None = None

    @property
    def raised(self) -> str:
        """The node that raised and the error, in one line; empty if none did."""
        if self.error is None:
            return ""
        node, error = self.error
        return f"{self.name(node)} raises {type(error).__name__}: {error}"

    def name(self, node: fx.Node) -> str:
        """A node for people: 'stage reinplaced, add_1 = aten.add_.Tensor(view, 1)'."""
        return f"stage {self.stage.name}, {describe(node)}"


def describe(node: fx.Node) -> str:
    """A node in one line: 'add_1 = aten.add_.Tensor(view, 1)'."""
    if node.op in ("placeholder", "get_attr"):
        return f"{node.name} = {'input' if node.op == 'placeholder' else node.target}"
    arguments = [*map(str, node.args), *(f"{key}={value}" for key, value in node.kwargs.items())]
    if node.op == "output":
        return f"return {', '.join(arguments)}"
    target = node.target
    if not isinstance(target, (str, OpOverload)):
        target = getattr(target, "__name__", target)
    return f"{node.name} = {target}({', '.join(arguments)})"


def run_stage(stage: Stage, inputs: Sequence[object]) -> StageRun:
    """Run the graph once on these inputs, which it may mutate; it gets clones of its attributes.

    Raises:
        Rejected: A tensor is not dense.
        InternalError: The graph takes another number of inputs.

    """
    runner = _Runner(stage, inputs)
    # Eager and target run without gradients, so stages do as well.
    with torch.no_grad():
        for node in runner.graph.nodes:
            runner.record_node(node)
            if runner.record.error is not None:
                break
    return runner.record


class _Runner(fx.Interpreter):
    """Runs a graph as fx does, up to the first error, and records each node."""

    def __init__(self, stage: Stage, inputs: Sequence[object]) -> None:
        super().__init__(stage.graph, garbage_collect_values=False)
        placeholders = len(self.graph.find_nodes(op="placeholder"))
        if placeholders != len(inputs):
            raise InternalError(
                f"stage {stage.name} takes {placeholders} inputs, {len(inputs)} were given"
            )
        self.args_iter = iter(inputs)
        self.record = StageRun(stage)
        self.attributes = _attributes(stage.graph)
        self.numbers: dict[int, int] = {}  # of storages, by their identity

    def record_node(self, node: fx.Node) -> None:
        call = None
        try:
            early = next((it for it in node.all_input_nodes if it not in self.env), None)
            if early is not None:
                raise LookupError(f"{early} is used before it is defined")
            args, kwargs = self.fetch_args_kwargs_from_env(node)
            # Operands are located before the node runs: it may change their metadata.
            call = self._call(node, args, kwargs)
            # The tensors of a call without an operator; their version counters show its writes.
            counted: list[torch.Tensor] = []
            if call is not None and call.op is None:
                counted = [it for value in call.arguments.values() for it in tensors_in(value)]
            before = [tensor._version for tensor in counted]
            # A `copy_` into memory that overlaps itself may store two values to one address. Only
            # the result shows that, so the expected contents are computed before the call.
            expected = None
            if call is not None and call.op is not None:
                expected = value_stored(call.op, call.arguments)
            value = getattr(self, node.op)(node.target, args, kwargs)
            if call is not None and expected is not None:
                call.conflicts = not same_values(call.arguments["self"], expected)
            if call is not None and counted:
                # A view shares the counter of its base, so a write through any view counts.
                changed = [it._version != old for it, old in zip(counted, before, strict=True)]
                call.mutates = any(changed)
                pairs = zip(call.operands, changed, strict=True)
                call.operands = tuple(it._replace(written=wrote) for it, wrote in pairs)
        except (Rejected, InternalError):
            raise
        # A call that raised is recorded, too: its operands may explain the error.
        except Exception as error:  # noqa: BLE001 - whatever a node raises is part of the run
            require_sound_process(error)
            self.record.error = (node, error)
            if call is not None:
                self.record.nodes.append(NodeRun(node, None, (), call))
            return
        locations = tuple(map(self._location, tensors_in(value)))
        self.env[node] = value
        self.record.nodes.append(NodeRun(node, value, locations, call))
        if node.op in ("placeholder", "get_attr"):
            self.record.inputs.update(location.storage for location in locations)

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> object:
        """The clone of an attribute."""
        if target not in self.attributes:
            raise AttributeError(f"the module has no attribute {target}")
        return self.attributes[target]

    def _call(self, node: fx.Node, args: Any, kwargs: Mapping[str, Any]) -> NodeCall | None:
        if not node.op.startswith("call_"):
            return None
        target: Any = node.target
        if isinstance(target, OpOverload):
            return operator_call(target, target, args, kwargs, self._location)
        # `auto_functionalized` and others take the operator that they run as the first argument.
        if args and isinstance(args[0], OpOverload):
            return operator_call(None, args[0], args[1:], kwargs, self._location)
        # Methods, modules and Python functions.
        # All operands count as read.
        arguments = {str(index): value for index, value in enumerate(args)} | dict(kwargs)
        operands = tuple(
            Operand(index, name, self._location(tensor), written=False, overwritten=False)
            for index, (name, value) in enumerate(arguments.items())
            for tensor in tensors_in(value)
        )
        return NodeCall(None, None, arguments, operands)

    def _location(self, tensor: torch.Tensor) -> Location:
        if tensor.layout is not torch.strided:
            raise Rejected(f"a tensor is {tensor.layout}; only dense (strided) ones can be judged")
        storage, record = tensor.untyped_storage(), self.record
        # The first tensor on a storage numbers it, in the order of the nodes.
        number = self.numbers.get(storage._cdata)
        if number is None:
            number = self.numbers[storage._cdata] = len(self.numbers)
            record.storages.append(storage)
            record.nbytes.append(0)
        location = location_of(tensor, number)
        # A view may reach beyond the end of a storage that was freed.
        end = location.region.interval[1]
        record.nbytes[number] = max(record.nbytes[number], storage.nbytes(), end)
        return location


def _attributes(module: fx.GraphModule) -> dict[str, object]:
    """Clones of the attributes that a graph uses, by name; those that exist."""
    attributes: dict[str, object] = {}
    for node in module.graph.find_nodes(op="get_attr"):
        # A missing attribute is an error of its node, once the run reaches this node.
        with contextlib.suppress(AttributeError):
            attributes[str(node.target)] = attrgetter(str(node.target))(module)
    return dict(zip(attributes, clone_inputs(list(attributes.values())), strict=True))
