"""Rules of `programs.definedness` for numbers: what C++ leaves undefined, and branch cuts.

Each rule takes a call that is about to run and says what is wrong with it, or None.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

import torch

from aliasproof.programs.eager_call import EagerCall
from aliasproof.programs.rounding_tables import rounding_name

aten = torch.ops.aten


def converts_out_of_range(call: EagerCall) -> str | None:
    """A call casts NaN, infinity or a value out of range to an integer: undefined in C++."""
    if _unrepresentable(call) is None:
        return None
    return "converts a value that the integer dtype cannot represent"


def _unrepresentable(call: EagerCall) -> torch.Tensor | None:
    """Where a call casts a value that the integer dtype does not have; None if nowhere."""
    if call.op is aten.copy_.default:
        source, dtype = call.arguments["src"], call.arguments["self"].dtype
    elif call.op is aten._to_copy.default:
        source, dtype = call.arguments["self"], call.arguments["dtype"]
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
    """What a cast stores for values that its integer dtype does not have.

    C++ allows any number there. So a function that leaves the same with each of these is defined:
    it does not use them, as where `torch.where` chooses others.
    """

    LOWEST = "lowest"
    HIGHEST = "highest"
    ZERO = "zero"

    def where(self, call: EagerCall) -> torch.Tensor | None:
        """Where a call that is about to run casts such values; None if nowhere."""
        return _unrepresentable(call)

    def store(self, result: torch.Tensor, elements: torch.Tensor) -> None:
        """Exchange these elements of what the cast returned."""
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
    """A shift by a negative number of bits, or by all: the manual of torch says undefined."""
    if call.op.overloadpacket not in _SHIFTS:
        return None
    shifted, bits = _operands(call)
    if is_integer(shifted.dtype) and bool(
        ((bits < 0) | (bits >= 8 * shifted.element_size())).any()
    ):
        return "shifts by a number of bits that is out of range"
    return None


def lies_on_branch_cut(call: EagerCall) -> str | None:
    """A complex number lies where only the sign of a zero tells which value a function has.

    Kernels disagree on that sign: the vectorised `neg` of complex tensors gives `-1 + 0j` for
    `1 + 0j`, and its loop for the rest gives `-1 - 0j`. So it depends on the layout.
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


# C99, annex G: where each function of complex numbers has its branch cuts.
_CUTS = {
    **dict.fromkeys(("sqrt", "rsqrt", "log", "log2", "log10", "pow", "angle"), _negative),
    **dict.fromkeys(("asin", "acos", "atanh", "arcsin", "arccos", "arctanh"), _beyond_one),
    **dict.fromkeys(("acosh", "arccosh"), _below_one),
    **dict.fromkeys(("asinh", "atan", "arcsinh", "arctan"), _beyond_i),
    "log1p": lambda real, imag: _negative(real + 1, imag),
}


def kernels_disagree(call: EagerCall) -> str | None:
    """The vectorised kernel and that for other layouts give different numbers, not only bits.

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


def _logit_is_infinite(call: EagerCall) -> bool:
    return bool((call.arguments["self"] == 0).any())


_DISAGREEMENTS: dict[str, Callable[[EagerCall], bool]] = {
    "gelu": _gelu_is_too_large,
    "fmod": _quotient_is_too_large,
    "remainder": _quotient_is_too_large,
    "logit_backward": _logit_is_infinite,
}


def _operands(call: EagerCall) -> tuple[torch.Tensor, torch.Tensor]:
    """The two operands in the dtype of the result."""
    one, other = call.arguments["self"], call.arguments["other"]
    dtype = torch.result_type(one, other)
    return torch.as_tensor(one).to(dtype), torch.as_tensor(other).to(dtype)


def _is_lowest(tensor: torch.Tensor) -> torch.Tensor:
    """Where a tensor has the lowest integer of a dtype with a sign."""
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
ARITHMETIC = (
    converts_out_of_range,
    quotient_is_out_of_range,
    takes_divisor_of_lowest,
    shifts_out_of_range,
    lies_on_branch_cut,
    kernels_disagree,
)
