"""From a function, a module, or any graph module, to a graph of ATen calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import torch
from torch import fx
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException, FakeTensor
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.utils._python_dispatch import TorchDispatchMode

from reference_pass.alias_analysis import storage_of, tensors_in
from reference_pass.errors import Refused
from reference_pass.operators import aten, bind, facts, on_copies

Sizes = Literal["fixed", "symbolic"]


def capture(function: Callable[..., Any], sample_args: Sequence[object], sizes: Sizes = "fixed") -> fx.GraphModule:
    """The ATen calls of a function as a graph, mutation included. A graph of ATen calls is taken as it is.

    The function is traced on fake tensors, so the sample arguments, and the parameters and buffers of a module, are not
    written while it is. Raises `Refused` for a function that writes to other tensors than these: such a write would be done
    by the trace already.
    """
    if isinstance(function, fx.GraphModule) and is_aten(function):
        return function
    sample_args = [each.detach() if isinstance(each, torch.Tensor) else each for each in sample_args]
    if not isinstance(function, torch.nn.Module):
        return _trace(function, sample_args, sizes)
    held = dict(function.named_parameters(remove_duplicate=False)) | dict(function.named_buffers(remove_duplicate=False))
    module = function

    def called(*tensors_and_args: Any) -> Any:
        given = dict(zip(held, tensors_and_args, strict=False))
        return torch.func.functional_call(module, given, tensors_and_args[len(held) :])

    traced = _trace(called, [*(each.detach() for each in held.values()), *sample_args], sizes)
    return _with_attributes(traced, held)


def _trace(function: Callable[..., Any], args: Sequence[object], sizes: Sizes) -> fx.GraphModule:
    mode: Literal["symbolic", "fake"] = "symbolic" if sizes == "symbolic" else "fake"
    views = torch._C.DispatchKeySet(torch._C.DispatchKey.ADInplaceOrView)  # see `on_fakes`
    with torch.no_grad(), torch._C._ExcludeDispatchKeyGuard(views), _NothingWritten():
        swapped: list[int] = []
        watched = _watch_data(function, swapped)
        trace = make_fx(watched, decomposition_table=HONEST, tracing_mode=mode, _allow_non_fake_inputs=True)
        try:
            graph_module = trace(*args)
        except (DataDependentOutputException, DynamicOutputShapeException, GuardOnDataDependentSymNode) as error:
            raise Refused(f"the function goes by numbers, and its graph is to serve all: {error}") from error
        except (NotImplementedError, SyntaxError) as error:  # storages as arguments; an overload named `from`
            raise Refused(f"the function cannot be traced: {error}") from error
    if swapped and not any(getattr(node.target, "overloadpacket", None) is aten.set_ for node in graph_module.graph.nodes):
        raise Refused(f"`x.data = y` on input {swapped[0]} goes past the dispatcher and cannot be traced; write x.set_(y)")
    return graph_module


def _watch_data(function: Callable[..., Any], swapped: list[int]) -> Callable[..., Any]:
    """The function; the places of inputs that have another storage at its end are noted in `swapped`."""

    def watched(*args: Any) -> Any:
        before = [each.untyped_storage() if isinstance(each, torch.Tensor) else None for each in args]
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
    """Refuses writes to tensors that were there before. It lies below the trace, which runs what has constants only."""

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()
        self.made: dict[int, torch.UntypedStorage] = {}  # held, so that its number stays its own

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not isinstance(func, OpOverload):
            raise Refused(f"{func} is a higher-order operator; what its branches write is not looked at")
        given = bind(func, args, kwargs or {})
        for tensor in _real_tensors(given.get(name) for name in facts(func).writes):
            if storage_of(tensor) not in self.made:
                raise Refused(
                    f"{func} writes to a tensor of size {list(tensor.shape)} that the function did not get as an argument;"
                    " pass it as an argument, or pass the module that holds it as the function"
                )
        result = func(*args, **(kwargs or {}))
        self.made |= {storage_of(each): each.untyped_storage() for each in _real_tensors([result])}
        return result


def _real_tensors(values: Iterable[object]) -> list[torch.Tensor]:
    found = [tensor for value in values for tensor in tensors_in(value)]
    return [each for each in found if not isinstance(each, FakeTensor) and each.device.type != "meta"]


def is_aten(graph_module: fx.GraphModule) -> bool:
    """True if all calls are ATen calls (or pick their results, or are arithmetic on sizes)."""
    return all(
        node.op in ("placeholder", "get_attr", "output") or (node.op == "call_function" and _is_call(node.target))
        for node in graph_module.graph.nodes
    )


def _is_call(target: object) -> bool:
    return isinstance(target, OpOverload) or target is on_copies or getattr(target, "__module__", "") == "_operator"


# --- operators whose schemas hide a mutation ---------------------------------------------------------------------------


def _batch_norm(x: torch.Tensor, weight: Any, bias: Any, mean: Any, var: Any, training: bool, *numbers: float) -> Any:
    """`native_batch_norm` updates the running statistics and does not say so; `_native_batch_norm_legit` does."""
    if training and mean is not None and var is not None:
        return aten._native_batch_norm_legit.default(x, weight, bias, mean, var, training, *numbers)
    return NotImplemented


HONEST: dict[Any, Callable[..., Any]] = {aten.native_batch_norm.default: _batch_norm}
