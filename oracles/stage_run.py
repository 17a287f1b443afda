"""`run_stage`: one run of a stage on real tensors, and what each node did: where its tensors lie, what it wrote and read.

Everything is noted at the moment the node has run (operands: is about to run), since a later node
may give a tensor another shape or storage. Bytes are counted from the start of a storage, and
storages in the order in which the run meets them, so that runs of two stages on equal inputs can be
compared.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import fx
from torch._ops import OpOverload
from torch.fx.node import map_arg

from oracles.stage import Stage
from programs.definedness import same_values, tensors_in, value_stored
from programs.errors import InternalError, Rejected
from programs.regions import Region, overlap
from programs.schemas import Facts, facts
from programs.values import clone_inputs


class Place(NamedTuple):
    """Where a tensor lies: the number of its storage, and its metadata.

    Offset and strides count elements.
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
        """The bytes that it covers, from the start of the storage."""
        itemsize = self.dtype.itemsize
        strides = tuple(stride * itemsize for stride in self.strides)
        return Region(self.offset * itemsize, tuple(self.sizes), strides, itemsize)

    def meets(self, other: Place) -> bool:
        """True if the two have a byte in common."""
        return self.storage == other.storage and overlap(self.region, other.region)

    def same_elements(self, other: Place) -> bool:
        """True if element by element, after broadcasting, the two are the same bytes."""
        return self.storage == other.storage and self._steps() == other._steps()

    def _steps(self) -> tuple[object, ...]:
        """The region with dims counted from the last, those of size 1 left out: they place nothing."""
        itemsize = self.dtype.itemsize
        pairs = zip(reversed(self.sizes), reversed(self.strides), strict=True)
        dims = tuple(
            (dim, size, stride * itemsize) for dim, (size, stride) in enumerate(pairs) if size != 1
        )
        return self.offset * itemsize, itemsize, dims


class Operand(NamedTuple):
    """A tensor among the arguments of a call, as it lay before. `argument` is its name in the schema.

    `position` counts the arguments that are no `out=` arguments, which have -1: a functional op and
    its in-place form count alike. `written` and `overwritten` (written whatever it holds) mean
    bytes: `t_` and `set_` write none.
    """

    position: int
    argument: str
    place: Place
    written: bool
    overwritten: bool


@dataclass(slots=True)
class NodeCall:
    """A call of a node. `op` is None if that is no operator; then all tensors count as read.

    `arguments` are as passed, by name in the schema (by position for other functions). `calls` is
    the operator whose work is done: `op`, or for a function that takes an operator first (as
    higher-order operators do) that one. `mutates` goes by the schema alone, where there is none by
    whether the version counter of an operand (which its views share) has moved. `uneven` says that
    a `copy_` stored differing values in one place.
    """

    op: OpOverload | None
    calls: OpOverload | None
    arguments: dict[str, Any]
    operands: tuple[Operand, ...]
    mutates: bool = False
    uneven: bool = False

    @property
    def written(self) -> list[Operand]:
        """Operands of which bytes are written."""
        return [each for each in self.operands if each.written]

    @property
    def read(self) -> list[Operand]:
        """Operands of which the contents matter; not those asked for their metadata alone, or for the memory."""
        unread = _unread(self.calls) if self.calls is not None else ()
        return [
            each for each in self.operands if not each.overwritten and each.argument not in unread
        ]

    @property
    def shows_numbers(self) -> bool:
        """True if it makes no tensor, and yet what follows hangs on the contents of its operands."""
        return self.calls is not None and self.calls.overloadpacket in _SHOW_NUMBERS


@dataclass(slots=True)
class NodeRun:
    """What running a node gave: its value, where the tensors in it lay then (in order), and the call, if it is one."""

    node: fx.Node
    value: object
    places: tuple[Place, ...]
    call: NodeCall | None = None


@dataclass(slots=True)
class StageRun:
    """A stage's run. `inputs` are the storages of placeholders and attributes; `error` is what ended the run, and where.

    `nbytes` is the largest size of each storage that the run met: one may grow, and may be freed
    before the end. The node that raised stands last among the nodes, without a value, if it came to
    a call. Storages are held, so that their identity is not reused.
    """

    stage: Stage
    nodes: list[NodeRun] = field(default_factory=list)
    storages: list[torch.UntypedStorage] = field(default_factory=list)
    nbytes: list[int] = field(default_factory=list)
    inputs: set[int] = field(default_factory=set)
    error: tuple[fx.Node, Exception] | None = None

    def name(self, node: fx.Node) -> str:
        """Where something happened, for people: 'stage reinplaced, add_1 = aten.add_.Tensor(view, 1)'."""
        return f"stage {self.stage.name}, {describe(node)}"


def describe(node: fx.Node) -> str:
    """A node in one line: 'add_1 = aten.add_.Tensor(view, 1)'."""
    if node.op in ("placeholder", "get_attr"):
        return f"{node.name} = {'input' if node.op == 'placeholder' else node.target}"
    arguments = [*map(str, node.args), *(f"{key}={value}" for key, value in node.kwargs.items())]
    if node.op == "output":
        return f"return {', '.join(arguments)}"
    target = (
        node.target
        if isinstance(node.target, (str, OpOverload))
        else getattr(node.target, "__name__", node.target)
    )
    return f"{node.name} = {target}({', '.join(arguments)})"


def run_stage(stage: Stage, inputs: Sequence[object]) -> StageRun:
    """Run the graph once on these inputs, which it may mutate; attributes of the module are cloned first.

    Raises `Rejected` for tensors that are not dense, `InternalError` if the number of inputs is not
    the graph's.
    """
    return _Running(stage, inputs).run()


class _Running:
    def __init__(self, stage: Stage, inputs: Sequence[object]) -> None:
        placeholders = sum(node.op == "placeholder" for node in stage.graph.graph.nodes)
        if placeholders != len(inputs):
            raise InternalError(
                f"stage {stage.name} takes {placeholders} inputs, {len(inputs)} were given"
            )
        self.done = StageRun(stage)
        self.graph = stage.graph
        self.inputs = iter(inputs)
        self.values: dict[fx.Node, Any] = {}
        self.attributes = self._attributes()
        self.numbers: dict[int, int] = {}

    def run(self) -> StageRun:
        with torch.no_grad():
            for node in self.graph.graph.nodes:
                self._node(node)
                if self.done.error is not None:
                    break
        return self.done

    def _node(self, node: fx.Node) -> None:
        if node.op == "placeholder":
            self._note(node, next(self.inputs))
        elif node.op == "get_attr":
            if node in self.attributes:
                self._note(node, self.attributes[node])
            else:
                self.done.error = (
                    node,
                    AttributeError(f"the module has no attribute {node.target}"),
                )
        else:
            given = None
            try:
                args, kwargs = map_arg(node.args, self._value), map_arg(node.kwargs, self._value)
                given = self._given(node, args, kwargs)
                versions = _versions(given)
                value = self._call(node, given, args, kwargs)
                if given is not None and given.op is None:
                    _note_writes(given, versions)
            except (Rejected, InternalError):
                raise
            except Exception as error:  # noqa: BLE001 - whatever a node raises is part of the run
                self.done.error = (node, error)
                if given is not None:
                    self.done.nodes.append(NodeRun(node, None, (), given))
                return
            self._note(node, value, given)

    def _value(self, node: fx.Node) -> Any:
        if node not in self.values:
            raise LookupError(f"{node} is used before it is defined")
        return self.values[node]

    def _attributes(self) -> dict[fx.Node, object]:
        found: dict[fx.Node, object] = {}
        for node in self.graph.graph.find_nodes(op="get_attr"):
            with contextlib.suppress(
                AttributeError
            ):  # the run ends at a node whose attribute is not there
                found[node] = functools.reduce(getattr, str(node.target).split("."), self.graph)
        return dict(zip(found, clone_inputs(list(found.values())), strict=True))

    def _call(self, node: fx.Node, given: NodeCall | None, args: Any, kwargs: Any) -> Any:
        if node.op == "output":
            return args[0]
        if node.op == "call_method":
            return getattr(args[0], str(node.target))(*args[1:], **kwargs)
        if node.op == "call_module":
            return self.graph.get_submodule(str(node.target))(*args, **kwargs)
        assert callable(node.target)
        expected = (
            None if given is None or given.op is None else value_stored(given.op, given.arguments)
        )
        value = node.target(*args, **kwargs)
        if given is not None and expected is not None:
            given.uneven = not same_values(given.arguments["self"], expected)
        return value

    def _given(self, node: fx.Node, args: Any, kwargs: Mapping[str, Any]) -> NodeCall | None:
        if node.op == "output":
            return None
        target: Any = node.target
        if isinstance(target, OpOverload):
            return self._call_of(target, target, args, kwargs)
        if args and isinstance(args[0], OpOverload):
            return self._call_of(None, args[0], args[1:], kwargs)
        named = {str(index): each for index, each in enumerate(args)} | dict(kwargs)
        found = ((index, *each) for index, each in enumerate(named.items()))
        operands = tuple(
            Operand(index, name, self._place(each), written=False, overwritten=False)
            for index, name, value in found
            for each in tensors_in(value)
        )
        return NodeCall(None, None, named, operands)

    def _call_of(
        self, op: OpOverload | None, calls: OpOverload, args: Any, kwargs: Mapping[str, Any]
    ) -> NodeCall:
        form = _form(calls)
        passed = dict(zip(form.names, args, strict=False)) | dict(kwargs)
        arguments = {
            name: passed[name] for name in form.names if name in passed
        } | passed  # in the order of the schema
        operands = []
        for name, value in arguments.items():
            if isinstance(value, (torch.Tensor, list, tuple, dict)):
                written = op is not None and name in form.written
                position, overwritten = (
                    form.positions.get(name, -1),
                    written and name in form.overwritten,
                )
                operands += [
                    Operand(position, name, self._place(each), written, overwritten)
                    for each in tensors_in(value)
                ]
        return NodeCall(
            op,
            calls,
            arguments,
            tuple(operands),
            mutates=op is not None and bool(form.facts.writes),
        )

    def _note(self, node: fx.Node, value: object, call: NodeCall | None = None) -> None:
        places = tuple(map(self._place, tensors_in(value)))
        self.values[node] = value
        self.done.nodes.append(NodeRun(node, value, places, call))
        if node.op in ("placeholder", "get_attr"):
            self.done.inputs.update(each.storage for each in places)

    def _place(self, tensor: torch.Tensor) -> Place:
        if tensor.layout is not torch.strided:
            raise Rejected(f"a tensor is {tensor.layout}; only dense (strided) ones can be judged")
        storage = tensor.untyped_storage()
        number = self.numbers.get(storage._cdata)
        if number is None:
            number = self.numbers[storage._cdata] = len(self.numbers)
            self.done.storages.append(storage)
            self.done.nbytes.append(0)
        place = place_of(tensor, number)
        self.done.nbytes[number] = max(
            self.done.nbytes[number], storage.nbytes(), place.region.interval[1]
        )
        return place


def _versions(call: NodeCall | None) -> list[int]:
    """The version counter of each operand of a call of no operator."""
    if call is None or call.op is not None:
        return []
    return [each._version for value in call.arguments.values() for each in tensors_in(value)]


def _note_writes(call: NodeCall, before: Sequence[int]) -> None:
    """What a call of no operator has written, which no schema tells."""
    moved = [one != other for one, other in zip(before, _versions(call), strict=True)]
    call.mutates = any(moved)
    call.operands = tuple(
        each._replace(written=wrote) for each, wrote in zip(call.operands, moved, strict=True)
    )


def place_of(tensor: torch.Tensor, storage: int) -> Place:
    """The place of a dense tensor in the storage of that number."""
    return Place(
        storage,
        int(tensor.storage_offset()),
        tensor.shape,
        tensor.stride(),
        tensor.dtype,
        tensor.is_conj(),
        tensor.is_neg(),
    )


@dataclass(frozen=True, slots=True)
class _Form:
    """What a schema says, by name of argument: `written` and `overwritten` as bytes, positions as in `Operand`."""

    facts: Facts
    names: tuple[str, ...]
    positions: Mapping[str, int]
    written: frozenset[str]
    overwritten: frozenset[str]


@functools.cache
def _form(op: OpOverload) -> _Form:
    known, arguments = facts(op), op._schema.arguments
    names = tuple(each.name for each in arguments)
    counted = (each.name for each in arguments if not each.is_out)
    places_anew = (
        torch.Tag.inplace_view in op.tags
    )  # t_, set_, resize_: other metadata, the same bytes
    return _Form(
        known,
        names,
        {name: index for index, name in enumerate(counted)},
        frozenset(() if places_anew else (names[index] for index in known.writes)),
        frozenset(names[index] for index in known.overwrites),
    )


# Other ops that make no tensor ask for metadata alone.
_SHOW_NUMBERS = {
    torch.ops.aten.item,
    torch.ops.aten._local_scalar_dense,
    torch.ops.aten.is_nonzero,
    torch.ops.aten.equal,
    torch.ops.aten.allclose,
    torch.ops.aten._assert_async,
}


@functools.cache
def _unread(op: OpOverload) -> tuple[str, ...]:
    """The arguments of a call that does not write them of which the contents do not matter: `zeros_like`, `fill`."""
    if op.namespace != "aten":  # of others, a name says nothing
        return ()
    name, names = op.overloadpacket.__name__, tuple(each.name for each in op._schema.arguments)
    if (
        name.endswith("_like")
        or name.startswith("new_")
        or torch.Tag.inplace_view in op.tags
        or _stores_over(op)
    ):
        return names if torch.Tag.inplace_view in op.tags else names[:1]
    return names[1:] if name in ("view_as", "expand_as", "reshape_as") else ()


def _stores_over(op: OpOverload) -> bool:
    """True for the functional form of an op that stores over its first argument whatever it holds."""
    name = op.overloadpacket.__name__
    for candidate in dict.fromkeys((name + "_", name.removesuffix("_functional") + "_")):
        packet = getattr(torch.ops.aten, candidate, None)
        for overload in packet.overloads() if packet is not None else ():
            form = getattr(packet, overload)
            if facts(form).overwrites and not facts(form).writes[1:] and _types(form) == _types(op):
                return True
    return False


def _types(op: OpOverload) -> list[str]:
    return [str(each.type) for each in op._schema.arguments if not each.is_out]
