"""What `sweep` runs: the operators and modules that PyTorch tests itself, as functions of tensors.

`op_db` and `module_db` of `torch.testing._internal` have, for each operator and module, sample
inputs in each dtype. A sample becomes a `SampleCall`: a function of the tensors in it, wherever
they are in its arguments; what is not a tensor is a constant of the function.

The databases need the package expecttest, which is not a dependency of torch.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.nn.parameter import is_lazy
from torch.utils import _pytree as pytree

from aliasproof.ir.errors import UserError

DTYPES = (torch.float32, torch.int64, torch.complex64, torch.bool, torch.bfloat16)
LAYOUTS = ("contiguous", "transposed")
_MOST_LISTED = 40  # samples of one operator and dtype to choose from: some yield thousands
_MOST_ELEMENTS = 20_000  # of one sample; a larger one tests the kernel and not the passes


class OfTensors:
    """A function of the tensors in the arguments of a call. It returns a tensor, or a list.

    `constants` are the indices of tensors that require no gradient: the buffers of a module.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        arguments: Any,
        constants: frozenset[int] = frozenset(),
    ) -> None:
        self.function, self.constants = function, constants
        self.leaves, self.spec = pytree.tree_flatten(arguments)
        self.tensors = [leaf for leaf in self.leaves if isinstance(leaf, torch.Tensor)]

    def __call__(self, *tensors: torch.Tensor) -> Any:
        given = iter(tensors)
        leaves = [next(given) if isinstance(leaf, torch.Tensor) else leaf for leaf in self.leaves]
        args, kwargs = pytree.tree_unflatten(leaves, self.spec)
        result = self.function(*args, **kwargs)
        return result if isinstance(result, torch.Tensor) else pytree.tree_leaves(result)


@dataclass(frozen=True, slots=True)
class SampleCall:
    """A function, its tensors, and a name for people. `trains`: whether it has gradients."""

    name: str
    function: OfTensors
    tensors: Sequence[torch.Tensor]
    trains: bool

    def in_layout(self, layout: str) -> SampleCall:
        """The same call on tensors of the same values, as they are, or with other strides."""
        if layout == "contiguous":
            return self
        return replace(self, tensors=[_transposed(tensor) for tensor in self.tensors])


def _transposed(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.dim() < 2:
        return torch.stack((tensor, tensor), -1)[..., 1]  # a stride of two, and an offset
    return tensor.transpose(0, 1).contiguous().transpose(0, 1)


# --- subjects -------------------------------------------------------------------------------------


def subjects() -> dict[str, Any]:
    """Each OpInfo and ModuleInfo, by a unique name. Raises `UserError` without expecttest."""
    try:
        # Imported here: it takes seconds, and no other benchmark needs it.
        from torch.testing._internal import common_methods_invocations  # noqa: PLC0415
        from torch.testing._internal.common_modules import module_db  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise UserError(
            f"the databases of PyTorch's tests need {error.name}; pip install {error.name}"
        ) from error
    # It seeds the generator within the function, and the passes refuse that.
    vars(common_methods_invocations)["wrapper_set_seed"] = _without_seed
    infos = common_methods_invocations.op_db
    by_name = {f"{info.name}.{info.variant_test_name}".rstrip("."): info for info in infos}
    return by_name | {f"nn.{info.name.replace('nn_', '', 1)} (module)": info for info in module_db}


def _without_seed(op: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return op(*args, **kwargs)


def dtypes_of(info: Any) -> list[torch.dtype]:
    """Those of `DTYPES` in which an operator or module runs on the CPU."""
    return [dtype for dtype in DTYPES if dtype in info.dtypes]


def calls_of(info: Any, dtype: torch.dtype, most: int, seed: int) -> Iterator[SampleCall]:
    """At most `most` samples of an operator or module, chosen by the seed, in all their forms."""
    torch.manual_seed(seed)
    is_module = hasattr(info, "module_cls")
    listed = _modules(info, dtype) if is_module else _samples(info, dtype)
    candidates = list(itertools.islice(listed, _MOST_LISTED))
    chosen = random.Random(f"{seed} {info.name} {dtype}").sample(
        candidates, min(most, len(candidates))
    )
    return itertools.chain.from_iterable(chosen)


def _is_for_the_sweep(tensors: Sequence[torch.Tensor]) -> bool:
    dense = all(tensor.layout is torch.strided and not tensor.is_nested for tensor in tensors)
    return dense and sum(tensor.numel() for tensor in tensors) <= _MOST_ELEMENTS


def _samples(info: Any, dtype: torch.dtype) -> Iterator[list[SampleCall]]:
    trains = info.supports_autograd and dtype in info.supported_backward_dtypes("cpu")
    in_place = info.get_inplace()
    for number, sample in enumerate(info.sample_inputs("cpu", dtype, requires_grad=False)):
        arguments = ((sample.input, *sample.args), sample.kwargs)
        function = OfTensors(info.op, arguments)
        if not _is_for_the_sweep(function.tensors):
            continue
        forms = [SampleCall(f"sample {number}", function, function.tensors, trains)]
        if in_place is not None and not sample.broadcasts_input:
            written = OfTensors(in_place, arguments)
            forms.append(
                SampleCall(
                    f"sample {number} in place",
                    written,
                    written.tensors,
                    trains and info.supports_inplace_autograd,
                )
            )
        yield forms


class _Stateless:
    """A module as a function of its parameters and buffers, and then of its arguments."""

    def __init__(self, module: torch.nn.Module, names: Sequence[str]) -> None:
        self.module, self.names = module, names

    def __call__(self, state: list[torch.Tensor], *args: Any, **kwargs: Any) -> Any:
        given = dict(zip(self.names, state, strict=True))
        return torch.func.functional_call(self.module, given, args, kwargs)


def _modules(info: Any, dtype: torch.dtype) -> Iterator[list[SampleCall]]:
    options = {"device": "cpu", "dtype": dtype, "requires_grad": False}
    for training in (True, False):
        inputs = info.module_inputs_func(info, training=training, **options)
        for number, sample in enumerate(inputs):
            built, given = sample.constructor_input, sample.forward_input
            if given is None:
                continue
            module = info.module_cls(*built.args, **built.kwargs).to(dtype).train(training)
            if any(map(is_lazy, module.parameters())):
                module(*given.args, **given.kwargs)  # it gets its parameters in a call
            parameters, buffers = dict(module.named_parameters()), dict(module.named_buffers())
            state = {
                name: tensor.detach()
                for name, tensor in itertools.chain(parameters.items(), buffers.items())
            }
            function = OfTensors(
                _Stateless(module, list(state)),
                (([*state.values()], *given.args), given.kwargs),
                frozenset(range(len(parameters), len(state))),
            )
            if _is_for_the_sweep(function.tensors):
                mode = "training" if training else "eval"
                name = f"sample {number} in {mode}"
                yield [SampleCall(name, function, function.tensors, trains=True)]


# --- other sizes ----------------------------------------------------------------------------------


def at_other_sizes(tensors: Sequence[torch.Tensor]) -> Iterator[list[torch.Tensor]]:
    """The tensors at other sizes, in some ways of which an operator may accept one.

    Equal sizes stay equal. Data are repeated, so that indices stay in range.
    """
    sizes = {size for tensor in tensors for size in tensor.shape if size > 1}
    firsts = {tensor.shape[0] for tensor in tensors[:1] if tensor.dim() and tensor.shape[0] > 1}
    for chosen in (sizes, firsts):
        for grow in (lambda size: size + 1, lambda size: 2 * size):
            if chosen:
                larger = {size: grow(size) for size in chosen}
                yield [_resized(tensor, larger) for tensor in tensors]


def _resized(tensor: torch.Tensor, sizes: dict[int, int]) -> torch.Tensor:
    shape = [sizes.get(size, size) for size in tensor.shape]
    count = torch.Size(shape).numel()
    if not tensor.numel():
        return tensor.new_empty(shape)
    repeated = tensor.flatten().repeat(count // tensor.numel() + 1)[:count].view(shape)
    # A trace may depend on the order of the strides, and on the offset.
    in_order = tensor.is_contiguous() and not tensor.storage_offset()
    return repeated.contiguous() if in_order else _transposed(repeated)
