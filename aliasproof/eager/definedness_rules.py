"""Rules of `eager.definedness`: which calls are undefined in eager.

Each rule takes a call that is about to run, and returns the reason why it is undefined, or None.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum

import torch
from torch._ops import OpOverload

from aliasproof.eager.indexed_stores import stores_twice
from aliasproof.eager.rounding import rounding_name
from aliasproof.ir.custom_operators import NAMESPACE
from aliasproof.ir.eager_call import EagerCall, is_foreach, tensors_in
from aliasproof.ir.regions import Region, overlap, overlaps_itself
from aliasproof.ir.schemas import Kind

# --- undefined arithmetic -------------------------------------------------------------------------
#
# For numbers: operations that are undefined in C++, and branch cuts.


aten = torch.ops.aten


def converts_out_of_range(call: EagerCall) -> str | None:
    """A call casts NaN, infinity or a value out of range to an integer: undefined in C++."""
    if _unrepresentable(call) is None:
        return None
    return "converts a value that the integer dtype cannot represent"


def _unrepresentable(call: EagerCall) -> torch.Tensor | None:
    """A mask of values that a cast to an integer dtype cannot represent; None if there are none."""
    if call.op is aten.copy_.default:
        source, dtype = call.arguments["src"], call.arguments["self"].dtype
    elif call.op is aten._to_copy.default:
        source, dtype = call.arguments["self"], call.arguments["dtype"]
    elif call.op is torch.ops.prims.convert_element_type.default:
        source, dtype = call.arguments["a"], call.arguments["dtype"]
    else:
        return None
    if dtype is None or not is_integer(dtype):
        return None
    if not (source.is_floating_point() or source.is_complex()) or source.numel() == 0:
        return None
    values = (source.real if source.is_complex() else source).double()
    limits = torch.iinfo(dtype)
    # Truncation keeps values between `min - 1` and `max + 1` in range. NaN fails both comparisons.
    inside = (values > float(limits.min) - 1) & (values < float(limits.max + 1))
    return None if bool(inside.all()) else ~inside


class Fill(Enum):
    """The result of a cast for values that its integer dtype does not have.

    C++ allows any number there. So a function is defined if its results are the same with each of
    these: then it does not use such elements, for example because `torch.where` selects others.
    """

    LOWEST = "lowest"
    HIGHEST = "highest"
    ZERO = "zero"

    def store(self, call: EagerCall, result: torch.Tensor) -> None:
        """Replace such elements of the result of a call, if it was a cast."""
        elements = _unrepresentable(call)
        if elements is not None:
            limits = torch.iinfo(result.dtype)
            number = {Fill.LOWEST: limits.min, Fill.HIGHEST: limits.max, Fill.ZERO: 0}[self]
            result.masked_fill_(elements, number)


def quotient_is_out_of_range(call: EagerCall) -> str | None:
    """The lowest integer divided by -1: the processor raises a signal, which ends the process."""
    if call.op.overloadpacket not in _DIVISIONS:
        return None
    dividend, divisor = _operands(call)
    if bool((_is_lowest(dividend) & (divisor == -1)).any()):
        return "divides the lowest integer by -1"
    return None


def takes_divisor_of_lowest(call: EagerCall) -> str | None:
    """Gcd or lcm of the lowest integer: kernels take its absolute value, which does not exist.

    The divisor can then be -1, and the quotient ends the process, as in a division.
    """
    if call.op.overloadpacket not in _COMMON_DIVISORS:
        return None
    if any(bool(_is_lowest(operand).any()) for operand in _operands(call)):
        return "takes a common divisor of the lowest integer"
    return None


def shifts_out_of_range(call: EagerCall) -> str | None:
    """A shift by a negative number of bits, or by all bits: undefined by the manual of torch."""
    if call.op.overloadpacket not in _SHIFTS:
        return None
    shifted, bits = _operands(call)
    if is_integer(shifted.dtype) and bool(
        ((bits < 0) | (bits >= 8 * shifted.element_size())).any()
    ):
        return "shifts by a number of bits that is out of range"
    return None


def lies_on_branch_cut(call: EagerCall) -> str | None:
    """A complex number is on a branch cut, where a function's value depends on the sign of a zero.

    Kernels disagree on that sign: for `1 + 0j`, the vectorised `neg` of complex tensors returns
    `-1 + 0j`, and its loop for the remaining elements `-1 - 0j`. So it depends on the layout.
    """
    cut = _CUTS.get(rounding_name(call.op))
    if cut is None:
        return None
    for tensor in call.read():
        if tensor.is_complex() and bool(cut(tensor.real, tensor.imag).any()):
            return "is called on its branch cut, where the sign of a zero decides"
    return None


def _negative(real: torch.Tensor, imag: torch.Tensor) -> torch.Tensor:
    return (imag == 0) & (real < 0)


def _beyond_one(real: torch.Tensor, imag: torch.Tensor) -> torch.Tensor:
    return (imag == 0) & (real.abs() > 1)


def _below_one(real: torch.Tensor, imag: torch.Tensor) -> torch.Tensor:
    return (imag == 0) & (real < 1)


def _beyond_i(real: torch.Tensor, imag: torch.Tensor) -> torch.Tensor:
    return (real == 0) & (imag.abs() > 1)


# The branch cuts of functions of complex numbers, by C99, annex G.
_CUTS = {
    **dict.fromkeys(("sqrt", "rsqrt", "log", "log2", "log10", "pow", "angle"), _negative),
    **dict.fromkeys(("asin", "acos", "atanh", "arcsin", "arccos", "arctanh"), _beyond_one),
    **dict.fromkeys(("acosh", "arccosh"), _below_one),
    **dict.fromkeys(("asinh", "atan", "arcsinh", "arctan"), _beyond_i),
    "log1p": lambda real, imag: _negative(real + 1, imag),
}


def kernels_disagree(call: EagerCall) -> str | None:
    """The vectorised kernel and the one for other layouts differ by more than rounding.

    On the CPU of torch 2.13: `gelu` of infinity is NaN or infinity, `fmod(1e20, 1e-38)` is NaN or
    0, and `logit_backward` at 0 is infinity of either sign.
    """
    disagree = _DISAGREEMENTS.get(rounding_name(call.op))
    if disagree is None or not disagree(call):
        return None
    return "is called where its result depends on the layout: its kernels disagree"


def _gelu_is_too_large(call: EagerCall) -> bool:
    operand = call.arguments["self"]
    # The vectorised kernel doubles its operand.
    return bool((operand > torch.finfo(operand.dtype).max / 2).any())


def _quotient_is_too_large(call: EagerCall) -> bool:
    dividend, divisor = _operands(call)
    if not dividend.is_floating_point():
        return False
    return bool((dividend.isfinite() & (divisor != 0) & (dividend / divisor).isinf()).any())


_DISAGREEMENTS: dict[str, Callable[[EagerCall], bool]] = {
    "gelu": _gelu_is_too_large,
    "fmod": _quotient_is_too_large,
    "remainder": _quotient_is_too_large,
    "logit_backward": lambda call: bool((call.arguments["self"] == 0).any()),
}


def _operands(call: EagerCall) -> tuple[torch.Tensor, torch.Tensor]:
    """The two operands in the dtype of the result."""
    one, other = call.arguments["self"], call.arguments["other"]
    dtype = torch.result_type(one, other)
    return torch.as_tensor(one).to(dtype), torch.as_tensor(other).to(dtype)


def _is_lowest(tensor: torch.Tensor) -> torch.Tensor:
    """A mask of the lowest integer of a dtype with a sign."""
    if not is_integer(tensor.dtype) or not tensor.dtype.is_signed:
        return torch.zeros_like(tensor, dtype=torch.bool)
    return tensor == torch.iinfo(tensor.dtype).min


def is_integer(dtype: torch.dtype) -> bool:
    """True for the dtypes of integers; bool is not one of them."""
    return not (dtype.is_floating_point or dtype.is_complex or dtype == torch.bool)


_DIVISIONS = {
    *(aten.div, aten.div_, aten.floor_divide, aten.floor_divide_),
    *(aten.fmod, aten.fmod_, aten.remainder, aten.remainder_),
}
_COMMON_DIVISORS = {aten.gcd, aten.gcd_, aten.lcm, aten.lcm_}
_SHIFTS = {
    *(aten.bitwise_left_shift, aten.bitwise_left_shift_),
    *(aten.bitwise_right_shift, aten.bitwise_right_shift_),
    *(aten.__lshift__, aten.__ilshift__, aten.__rshift__, aten.__irshift__),
}
# --- wrong kernels --------------------------------------------------------------------------------
#
# Calls whose CPU kernel in eager is wrong: in the memory that it reads or writes, or in the sign.


def writes_outside_noise(call: EagerCall) -> str | None:
    """`rrelu_with_noise` in training writes the noise as if it were contiguous."""
    if call.op.overloadpacket not in _RRELU or not call.arguments["training"]:
        return None
    noise = call.arguments["noise"]
    return None if noise.is_contiguous() else "takes its noise for contiguous"


def updates_outside_parameters(call: EagerCall) -> str | None:
    """A fused optimizer walks over all tensors of a parameter as one row of numbers.

    It uses as many numbers as the parameter has, from the first one on, and checks no size
    (`aten/src/ATen/native/cpu/FusedAdamKernel.cpp` and its siblings).
    """
    if call.op.overloadpacket not in _FUSED_OPTIMIZERS:
        return None
    parameters = call.arguments["self"]
    for name, states in call.arguments.items():
        if name == "state_steps" or not isinstance(states, (list, tuple)):
            continue
        for parameter, state in zip(parameters, states, strict=False):
            if state.shape != parameter.shape:
                return "takes all tensors of a parameter to be of its size"
            start, end = Region.of(state).interval
            if end - start != state.numel() * state.element_size():
                return "takes the numbers of a parameter to be without gaps"
    return None


def squeezes_a_copy(call: EagerCall) -> str | None:
    """`squeeze_` of some dimensions of a tensor with a lazy conjugate or negative bit.

    Torch has no kernel for it (`aten/src/ATen/native/MathBitFallThroughLists.h` has only `squeeze_`
    of all dimensions), so it squeezes a copy, resizes the tensor to be contiguous, and copies back.
    With other strides, that writes memory, which `squeeze_` must not. Only the resize shows it.
    """
    if call.op is not aten.resize_.default:
        return None
    tensor, size = call.written[0], call.arguments["size"]
    if not (tensor.is_conj() or tensor.is_neg()) or len(size) >= tensor.dim():
        return None
    same = [n for n in tensor.shape if n != 1] == [n for n in size if n != 1]
    return "writes what squeeze_ should only view" if same else None


def copies_without_sign(call: EagerCall) -> str | None:
    """`copy_` between float16 and float32 has a separate kernel, if both have the same layout.

    That kernel ignores the lazy negative bit (`aten/src/ATen/native/Copy.cpp`, torch 2.13).
    """
    if call.op is not aten.copy_.default:
        return None
    to, source = call.arguments["self"], call.arguments["src"]
    converts = {to.dtype, source.dtype} == {torch.float16, torch.float32}
    if not converts or to.device.type != "cpu" or to.is_neg() == source.is_neg():
        return None
    return "loses the sign of a lazily negative tensor"


def samples_in_no_mode(call: EagerCall) -> str | None:
    """A grid sampler does not check the number of a mode, and leaves its result uninitialised.

    See `grid_sampler_2d_cpu_kernel_impl` in `aten/src/ATen/native/cpu/GridSamplerKernel.cpp`.
    """
    if call.op.overloadpacket not in _GRID_SAMPLERS:
        return None
    modes = call.arguments["interpolation_mode"], call.arguments["padding_mode"]
    return None if all(mode in range(3) for mode in modes) else "samples in a mode that is none"


_FUSED_OPTIMIZERS = {
    *(aten._fused_sgd_, aten._fused_adam_, aten._fused_adamw_, aten._fused_adagrad_),
}
_GRID_SAMPLERS = {aten.grid_sampler_2d, aten.grid_sampler_3d}
_RRELU = {aten.rrelu_with_noise, aten.rrelu_with_noise_}
WRONG_KERNELS = (
    writes_outside_noise,
    updates_outside_parameters,
    squeezes_a_copy,
    copies_without_sign,
    samples_in_no_mode,
)


# --- definedness rules ----------------------------------------------------------------------------


def writes_through_itself(call: EagerCall) -> str | None:
    """Two elements of a written region share a byte, so how often it is updated is undefined."""
    for tensor in call.written:
        # A plain store of equal values is defined; `value_stored` checks that they are equal. An
        # `out=` argument is computed element by element, and may get different values.
        plain_store = call.overwrites(tensor) and call.facts.kind is not Kind.OUT
        # A random op stores a number per element.
        plain_store = plain_store and not call.facts.random
        if not plain_store and overlaps_itself(Region.of(tensor)):
            return "writes through a region that overlaps itself"
    return None


def scatters_into_itself(call: EagerCall) -> str | None:
    """A scatter clones a tensor that overlaps itself: the clone overlaps or not, by layout."""
    if call.op.overloadpacket in _SCATTERS and overlaps_itself(Region.of(call.arguments["self"])):
        return "scatters into a tensor that overlaps itself"
    # The other scatters have no view argument that could overlap itself.
    if call.op is aten.as_strided_scatter.default:
        sizes, strides = call.arguments["size"], call.arguments["stride"]
        if overlaps_itself(Region(0, tuple(sizes), tuple(strides), 1)):
            return "scatters through a view that overlaps itself"
    return None


def reads_what_it_writes(call: EagerCall) -> str | None:
    """A call reads bytes of its destination in an order that depends on the kernel.

    A pointwise op may read a region that is equal to the destination: each element is read before
    it is written.
    """
    pointwise = call.facts.pointwise or is_foreach(call.op)
    for target in call.written:
        region = Region.of(target)
        for operand in _read_while_it_writes(call):
            other = Region.of(operand)
            if overlap(region, other) and not (pointwise and region == other):
                return "reads memory that it is writing at other positions"
    return None


def _read_while_it_writes(call: EagerCall) -> Iterator[torch.Tensor]:
    """The operands that are not written, except a 0-d value that is converted to a number first."""
    for index, argument in enumerate(call.op._schema.arguments):
        if index in call.facts.writes:
            continue
        for operand in tensors_in(call.arguments[argument.name]):
            if not read_as_number_first(call.op, argument.name, operand.dim()):
                yield operand


def read_as_number_first(op: OpOverload, argument: str, dims: int) -> bool:
    """True for a 0-d tensor that a kernel converts to a number before it writes."""
    return op in _READ_NUMBER_FIRST and argument == "value" and dims == 0


def writes_twice(call: EagerCall) -> str | None:
    """Two destinations of one call share bytes."""
    # `_foreach` ops and ops with several `out=` arguments have more than one destination.
    for index, one in enumerate(call.written):
        if any(overlap(Region.of(one), Region.of(other)) for other in call.written[:index]):
            return "writes the same memory through two arguments"
    return None


def stores_twice_by_index(call: EagerCall) -> str | None:
    """An indexed store has two values for one element: which one stays depends on the kernel."""
    if stores_twice(call.op.overloadpacket, call.arguments):
        return "stores different values at the same index"
    return None


def reads_broken_bool(call: EagerCall) -> str | None:
    """A call reads a bool that is neither 0 nor 1, written through a view of another dtype.

    A copy counts: for the byte 2, `clone` stores 1, `cat` stores 2, and `flip` either, by layout.
    """
    if call.facts.kind is Kind.VIEW:  # it reads nothing
        return None
    for tensor in (*call.only_read, *call.written):
        # An overwritten tensor may also be an operand: `x.copy_(x)` reads nothing.
        if tensor.dtype != torch.bool or not tensor.numel() or call.overwrites(tensor):
            continue
        if int(tensor.view(torch.uint8).max()) > 1:
            return "reads a bool that is neither 0 nor 1"
    return None


RULES: tuple[Callable[[EagerCall], str | None], ...] = (
    writes_through_itself,
    scatters_into_itself,
    reads_what_it_writes,
    writes_twice,
    stores_twice_by_index,
    converts_out_of_range,
    quotient_is_out_of_range,
    takes_divisor_of_lowest,
    shifts_out_of_range,
    lies_on_branch_cut,
    kernels_disagree,
    reads_broken_bool,
    *WRONG_KERNELS,
)


# These depend on the order in which a kernel reads and writes.
ABOUT_ORDER = (writes_through_itself, reads_what_it_writes, writes_twice)
BETWEEN_ARGUMENTS = (reads_what_it_writes, writes_twice)
# Their kernels can end the process or write elsewhere, so such calls do not run even on copies.
NEVER_RUN = (
    *(quotient_is_out_of_range, takes_divisor_of_lowest, reads_broken_bool),
    *WRONG_KERNELS,
)
# The rules define what is undefined for torch's operators and for ours.
DEFINED_BY_RULES = ("aten", "prims", "prim", "quantized", "mkldnn", "inductor", NAMESPACE)

_READ_NUMBER_FIRST = {aten.fill_.Tensor, aten.masked_fill_.Tensor}

_SCATTERS = {
    aten.select_scatter,
    aten.slice_scatter,
    aten.diagonal_scatter,
    aten.as_strided_scatter,
    aten.copy,
}
