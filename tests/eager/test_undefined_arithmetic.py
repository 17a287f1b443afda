"""`aliasproof.eager.definedness_rules`: what C++ leaves undefined."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor

from aliasproof.eager.definedness import Undefined, Watch
from aliasproof.ir.devices import cpu_capability
from aliasproof.oracles.observation import observe_eager

LOWEST, DIVISOR, SHIFT, CONVERSION, CUT, DISAGREE, MODE = (
    "divides the lowest integer by -1",
    "takes a common divisor of the lowest integer",
    "shifts by a number of bits that is out of range",
    "converts a value that the integer dtype cannot represent",
    "is called on its branch cut, where the sign of a zero decides",
    "is called where its result depends on the layout: its kernels disagree",
    "samples in a mode that is none",
)


GRID = torch.zeros(1, 4, 4, 2)


def sampled(mode: int, padding: int, x: Tensor) -> Tensor:
    result: Tensor = torch.ops.aten.grid_sampler_2d(torch.ones(1, 1, 4, 4), x, mode, padding, False)
    return result


def lowest(dtype: torch.dtype) -> Tensor:
    return torch.tensor([torch.iinfo(dtype).min], dtype=dtype)


# With the vector instructions of processors on which the kernels disagree. What is undefined on one
# of them is undefined everywhere.
DISAGREEMENTS = [
    (torch.nn.functional.gelu, torch.full((64,), math.inf), ("AVX512",)),
    (lambda x: x.fmod(0.5), torch.full((64,), 3e38), ("AVX2", "AVX512")),
    (
        lambda x: x.remainder(torch.full_like(x, 1e-38)),
        torch.full((64,), 1e20),
        ("AVX2", "AVX512"),
    ),
    (
        lambda x: torch.ops.aten.logit_backward(torch.ones_like(x), x),
        torch.full((64,), -0.0),
        ("DEFAULT", "AVX2", "AVX512"),
    ),
]


@pytest.mark.vectors
@pytest.mark.parametrize(("function", "x", "capabilities"), DISAGREEMENTS)
def test_kernels_disagree(
    function: Callable[[Tensor], Tensor], x: Tensor, capabilities: tuple[str, ...]
) -> None:
    if cpu_capability() not in capabilities:
        pytest.skip(f"they may agree with the instructions of this processor: {cpu_capability()}")
    apart = torch.stack([x, x], 1)[:, 0]
    assert not torch.equal(function(x).nan_to_num(5), function(apart).nan_to_num(5))


@pytest.mark.vectors
@pytest.mark.parametrize(
    ("reason", "function", "x"),
    [
        (LOWEST, lambda x: x // -1, lowest(torch.int32)),
        (LOWEST, lambda x: x.remainder(torch.tensor([-1])), lowest(torch.int64)),
        (DIVISOR, lambda x: x.gcd(torch.tensor([6])), lowest(torch.int64)),
        (DIVISOR, lambda x: x.lcm_(x.new_tensor([6])), lowest(torch.int32)),
        (DIVISOR, lambda x: torch.tensor([7]).lcm(x), lowest(torch.int64)),
        (SHIFT, lambda x: x << 64, torch.tensor([1])),
        (SHIFT, lambda x: x >> x, torch.tensor([-1])),
        (CONVERSION, lambda x: x.to(torch.int8), torch.tensor([128.0])),
        (CONVERSION, lambda x: x.long(), torch.tensor([float("nan")])),
        (CUT, lambda x: (-x).rsqrt(), torch.ones(9, dtype=torch.complex64)),
        (CUT, lambda x: torch._foreach_log([-x])[0], torch.ones(9, dtype=torch.complex64)),
        (CUT, lambda x: x.atan_(), torch.tensor([2j])),
        (CUT, lambda x: x.acosh(), torch.tensor([0j])),
        *((MODE, partial(sampled, mode, padding), GRID) for mode, padding in ((3, 0), (0, -1))),
        *((DISAGREE, function, x) for function, x, _ in DISAGREEMENTS),
    ],
)
def test_undefined(reason: str, function: Callable[[Tensor], Tensor], x: Tensor) -> None:
    with pytest.raises(Undefined, match=f" {reason}$"):
        observe_eager(function, [x])


@pytest.mark.parametrize(
    ("function", "x"),
    [
        (lambda x: (x + 1) // -1, lowest(torch.int32)),
        (lambda x: (x + 1).gcd(torch.tensor([6])), lowest(torch.int64)),
        (lambda x: x.lcm(x), lowest(torch.uint8)),
        (lambda x: x << 63, torch.tensor([1])),
        (lambda x: x.to(torch.int8), torch.tensor([-128.5])),
        (lambda x: x.rsqrt(), torch.tensor([1 + 0j, 2 - 1j])),
        (lambda x: x.acosh(), torch.tensor([2 + 0j])),
        (torch.nn.functional.gelu, torch.tensor([-math.inf, 1e38])),
        (lambda x: x.fmod(2), torch.tensor([math.inf, 7])),
        (lambda x: x.fmod(2), torch.tensor([7])),
        *((partial(sampled, mode, padding), GRID) for mode, padding in ((2, 0), (0, 2))),
    ],
)
def test_defined(function: Callable[[Tensor], Tensor], x: Tensor) -> None:
    observed, _ = observe_eager(function, [x])
    assert observed.error is None


def test_a_number_is_copied_as_a_tensor():
    """`copy_` takes a number where its schema has a tensor."""
    x, whole = torch.ones(2), torch.ones(2, dtype=torch.int64)
    with Watch([x, whole]):
        x.copy_(1.5)  # type: ignore[arg-type]
    assert x.tolist() == [1.5, 1.5]
    with Watch([x, whole]), pytest.raises(Undefined, match="cannot represent"):
        whole.copy_(math.nan)  # type: ignore[arg-type]
