"""From a function, a module, or any graph module, to a graph of ATen calls."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal

import torch
from torch import fx
from torch._higher_order_ops.auto_functionalize import (
    auto_functionalized_dense,
    auto_functionalized_v2_dense,
)
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    UnsupportedOperatorException,
)
from torch.fx.experimental.proxy_tensor import disable_proxy_modes_tracing, get_proxy_mode, make_fx
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from reference_pass.alias_analysis import storage_of
from reference_pass.aten_graphs import DECOMPOSITIONS, composites_of_eager, is_aten, normalised
from reference_pass.control_flow_calls import CONTROL_FLOW
from reference_pass.emission import contiguous_strides
from reference_pass.exceptions import Refused
from reference_pass.fake_corrections import CORRECTIONS, OutLayout, out_layouts, true_result
from reference_pass.fake_execution import another_fake, refuse_without_regions
from reference_pass.nested import leaves_in, tensors_in
from reference_pass.operator_forms import aten, bind, facts, writes_outs_alone
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
    if isinstance(function, fx.GraphModule) and is_aten(function, sample_args):
        return normalised(function)
    sample_args = [_without_graph(argument) for argument in sample_args]
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

    tensors = [_without_graph(tensor) for tensor in captured.values()]
    return _with_attributes(_trace(called, [*tensors, *sample_args], sizes), captured)


def _without_graph(argument: object) -> Any:
    """An argument of the trace: a tensor as a leaf, so that the trace reaches no other graph."""
    if not isinstance(argument, torch.Tensor):
        return argument
    leaf = another_fake(argument) if isinstance(argument, FakeTensor) else argument.detach()
    # Some composites ask whether an operand requires a gradient: `matmul` folds other dimensions.
    # With gradients, the trace would be one of autograd, too, and writes to leaves would raise.
    keeps = argument.requires_grad and not torch.is_grad_enabled()
    return leaf.requires_grad_() if keeps else leaf


# What torch raises where a fake tensor would need data.
_DATA_DEPENDENT = (
    DataDependentOutputException,
    DynamicOutputShapeException,
    GuardOnDataDependentSymNode,
)


def _trace(function: Callable[..., Any], args: Sequence[object], sizes: SizeMode) -> fx.GraphModule:
    for argument in args:
        refuse_without_regions(argument)
    mode: Literal["symbolic", "fake"] = "symbolic" if sizes == "symbolic" else "fake"
    # Gradients are as the caller has them, since the function may take some (`torch.func.grad`).
    # They need autograd's record of views, so nothing is excluded here as in `on_fakes`.
    seeds = _Seeds()
    with _TraceGuard(seeds), _PythonGuard(), composites_of_eager():
        # `x.data = y` goes past all modes; it only shows in the storage that x ends on.
        swapped: list[int] = []
        watched = _watch_data(function, swapped)
        trace = make_fx(
            watched,
            decomposition_table=DECOMPOSITIONS,
            tracing_mode=mode,
            _allow_non_fake_inputs=True,
        )
        with _reasons():
            graph_module = trace(*args)
    seeds.refuse()
    # `set_` is a call in the graph. An assignment to `.data` leaves no call, so it would be lost.
    if swapped and not any(
        getattr(node.target, "overloadpacket", None) is aten.set_
        for node in graph_module.graph.nodes
    ):
        raise Refused(
            f"`x.data = y` on input {swapped[0]} goes past the dispatcher and cannot be traced;"
            " write x.set_(y)"
        )
    _ask_sizes_at_once(graph_module.graph)
    return graph_module


def without_fake_kernel(error: UnsupportedOperatorException) -> str:
    """What to tell of an operator that fakes run on real zeros, which need sizes as numbers."""
    return (
        f"{error} has no kernel for tensors without data of symbolic size; trace it with fixed"
        " sizes"
    )


def _ask_sizes_at_once(graph: fx.Graph) -> None:
    """Move each question for a size to where its tensor is made.

    The trace emits it at the first use of the size. A call may have changed the metadata by then:
    after `x.unsqueeze_(0)`, the first size of `x` is another one.
    """
    first = next(node for node in graph.nodes if node.op != "placeholder")
    for node in list(graph.nodes):
        if node.target in _SIZE_QUESTIONS:
            tensor = node.args[0]
            if tensor.op != "placeholder":
                tensor.append(node)
            elif node is not first:
                first.prepend(node)
    graph.lint()


_SIZE_QUESTIONS = {
    *(aten.sym_size.int, aten.sym_stride.int),
    *(aten.sym_numel.default, aten.sym_storage_offset.default),
}


@contextlib.contextmanager
def _reasons() -> Iterator[None]:
    """Turns what torch raises where it cannot trace into `Refused`, with a reason for users."""
    try:
        yield
    except _DATA_DEPENDENT as error:
        raise Refused(
            f"the function is data-dependent, and one graph must be right for all data: {error}"
        ) from error
    except UnsupportedOperatorException as error:
        raise Refused(without_fake_kernel(error)) from error
    # Storages as arguments; an overload that is named `from`, which is no Python name.
    except (NotImplementedError, SyntaxError) as error:
        raise Refused(f"the function cannot be traced: {error}") from error
    except RuntimeError as error:
        if "tried to directly modify sizes" not in str(error):
            raise
        raise Refused(
            "a resize_ of a tensor of symbolic size cannot be traced; trace it with fixed sizes"
        ) from error


class _Seeds:
    """Refuses a trace that seeds the default generator: the call leaves no node in the graph."""

    # AOTAutograd compiles in a fake mode, which would give the state no data.
    def __init__(self) -> None:
        with _disable_current_modes():
            self.before = torch.get_rng_state()

    def refuse(self) -> None:
        """Raise `Refused` if the state has changed. Fakes draw no numbers, so only a seed does."""
        with _disable_current_modes():
            if torch.equal(self.before, torch.get_rng_state()):
                return
            torch.set_rng_state(self.before)
        raise Refused(
            "the function seeds the default generator, which a graph cannot do; seed it before"
        )


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
            if storage is not None and argument.grad is not None:
                raise Refused(f"backward() sets the gradient of input {index}; return it instead")
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

    def __init__(self, seeds: _Seeds) -> None:
        super().__init__()
        self.seeds = seeds
        # Storages made during the trace. They are kept alive, so that no address is used twice.
        self.made: dict[int, torch.UntypedStorage] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _UNFOLDED:
            with self:  # what it calls is seen, too
                return _UNFOLDED[func](*args, **(kwargs or {}))
        if func in CONTROL_FLOW:
            return func(*args, **(kwargs or {}))
        if not isinstance(func, OpOverload):
            raise Refused(
                f"{func} is a higher-order operator; what its branches write is not analysed"
            )
        # A function may seed, draw, and restore the state (`torch.random.fork_rng`).
        if facts(func).random:
            self.seeds.refuse()
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
        for leaf in leaves_in((args, kwargs, result)):
            refuse_without_regions(leaf)
        _correct(func, args, kwargs or {}, result)
        if layouts is not None:
            _set_layouts(_outs(func, given), layouts)
        self.made |= {
            storage_of(tensor): tensor.untyped_storage() for tensor in _real_tensors([result])
        }
        return result


def _without_token(token: Any, op: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The call of an op with an effect. The passes keep the order of such calls without tokens."""
    result = op(*args, **kwargs)
    return (token, *result) if isinstance(result, tuple) else (token, result)


# Higher-order operators that AOTAutograd wraps around single calls.
_UNFOLDED: dict[object, Callable[..., Any]] = {
    torch.ops.higher_order.with_effects: _without_token,
    torch.ops.higher_order.auto_functionalized: auto_functionalized_dense,
    torch.ops.higher_order.auto_functionalized_v2: auto_functionalized_v2_dense,
}


class _PythonGuard(TorchFunctionMode):
    """Refuses explicit generators, and corrects composite functions.

    On fakes, some of these functions take another branch than on tensors with data.
    """

    # A composite is not seen by `_TraceGuard`, which gets only the operators that it calls.
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        # The graph would keep the generator that the trace has seen. If the function makes or seeds
        # it, each call of the graph would draw other numbers.
        if any(isinstance(leaf, torch.Generator) for leaf in leaves_in((args, kwargs))):
            raise Refused(
                f"{func} draws from an explicit generator, whose state is no part of a graph; use"
                " the default generator, or draw the numbers before and pass them"
            )
        if func is aten.set_.source_Tensor_storage_offset:
            return _set_by_a_view(*args, **(kwargs or {}))
        result = func(*args, **(kwargs or {}))
        return result.contiguous() if func in _CONTIGUOUS else result


def _set_by_a_view(
    tensor: torch.Tensor,
    source: torch.Tensor,
    storage_offset: int,
    size: Sequence[int],
    stride: Sequence[int] = (),
) -> torch.Tensor:
    """`set_` to a view of the source: the op is a composite that passes a storage on.

    No graph has a storage as an argument. A storage that is too small would grow.
    """
    strides = stride or contiguous_strides(size)
    first = source.storage_offset() + storage_offset
    last = first + sum((n - 1) * s for n, s in zip(size, strides, strict=True))
    room = source.untyped_storage().nbytes() // source.itemsize
    if not source.is_contiguous() or (0 not in size and not known(last < room)):
        # Raises as in eager, or cannot be traced.
        aten.set_.source_Tensor_storage_offset(tensor, source, storage_offset, size, stride)
    else:
        aten.set_.source_Tensor(tensor, source.as_strided(size, strides, first))
    return tensor


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
