"""What the harness must know about an op beside its schema: one table, each name once.

All overloads of an op share its row, and so do its in-place and `out=` forms and the op on lists.
Every op that programs are drawn from needs a row; `tests/generators/test_precision.py` asks for it.
"""

from __future__ import annotations

import enum
from typing import NamedTuple


class KernelTrait(enum.Flag):
    """How the kernels of an op round: one of the first four, and what else they may do."""

    MOVES = enum.auto()  # keeps the bits of what it moves, also those of a NaN, or moves nothing
    EXACT = enum.auto()  # moves values, compares them, or rounds each element at most once
    ONCE = enum.auto()  # rounds once, which IEEE 754 defines; complex values more than once
    DIFFERS = enum.auto()  # correct kernels may differ; so may those of an op without a row

    ANY_ZERO = enum.auto()  # a kernel may give either zero where it compares 0.0 with -0.0
    # Where a number is huge, these differ from kernel to kernel by more than a tolerance.
    ADDS_IN_ANY_ORDER = enum.auto()
    MULTIPLIES = enum.auto()  # as does all that adds in any order
    CANCELS_IN_SHORT_DTYPES = enum.auto()  # some kernels round on the way, and then subtract
    # In the kernel for tensors without gaps, elements of a short dtype that are not moved change.
    CHANGES_NANS_IN_SHORT_DTYPES = enum.auto()
    # The vectorised kernels for float32 and float64 compute `exp(x)` first, and halve it then. So
    # they overflow for the last numbers whose result is finite, from log(max) to log(2 * max).
    OVERFLOWS_EARLY = enum.auto()
    MAY_DROP_NAN = enum.auto()  # of two kernels, one gives 0 where the other gives NaN
    # A kernel may leave out products with 0, which are NaN where the other factor is not finite.
    MAY_SKIP_ZEROS = enum.auto()
    READS_ZERO_SIGN = enum.auto()
    # A last bit more or less in an operand can make it give another number. Most jump where a
    # number is whole, or where two operands are equal.
    JUMPS = enum.auto()


class Row(NamedTuple):
    """The properties of ops. `why` says why kernels differ.

    `hashed` says why an op has no rule for its value hash: each element that it gives is a hash of
    its position and of all that the op reads. That is right for every op. But a target that moves
    one element in another way gets other hashes, though its values are the same. `equal` says why
    an op that takes an index tensor needs no rule for equal indices (`indexed_stores.py`).
    """

    names: str
    traits: KernelTrait
    why: str = ""
    hashed: str = ""
    equal: str = ""


_R = KernelTrait
_MIXES = "each element depends on many others"
_BY_DATA = "tensor data decide which element goes where"
_LIBRARY = "a library function without an exact result"
_SUMS = "adds in any order"
_READS = "stores nothing by index"
_COMBINES = "combines the values, so only the rounding depends on the order"

# fmt: off
ROWS = (
    Row("_to_copy _unsafe_view alias atleast_1d atleast_2d atleast_3d cat clone copy detach "
        "empty_permuted empty_strided fill flip item lift_fresh masked_fill nonzero ones "
        "new_empty_strided new_ones new_zeros repeat roll scalar_tensor stack type_as view_copy "
        "where zeros as_strided_scatter diagonal_scatter select_scatter slice_scatter", _R.MOVES),
    # These move nothing: their in-place forms change metadata.
    Row("as_strided resize resize_as set squeeze t transpose unsqueeze", _R.MOVES),
    Row("arange full full_like new_full ones_like zero zeros_like", _R.MOVES,
        hashed="a constant: the hash is of the values themselves"),
    Row("empty empty_like new_empty", _R.MOVES, hashed="memory that was never written has no hash"),
    Row("tril triu", _R.MOVES, hashed="no target computes it in another way"),
    Row("_local_scalar_dense", _R.MOVES, hashed="the result is a Python number"),
    Row("gather index index_select take", _R.MOVES, hashed=_BY_DATA, equal=_READS),
    Row("_index_put_impl _unsafe_index_put index_copy index_put masked_scatter put", _R.MOVES,
        hashed=_BY_DATA),
    Row("index_fill", _R.MOVES, hashed=_BY_DATA, equal="stores one value everywhere"),
    Row("scatter", _R.MOVES | _R.CHANGES_NANS_IN_SHORT_DTYPES, hashed=_BY_DATA),

    Row("__ilshift __irshift _conj_physical add bitwise_and bitwise_left_shift bitwise_not "
        "bitwise_or bitwise_right_shift bitwise_xor conj_physical gcd isinf isnan isposinf lcm "
        "nan_to_num neg rsub sub bernoulli rand_like randint_like random uniform",
        _R.EXACT),
    Row("clamp clamp_max clamp_min hardtanh maximum minimum relu", _R.EXACT | _R.ANY_ZERO),
    Row("threshold", _R.EXACT | _R.ANY_ZERO | _R.JUMPS),
    Row("_add_relu", _R.EXACT | _R.ANY_ZERO | _R.MAY_DROP_NAN),
    Row("ceil eq floor frac ge gt heaviside le logical_and logical_not logical_or logical_xor lt "
        "ne nextafter randperm round sign trunc", _R.EXACT | _R.JUMPS),
    Row("copysign signbit", _R.EXACT | _R.READS_ZERO_SIGN | _R.JUMPS),
    Row("amax amin aminmax", _R.EXACT | _R.ANY_ZERO, hashed=_MIXES),
    Row("cummax cummin max min", _R.EXACT | _R.ANY_ZERO | _R.JUMPS, hashed=_MIXES),
    Row("all any argmax argmin sort", _R.EXACT | _R.JUMPS, hashed=_MIXES),
    Row("_int_mm", _R.EXACT, hashed=_MIXES),
    Row("index_reduce scatter_reduce", _R.EXACT | _R.ANY_ZERO, hashed=_BY_DATA, equal=_COMBINES),

    Row("abs leaky_relu", _R.ONCE),
    Row("sgn", _R.ONCE | _R.JUMPS),
    Row("mul square", _R.ONCE | _R.MULTIPLIES),

    Row("acos acosh asin asinh atan atanh celu cos digamma elu erf erfc erfinv exp exp2 expm1 gelu "
        "i0 igamma igammac lgamma log log10 log1p log2 logit mish mvlgamma sigmoid silu sin sinc "
        "tan tanh xlogy", _R.DIFFERS, _LIBRARY),
    Row("hypot", _R.DIFFERS | _R.ADDS_IN_ANY_ORDER, _LIBRARY),
    Row("pow", _R.DIFFERS | _R.MULTIPLIES | _R.READS_ZERO_SIGN, _LIBRARY),
    Row("cosh sinh", _R.DIFFERS | _R.OVERFLOWS_EARLY, _LIBRARY),
    Row("atan2 rsqrt", _R.DIFFERS | _R.READS_ZERO_SIGN, _LIBRARY),
    Row("polygamma", _R.DIFFERS, _LIBRARY, "in place, it takes its arguments in another order"),
    Row("sqrt", _R.DIFFERS, "the vector library that eager calls does not round it correctly"),
    Row("div reciprocal", _R.DIFFERS | _R.MULTIPLIES | _R.READS_ZERO_SIGN,
        "may multiply by the reciprocal, or round in between"),
    Row("floor_divide fmod remainder", _R.DIFFERS | _R.ADDS_IN_ANY_ORDER | _R.JUMPS,
        "may divide, round and multiply"),
    Row("hardsigmoid hardswish", _R.DIFFERS, "multiplies and adds"),
    Row("addcdiv addcmul fma lerp", _R.DIFFERS | _R.ADDS_IN_ANY_ORDER, "multiplies and adds"),
    Row("deg2rad rad2deg", _R.DIFFERS, "multiplies by a constant that it rounds"),
    Row("ldexp", _R.DIFFERS | _R.MULTIPLIES, "multiplies by a constant that it rounds"),
    Row("cumsum mean sum", _R.DIFFERS | _R.ADDS_IN_ANY_ORDER, _SUMS, _MIXES),
    Row("cumprod prod", _R.DIFFERS | _R.ADDS_IN_ANY_ORDER, "multiplies in any order", _MIXES),
    Row("addbmm addmm addmv baddbmm bmm convolution dot mm mv",
        _R.DIFFERS | _R.ADDS_IN_ANY_ORDER | _R.MAY_SKIP_ZEROS, _SUMS, _MIXES),
    Row("addr", _R.DIFFERS | _R.ADDS_IN_ANY_ORDER | _R.MAY_SKIP_ZEROS, "multiplies and adds",
        _MIXES),
    Row("matmul", _R.DIFFERS, "calls one of mm, bmm, mv, dot", _MIXES),
    Row("index_add", _R.DIFFERS | _R.ADDS_IN_ANY_ORDER, _SUMS, _MIXES, _COMBINES),
    Row("scatter_add", _R.DIFFERS | _R.ADDS_IN_ANY_ORDER, _SUMS, _BY_DATA, _COMBINES),
    Row("renorm", _R.DIFFERS | _R.ADDS_IN_ANY_ORDER, "computes norms", _MIXES),
    Row("embedding_renorm", _R.DIFFERS | _R.ADDS_IN_ANY_ORDER, "computes norms", _MIXES,
        "scales each row once"),
    Row("_amp_foreach_non_finite_check_and_unscale _amp_update_scale _fused_adagrad _fused_adam "
        "_fused_adamw _fused_sgd", _R.DIFFERS | _R.ADDS_IN_ANY_ORDER, _SUMS, _MIXES),
    Row("_batch_norm_with_update _native_batch_norm_legit",
        _R.DIFFERS | _R.ADDS_IN_ANY_ORDER | _R.CANCELS_IN_SHORT_DTYPES, _SUMS, _MIXES),
    Row("dropout feature_dropout", _R.DIFFERS, "multiplies by a rounded factor"),
    Row("alpha_dropout feature_alpha_dropout", _R.DIFFERS, "multiplies and adds"),
    # Those with a generator of their own are compared by a control, too, which draws once more.
    Row("cauchy exponential geometric log_normal normal rand randint randn randn_like", _R.DIFFERS,
        "random numbers that a library function transforms"),
    Row("native_dropout rrelu_with_noise", _R.DIFFERS,
        "random numbers, multiplied by rounded factors"),

    # Programs that are lifted call these other names of comparisons and of `trunc`.
    Row("fix greater greater_equal less less_equal not_equal", _R.JUMPS),
)
# fmt: on

PROPERTIES = {name: row for row in ROWS for name in row.names.split()}


def names_with(traits: KernelTrait) -> frozenset[str]:
    """The ops that have one of these properties."""
    return frozenset(name for name, row in PROPERTIES.items() if row.traits & traits)
