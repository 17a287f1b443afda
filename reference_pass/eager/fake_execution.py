"""Running nodes of a graph on *fake* tensors.

Fakes have sizes, strides, offsets and storages, but no data. So what shares a storage with what is
observed, also for operators whose schemas say nothing about it.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import fx
from torch._dispatch.python import enable_python_dispatcher
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import (
    FakeTensor,
    FakeTensorMode,
    in_kernel_invocation_manager,
    unset_fake_temporarily,
)
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.fx.node import map_aggregate
from torch.utils import _pytree as pytree

from aliasproof.reference_pass.eager.fake_corrections import fake_result, true_result
from aliasproof.reference_pass.eager.out_layouts import out_layouts
from aliasproof.reference_pass.eager.prims import called_in_eager
from aliasproof.reference_pass.exceptions import Refused
from aliasproof.reference_pass.nested import on_values, tensors_in
from aliasproof.reference_pass.operator_forms import aten, bind, copied_view, facts, unbind
from aliasproof.reference_pass.regions import Size, known

# --- fake inputs ----------------------------------------------------------------------------------


def fake_mode(graph_module: fx.GraphModule, sample_args: Sequence[object]) -> FakeTensorMode:
    """The mode of the fakes among the sample arguments or in the graph's metadata, or a new one."""
    # Fakes of two modes cannot meet in one call.
    values = (node.meta.get("val") for node in graph_module.graph.nodes)
    for value in itertools.chain(sample_args, values):
        for tensor in tensors_in(value):
            if isinstance(tensor, FakeTensor):
                return tensor.fake_mode
    return FakeTensorMode(allow_non_fake_inputs=True, shape_env=ShapeEnv())


def fake_inputs(mode: FakeTensorMode, sample_args: Sequence[object]) -> list[Any]:
    """The sample arguments as fake tensors that share storages as the given ones do.

    They are new objects. So a program that changes metadata leaves the caller's tensors alone.
    """
    with mode, torch.no_grad(), without_record_of_views():
        return [fake_value(mode, argument) for argument in sample_args]


def fake_value(mode: FakeTensorMode, value: object) -> Any:
    """One sample argument as a fake tensor, or the argument itself if it is not a tensor.

    Raises `Refused` for a tensor without strides.
    """
    if not isinstance(value, torch.Tensor):
        return value
    refuse_without_regions(value)
    if isinstance(value, FakeTensor):
        return another_fake(value)
    with unset_fake_temporarily():
        value = value.detach()
    # Sizes of the sample arguments are fixed; symbols come only from fakes of the caller.
    fake = mode.from_tensor(value, static_shapes=True)
    nbytes = value.untyped_storage().nbytes()
    # The fake storage ends where the tensor ends. as_strided may show what comes after that.
    if fake.untyped_storage().nbytes() != nbytes:
        fake.untyped_storage().resize_(nbytes)
    return fake


def another_fake(fake: FakeTensor) -> Any:
    """A new object on the same storage, without a graph of gradients.

    As to an input, all may be done to it: autograd has no record that it is a view, and it allows a
    change of its metadata.
    """
    return fake_on(fake.untyped_storage(), fake.storage_offset(), fake, fake.fake_mode)


def fake_on(
    storage: torch.UntypedStorage, offset: Size, like: torch.Tensor, mode: FakeTensorMode
) -> FakeTensor:
    """A new fake tensor on a storage, at an offset in elements; all else is as that of a fake.

    It takes a sixth of the time of a call on fakes.
    """
    env = mode.shape_env
    # `set_` compares symbols, and that must not add a guard.
    no_guards = contextlib.nullcontext() if env is None else env.suppress_guards()
    with in_kernel_invocation_manager(mode), no_guards:
        meta = torch.empty(0, dtype=like.dtype, device="meta")
        meta.set_(storage, offset, like.shape, like.stride())
    torch._C._set_conj(meta, like.is_conj())
    torch._C._set_neg(meta, like.is_neg())
    return FakeTensor(mode, meta, like.device)


def refuse_without_regions(leaf: object) -> None:
    """Raise `Refused` for a tensor, or dtype, that no region of a storage describes."""
    if isinstance(leaf, torch.Tensor) and leaf.layout is not torch.strided:
        raise Refused(
            f"a {leaf.layout} tensor has no strides to reason about; pass dense (strided) tensors"
        )
    # Fakes of quantized tensors may even have the dtype of the operand. So the argument counts.
    dtype = leaf.dtype if isinstance(leaf, torch.Tensor) else leaf
    if isinstance(dtype, torch.dtype) and dtype in _QUANTIZED:
        raise Refused(
            f"a {dtype} tensor has a scale beside its storage, which fakes do not have;"
            " use the quantized_decomposed operators on integers"
        )


_QUANTIZED = {torch.qint8, torch.quint8, torch.qint32, torch.quint4x2, torch.quint2x4}


@contextlib.contextmanager
def on_fakes(mode: FakeTensorMode) -> Iterator[None]:
    """The context to run nodes in: a fake mode, no gradients, no autocast, and no record of views.

    The casts of autocast are calls of the graph already.

    Autograd would record for each view how it was made from its base, and the cost grows with the
    length of the chain.
    """
    # Some C++ kernels take no symbols for sizes. Python has other ones for them, as in a trace.
    symbolic = mode.shape_env is not None and mode.shape_env.var_to_sources
    kernels = enable_python_dispatcher() if symbolic else contextlib.nullcontext()
    autocast = torch._C._DisableAutocast()
    with kernels, mode, torch.no_grad(), autocast, without_record_of_views():
        yield


def without_record_of_views() -> contextlib.AbstractContextManager[None]:
    """A context in which autograd does not record that a tensor is a view."""
    views = torch._C.DispatchKeySet(torch._C.DispatchKey.ADInplaceOrView)
    return torch._C._ExcludeDispatchKeyGuard(views)


def attribute(node: fx.Node) -> Any:
    """The attribute of the module that a get_attr node names."""
    value: Any = node.graph.owning_module
    for name in str(node.target).split("."):
        value = getattr(value, name)
    return value


# --- nodes ----------------------------------------------------------------------------------------


def run_node(node: fx.Node, values: Callable[[fx.Node], Any], mode: FakeTensorMode) -> Any:
    """The value of a call_function or get_attr node on fake tensors.

    The caller has entered `on_fakes(mode)`.
    """
    if node.op == "get_attr":
        return fake_value(mode, attribute(node))
    return run_call(node, values)


def run_call(node: fx.Node, values: Callable[[fx.Node], Any]) -> Any:
    """The value of a call_function node, for the given values of its operands."""
    args, kwargs = on_values((node.args, node.kwargs), values)
    if isinstance(node.target, OpOverload) and (view := copied_view(node.target)) is not None:
        # torch's fake view copies do not support symbols, and its fake view_as_real_copy does not
        # support a stride of zero. The copy of the view is the same tensor.
        fixed = all(isinstance(size, int) for size in (*args[0].shape, *args[0].stride()))
        if not fixed or view is aten.view_as_real.default:
            shown = view(*args, **kwargs)  # a tensor; several of `unbind`
            return pytree.tree_map(
                lambda tensor: tensor.clone(memory_format=torch.contiguous_format), shown
            )
    assert callable(node.target)
    if node.target is aten.view.dtype:
        return _view_as(*args)
    # The fake kernel of a prim that eager calls on integers may give them another dtype.
    op = called_in_eager(node)
    return true_result(op, args, kwargs, fake_result(op, args, kwargs))


def _view_as(operand: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """A view as another dtype, whatever the strides of dimensions of size one or zero.

    Eager checks these strides, too, and fakes often have them wrong. So the view is taken here, and
    the run decides.
    """
    # The last stride must be one. For a larger dtype the others must be multiples of the ratio,
    # since so many elements become one.
    ratio = max(dtype.itemsize // operand.element_size(), 1)
    empty, last = known(operand.numel() == 0), operand.dim() - 1
    strides, taken = list(operand.stride()), True
    for dim, size in enumerate(operand.shape):
        fits = strides[dim] == 1 if dim == last else strides[dim] % ratio == 0
        if not known(fits) and (empty or known(size <= 1)):
            # No element is reached by this stride, so it can be replaced by one that fits.
            strides[dim], taken = 1 if dim == last else ratio, False
    if not taken:
        operand = operand.as_strided(operand.shape, strides, operand.storage_offset())
    shown: torch.Tensor = aten.view.dtype(operand, dtype)
    return shown


# --- out= calls -----------------------------------------------------------------------------------


def run_out_call(node: fx.Node, values: Callable[[fx.Node], Any]) -> Any:
    """The value of a call that writes its `out=` arguments alone: these, resized as in eager.

    Raises what eager raises, and `Refused` if it is unknown how the call resizes them.
    """
    op = node.target
    assert isinstance(op, OpOverload)
    given = bind(op, *on_values((node.args, node.kwargs), values))
    outs = tensors_in([given[name] for name in facts(op).outs])
    # Fake out= kernels give wrong layouts (see `out_layouts`). So the call itself runs on
    # substitutes, to raise what eager would raise, and the outs are resized after that.
    substitutes = [
        torch.empty_strided(out.shape, out.stride(), dtype=out.dtype, device=out.device)
        for out in outs
    ]
    following = iter(substitutes)
    instead = {
        name: map_aggregate(given[name], lambda _: next(following)) for name in facts(op).outs
    }
    args, kwargs = unbind(op, given | instead)
    if op not in _REFUSED_BY_FAKES:
        op(*args, **kwargs)
    _resize(op, given, outs, substitutes)
    if not op._schema.returns:
        return ()
    return given[facts(op).outs[0]] if len(facts(op).outs) == 1 else tuple(outs)


# Eager stores the real result in a complex `out=`; its fake kernel raises.
_REFUSED_BY_FAKES = {aten.abs.out}


def _resize(
    op: OpOverload,
    given: dict[str, Any],
    outs: Sequence[torch.Tensor],
    substitutes: Sequence[torch.Tensor],
) -> None:
    """Give the `out=` tensors the layouts that they have in eager after the call."""
    layouts = out_layouts(op, given)
    if layouts is None:
        after = zip(substitutes, outs, strict=True)
        if any(known(substitute.shape != out.shape) for substitute, out in after):
            raise Refused(
                f"{op} resizes its out=, and it has no functional form that tells the new layout"
            )
        return
    for out, layout in zip(outs, layouts, strict=True):
        if tuple(out.shape) != layout.sizes:
            out.resize_(layout.sizes).as_strided_(
                layout.sizes, layout.strides, out.storage_offset()
            )
