"""`aliasproof.eager.definedness_rules`: eager itself is wrong, so there is nothing to compare."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from aliasproof.eager.definedness import Undefined
from aliasproof.oracles.observation import observe_eager

aten = torch.ops.aten


def draws(x: Tensor, noise: Tensor, *, training: bool) -> Tensor:
    result: Tensor = aten.rrelu_with_noise.default(x, noise, 0.1, 0.1, training)
    return result


def test_the_kernel_takes_the_noise_for_contiguous() -> None:
    noise = torch.zeros(4)
    draws(torch.ones(2), noise[::2], training=True)
    assert noise[1], "no element of the noise: fixed in this torch, and the rule can go"


def test_a_noise_with_gaps_is_undefined_in_training() -> None:
    noise = torch.zeros(4)
    with pytest.raises(Undefined, match="takes its noise for contiguous"):
        observe_eager(lambda x: draws(x, noise[::2], training=True), [torch.ones(2)])
    assert not noise.any()


@pytest.mark.parametrize(("step", "training"), [(1, True), (2, False)])
def test_what_the_kernel_does_right_is_defined(step: int, *, training: bool) -> None:
    noise = torch.zeros(2 * step)[::step]
    observed, _ = observe_eager(lambda x: draws(x, noise, training=training), [torch.ones(2)])
    assert observed.error is None


def updated(parameter: Tensor, gradient: Tensor, momentum: Tensor) -> Tensor:
    sgd = {"weight_decay": 0.0, "momentum": 0.5, "lr": 1.0, "dampening": 0.0}
    flags = dict.fromkeys(("nesterov", "maximize", "is_first_step"), False)
    aten._fused_sgd_.default([parameter], [gradient], [momentum], **sgd, **flags)
    return parameter


def test_a_fused_optimizer_takes_a_parameter_for_one_row() -> None:
    around = torch.zeros(8)
    updated(around[::2], torch.ones(4), torch.zeros(4))
    assert around[1] == -1, "no element of the parameter: fixed in this torch, the rule can go"


@pytest.mark.parametrize(
    ("momentum", "reason"), [(torch.zeros(3), "of its size"), (torch.zeros(8)[::2], "without gaps")]
)
def test_a_fused_optimizer_on_states_of_another_layout_is_undefined(
    momentum: Tensor, reason: str
) -> None:
    """It read past the end of the storage, and ended the process."""
    with pytest.raises(Undefined, match=reason):
        observe_eager(updated, [torch.zeros(4), torch.ones(4), momentum])


def test_a_fused_optimizer_on_states_like_the_parameter_is_defined() -> None:
    one, two, three = (torch.ones(3, 2).t() for _ in range(3))
    observed, _ = observe_eager(updated, [one, two, three])
    assert observed.error is None


def squeezed_conjugate(x: Tensor) -> Tensor:
    with torch.no_grad():
        x.conj().squeeze_(1)
    return x


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
def test_a_squeeze_of_a_conjugate_writes_memory() -> None:
    memory = torch.tensor([1j, 2j, 3j, 4j])
    squeezed_conjugate(memory.as_strided((2, 1, 2), (1, 1, 2)))
    assert memory[1] == 3j, "no element was moved: fixed in this torch, and the rule can go"


def test_a_squeeze_of_a_conjugate_is_undefined() -> None:
    with pytest.raises(Undefined, match="should only view"):
        observe_eager(squeezed_conjugate, [torch.tensor([[1j, 2j], [3j, 4j]]).unsqueeze(1)])


def test_a_squeeze_of_all_dimensions_of_a_conjugate_is_defined() -> None:
    observed, _ = observe_eager(lambda x: x.conj().squeeze_(), [torch.ones(2, 1) * 1j])
    assert observed.error is None


def copied(to: Tensor, source: Tensor, *, lazy: str) -> Tensor:
    negative = aten._neg_view.default
    if lazy == "source":
        to.copy_(negative(source))
    elif lazy == "destination":
        negative(to).copy_(source)
    else:
        negative(to).copy_(negative(source))
    return to


DTYPES = [(torch.float16, torch.float32), (torch.float32, torch.float16)]


@pytest.mark.parametrize("lazy", ["source", "destination"])
@pytest.mark.parametrize("dtypes", DTYPES)
def test_a_copy_between_half_and_float_loses_the_sign(
    dtypes: tuple[torch.dtype, torch.dtype], lazy: str
) -> None:
    to, source = (torch.ones(4, dtype=dtype) for dtype in dtypes)
    assert copied(to, source, lazy=lazy)[0] == 1, "fixed in this torch, and the rule can go"
    with pytest.raises(Undefined, match="loses the sign"):
        observe_eager(lambda *args: copied(*args, lazy=lazy), [to, source])


@pytest.mark.parametrize(
    ("dtypes", "lazy"), [(DTYPES[0], "both"), ((torch.bfloat16, torch.float32), "source")]
)
def test_a_copy_that_keeps_the_sign_is_defined(
    dtypes: tuple[torch.dtype, torch.dtype], lazy: str
) -> None:
    to, source = (torch.ones(4, dtype=dtype) for dtype in dtypes)
    observed, _ = observe_eager(lambda *args: copied(*args, lazy=lazy), [to, source])
    assert observed.error is None
    (output,) = observed.outputs
    assert isinstance(output, Tensor)
    assert output[0] == (1 if lazy == "both" else -1)
