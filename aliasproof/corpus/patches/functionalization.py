"""Patches of functionalization: its kernels, and the inverses of views.

Functionalization turns a write through a view into a new base: `ViewMeta::reverse(base, written)`
(torch/csrc `FunctionalInverses.cpp`). C++ cannot be replaced from Python, but `reverse` calls
operators, and under a trace each of these passes through a dispatch mode in Python. The stack of
native frames says whether such a call comes from `reverse` of one kind of view, or from the
program.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import keyword
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch._ops import OpOverload
from torch.multiprocessing.reductions import StorageWeakRef

from aliasproof.corpus.patching import Patch, adds_kernel, replaces, replaces_kernel, together

aten = torch.ops.aten


# `call(op, *args)` runs an operator below the mode that is being replaced.
Call: TypeAlias = Callable[..., Any]
# Takes `call`, the op and its arguments. Returns NotImplemented where nothing is replaced.
Replacement: TypeAlias = Callable[[Call, OpOverload, Sequence[Any]], Any]


_MOST_FRAMES = 128  # a call of `reverse` is 10 to 20 frames below the mode


def replaced_in_modes(replacement: Replacement) -> Patch:
    """Ask `replacement` about each operator that reaches the tracing or the fake mode."""
    replacement = _outside_of_calls(replacement)

    def dispatch(
        original: Callable[..., Any],
        mode: object,
        func: OpOverload,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        def call(op: OpOverload, *operands: Any, **options: Any) -> Any:
            return original(mode, op, types, operands, options)

        result = replacement(call, func, args)
        return original(mode, func, types, args, kwargs) if result is NotImplemented else result

    return replaces(
        "torch.fx.experimental.proxy_tensor:ProxyTorchDispatchMode.__torch_dispatch__",
        "torch._subclasses.fake_tensor:FakeTensorMode.__torch_dispatch__",
    )(dispatch)


def replaces_inverse(view: str, *ops: OpOverload) -> Callable[[Replacement], Patch]:
    """Ask the function about each of these operators that `reverse` of a kind of view calls."""

    def declared(replacement: Replacement) -> Patch:
        def ask(call: Call, op: OpOverload, args: Sequence[Any]) -> Any:
            asked = op in ops and undoing(view)
            return replacement(call, op, args) if asked else NotImplemented

        return Patch(replaced_in_modes(ask), available=reachable(view))

    return declared


def _outside_of_calls(replacement: Replacement) -> Replacement:
    """The same, but nothing is replaced while the replacement calls an operator.

    The tracing mode asks the fake mode what such a call returns. The answer must be true of the
    operator that is in the graph.
    """
    depth = 0

    def replace(call: Call, op: OpOverload, args: Sequence[Any]) -> Any:
        def counting_call(*operands: Any, **options: Any) -> Any:
            nonlocal depth
            depth += 1
            try:
                return call(*operands, **options)
            finally:
                depth -= 1

        return NotImplemented if depth else replacement(counting_call, op, args)

    return replace


def reachable(view: str) -> bool:
    """Whether calls from `reverse` of this kind of view can be recognised: on Linux with glibc."""
    try:
        _code_of(view)
    except (AttributeError, OSError):
        return False
    return True


def undoing(view: str) -> bool:
    """Whether the current call comes from `reverse` of this kind of view, such as 'expand'."""
    start, end = _code_of(view)
    frames = (ctypes.c_void_p * _MOST_FRAMES)()
    count = _libc().backtrace(frames, _MOST_FRAMES)
    return any(start < (frames[index] or 0) <= end for index in range(count))


def with_strides_of(call: Call, base: Any, new: Any) -> Any:
    """The new base with the strides of the old one, which computing it can lose."""
    if new.shape != base.shape or new.stride() == base.stride():
        return new
    empty = call(aten.new_empty_strided.default, new, list(base.shape), list(base.stride()))
    return call(aten.copy.default, empty, new)


class _Symbol(ctypes.Structure):
    """`Dl_info` of <dlfcn.h>."""

    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


class _ElfSymbol(ctypes.Structure):
    """`Elf64_Sym` of <elf.h>."""

    _fields_ = (
        ("name", ctypes.c_uint32),
        ("info", ctypes.c_ubyte),
        ("other", ctypes.c_ubyte),
        ("section", ctypes.c_uint16),
        ("value", ctypes.c_uint64),
        ("size", ctypes.c_uint64),
    )


_RTLD_DL_SYMENT = 1  # asks dladdr1 for the entry of the symbol, which has its size


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None)


@functools.cache
def _code_of(view: str) -> tuple[int, int]:
    """The addresses between which the code of `reverse` is. It is exported by libtorch_cpu."""
    library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
    # at::functionalization::<view>_ViewMeta::reverse(at::Tensor const&, at::Tensor const&), as the
    # Itanium ABI mangles it.
    owner = f"{view}_ViewMeta"
    name = f"_ZN2at17functionalization{len(owner)}{owner}7reverseERKNS_6TensorES4_"
    start = ctypes.cast(library[name], ctypes.c_void_p).value
    assert start is not None
    symbol, entry = _Symbol(), ctypes.POINTER(_ElfSymbol)()
    _libc().dladdr1(
        ctypes.c_void_p(start), ctypes.byref(symbol), ctypes.byref(entry), _RTLD_DL_SYMENT
    )
    return start, start + int(entry.contents.size)


@replaces_inverse("expand", aten.sub.Tensor, aten.add.Tensor, aten.sum.default)
def expand_inverse(call: Call, op: OpOverload, args: Sequence[Any]) -> Any:
    """The inverse takes, for each element of the base, the copy that the write changed.

    Torch computes `base + sum_to_size(written - base)`. With two copies that change, the difference
    counts twice; bool has no `-`; and with inf or 1e20 the sum is not what was written.
    """
    # `sub` gives the new base already. It has the base's size, so `sum_to_size` leaves the values
    # as they are, though it makes integers of bool. `add` hands it on.
    if op is aten.sub.Tensor:
        return _changed_copies(call, base=args[1], written_view=args[0])
    if op is aten.add.Tensor:
        return call(aten._to_copy.default, args[1], dtype=args[0].dtype)
    # `sum_to_size` of a tensor without dimensions: the sum of one number is another symbolic value.
    return call(aten.clone.default, args[0])


def _changed_copies(call: Call, base: Any, written_view: Any) -> Any:
    """One copy per element of the base: the one that differs from it, if there is one."""
    if written_view.numel() == 0:
        return call(aten.clone.default, base)
    before = call(aten.expand.default, base, list(written_view.shape))
    now = written_view
    leading = now.dim() - base.dim()
    for dim in reversed(range(now.dim())):
        if dim >= leading and base.shape[dim - leading] == now.shape[dim]:
            continue
        copies = [call(aten.select.int, now, dim, index) for index in range(now.shape[dim])]
        before = call(aten.select.int, before, dim, 0)
        now = copies[0]
        for copy in copies[1:]:
            now = call(aten.where.self, _differs(call, copy, before), copy, now)
        if dim >= leading:  # a dim of size 1 of the base, not a new one
            before = call(aten.unsqueeze.default, before, dim)
            now = call(aten.unsqueeze.default, now, dim)
    return call(aten.clone.default, now)


def _differs(call: Call, copy: Any, before: Any) -> Any:
    """Where a copy is not what it was; NaN equals NaN."""
    differ = call(aten.ne.Tensor, copy, before)
    numbers = call(
        aten.logical_or.default,
        call(aten.eq.Tensor, copy, copy),
        call(aten.eq.Tensor, before, before),
    )
    return call(aten.logical_and.default, differ, numbers)


@contextlib.contextmanager
def _unfold_inverse() -> Iterator[None]:
    """The inverse leaves elements that no window covers as they are in the base.

    Torch calls `unfold_backward`, which starts from zeros and does not know the base. So the base
    is remembered when its windows are made: before each write through a view, functionalization
    makes the view anew from the latest base.
    """
    bases: dict[tuple[object, ...], Any] = {}

    def inverse(call: Call, op: OpOverload, args: Sequence[Any]) -> Any:
        if op in {aten.unfold.default, aten.unfold_copy.default}:
            bases[(*args[0].shape, *args[1:])] = args[0]
        elif op is aten.unfold_backward.default and undoing("unfold"):
            written_view, *how = args
            base = bases[(*how[0], *how[1:])]
            windows = call(aten.ones_like.default, written_view, dtype=torch.int64)
            covered = call(aten.ne.Scalar, call(aten.unfold_backward.default, windows, *how), 0)
            new = call(aten.unfold_backward.default, written_view, *how)
            return with_strides_of(call, base, call(aten.where.self, covered, new, base))
        return NotImplemented

    with replaced_in_modes(inverse)():
        yield


unfold_inverse = Patch(_unfold_inverse, available=reachable("unfold"))


@replaces_kernel("unfold", "Functionalize")
def unfold_ban(original: object, x: torch.Tensor, dim: int, size: int, step: int) -> object:
    """One window is made as the window of a step at least as long as itself, which is not banned.

    Torch bans writes if the window is longer than the step, however many windows there are.
    """
    assert callable(original)
    length = x.shape[dim] if x.dim() else 1
    if size > step and (length - size) // step == 0:
        return original(x, dim, size, max(size, step))
    return original(x, dim, size, step)


def _of_whole_elements(
    original: Callable[..., torch.Tensor], x: torch.Tensor, *arguments: Any
) -> torch.Tensor:
    """The bytes that are no whole element are left out of a copy of the storage.

    Torch clones the storage as elements of the view's dtype (`clone_preserve_strides`,
    aten/src/ATen/native/TensorShape.cpp).
    """
    storage = x.untyped_storage()
    # What torch does not get wrong is left to torch. It clones an overlapping view without storage.
    if storage.nbytes() % x.itemsize == 0 or torch._debug_has_internal_overlap(x) == 1:
        return original(x, *arguments)
    copied = storage.clone()
    copied.resize_(storage.nbytes() // x.itemsize * x.itemsize)
    whole = torch.empty(0, dtype=x.dtype, device=x.device)
    whole.set_(copied, x.storage_offset(), x.shape, x.stride())
    return original(whole, *arguments)


def _copies_whole_elements(name: str, *keys: str) -> Patch:
    arguments = getattr(torch.ops.aten, name).default._schema.arguments

    def call(original: Callable[..., torch.Tensor], *given: Any) -> torch.Tensor:
        defaults = (argument.default_value for argument in arguments[len(given) :])
        return _of_whole_elements(original, *given, *defaults)

    return replaces_kernel(name, *keys)(call)


# What functionalization makes of `copy_`, and of a write through a view.
copy_of_odd_storage = together(
    _copies_whole_elements("copy", "CPU", "Meta"),
    *(
        _copies_whole_elements(f"{kind}_scatter", "CPU")
        for kind in ("select", "slice", "diagonal", "as_strided")
    ),
)


@replaces_inverse("view_dtype", aten.view.dtype)
def dtype_view_of_nothing(call: Call, op: OpOverload, args: Sequence[Any]) -> Any:
    """Without elements, the new base is an empty tensor of the base's shape.

    Torch views what was written as the dtype of the base. A functional op returned it, with strides
    that such a view refuses.
    """
    written_view, dtype = args
    if written_view.numel():
        return NotImplemented
    nbytes = written_view.shape[-1] * written_view.dtype.itemsize
    shape = [*written_view.shape[:-1], nbytes // dtype.itemsize]
    return call(aten.new_empty.default, written_view, shape, dtype=dtype)


_COMPOSITE, _FUNCTIONALIZE = "CompositeImplicitAutograd", "Functionalize"


@Patch
@contextlib.contextmanager
def composite_in_place() -> Iterator[None]:
    """A composite operator is its implementation, also under functionalization.

    It has no kernel there, so a fallback takes it. That refuses operators that write, and the
    result of one that returns a view (`atleast_1d`) is a new tensor to it. `torch.cond` uses
    `torch.func.functionalize` for its branches in torch 2.13.
    """
    with torch.library._scoped_library("aten", "IMPL") as library:
        for op in _without_kernel():
            name = op._schema.name.removeprefix("aten::")
            overload = op._schema.overload_name
            library.impl(f"{name}.{overload}" if overload else name, op.decompose, _FUNCTIONALIZE)
        yield


@functools.cache
def _without_kernel() -> tuple[OpOverload, ...]:
    """The composite ATen operators that have no kernel for functionalization."""
    composites = []
    for name in torch._C._dispatch_get_all_op_names():
        if name.startswith("aten::") and _has_kernel(name, _COMPOSITE):
            op = _overload(name)
            # A storage is no argument of an operator in Python, so `set_` stays.
            if op is None or op.overloadpacket is aten.set_:
                continue
            if not _has_kernel(name, _FUNCTIONALIZE):
                composites.append(op)
    return tuple(composites)


def _overload(name: str) -> OpOverload | None:
    packet, _, overload = name.removeprefix("aten::").partition(".")
    # Operators of TorchScript on Python values have no overload in Python.
    candidate = getattr(getattr(torch.ops.aten, packet, None), overload or "default", None)
    return candidate if isinstance(candidate, OpOverload) else None


def _has_kernel(name: str, key: str) -> bool:
    return torch._C._dispatch_has_kernel_for_dispatch_key(name, key)


@replaces("torch._functorch.eager_transforms:_propagate_functional_input_mutation")
def transposed_input_copied(
    original: Callable[..., Any], given: torch.Tensor, wrapped: Any
) -> None:
    """An input whose contents are in its own storage gets the new layout, and is not copied."""
    torch._sync(wrapped)  # type: ignore[attr-defined]
    inner = torch._from_functional_tensor(wrapped)
    if StorageWeakRef(inner.untyped_storage()) != StorageWeakRef(given.untyped_storage()):
        original(given, wrapped)
    elif (inner.shape, inner.stride()) != (given.shape, given.stride()):
        given.as_strided_(inner.shape, inner.stride(), inner.storage_offset())


@adds_kernel("Functionalize", "polygamma_")
def polygamma_in_place(x: torch.Tensor, order: int) -> torch.Tensor:
    """`polygamma_` is `polygamma`, copied back."""
    return x.copy_(torch.polygamma(order, x))


@replaces("torch.fx.graph:_get_qualified_name")
def _in_graphs(original: Callable[..., str], target: Any) -> str:
    return _path(original(target))


@replaces("torch._inductor.ir:ExternKernel.set_python_kernel_name")
def _in_calls_of_kernels(original: Callable[..., None], kernel: Any, given: str | None) -> None:
    original(kernel, given)
    if kernel.python_kernel_name is not None:
        kernel.python_kernel_name = _path(kernel.python_kernel_name)


# An attribute whose name is a keyword is printed as a call of `getattr`. Inductor prints calls in
# two ways: graphs by fx, and calls of kernels itself.
keyword_overload = together(_in_graphs, _in_calls_of_kernels)


def _path(dotted: str) -> str:
    first, *names = dotted.split(".")
    return functools.reduce(_attribute, names, first)


def _attribute(owner: str, name: str) -> str:
    return f'getattr({owner}, "{name}")' if keyword.iskeyword(name) else f"{owner}.{name}"


Tensors: TypeAlias = Sequence[torch.Tensor]


_WITH_SCALARS = ("_foreach_addcmul", "_foreach_addcdiv")


@adds_kernel("Meta", *(f"{name}.Tensor" for name in _WITH_SCALARS))
def _foreach_new(x: Tensors, y: Tensors, z: Tensors, scalars: torch.Tensor) -> list[torch.Tensor]:
    return [torch.addcmul(*operands) for operands in zip(x, y, z, strict=True)]


@adds_kernel("Meta", *(f"{name}_.Tensor" for name in _WITH_SCALARS))
def _foreach_in_place(x: Tensors, y: Tensors, z: Tensors, scalars: torch.Tensor) -> None:
    for target, *operands in zip(x, y, z, strict=True):
        target.addcmul_(*operands)


# The ops have a kernel for tensors without data, as the overloads with numbers have. Torch takes
# the kernel for tensors with data, which reads the scalars.
foreach_tensor_of_scalars = together(_foreach_new, _foreach_in_place)


# Those of `_fused_adam_` and `_fused_adamw_` with a number as rate have one.
_OPTIMIZERS = (
    "_fused_adagrad_",
    "_fused_adagrad_.tensor_lr",
    "_fused_sgd_",
    "_fused_sgd_.tensor_lr",
    "_fused_adam_.tensor_lr",
    "_fused_adamw_.tensor_lr",
)


@adds_kernel("Meta", *_OPTIMIZERS)
def fused_optimizers(*args: Any, **kwargs: Any) -> None:
    """The ops have a kernel for tensors without data. There is nothing to do: they only write.

    The parameters and states keep their sizes and strides.
    """


@replaces_kernel("set_", "Functionalize")
def _set_to_empty(original: Callable[..., Any], x: torch.Tensor) -> Any:
    return aten.set_.source_Tensor(x, torch.empty(0, dtype=x.dtype, device=x.device))


@replaces_kernel("resize_as_", "Functionalize")
def _resize_as(original: Callable[..., Any], x: torch.Tensor, y: torch.Tensor) -> Any:
    return aten.resize_.default(x, y.shape)


# They are calls of `set_` with a tensor and of `resize_`. For these two, functionalization has
# kernels by hand. For others that change metadata alone, its kernels are generated, as for writes
# of data.
metadata_taken_for_data = together(_set_to_empty, _resize_as)
