"""Properties of ops that are not in their schema: one table, each name once.

All overloads of an op share its row, and so do its in-place and `out=` forms and the op on lists.
Every op that generated programs use needs a row; `tests/generators/test_precision.py` checks it.
"""

from __future__ import annotations

import enum
from typing import NamedTuple


class KernelTrait(enum.Flag):
    """How the kernels of an op round (one of the first four), and further properties."""

    MOVES = enum.auto()  # moves elements and keeps their bits, also those of a NaN, or moves none
    EXACT = enum.auto()  # moves values, compares them, or rounds each element at most once
    ONCE = enum.auto()  # rounds once, which IEEE 754 defines; complex values more than once
    DIFFERS = enum.auto()  # correct kernels may differ, as may those of an op without a row

    ANY_ZERO = enum.auto()  # a kernel that compares 0.0 with -0.0 may return either zero
    # For huge numbers, these differ from kernel to kernel by more than a tolerance.
    ADDS_IN_ANY_ORDER = enum.auto()
    MULTIPLIES = enum.auto()  # as do all ops that add in any order
    CANCELS_IN_SHORT_DTYPES = enum.auto()  # some kernels round an intermediate, then subtract
    # The kernel for tensors without gaps changes elements of a short dtype that are not moved.
    CHANGES_NANS_IN_SHORT_DTYPES = enum.auto()
    # The vectorised kernels for float32 and float64 compute `exp(x)` first, and then halve it. So
    # they overflow for the last numbers whose result is finite, from log(max) to log(2 * max).
    OVERFLOWS_EARLY = enum.auto()
    MAY_DROP_NAN = enum.auto()  # of two kernels, one returns 0 where the other returns NaN
    # A kernel may skip products with 0, which are NaN if the other factor is not finite.
    MAY_SKIP_ZEROS = enum.auto()
    READS_ZERO_SIGN = enum.auto()
    # A difference in the last bit of an operand can change the result to another number. Most jump
    # at whole numbers, or where two operands are equal.
    JUMPS = enum.auto()


class Row(NamedTuple):
    """The properties of ops. `why` says why kernels differ.

    `hashed` says why an op has no rule for its value hash: then each element of its result is a
    hash of its position and of everything that the op reads. That is right for every op. But a
    target that moves one element in another way gets other hashes, though its values are the same.
    `equal` says why an op with an index tensor needs no rule for equal indices
    (`indexed_stores.py`).
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
_ALONE = "no target computes it in another way"
_ELSEWHERE = "which element goes where depends on sizes alone, but hashes of operands do not tell"
_COMBINES = "combines the values, so only the rounding depends on the order"

# fmt: off
ROWS = (
    Row("_to_copy _unsafe_view alias atleast_1d atleast_2d atleast_3d cat clone collapse "
        "convert_element_type copy copy_strided detach empty_permuted empty_strided fill flip "
        "item lift_fresh lift_fresh_copy masked_fill repeat reshape roll stack type_as where "
        "as_strided_scatter diagonal_scatter select_scatter slice_scatter", _R.MOVES),
    # Copies of views.
    Row("alias_copy as_strided_copy diagonal_copy expand_copy narrow_copy permute_copy "
        "split_with_sizes_copy squeeze_copy t_copy transpose_copy unbind_copy unfold_copy "
        "unsqueeze_copy view_copy", _R.MOVES),
    # These move no data: their in-place forms change metadata.
    Row("as_strided set squeeze t transpose unsqueeze", _R.MOVES),
    Row("arange eye full full_like new_full new_ones new_zeros ones ones_like promote_types "
        "scalar_tensor zero zeros zeros_like", _R.MOVES,
        hashed="a constant: the hash is of the values themselves"),
    Row("empty empty_like new_empty new_empty_strided resize resize_as", _R.MOVES,
        hashed="memory that was never written has no hash"),
    Row("lift tril triu", _R.MOVES, hashed=_ALONE),
    Row("block_diag channel_shuffle constant_pad_nd diag_embed im2col native_channel_shuffle "
        "pixel_shuffle pixel_unshuffle reflection_pad1d reflection_pad2d reflection_pad3d "
        "replication_pad1d replication_pad2d replication_pad3d rot90 unsafe_split "
        "unsafe_split_with_sizes upsample_nearest1d upsample_nearest2d upsample_nearest3d",
        _R.MOVES, hashed=_ELSEWHERE),
    Row("masked_select nonzero repeat_interleave", _R.MOVES, hashed=_BY_DATA),
    Row("embedding", _R.MOVES, hashed=_BY_DATA, equal=_READS),
    Row("_local_scalar_dense", _R.MOVES, hashed="the result is a Python number"),
    Row("gather index index_select take", _R.MOVES, hashed=_BY_DATA, equal=_READS),
    Row("_index_put_impl _unsafe_index_put index_copy index_put masked_scatter put", _R.MOVES,
        hashed=_BY_DATA),
    Row("index_fill", _R.MOVES, hashed=_BY_DATA, equal="stores one value everywhere"),
    Row("scatter", _R.MOVES | _R.CHANGES_NANS_IN_SHORT_DTYPES, hashed=_BY_DATA),

    Row("__ilshift __irshift _conj_physical add bitwise_and bitwise_left_shift bitwise_not "
        "bitwise_or bitwise_right_shift bitwise_xor conj_physical gcd isinf isnan isposinf lcm "
        "nan_to_num neg sub bernoulli rand_like randint_like random uniform",
        _R.EXACT),
    Row("rsub", _R.EXACT, hashed="a difference with its operands in the other order"),
    Row("clamp clamp_max clamp_min fmax fmin hardtanh maximum minimum relu",
        _R.EXACT | _R.ANY_ZERO),
    Row("threshold", _R.EXACT | _R.ANY_ZERO | _R.JUMPS),
    Row("_add_relu", _R.EXACT | _R.ANY_ZERO | _R.MAY_DROP_NAN),
    Row("bucketize count_nonzero equal hardshrink isin isneginf searchsorted softshrink",
        _R.EXACT | _R.JUMPS, hashed=_MIXES),
    Row("ceil eq floor frac frexp ge gt heaviside le logical_and logical_not logical_or "
        "logical_xor lt ne nextafter randperm round sign trunc", _R.EXACT | _R.JUMPS),
    Row("copysign signbit", _R.EXACT | _R.READS_ZERO_SIGN | _R.JUMPS),
    Row("amax amin aminmax", _R.EXACT | _R.ANY_ZERO, hashed=_MIXES),
    Row("adaptive_max_pool2d adaptive_max_pool3d cummax cummin fractional_max_pool2d kthvalue max "
        "max_pool2d_with_indices max_pool3d_with_indices median min mode nanmedian topk "
        "unique_consecutive unique_dim unique_dim_consecutive",
        _R.EXACT | _R.ANY_ZERO | _R.JUMPS, hashed=_MIXES),
    Row("all any argmax argmin sort", _R.EXACT | _R.JUMPS, hashed=_MIXES),
    Row("_int_mm", _R.EXACT, hashed=_MIXES),
    Row("index_reduce scatter_reduce", _R.EXACT | _R.ANY_ZERO, hashed=_BY_DATA, equal=_COMBINES),

    Row("abs leaky_relu", _R.ONCE),
    Row("sgn", _R.ONCE | _R.JUMPS),
    Row("mul square", _R.ONCE | _R.MULTIPLIES),

    Row("acos acosh asin asinh atan atanh celu cos digamma elu erf erfc erfinv exp exp2 expm1 gelu "
        "i0 igamma igammac lgamma log log10 log1p log2 logit mish mvlgamma sigmoid silu sin sinc "
        "tan tanh xlogy", _R.DIFFERS, _LIBRARY),
    # The module `special`.
    Row("special_airy_ai special_bessel_j0 special_bessel_j1 special_bessel_y0 special_bessel_y1 "
        "special_chebyshev_polynomial_t special_chebyshev_polynomial_u "
        "special_chebyshev_polynomial_v special_chebyshev_polynomial_w special_entr special_erfcx "
        "special_hermite_polynomial_h special_hermite_polynomial_he special_i0e special_i1 "
        "special_i1e special_laguerre_polynomial_l special_legendre_polynomial_p special_log_ndtr "
        "special_modified_bessel_i0 special_modified_bessel_i1 special_modified_bessel_k0 "
        "special_modified_bessel_k1 special_ndtri special_scaled_modified_bessel_k0 "
        "special_scaled_modified_bessel_k1 special_shifted_chebyshev_polynomial_t "
        "special_shifted_chebyshev_polynomial_u special_shifted_chebyshev_polynomial_v "
        "special_shifted_chebyshev_polynomial_w special_spherical_bessel_j0 special_xlog1py "
        "special_zeta", _R.DIFFERS | _R.ADDS_IN_ANY_ORDER, _LIBRARY),
    Row("angle log_sigmoid_forward softplus", _R.DIFFERS, _LIBRARY, _ALONE),
    Row("glu", _R.DIFFERS, _LIBRARY, _MIXES),
    Row("linspace logspace", _R.DIFFERS, "multiplies and adds", "counts from both ends"),
    Row("logaddexp logaddexp2", _R.DIFFERS | _R.ADDS_IN_ANY_ORDER, _LIBRARY),
    Row("fake_quantize_per_channel_affine_cachemask fake_quantize_per_tensor_affine_cachemask "
        "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams bincount histc histogram",
        _R.DIFFERS | _R.JUMPS, "divides or multiplies, and rounds then", _MIXES),
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
    Row("cumsum mean nansum sum trace vdot", _R.DIFFERS | _R.ADDS_IN_ANY_ORDER, _SUMS, _MIXES),
    Row("_adaptive_avg_pool2d _adaptive_avg_pool3d _euclidean_dist _fft_c2c _fft_c2r _fft_r2c "
        "_pdist_forward _slow_conv2d_forward _trilinear avg_pool2d avg_pool3d col2im convolution "
        "dist grid_sampler_2d linalg_cross linalg_vector_norm norm slow_conv3d_forward "
        "upsample_bicubic2d upsample_bilinear2d upsample_linear1d upsample_trilinear3d",
        _R.DIFFERS | _R.ADDS_IN_ANY_ORDER | _R.MAY_SKIP_ZEROS, _SUMS, _MIXES),
    Row("binary_cross_entropy binary_cross_entropy_with_logits huber_loss mse_loss "
        "multi_margin_loss multilabel_margin_loss_forward nll_loss_forward smooth_l1_loss "
        "soft_margin_loss",
        _R.DIFFERS | _R.ADDS_IN_ANY_ORDER, "a mean of what it computes", _MIXES),
    Row("_log_softmax _safe_softmax _softmax logcumsumexp logsumexp",
        _R.DIFFERS | _R.ADDS_IN_ANY_ORDER, "adds powers in any order", _MIXES),
    Row("native_batch_norm native_group_norm native_layer_norm std std_mean var var_mean",
        _R.DIFFERS | _R.ADDS_IN_ANY_ORDER | _R.CANCELS_IN_SHORT_DTYPES, _SUMS, _MIXES),
    Row("_prelu_kernel", _R.ONCE, hashed=_ALONE),
    Row("cumprod prod", _R.DIFFERS | _R.ADDS_IN_ANY_ORDER, "multiplies in any order", _MIXES),
    Row("addbmm addmm addmv baddbmm bmm dot mm mv",
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
    # Those with a generator of their own are also compared with a control, which draws once more.
    Row("cauchy exponential geometric log_normal normal rand randint randn randn_like", _R.DIFFERS,
        "random numbers that a library function transforms"),
    Row("multinomial", _R.DIFFERS | _R.JUMPS, "divides random numbers by sums", _MIXES),
    Row("native_dropout rrelu_with_noise rrelu_with_noise_functional", _R.DIFFERS,
        "random numbers, multiplied by rounded factors"),

    # Other names of comparisons and of `trunc`, which lifted programs call.
    Row("fix greater greater_equal less less_equal not_equal", _R.JUMPS),
)
# fmt: on

PROPERTIES = {name: row for row in ROWS for name in row.names.split()}


def traits_of(name: str) -> KernelTrait:
    """The traits of an op; none if it has no row."""
    return PROPERTIES[name].traits if name in PROPERTIES else KernelTrait(0)
