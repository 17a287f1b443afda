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
from reference_pass.fake_corrections import CORRECTIONS, OutLayout, out_layouts, true_result
from reference_pass.nested import tensors_in
from reference_pass.operator_forms import aten, bind, facts, on_copies, unbind, writes_outs_alone
from reference_pass.regions import known, same_strides

SizeMode = Literal["fixed", "symbolic"]


def capture(
    function: Callable[..., Any], sample_args: Sequence[object], sizes: SizeMode = "fixed"
) -> fx.GraphModule:
    """The ATen calls of a function as a graph, mutation included.

    A graph of ATen calls is returned as it is, or `normalised`. Any other function is traced on
    fake tensors. So the trace does not write the sample arguments, nor the parameters and buffers
    of a module. Raises `Refused` for a function that writes other tensors than these: the trace
    itself would do such a write.
    """
    if isinstance(function, fx.GraphModule) and is_aten(function):
        return normalised(function)
    sample_args = [
        argument.detach() if isinstance(argument, torch.Tensor) else argument
        for argument in sample_args
    ]
    if not isinstance(function, torch.nn.Module):
        return _trace(function, sample_args, sizes)
    # The tensors of a module become inputs of the trace, and attributes of the graph after it.
    captured = dict(function.named_parameters(remove_duplicate=False)) | dict(
        function.named_buffers(remove_duplicate=False)
    )
    module = function

    # `functional_call` lets the module run on the fakes of the trace instead of its own tensors.
    def called(*tensors_and_args: Any) -> Any:
        given = dict(zip(captured, tensors_and_args, strict=False))
        return torch.func.functional_call(module, given, tensors_and_args[len(captured) :])

    tensors = [tensor.detach() for tensor in captured.values()]
    return _with_attributes(_trace(called, [*tensors, *sample_args], sizes), captured)


# What torch raises where a fake tensor would need data.
_DATA_DEPENDENT = (
    DataDependentOutputException,
    DynamicOutputShapeException,
    GuardOnDataDependentSymNode,
)


def _trace(function: Callable[..., Any], args: Sequence[object], sizes: SizeMode) -> fx.GraphModule:
    mode: Literal["symbolic", "fake"] = "symbolic" if sizes == "symbolic" else "fake"
    views = torch._C.DispatchKeySet(torch._C.DispatchKey.ADInplaceOrView)  # see `on_fakes`
    with (
        torch.no_grad(),
        torch._C._ExcludeDispatchKeyGuard(views),
        _TraceGuard(),
        _CompositesAsInEager(),
    ):
        # `x.data = y` goes past all modes; it only shows in the storage that x ends on.
        swapped: list[int] = []
        watched = _watch_data(function, swapped)
        trace = make_fx(
            watched,
            decomposition_table=DECOMPOSITIONS,
            tracing_mode=mode,
            _allow_non_fake_inputs=True,
        )
        try:
            graph_module = trace(*args)
        except _DATA_DEPENDENT as error:
            raise Refused(
                f"the function is data-dependent, and one graph must be right for all data: {error}"
            ) from error
        # Storages as arguments; an overload that is named `from`, which is no Python name.
        except (NotImplementedError, SyntaxError) as error:
            raise Refused(f"the function cannot be traced: {error}") from error
    # `set_` is a call in the graph. An assignment to `.data` leaves no call, so it would be lost.
    if swapped and not any(
        getattr(node.target, "overloadpacket", None) is aten.set_
        for node in graph_module.graph.nodes
    ):
        raise Refused(
            f"`x.data = y` on input {swapped[0]} goes past the dispatcher and cannot be traced;"
            " write x.set_(y)"
        )
    return graph_module


def _watch_data(function: Callable[..., Any], swapped: list[int]) -> Callable[..., Any]:
    """The function; it adds to `swapped` the index of each input that ends on another storage."""

    def watched(*args: Any) -> Any:
        # The storages themselves are kept, so that no new storage gets the address of one of them.
        before = [
            argument.untyped_storage() if isinstance(argument, torch.Tensor) else None
            for argument in args
        ]
        result = function(*args)
        for index, (argument, storage) in enumerate(zip(args, before, strict=True)):
            if storage is not None and argument.untyped_storage()._cdata != storage._cdata:
                swapped.append(index)
        return result

    return watched


def _with_attributes(traced: fx.GraphModule, captured: dict[str, torch.Tensor]) -> fx.GraphModule:
    """The graph with its first inputs, the parameters and buffers of a module, as attributes."""
    # So the graph has the same inputs as the module, and sees later changes of its parameters.
    graph = traced.graph
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    for index, (node, tensor) in enumerate(zip(placeholders, captured.values(), strict=False)):
        name = f"captured_{index}"  # its own name may have dots, which a module refuses
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


# --- modes around the trace -----------------------------------------------------------------------


class _TraceGuard(TorchDispatchMode):
    """Refuses writes to tensors from outside of the trace, and corrects fake results in it."""

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()
        # Storages made during the trace. They are kept alive, so that no address is used twice.
        self.made: dict[int, torch.UntypedStorage] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not isinstance(func, OpOverload):
            raise Refused(
                f"{func} is a higher-order operator; what its branches write is not analysed"
            )
        given = bind(func, args, kwargs or {})
        for tensor in _real_tensors(given.get(name) for name in facts(func).writes):
            if storage_of(tensor) not in self.made:
                raise Refused(
                    f"{func} writes to a tensor of size {list(tensor.shape)} that the function did"
                    " not get as an argument; pass it as an argument, or pass its module as the"
                    " function"
                )
        # Asked before the call, which may already give the fakes a wrong layout.
        layouts = _out_layouts(func, given)
        result = func(*args, **(kwargs or {}))
        _correct(func, args, kwargs or {}, result)
        if layouts is not None:
            _set_layouts(_outs(func, given), layouts)
        self.made |= {
            storage_of(tensor): tensor.untyped_storage() for tensor in _real_tensors([result])
        }
        return result


class _CompositesAsInEager(TorchFunctionMode):
    """Gives results of composite functions the layout that they have for tensors with data.

    On fakes, these functions take another branch.
    """

    # A composite is not seen by `_TraceGuard`, which gets only the operators that it calls.
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        return result.contiguous() if func in _CONTIGUOUS else result


# Composites whose result is contiguous in eager. On fakes its strides depend on the operand.
_CONTIGUOUS = {torch._C._nn.one_hot}


def _correct(op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
    """Give the fake results of a traced call the layout of eager.

    The tensors stay the objects that the trace knows.
    """
    if op not in CORRECTIONS or get_proxy_mode() is None:
        return
    # The corrections call operators, and those are not calls of the function.
    with disable_proxy_modes_tracing():
        true = true_result(op, args, kwargs, result)
        for wrong, right in zip(tensors_in(result), tensors_in(true), strict=True):
            same_offset = known(wrong.storage_offset() == right.storage_offset())
            if not same_offset or not same_strides(
                tuple(wrong.shape), wrong.stride(), right.stride()
            ):
                aten.set_.source_Tensor(wrong, right)


def _out_layouts(op: OpOverload, given: dict[str, Any]) -> list[OutLayout] | None:
    """The layouts of the fake `out=` tensors after a traced call; None for other calls.

    Also None if the op has no functional form that tells them.
    """
    if not writes_outs_alone(op) or get_proxy_mode() is None:
        return None
    if not all(isinstance(out, FakeTensor) for out in _outs(op, given)):
        return None
    with disable_proxy_modes_tracing():
        return out_layouts(op, given)


def _outs(op: OpOverload, given: dict[str, Any]) -> list[torch.Tensor]:
    return tensors_in([given[name] for name in facts(op).outs])


def _set_layouts(outs: Sequence[torch.Tensor], layouts: Sequence[OutLayout]) -> None:
    with disable_proxy_modes_tracing():
        for out, layout in zip(outs, layouts, strict=True):
            if len(out.shape) != len(layout.sizes) or not same_strides(
                layout.sizes, out.stride(), layout.strides
            ):
                out.resize_(layout.sizes).as_strided_(
                    layout.sizes, layout.strides, out.storage_offset()
                )


def _real_tensors(values: Iterable[object]) -> list[torch.Tensor]:
    found = [tensor for value in values for tensor in tensors_in(value)]
    # A trace makes fakes; what is not fake was there before, or is a constant of the function.
    return [
        tensor
        for tensor in found
        if not isinstance(tensor, FakeTensor) and tensor.device.type != "meta"
    ]


# --- graphs of ATen calls -------------------------------------------------------------------------


def is_aten(graph_module: fx.GraphModule) -> bool:
    """True if all calls are ATen calls, or pick their results, or are arithmetic on sizes."""
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


def normalised(graph_module: fx.GraphModule) -> fx.GraphModule:
    """The graph with arguments by position where possible, and with calls that say what they write.

    Returns the given graph module if there is nothing to change, else a copy. Raises `Refused` for
    a call that hides what it writes and has no form that says it.
    """
    if not any(_changed(node) for node in graph_module.graph.nodes):
        return graph_module
    copy = fx.Graph()  # the caller's graph stays as it is
    copy.output(copy.graph_copy(graph_module.graph, {}))
    # By position, since the passes take the first argument for the base of a view or a scatter.
    for node in copy.nodes:
        if (changed := _changed(node)) is not None:
            node.target, node.args, node.kwargs = changed
    return fx.GraphModule(graph_module, copy)


def _changed(node: fx.Node) -> tuple[OpOverload, tuple[Any, ...], dict[str, Any]] | None:
    """The call that replaces a node's call; None if there is nothing to change."""
    op = node.target
    if not isinstance(op, OpOverload) or not (op in _UPDATES or node.kwargs):
        return None
    given = bind(op, node.args, node.kwargs)
    # Such a call would look functional to every pass, and its update would be reordered or lost.
    if op in _UPDATES and _updates(op, given):
        if op is not aten.native_batch_norm.default:
            raise Refused(
                f"{node.format_node()} updates statistics, and its schema does not say so;"
                " use native_batch_norm"
            )
        return aten._native_batch_norm_legit.default, *unbind(
            aten._native_batch_norm_legit.default, given
        )
    by_position = {argument.name for argument in op._schema.arguments if not argument.kwarg_only}
    return (op, *unbind(op, given)) if by_position & node.kwargs.keys() else None


# --- operators whose schemas hide a mutation ------------------------------------------------------

# The name of the argument that says whether an op updates the statistics that it is given.
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
    return bool(given[_UPDATES[op]]) and any(tensor is not None for tensor in statistics)


def _batch_norm(
    x: torch.Tensor,
    weight: Any,
    bias: Any,
    mean: Any,
    var: Any,
    training: bool,
    *momentum_and_eps: float,
) -> Any:
    """`native_batch_norm` hides that it updates statistics; `_native_batch_norm_legit` does not."""
    # NotImplemented leaves the call as it is: without statistics there is nothing to hide.
    if training and mean is not None and var is not None:
        return aten._native_batch_norm_legit.default(
            x, weight, bias, mean, var, training, *momentum_and_eps
        )
    return NotImplemented


def _dropout(x: torch.Tensor, probability: float, train: bool | None) -> Any:
    """`native_dropout` returns a new tensor; its fake kernel may hand the operand back.

    It does so where nothing is dropped, so this is only for that case.
    """
    drops = train is None or train
    if x.numel() == 0 or (drops and probability != 0):
        return NotImplemented
    if not drops:
        return x.clone(), torch.ones_like(x, dtype=torch.bool)
    # Eager draws a mask for a probability of zero, too, which advances the generator.
    mask = torch.empty_like(x, dtype=torch.bool).bernoulli_(1 - probability)
    return x.mul(mask).mul_(1.0), mask


# Decompositions into operators whose schemas, and fake kernels, say what happens.
DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {
    aten.native_batch_norm.default: _batch_norm,
    aten.native_dropout.default: _dropout,
}
