"""Modes around a trace: they refuse what no graph can express, and correct errors of fakes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._higher_order_ops.auto_functionalize import (
    auto_functionalized_dense,
    auto_functionalized_v2_dense,
)
from torch._higher_order_ops.base_hop import BaseHOP
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental.proxy_tensor import (
    disable_proxy_modes_tracing,
    get_proxy_mode,
    track_tensor_tree,
)
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from aliasproof.reference_pass.calls.fake_inputs import refuse_without_regions
from aliasproof.reference_pass.calls.nested import leaves_in, tensors_in
from aliasproof.reference_pass.calls.operator_forms import aten, bind, facts, writes_outs_alone
from aliasproof.reference_pass.calls.regions import contiguous_strides, known, same_strides
from aliasproof.reference_pass.calls.storages import storage_of
from aliasproof.reference_pass.capture.autograd_notes import GradientNotes
from aliasproof.reference_pass.capture.control_flow_calls import HIGHER_ORDER
from aliasproof.reference_pass.eager.fake_corrections import (
    copies_to_itself,
    fake_result,
    has_correction,
    has_no_fake_kernel,
    may_be_corrected,
    true_result,
)
from aliasproof.reference_pass.eager.fake_execution import OutLayout, out_layouts
from aliasproof.reference_pass.eager.other_names import aten_of_prim
from aliasproof.reference_pass.eager.real_runs import refused_by_fakes
from aliasproof.reference_pass.exceptions import Refused


class Seeds:
    """Refuses a trace that seeds the default generator: the call leaves no node in the graph."""

    # AOTAutograd compiles in a fake mode, which would give the state no data.
    def __init__(self) -> None:
        with _disable_current_modes():
            self.before = torch.get_rng_state()

    def refuse(self) -> None:
        """Raise `Refused` if the trace has changed the state. On fakes, it draws no numbers."""
        with _disable_current_modes():
            now = torch.get_rng_state()
            if torch.equal(self.before, now) or self._may_be_drawn(now):
                return
            torch.set_rng_state(self.before)
        raise Refused(
            "the function seeds the default generator, which a graph cannot do; seed it before"
        )

    def _may_be_drawn(self, now: torch.Tensor) -> bool:
        """True if another thread may have drawn numbers: then the state is not that of a seed."""
        if threading.active_count() == 1:
            return False
        before, generator = torch.Generator().set_state(self.before), torch.Generator()
        seed = generator.set_state(now).initial_seed()
        is_new = torch.equal(generator.manual_seed(seed).get_state(), now)
        return seed == before.initial_seed() and not is_new


class TraceGuard(TorchDispatchMode):
    """Refuses writes to tensors from outside of the trace, and corrects fake results in it."""

    supports_higher_order_operators = True

    def __init__(self, seeds: Seeds, gradients: GradientNotes | None = None) -> None:
        super().__init__()
        self.seeds, self.gradients = seeds, gradients
        # Storages made during the trace. They are kept alive, so that no address is used twice.
        self.made: dict[int, torch.UntypedStorage] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if (call := unfold_operator(func)) is not None:
            with self:  # the mode sees the calls of that graph, too
                return call(*args, **(kwargs or {}))
        if func in HIGHER_ORDER:
            return func(*args, **(kwargs or {}))
        if not isinstance(func, OpOverload):
            raise Refused(
                f"{func} is a higher-order operator; what its branches write is not analysed"
            )
        if func is torch.ops.inductor.resize_storage_bytes_.default:
            raise Refused(
                "the function resizes a storage below tensors that show it; do that outside of"
                " what is compiled"
            )
        if not kwargs:
            func = aten_of_prim(func)
        func, args = _as_python_name(func, args)
        # A function may seed, draw, and restore the state (`torch.random.fork_rng`).
        if facts(func).random:
            self.seeds.refuse()
        given = bind(func, args, kwargs or {})
        for tensor in _real_tensors([given.get(name) for name in facts(func).writes]):
            if storage_of(tensor) not in self.made:
                raise Refused(
                    f"{func} writes to a tensor of size {list(tensor.shape)} that the function did"
                    " not get as an argument; pass it as an argument, or pass its module as the"
                    " function"
                )
        if func.overloadpacket in _SQUEEZES:
            # Raises if it depends on data whether a size is 1. The fake kernel assumes that not.
            tensor, dims = given["self"], given.get("dim")
            dims = range(tensor.dim()) if dims is None else dims
            for dim in [dims] if isinstance(dims, int) else dims:
                bool(tensor.dim() == 0 or tensor.shape[dim] == 1)
        # Computed before the call, which may already give the fakes a wrong layout.
        layouts = _out_layouts(func, given)
        with refused_by_fakes(func, args, kwargs or {}):
            result = _traced(func, args, kwargs or {})
        if self.gradients is not None:
            self.gradients.note(func, result)
        for leaf in leaves_in((args, kwargs, result)):
            refuse_without_regions(leaf)
        if layouts is not None:
            with disable_proxy_modes_tracing():
                for out, layout in zip(_outs(func, given), layouts, strict=True):
                    same = len(out.shape) == len(layout.sizes) and same_strides(
                        layout.sizes, out.stride(), layout.strides
                    )
                    if not same:
                        layout.give(out)
        self.made |= {storage_of(x): x.untyped_storage() for x in _real_tensors(result)}
        return result


_SQUEEZES = {aten.squeeze, aten.squeeze_, aten.squeeze_copy}


def _as_python_name(func: OpOverload, args: tuple[Any, ...]) -> tuple[OpOverload, tuple[Any, ...]]:
    """The call with an overload that has a Python name: generated code cannot name `from`."""
    if func is not getattr(aten.random_, "from"):
        return func, args
    if args[1] == 0:
        return aten.random_.to, (args[0], *args[2:])
    raise Refused(
        "the overload of random_(from, to) has no Python name; call random_(to - from), and add"
    )


def _without_token(token: Any, op: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The call of an op with an effect. The passes keep the order of such calls without tokens."""
    result = op(*args, **kwargs)
    return (token, *result) if isinstance(result, tuple) else (token, result)


def _call_graph(graph: Callable[..., Any], *operands: Any, **options: Any) -> Any:
    """The call of `foreach_map`, or `invoke_quant`. Options are for the compiler."""
    return graph(*operands)


def _call_region(graph: Callable[..., Any], name: str, *operands: Any) -> Any:
    """The call of a region that a compiler may compile once for all calls."""
    return graph(*operands)


def _call_on_list(graph: Callable[..., Any], operands: Any, *options: Any, **hints: Any) -> Any:
    return graph(*operands)


# Higher-order operators that AOTAutograd wraps around calls, and those that only run a graph.
_UNFOLDED: dict[object, Callable[..., Any]] = {
    torch.ops.higher_order.with_effects: _without_token,
    torch.ops.higher_order.auto_functionalized: auto_functionalized_dense,
    torch.ops.higher_order.auto_functionalized_v2: auto_functionalized_v2_dense,
    torch.ops.higher_order.invoke_subgraph: _call_region,  # `nested_compile_region`
    torch.ops.higher_order.hints_wrapper: _call_on_list,
    torch.ops.higher_order.strict_mode: _call_on_list,
}


def unfold_operator(func: Any) -> Callable[..., Any] | None:
    """The function that a higher-order operator runs on its arguments; None for others."""
    return _call_graph if isinstance(func, BaseHOP) else _UNFOLDED.get(func)


class PythonGuard(TorchFunctionMode):
    """Refuses explicit generators, and corrects composite functions.

    On fakes, some of these functions take another branch than on tensors with data.
    """

    # `TraceGuard` does not see a composite, only the operators that it calls.
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

    A graph cannot have a storage as an argument. A storage that is too small would grow.
    """
    strides = stride or contiguous_strides(size)
    first = source.storage_offset() + storage_offset
    # The size of a storage is not a value of the trace, so the trace must not see this computation.
    with disable_proxy_modes_tracing():
        last = first + sum((n - 1) * s for n, s in zip(size, strides, strict=True))
        # This adds a guard, if these are symbols.
        fits = 0 in size or bool(last < source.untyped_storage().nbytes() // source.itemsize)
    if not (fits and source.is_contiguous()):
        # This raises as in eager, or cannot be traced.
        aten.set_.source_Tensor_storage_offset(tensor, source, storage_offset, size, stride)
    else:
        aten.set_.source_Tensor(tensor, source.as_strided(size, strides, first))
    return tensor


# Composites whose result is contiguous in eager. On fakes its strides depend on the operand.
_CONTIGUOUS = {torch._C._nn.one_hot}


def _traced(op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A call in the graph; the fakes that it returns have the layout and the dtype of eager."""
    mode = get_proxy_mode()
    if copies_to_itself(op, args):
        return args[0]
    # In each run, the result of a selection by a mask has a new symbol as its size.
    by_mask = torch.Tag.dynamic_output_shape in op.tags and any(
        operand.dtype in (torch.bool, torch.uint8) for operand in tensors_in(args[1:])
    )
    if mode is None or by_mask:
        return op(*args, **kwargs)
    refused = has_no_fake_kernel(op, args)
    corrected = has_correction(op) and may_be_corrected(op, bind(op, args, kwargs))
    if not refused and not corrected:
        return op(*args, **kwargs)
    # A trace finds each size by the first tensor with that size or stride. So it must not see a
    # fake whose sizes or strides differ from those of the tensor in the run.
    with disable_proxy_modes_tracing():
        value = fake_result(op, args, kwargs)
        true = true_result(op, args, kwargs, value)
        right = all(map(_is_alike, tensors_in(value), tensors_in(true)))
    if right and not refused:
        return op(*args, **kwargs)
    tracer: Any = mode.tracer
    passed, named = pytree.tree_map(tracer.unwrap_proxy, (args, kwargs))
    name = op.overloadpacket.__name__
    call = tracer.create_proxy("call_function", op, passed, named, name=name)
    return track_tensor_tree(true, call, constant=None, tracer=tracer)


def _is_alike(one: torch.Tensor, other: torch.Tensor) -> bool:
    return (
        one.dtype == other.dtype
        and known(one.storage_offset() == other.storage_offset())
        and same_strides(tuple(one.shape), one.stride(), other.stride())
    )


def _out_layouts(op: OpOverload, given: dict[str, Any]) -> list[OutLayout] | None:
    """The layouts of the fake `out=` tensors after a traced call; None for other calls.

    Also None if the op has no functional form that shows the layouts.
    """
    if not writes_outs_alone(op) or get_proxy_mode() is None:
        return None
    if not all(isinstance(out, FakeTensor) for out in _outs(op, given)):
        return None
    with disable_proxy_modes_tracing():
        return out_layouts(op, given)


def _outs(op: OpOverload, given: dict[str, Any]) -> list[torch.Tensor]:
    return tensors_in([given[name] for name in facts(op).outs])


def _real_tensors(value: object) -> list[torch.Tensor]:
    # A trace makes fakes: any other tensor existed before, or is a constant of the function.
    tensors = tensors_in(value)
    return [x for x in tensors if not isinstance(x, FakeTensor) and x.device.type != "meta"]
