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
# Takes `call`, the op and its arguments. Returns NotImplemented if it replaces nothing.
Replacement: TypeAlias = Callable[[Call, OpOverload, Sequence[Any]], Any]


_MOST_FRAMES = 128  # a call of `reverse` is 10 to 20 frames below the mode


def replaced_in_modes(replacement: Replacement) -> Patch:
    """Call `replacement` for each operator that reaches the tracing or the fake mode."""
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
    """Call the function for each of these operators that `reverse` of a kind of view calls."""

    def declared(replacement: Replacement) -> Patch:
        def ask(call: Call, op: OpOverload, args: Sequence[Any]) -> Any:
            asked = op in ops and is_inverse_call(view)
            return replacement(call, op, args) if asked else NotImplemented

        return Patch(replaced_in_modes(ask), available=reachable(view))

    return declared


def _outside_of_calls(replacement: Replacement) -> Replacement:
    """The same, but inactive while the replacement itself calls an operator.

    For such a call, the tracing mode computes metadata under the fake mode. These must be those of
    the operator that is in the graph.
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
    """Whether calls from `reverse` of this kind of view are recognisable: on Linux with glibc."""
    try:
        _code_of(view)
    except (AttributeError, OSError):
        return False
    return True


def is_inverse_call(view: str) -> bool:
    """Whether the current call comes from `reverse` of this kind of view, such as 'expand'."""
    start, end = _code_of(view)
    frames = (ctypes.c_void_p * _MOST_FRAMES)()
    count = _LIBC.backtrace(frames, _MOST_FRAMES)
    return any(start < (frames[index] or 0) <= end for index in range(count))


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


_LIBC = ctypes.CDLL(None)
_RTLD_DL_SYMENT = 1  # dladdr1 returns the entry of the symbol, which has its size


@functools.cache
def _code_of(view: str) -> tuple[int, int]:
    """The addresses of the code of `reverse`, which libtorch_cpu exports."""
    library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
    # at::functionalization::<view>_ViewMeta::reverse(at::Tensor const&, at::Tensor const&), as the
    # Itanium ABI mangles it.
    owner = f"{view}_ViewMeta"
    name = f"_ZN2at17functionalization{len(owner)}{owner}7reverseERKNS_6TensorES4_"
    start = ctypes.cast(library[name], ctypes.c_void_p).value
    assert start is not None
    symbol, entry = _Symbol(), ctypes.POINTER(_ElfSymbol)()
    _LIBC.dladdr1(
        ctypes.c_void_p(start), ctypes.byref(symbol), ctypes.byref(entry), _RTLD_DL_SYMENT
    )
    return start, start + int(entry.contents.size)


@replaces_inverse("expand", aten.sub.Tensor, aten.add.Tensor, aten.sum.default)
def expand_inverse(call: Call, op: OpOverload, args: Sequence[Any]) -> Any:
    """The inverse takes, for each element of the base, the copy that the write changed.

    Torch computes `base + sum_to_size(written - base)`. If two copies change, the difference counts
    twice; bool has no `-`; and with inf or 1e20 the sum differs from the written value.
    """
    # `sub` returns the new base already. It has the base's size, so `sum_to_size` keeps the values,
    # except that it converts bool to integers. `add` returns it.
    if op is aten.sub.Tensor:
        return _changed_copies(call, base=args[1], written_view=args[0])
    if op is aten.add.Tensor:
        return call(aten._to_copy.default, args[1], dtype=args[0].dtype)
    # `sum_to_size` of a tensor without dimensions: the sum of one number is a new symbolic value.
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
    """Where a copy differs from its old value; NaN equals NaN."""
    differ = call(aten.ne.Tensor, copy, before)
    numbers = call(
        aten.logical_or.default,
        call(aten.eq.Tensor, copy, copy),
        call(aten.eq.Tensor, before, before),
    )
    return call(aten.logical_and.default, differ, numbers)


@contextlib.contextmanager
def _unfold_inverse() -> Iterator[None]:
    """The inverse keeps the elements of the base that no window covers.

    Torch calls `unfold_backward`, which starts from zeros and does not know the base. So the patch
    remembers the base when its windows are made: before each write through a view,
    functionalization remakes the view from the latest base.
    """
    bases: dict[tuple[object, ...], Any] = {}

    def inverse(call: Call, op: OpOverload, args: Sequence[Any]) -> Any:
        if op in {aten.unfold.default, aten.unfold_copy.default}:
            bases[(*args[0].shape, *args[1:])] = args[0]
        elif op is aten.unfold_backward.default and is_inverse_call("unfold"):
            written_view, *how = args
            base = bases[(*how[0], *how[1:])]
            windows = call(aten.ones_like.default, written_view, dtype=torch.int64)
            covered = call(aten.ne.Scalar, call(aten.unfold_backward.default, windows, *how), 0)
            new = call(aten.unfold_backward.default, written_view, *how)
            kept = call(aten.where.self, covered, new, base)
            if kept.shape != base.shape or kept.stride() == base.stride():
                return kept
            # Its computation may lose the strides of the base.
            layout = list(base.shape), list(base.stride())
            empty = call(aten.new_empty_strided.default, kept, *layout)
            return call(aten.copy.default, empty, kept)
        return NotImplemented

    with replaced_in_modes(inverse)():
        yield


unfold_inverse = Patch(_unfold_inverse, available=reachable("unfold"))


@replaces_kernel("unfold", "Functionalize")
def unfold_ban(original: object, x: torch.Tensor, dim: int, size: int, step: int) -> object:
    """A single window is made with a step at least as long as itself, which is not banned.

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
    """A copy of the storage omits bytes that are no whole element.

    Torch clones the storage as elements of the view's dtype (`clone_preserve_strides`,
    aten/src/ATen/native/TensorShape.cpp).
    """
    storage = x.untyped_storage()
    # Torch handles the other cases correctly. It clones an overlapping view without its storage.
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


# Functionalization converts `copy_`, and a write through a view, to these.
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

    Torch views the written tensor as the dtype of the base. A functional op returned it, with
    strides that do not allow such a view.
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
    """A composite operator runs its implementation, also under functionalization.

    It has no kernel there, so a fallback handles it. The fallback refuses operators that write, and
    treats the result of an operator that returns a view (`atleast_1d`) as a new tensor. In torch
    2.13, `torch.cond` uses `torch.func.functionalize` for its branches.
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
            packet, _, overload = name.removeprefix("aten::").partition(".")
            op = getattr(getattr(torch.ops.aten, packet, None), overload or "default", None)
            # Operators of TorchScript on Python values have no overload in Python, where no
            # operator takes a storage as argument: so `set_` is skipped, too.
            if not isinstance(op, OpOverload) or op.overloadpacket is aten.set_:
                continue
            if not _has_kernel(name, _FUNCTIONALIZE):
                composites.append(op)
    return tuple(composites)


def _has_kernel(name: str, key: str) -> bool:
    return torch._C._dispatch_has_kernel_for_dispatch_key(name, key)


@replaces("torch._functorch.eager_transforms:_propagate_functional_input_mutation")
def transposed_input_copied(
    original: Callable[..., Any], given: torch.Tensor, wrapped: Any
) -> None:
    """An input whose contents are in its own storage gets the new layout, without a copy."""
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
    path, *names = dotted.split(".")
    for name in names:
        path = f'getattr({path}, "{name}")' if keyword.iskeyword(name) else f"{path}.{name}"
    return path


Tensors: TypeAlias = Sequence[torch.Tensor]


_WITH_SCALARS = ("_foreach_addcmul", "_foreach_addcdiv")


@adds_kernel("Meta", *(f"{name}.Tensor" for name in _WITH_SCALARS))
def _foreach_new(x: Tensors, y: Tensors, z: Tensors, scalars: torch.Tensor) -> list[torch.Tensor]:
    return [torch.addcmul(*operands) for operands in zip(x, y, z, strict=True)]


@adds_kernel("Meta", *(f"{name}_.Tensor" for name in _WITH_SCALARS))
def _foreach_in_place(x: Tensors, y: Tensors, z: Tensors, scalars: torch.Tensor) -> None:
    for target, *operands in zip(x, y, z, strict=True):
        target.addcmul_(*operands)


# The ops get a kernel for tensors without data, as the overloads with numbers have. Torch calls the
# kernel for tensors with data, which reads the scalars.
foreach_tensor_of_scalars = together(_foreach_new, _foreach_in_place)


# The overloads of `_fused_adam_` and `_fused_adamw_` with a number as rate have such a kernel.
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
    """The ops get a kernel for tensors without data. It does nothing, since they only write.

    The parameters and states keep their sizes and strides.
    """


@replaces_kernel("set_", "Functionalize")
def _set_to_empty(original: Callable[..., Any], x: torch.Tensor) -> Any:
    return aten.set_.source_Tensor(x, torch.empty(0, dtype=x.dtype, device=x.device))


@replaces_kernel("resize_as_", "Functionalize")
def _resize_as(original: Callable[..., Any], x: torch.Tensor, y: torch.Tensor) -> Any:
    return aten.resize_.default(x, y.shape)


# They are calls of `set_` with a tensor and of `resize_`. For these two, functionalization has
# hand-written kernels. Its kernels for other ops that change only metadata are generated, as for
# writes of data.
metadata_taken_for_data = together(_set_to_empty, _resize_as)
