"""From a function, a module, or any graph module, to a graph of ATen calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import torch
from torch import fx
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
)
from torch.fx.experimental.proxy_tensor import disable_proxy_modes_tracing, get_proxy_mode, make_fx
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from reference_pass.alias_analysis import storage_of
from reference_pass.exceptions import Refused
from reference_pass.fakes import TRUE, OutLayout, outs_after, true_result
from reference_pass.operator_forms import aten, bind, facts, on_copies, tensors_in, unbind
from reference_pass.regions import known, same_strides

Sizes = Literal["fixed", "symbolic"]


def capture(
    function: Callable[..., Any], sample_args: Sequence[object], sizes: Sizes = "fixed"
) -> fx.GraphModule:
    """The ATen calls of a function as a graph, mutation included. A graph of ATen calls is taken as it is, or `normalised`.

    The function is traced on fake tensors, so the sample arguments, and the parameters and buffers
    of a module, are not written while it is. Raises `Refused` for a function that writes to other
    tensors than these: such a write would be done by the trace already.
    """
    if isinstance(function, fx.GraphModule) and is_aten(function):
        return normalised(function)
    sample_args = [
        each.detach() if isinstance(each, torch.Tensor) else each for each in sample_args
    ]
    if not isinstance(function, torch.nn.Module):
        return _trace(function, sample_args, sizes)
    held = dict(function.named_parameters(remove_duplicate=False)) | dict(
        function.named_buffers(remove_duplicate=False)
    )
    module = function

    def called(*tensors_and_args: Any) -> Any:
        given = dict(zip(held, tensors_and_args, strict=False))
        return torch.func.functional_call(module, given, tensors_and_args[len(held) :])

    traced = _trace(called, [*(each.detach() for each in held.values()), *sample_args], sizes)
    return _with_attributes(traced, held)


def _trace(function: Callable[..., Any], args: Sequence[object], sizes: Sizes) -> fx.GraphModule:
    mode: Literal["symbolic", "fake"] = "symbolic" if sizes == "symbolic" else "fake"
    views = torch._C.DispatchKeySet(torch._C.DispatchKey.ADInplaceOrView)  # see `on_fakes`
    with (
        torch.no_grad(),
        torch._C._ExcludeDispatchKeyGuard(views),
        _NothingWritten(),
        _AsOnNumbers(),
    ):
        swapped: list[int] = []
        watched = _watch_data(function, swapped)
        trace = make_fx(
            watched, decomposition_table=HONEST, tracing_mode=mode, _allow_non_fake_inputs=True
        )
        try:
            graph_module = trace(*args)
        except (
            DataDependentOutputException,
            DynamicOutputShapeException,
            GuardOnDataDependentSymNode,
        ) as error:
            raise Refused(
                f"the function goes by numbers, and its graph is to serve all: {error}"
            ) from error
        except (
            NotImplementedError,
            SyntaxError,
        ) as error:  # storages as arguments; an overload named `from`
            raise Refused(f"the function cannot be traced: {error}") from error
    if swapped and not any(
        getattr(node.target, "overloadpacket", None) is aten.set_
        for node in graph_module.graph.nodes
    ):
        raise Refused(
            f"`x.data = y` on input {swapped[0]} goes past the dispatcher and cannot be traced; write x.set_(y)"
        )
    return graph_module


def _watch_data(function: Callable[..., Any], swapped: list[int]) -> Callable[..., Any]:
    """The function; the places of inputs that have another storage at its end are noted in `swapped`."""

    def watched(*args: Any) -> Any:
        before = [
            each.untyped_storage() if isinstance(each, torch.Tensor) else None for each in args
        ]
        result = function(*args)
        for place, (tensor, storage) in enumerate(zip(args, before, strict=True)):
            if storage is not None and tensor.untyped_storage()._cdata != storage._cdata:
                swapped.append(place)
        return result

    return watched


def _with_attributes(traced: fx.GraphModule, held: dict[str, torch.Tensor]) -> fx.GraphModule:
    """The graph with its first inputs, the parameters and buffers of a module, as attributes."""
    graph = traced.graph
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    for index, (node, tensor) in enumerate(zip(placeholders, held.values(), strict=False)):
        name = f"held_{index}"
        if isinstance(tensor, torch.nn.Parameter):
            traced.register_parameter(name, tensor)
        else:
            traced.register_buffer(name, tensor)
        with graph.inserting_before(node):
            attribute = graph.get_attr(name)
        node.replace_all_uses_with(attribute)
        graph.erase_node(node)
    traced.recompile()
    return traced


class _NothingWritten(TorchDispatchMode):
    """Refuses writes to tensors that were there before, and makes the fakes of the trace true, which it lies around."""

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()
        self.made: dict[int, torch.UntypedStorage] = {}  # held, so that its number stays its own

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not isinstance(func, OpOverload):
            raise Refused(
                f"{func} is a higher-order operator; what its branches write is not looked at"
            )
        given = bind(func, args, kwargs or {})
        for tensor in _real_tensors(given.get(name) for name in facts(func).writes):
            if storage_of(tensor) not in self.made:
                raise Refused(
                    f"{func} writes to a tensor of size {list(tensor.shape)} that the function did not get as an argument;"
                    " pass it as an argument, or pass the module that holds it as the function"
                )
        after = _outs_after(func, given)
        result = func(*args, **(kwargs or {}))
        _make_true(func, args, kwargs or {}, result)
        if after is not None:
            _lay_out(_outs(func, given), after)
        self.made |= {storage_of(each): each.untyped_storage() for each in _real_tensors([result])}
        return result


class _AsOnNumbers(TorchFunctionMode):
    """Lays out what composite functions give as they do for tensors that are no fakes: for these they go another way."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        return result.contiguous() if func in _CONTIGUOUS else result


# Composites that make a contiguous tensor in eager, and on fakes go by the strides of their
# operand.
_CONTIGUOUS = {torch._C._nn.one_hot}


def _make_true(op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
    """Lay out the fake results of a traced call as in eager.

    They stay the objects that the trace knows.
    """
    if op not in TRUE or get_proxy_mode() is None:
        return
    with disable_proxy_modes_tracing():
        true = true_result(op, args, kwargs, result)
        for each, other in zip(tensors_in(result), tensors_in(true), strict=True):
            placed = known(each.storage_offset() == other.storage_offset())
            if not placed or not same_strides(tuple(each.shape), each.stride(), other.stride()):
                aten.set_.source_Tensor(each, other)


def _outs_after(op: OpOverload, given: dict[str, Any]) -> list[OutLayout] | None:
    """How the fake `out=` tensors of a traced call are to lie after it; None if it has none, or that is not known."""
    if not facts(op).outs or facts(op).outs != facts(op).writes or get_proxy_mode() is None:
        return None
    if not all(isinstance(each, FakeTensor) for each in _outs(op, given)):
        return None
    with disable_proxy_modes_tracing():
        return outs_after(op, given)


def _outs(op: OpOverload, given: dict[str, Any]) -> list[torch.Tensor]:
    return list(tensors_in([given[name] for name in facts(op).outs]))


def _lay_out(outs: Sequence[torch.Tensor], after: Sequence[OutLayout]) -> None:
    with disable_proxy_modes_tracing():
        for each, lies in zip(outs, after, strict=True):
            if len(each.shape) != len(lies.sizes) or not same_strides(
                lies.sizes, each.stride(), lies.strides
            ):
                each.resize_(lies.sizes).as_strided_(
                    lies.sizes, lies.strides, each.storage_offset()
                )


def _real_tensors(values: Iterable[object]) -> list[torch.Tensor]:
    found = [tensor for value in values for tensor in tensors_in(value)]
    return [
        each for each in found if not isinstance(each, FakeTensor) and each.device.type != "meta"
    ]


def is_aten(graph_module: fx.GraphModule) -> bool:
    """True if all calls are ATen calls (or pick their results, or are arithmetic on sizes)."""
    return all(
        node.op in ("placeholder", "get_attr", "output")
        or (node.op == "call_function" and _is_call(node.target))
        for node in graph_module.graph.nodes
    )


def _is_call(target: object) -> bool:
    return (
        isinstance(target, OpOverload)
        or target is on_copies
        or getattr(target, "__module__", "") == "_operator"
    )


# --- graphs of ATen calls -------------------------------------------------------------------------


def normalised(graph_module: fx.GraphModule) -> fx.GraphModule:
    """The graph with arguments by position where the schema has them so, and with calls that say what they write.

    It is the given one if there is nothing to change in it, else a copy. Raises `Refused` for calls
    that hide what they write and have no such form.
    """
    if not any(_changed(node) for node in graph_module.graph.nodes):
        return graph_module
    copy = fx.Graph()
    copy.output(copy.graph_copy(graph_module.graph, {}))
    for node in copy.nodes:
        if (changed := _changed(node)) is not None:
            node.target, node.args, node.kwargs = changed
    return fx.GraphModule(graph_module, copy)


def _changed(node: fx.Node) -> tuple[OpOverload, tuple[Any, ...], dict[str, Any]] | None:
    """A call as it is to be in the graph; None if it is so."""
    op = node.target
    if not isinstance(op, OpOverload) or not (op in _UPDATES or node.kwargs):
        return None
    given = bind(op, node.args, node.kwargs)
    if op in _UPDATES and _updates(op, given):
        if op is not aten.native_batch_norm.default:
            raise Refused(
                f"{node.format_node()} updates statistics, and its schema does not say so; use native_batch_norm"
            )
        return aten._native_batch_norm_legit.default, *unbind(
            aten._native_batch_norm_legit.default, given
        )
    by_position = {each.name for each in op._schema.arguments if not each.kwarg_only}
    return (op, *unbind(op, given)) if by_position & node.kwargs.keys() else None


# --- operators whose schemas hide a mutation ------------------------------------------------------

# By name the arguments that say whether an op updates the statistics that it got.
_UPDATES: dict[OpOverload, str] = {
    aten.native_batch_norm.default: "training",
    aten.batch_norm.default: "training",
    aten._batch_norm_impl_index.default: "training",
    aten.cudnn_batch_norm.default: "training",
    aten.miopen_batch_norm.default: "training",
    aten.instance_norm.default: "use_input_stats",
}


def _updates(op: OpOverload, given: dict[str, Any]) -> bool:
    statistics = (given.get("running_mean"), given.get("running_var"))
    return bool(given[_UPDATES[op]]) and any(each is not None for each in statistics)


def _batch_norm(
    x: torch.Tensor, weight: Any, bias: Any, mean: Any, var: Any, training: bool, *numbers: float
) -> Any:
    """`native_batch_norm` updates the running statistics and does not say so; `_native_batch_norm_legit` does."""
    if training and mean is not None and var is not None:
        return aten._native_batch_norm_legit.default(x, weight, bias, mean, var, training, *numbers)
    return NotImplemented


def _dropout(x: torch.Tensor, probability: float, train: bool | None) -> Any:
    """`native_dropout` returns a new tensor; its fake kernel hands back the operand where nothing is dropped."""
    drawn = train is None or train
    if x.numel() == 0 or (drawn and probability != 0):
        return NotImplemented
    if not drawn:
        return x.clone(), torch.ones_like(x, dtype=torch.bool)
    mask = torch.empty_like(x, dtype=torch.bool).bernoulli_(1 - probability)
    return x.mul(mask).mul_(1.0), mask


HONEST: dict[Any, Callable[..., Any]] = {
    aten.native_batch_norm.default: _batch_norm,
    aten.native_dropout.default: _dropout,
}
