"""Alias analysis: which tensors of a graph see which bytes of which storage.

There is no guessing from schemas here. The graph is run once on *fake* tensors, which have sizes,
strides, offsets and storages but no numbers, so that what shares a storage with what is simply
observed, also for operators whose schemas say nothing. Each node is run once, and what is kept of
it is of constant size, so the cost is linear in the number of nodes.

A tensor *object* may change its metadata as the program runs (`t_`, `set_`, `resize_`), so what is
noted for each node is the *geometry* of the objects at that moment.
"""

from __future__ import annotations

import contextlib
import itertools
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
    unset_fake_temporarily,
)
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.fx.node import map_aggregate

from reference_pass.exceptions import Refused
from reference_pass.fakes import outs_after, true_result
from reference_pass.operator_forms import (
    bind,
    copied_view,
    facts,
    on_copies,
    on_values,
    tensors_in,
    unbind,
)
from reference_pass.regions import Region, Size, known


@dataclass(frozen=True, slots=True, eq=False)
class Geometry:
    """How a tensor sees its storage: element sizes, strides and offset, dtype, and the lazy conjugate and negative bits.

    Two with the same `key` show the same numbers in the same way: also strides that place nothing
    count, since a view as another dtype goes by them.
    """

    storage: int
    dtype: torch.dtype
    sizes: tuple[Size, ...]
    strides: tuple[Size, ...]
    offset: Size
    conj: bool
    neg: bool
    region: Region
    key: tuple[object, ...]

    def same(self, other: Geometry) -> bool:
        """True if both show the same numbers, for sure."""
        return self.key == other.key


class Storages:
    """Numbers the storages of fake tensors in the order in which they are met, and holds them."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}
        self.held: list[torch.UntypedStorage] = []

    def number(self, tensor: torch.Tensor) -> int:
        """The number of a tensor's storage."""
        storage = tensor.untyped_storage()
        if storage._cdata not in self._numbers:
            self._numbers[storage._cdata] = len(self.held)
            self.held.append(storage)
        return self._numbers[storage._cdata]

    def __len__(self) -> int:
        return len(self.held)

    def geometry(self, tensor: torch.Tensor) -> Geometry:
        """The geometry of a tensor now."""
        number, means = self.number(tensor), (tensor.dtype, tensor.is_conj(), tensor.is_neg())
        sizes, strides, offset = tuple(tensor.shape), tensor.stride(), tensor.storage_offset()
        key = (
            number,
            means,
            tuple(map(_spelled, sizes)),
            tuple(map(_spelled, strides)),
            _spelled(offset),
        )
        return Geometry(
            number, tensor.dtype, sizes, strides, offset, *means[1:], Region.of(tensor), key
        )


def _spelled(size: Size) -> object:
    return size if isinstance(size, int) else str(size)


def storage_of(tensor: torch.Tensor) -> int:
    """What tells storages apart."""
    return int(tensor.untyped_storage()._cdata)


def operand_storages(node: fx.Node) -> set[int]:
    """The storages that the operands of a node lie in, by its metadata."""
    return {
        storage_of(tensor)
        for each in node.all_input_nodes
        for tensor in tensors_in(each.meta["val"])
    }


def same_numbers(one: torch.Tensor, other: torch.Tensor) -> bool:
    """True if two tensors show the same numbers for sure: the same elements at the same bytes, read in the same way."""
    if (one.dtype, one.is_conj(), one.is_neg()) != (other.dtype, other.is_conj(), other.is_neg()):
        return False
    return storage_of(one) == storage_of(other) and Region.of(one).same(Region.of(other))


# --- running graphs on fake tensors ---------------------------------------------------------------


def fake_mode(graph_module: fx.GraphModule, sample_args: Sequence[object]) -> FakeTensorMode:
    """The mode that the sample arguments or the graph's metadata belong to, or a new one."""
    values = (node.meta.get("val") for node in graph_module.graph.nodes)
    for each in itertools.chain(tensors_in(sample_args), *map(tensors_in, values)):
        if isinstance(each, FakeTensor):
            return each.fake_mode
    return FakeTensorMode(allow_non_fake_inputs=True, shape_env=ShapeEnv())


def fake_inputs(mode: FakeTensorMode, sample_args: Sequence[object]) -> list[Any]:
    """The sample arguments as fake tensors that share storages as the given ones do.

    They are new objects, so that running a program that changes metadata leaves the caller's alone.
    """
    with mode:
        return [fake_value(mode, each) for each in sample_args]


def fake_value(mode: FakeTensorMode, value: object) -> Any:
    """One sample argument as a fake tensor, or itself if it is no tensor."""
    if not isinstance(value, torch.Tensor):
        return value
    if value.layout is not torch.strided:
        raise Refused(
            f"a {value.layout} tensor has no strides to reason about; pass dense (strided) tensors"
        )
    if isinstance(value, FakeTensor):
        return torch.ops.aten.alias.default(value.detach())
    with unset_fake_temporarily():
        value = value.detach()
    fake = mode.from_tensor(value, static_shapes=True)
    nbytes = value.untyped_storage().nbytes()
    if (
        fake.untyped_storage().nbytes() != nbytes
    ):  # it covers what the tensor shows, and as_strided may show more
        fake.untyped_storage().resize_(nbytes)
    return fake


@contextlib.contextmanager
def on_fakes(mode: FakeTensorMode) -> Iterator[None]:
    """The context to run nodes in: a fake mode, no gradients, and no record of views.

    Autograd would keep of each view how it came from its base, at a cost that grows with each view
    of a view.
    """
    views = torch._C.DispatchKeySet(torch._C.DispatchKey.ADInplaceOrView)
    with mode, torch.no_grad(), torch._C._ExcludeDispatchKeyGuard(views):
        yield


def run_node(node: fx.Node, values: Callable[[fx.Node], Any], mode: FakeTensorMode) -> Any:
    """The value of a call_function or get_attr node on fake tensors.

    The caller has entered `on_fakes(mode)`.
    """
    if node.op == "get_attr":
        return fake_value(mode, attribute(node))
    return run_call(node, values)


def run_call(node: fx.Node, values: Callable[[fx.Node], Any]) -> Any:
    """The value of a call_function node, run on the given values of its operands."""
    args, kwargs = on_values((node.args, node.kwargs), values)
    if isinstance(node.target, OpOverload) and (view := copied_view(node.target)) is not None:
        # torch's fake view copies know no symbols, and view_as_real_copy no stride of zero
        fixed = all(isinstance(each, int) for each in (*args[0].shape, *args[0].stride()))
        if not fixed or view is torch.ops.aten.view_as_real.default:
            return view(*args, **kwargs).clone(memory_format=torch.contiguous_format)
    assert callable(node.target)
    if node.target is torch.ops.aten.view.dtype:
        return _view_as(*args)
    return true_result(node.target, args, kwargs, node.target(*args, **kwargs))


def _view_as(operand: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """A view as another dtype, whatever the strides that place nothing.

    Eager goes by all strides, those of dimensions of size one or less too, which fakes often get
    wrong. The run is to tell.
    """
    ratio = max(dtype.itemsize // operand.element_size(), 1)
    empty, last = known(operand.numel() == 0), operand.dim() - 1
    strides, taken = list(operand.stride()), True
    for dim, size in enumerate(operand.shape):
        fits = strides[dim] == 1 if dim == last else strides[dim] % ratio == 0
        if not known(fits) and (empty or known(size <= 1)):
            strides[dim], taken = 1 if dim == last else ratio, False
    if not taken:
        operand = operand.as_strided(operand.shape, strides, operand.storage_offset())
    shown: torch.Tensor = torch.ops.aten.view.dtype(operand, dtype)
    return shown


def attribute(node: fx.Node) -> Any:
    """What a get_attr node gets."""
    value: Any = node.graph.owning_module
    for name in str(node.target).split("."):
        value = getattr(value, name)
    return value


# --- the analysis ---------------------------------------------------------------------------------


@dataclass(slots=True)
class Effect:
    """What one node did.

    Its value on fakes; the geometry of each tensor in that value, and of each argument whose
    metadata it changed, both by the identity of the object; the bytes of each storage that it made
    larger; and the geometry of what it copies, if that goes by place in a storage
    (`as_strided_copy`).
    """

    value: Any
    shows: dict[int, Geometry] = field(default_factory=dict)
    moved: dict[int, Geometry] = field(default_factory=dict)
    grew: dict[int, int] = field(default_factory=dict)
    copied: Geometry | None = None


@dataclass(slots=True)
class Analysis:
    """What a graph does with storage, node by node, in the order of execution."""

    mode: FakeTensorMode
    effects: dict[fx.Node, Effect] = field(default_factory=dict)
    storages: Storages = field(default_factory=Storages)
    # Of each storage all geometries under which it is seen, the first one first; storages that are
    # written; that grew.
    seen: list[list[Geometry]] = field(default_factory=list)
    written: set[int] = field(default_factory=set)
    grown: set[int] = field(default_factory=set)

    def see(self, tensor: torch.Tensor) -> Geometry:
        """Note how a tensor sees its storage now."""
        geometry = self.storages.geometry(tensor)
        while len(self.seen) < len(self.storages):
            self.seen.append([])
        self.seen[geometry.storage].append(geometry)
        return geometry


def analyse(graph_module: fx.GraphModule, sample_args: Sequence[object]) -> Analysis:
    """Run a graph of ATen calls on fake tensors and note what it does with storage.

    Raises `Refused` for nodes that are no ATen calls, and for shapes that depend on numbers.
    """
    mode = fake_mode(graph_module, sample_args)
    analysis = Analysis(mode)
    inputs = iter(fake_inputs(mode, sample_args))
    own: dict[int, int] = {}  # bytes of the storages that inputs came with
    with on_fakes(mode):
        for node in graph_module.graph.nodes:
            if node.op == "placeholder":
                effect = Effect(next(inputs))
            elif node.op == "output":
                continue
            else:
                effect = _run(node, analysis)
            effect.shows = {id(each): analysis.see(each) for each in tensors_in(effect.value)}
            analysis.effects[node] = effect
            if node.op == "placeholder":
                own |= {
                    each.storage: analysis.storages.held[each.storage].nbytes()
                    for each in effect.shows.values()
                }
        for number in (
            analysis.grown & own.keys()
        ):  # the storages of inputs are those of the caller's fakes
            analysis.storages.held[number].resize_(own[number])
    return analysis


def _run(node: fx.Node, analysis: Analysis) -> Effect:
    if node.op not in ("call_function", "get_attr"):
        raise Refused(
            f"{node.format_node()}: a {node.op} node is no ATen call; trace the module with make_fx first"
        )
    if node.op == "call_function":
        _check_target(node)
    written = written_tensors(node, lambda n: analysis.effects[n].value)
    before = [
        (each, analysis.storages.geometry(each), each.untyped_storage().nbytes())
        for each in written
    ]
    try:
        value = _out_call(node, analysis)
        if value is None:
            value = run_node(node, lambda n: analysis.effects[n].value, analysis.mode)
    except DataDependentOutputException as error:
        raise Refused(
            f"{node.target} depends on numbers ({error}), and a graph is one for all numbers"
        ) from error
    except DynamicOutputShapeException as error:
        raise Refused(f"the shape of what {node.target} returns depends on numbers") from error
    except RuntimeError as error:
        operands = (analysis.effects[each].value for each in node.all_input_nodes)
        if any(_depends_on_numbers(tensor) for each in operands for tensor in tensors_in(each)):
            raise Refused(
                f"{node.target} on a size that depends on numbers is not known to work: {error}"
            ) from error
        raise
    effect = Effect(value, copied=_copied_by_place(node, analysis))
    for tensor, geometry, nbytes in before:
        analysis.written.add(geometry.storage)
        if not analysis.storages.geometry(tensor).same(geometry):
            effect.moved[id(tensor)] = analysis.see(tensor)
        number, now = analysis.storages.number(tensor), tensor.untyped_storage().nbytes()
        if number == geometry.storage and not known(now == nbytes):
            analysis.grown.add(number)
            effect.grew[number] = now
    return effect


def _copied_by_place(node: fx.Node, analysis: Analysis) -> Geometry | None:
    """How `as_strided_copy` sees the storage of its operand; None for other calls.

    An operand with a lazy conjugate or negative bit is made a tensor of its own first, so that is
    no view of its storage.
    """
    if node.target is not torch.ops.aten.as_strided_copy.default:
        return None
    given = on_values(
        bind(node.target, node.args, node.kwargs), lambda n: analysis.effects[n].value
    )
    if given["self"].is_conj() or given["self"].is_neg():
        return None
    return analysis.see(torch.ops.aten.as_strided.default(*given.values()))


def _out_call(node: fx.Node, analysis: Analysis) -> Any:
    """What an `out=` call gives: the tensors passed for that, resized if need be; None for other calls."""
    op = node.target
    if not isinstance(op, OpOverload) or facts(op).outs != facts(op).writes or not facts(op).outs:
        return None
    args, kwargs = on_values((node.args, node.kwargs), lambda n: analysis.effects[n].value)
    given = bind(op, args, kwargs)
    outs = list(tensors_in([given[name] for name in facts(op).outs]))
    places = [
        torch.empty_strided(each.shape, each.stride(), dtype=each.dtype, device=each.device)
        for each in outs
    ]
    numbers = iter(places)
    stand_in = {
        name: map_aggregate(given[name], lambda _: next(numbers)) for name in facts(op).outs
    }
    args, kwargs = unbind(op, given | stand_in)
    op(*args, **kwargs)  # raises what eager would
    after = outs_after(op, given)
    if after is None:
        if any(known(place.shape != each.shape) for place, each in zip(places, outs, strict=True)):
            raise Refused(
                f"{op} resizes its out=, and without a functional form it is not known how"
            )
    else:
        for each, lies in zip(outs, after, strict=True):
            if tuple(each.shape) != lies.sizes:
                each.resize_(lies.sizes).as_strided_(
                    lies.sizes, lies.strides, each.storage_offset()
                )
    if not op._schema.returns:
        return ()
    return given[facts(op).outs[0]] if len(facts(op).outs) == 1 else tuple(outs)


def _depends_on_numbers(tensor: torch.Tensor) -> bool:
    sizes: tuple[Any, ...] = tuple(tensor.shape)
    return any(isinstance(each, torch.SymInt) and not each.node.has_hint() for each in sizes)


def written_tensors(node: fx.Node, value: Callable[[fx.Node], Any]) -> list[torch.Tensor]:
    """The tensors that a node writes to, by its schema."""
    if not isinstance(node.target, OpOverload) or not facts(node.target).writes:
        return []
    given = bind(node.target, node.args, node.kwargs)
    found: list[torch.Tensor] = []
    for name in facts(node.target).writes:
        found.extend(tensors_in(on_values(given.get(name), value)))
    return found


def _check_target(node: fx.Node) -> None:
    target = node.target
    if isinstance(target, OpOverload) or target is on_copies or target is operator.getitem:
        return
    if target in _ARITHMETIC:
        return
    raise Refused(
        f"{node.format_node()}: {target} is no ATen operator; what it reads and writes is unknown"
    )


_ARITHMETIC = {
    operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod, operator.neg, operator.truediv,
    operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge, operator.and_, operator.or_, operator.pow,
    min, max, torch.sym_sum,
    torch.sym_float, torch.sym_int, torch.sym_ite, torch.sym_max, torch.sym_min, torch.sym_not, torch.sym_sqrt,
}  # fmt: skip
