"""Training programs that write: each call as in eager, for inputs that share memory or not."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from aliasproof.reference_pass import views
from aliasproof.reference_pass.backend import aliasproof, building
from aliasproof.reference_pass.backend.differentiation import TRAINING
from aliasproof.reference_pass.calls import operand_reads
from aliasproof.reference_pass.calls.operator_forms import functional_form

# The inputs of one call, and the leaves whose gradients are compared.
Inputs = Callable[[], tuple[Sequence[Tensor], Sequence[Tensor]]]


@pytest.fixture(autouse=True)
def fresh_dynamo():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def weights(count: int = 3) -> Tensor:
    return torch.arange(1.0, count + 1).requires_grad_()


def results(function: Callable[..., Any], calls: Sequence[Inputs]) -> list[Any]:
    """All that each call leaves behind: outputs, inputs, gradients, and who has a gradient."""
    left: list[Any] = []
    for inputs in calls:
        given, leaves = inputs()
        output = function(*given)
        outputs = [output] if isinstance(output, Tensor) else list(output)
        tensors = [*outputs, *given]
        ends = [tensor for tensor in tensors if tensor.requires_grad]
        numbers = [torch.arange(1.0, end.numel() + 1).view(end.shape).to(end.dtype) for end in ends]
        gradients: Sequence[Tensor] = ()
        if ends and leaves:
            gradients = torch.autograd.grad(ends, leaves, numbers, materialize_grads=True)
        # As text, a zero has a sign, and what is no number equals itself.
        left.append([repr(tensor.tolist()) for tensor in (*tensors, *gradients)])
        left.append([tensor.requires_grad for tensor in tensors])
    return left


def assert_as_eager(function: Callable[..., Any], *calls: Inputs) -> None:
    expected = results(function, calls)
    assert results(torch.compile(function, backend=aliasproof), calls) == expected


def with_weights(*shape: int) -> Inputs:
    """Numbers, and weights that multiply their last dimension."""

    def made() -> tuple[Sequence[Tensor], Sequence[Tensor]]:
        w = weights(shape[-1])
        return (torch.arange(float(torch.Size(shape).numel())).view(shape), w), [w]

    return made


# --- views that functionalization in AOTAutograd gets wrong, or refuses ---------------------------


def expands(x, w):
    z = x[:1] + 1
    z.expand(3).fill_(2)
    return z * w


def unfolds(x, w):
    z = x.clone()
    z.unfold(0, 2, 3).add_(1)
    return z * 2 * w


def fills_bools(x, w):
    z = x > 1
    z[:1].expand(4).fill_(True)
    return z * w


def restrides_a_slice(x, w):
    z = x.clone()
    z[1:2].as_strided((2,), (1,)).add_(1)
    return z * w


def scales_blocks(x, w):
    z = x * w
    z.as_strided((2,), (2,)).mul_(3)
    return z + 1


def assigns_rows(x, w):
    z = torch.zeros(2, 3)
    z[0] = x * w
    z[1, 1:] += w[:2]
    return z.sin()


# --- what autograd sees of a write ----------------------------------------------------------------


def detaches_and_scales(x, w):
    y = x * w
    y.detach()[1:].mul_(2)
    return y * w


def scales_data(x, w):
    y = x * w
    y.data.mul_(2)
    return y + w


def turns(x, w):
    with torch.no_grad():
        y = x - 1
        y.unsqueeze_(0)
        z = torch.empty(0)
        torch.add(x, w, out=z)
    return y * w + z


def compares(x, w):
    y = x * w
    torch.eq(y, x, out=y)
    return y * w


def clamps_weights(x, w):
    with torch.no_grad():
        w.clamp_(1.5, 2.5)
    return (x * w).sum()


def decides(x, w):
    y = x * w
    y[1:].logical_not_()
    return y * w


def averages_without_gradients(x, w):
    with torch.no_grad():
        x.mul_(0.5).add_(w, alpha=0.25)
        copy = w * 2
    return x * w + copy, copy


def draws_numbers(x, w):
    y = x * w
    y[1:].bernoulli_(1.0)
    return y * w


def zeroes_logarithms(x, w):
    y = w - 1
    y.view(1, 3).log_()
    y.zero_()
    return y.isnan(), y * x


def normalises_batches(x, w):
    return functional.batch_norm(x * w, torch.zeros(3), torch.ones(3), training=True).square()


@pytest.mark.parametrize(
    "function",
    [
        *(expands, fills_bools, restrides_a_slice, scales_blocks, assigns_rows),
        *(
            detaches_and_scales,
            scales_data,
            draws_numbers,
            decides,
            turns,
            compares,
            clamps_weights,
            averages_without_gradients,
            zeroes_logarithms,
        ),
    ],
)
def test_a_write_in_training(function):
    assert_as_eager(function, with_weights(3), with_weights(3))


def test_writes_to_windows():
    assert_as_eager(unfolds, with_weights(8))


def test_batch_norm():
    assert_as_eager(normalises_batches, with_weights(4, 3))


def test_an_input_with_a_gradient_is_written_beside_an_output_without_one():
    def adds(x, y):
        x.add_(1)
        y.add_(1)
        return y

    def inputs():
        leaf = weights()
        return (leaf * 1, torch.arange(3)), [leaf]

    assert_as_eager(adds, inputs)


def test_the_backward_needs_what_an_input_was():
    def scales(x, w):
        x.mul_(w)
        y = x * 2
        return x[0], y, y[1:], x.detach()

    def inputs():
        leaf, w = weights(), weights()
        return (leaf * 1, w), [leaf, w]

    assert_as_eager(scales, inputs, inputs)


# --- inputs that share memory in some calls -------------------------------------------------------


def windows(*starts: int, count: int = 3) -> Inputs:
    """Windows of one tensor, and weights; in separate tensors without starts."""

    def made() -> tuple[Sequence[Tensor], Sequence[Tensor]]:
        w, source = weights(count), torch.arange(12.0)
        shown = [source[start : start + count] for start in starts]
        return (*(shown or [source[:count].clone(), source[:count].clone()]), w), [w]

    return made


def test_a_second_call_with_inputs_that_share_memory():
    def adds(a, b, w):
        a.add_(1)
        return b * w

    assert_as_eager(adds, windows(), windows(0, 1), windows(), windows(4, 4), windows(5, 3))


def test_a_strided_view_of_all_memory_has_the_gradient_of_each_offset():
    def reads_from_the_start(x):
        return x.as_strided((2,), (1,), 0) * x

    def window(start):
        def inputs():
            leaf = torch.arange(6.0).requires_grad_()
            return ((leaf * 1)[start : start + 2],), [leaf]

        return inputs

    assert_as_eager(reads_from_the_start, *map(window, (2, 0, 3)))


def test_a_window_of_state_moves():
    def roll(previous, new, w):
        new.copy_((previous * w + 1).detach())
        return (new * w).sum()

    assert_as_eager(roll, *(windows(start, start + 2, count=4) for start in range(4)))


def test_inputs_that_share_memory_and_have_gradients_run_as_they_were_given():
    def adds(a, b):
        a.add_(1)
        return a * b

    def scales_detached(a, b):
        a.detach()[1:].mul_(2)
        return b * 3

    def separate():
        leaf, other = weights(), weights()
        return (leaf * 1, other * 1), [leaf, other]

    def together():
        leaf = weights(4)
        base = leaf * 1
        return (base[:3], base[1:]), [leaf]

    for function in (adds, scales_detached):
        torch._dynamo.reset()
        assert_as_eager(function, together, separate, together)


class ScalesInPlace(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.mark_dirty(x.mul_(2))
        return x

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient * 4


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
def test_a_function_with_a_backward_of_its_own_runs_as_it_was_given():
    def scales(x):
        return ScalesInPlace.apply(x) + 1

    def inputs():
        leaf = weights()
        return (leaf * 1,), [leaf]

    assert_as_eager(scales, inputs)


def test_a_checkpoint_with_writes_saves_what_eager_saves():
    def block(x, w):
        h = x @ w
        h[:, 0] += 1
        return h.relu_().sin()

    def checkpointed(x, w):
        y = x * 2
        y[0].zero_()
        return checkpoint(block, y, w, use_reentrant=False)

    def inputs():
        leaf, w = torch.arange(12.0).view(3, 4).requires_grad_(), torch.eye(4).requires_grad_()
        return (leaf * 0.1, w), [leaf, w]

    assert_as_eager(checkpointed, inputs, inputs)
    torch._dynamo.reset()
    compiled, saved = torch.compile(checkpointed, backend=aliasproof), list[Tensor]()
    compiled(*inputs()[0])
    with torch.autograd.graph.saved_tensors_hooks(saved.append, lambda tensor: tensor):
        compiled(*inputs()[0])
    assert sorted(tuple(tensor.shape) for tensor in saved) == [(3, 4), (4, 4)]


def test_hooks_on_saved_tensors_see_those_of_the_call_alone():
    saved: list[Tensor] = []
    (x, w), _ = with_weights(3)()
    with torch.autograd.graph.saved_tensors_hooks(saved.append, lambda tensor: tensor):
        torch.compile(assigns_rows, backend=aliasproof)(x, w)
    assert saved
    assert not any(isinstance(tensor, FakeTensor) for tensor in saved)


def test_a_module_keeps_its_statistics():
    def run(compile_module):
        torch.manual_seed(0)
        module = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.ReLU(inplace=True))
        run = compile_module(module)
        for _ in range(3):
            run(torch.randn(5, 4)).sum().backward()
        gradients = [parameter.grad for parameter in module.parameters()]
        left = [*module.buffers(), *(tensor for tensor in gradients if tensor is not None)]
        return [tensor.tolist() for tensor in left]

    assert run(lambda module: torch.compile(module, backend=aliasproof)) == run(lambda x: x)


# --- each rule of training is needed --------------------------------------------------------------


@pytest.mark.parametrize(
    ("rules", "function"),
    [
        (replace(TRAINING, inverses=views.INVERSES), detaches_and_scales),
        (replace(TRAINING, detaches=False), detaches_and_scales),
        (replace(TRAINING, functional_form=functional_form), draws_numbers),
        (replace(TRAINING, overwrites=operand_reads.overwrites), zeroes_logarithms),
    ],
)
def test_without_a_rule_of_training_a_program_is_wrong(monkeypatch, caplog, rules, function):
    caplog.set_level(logging.INFO, logger="aliasproof")
    monkeypatch.setattr(building, "TRAINING", rules)
    try:
        assert_as_eager(function, with_weights(3))
    except AssertionError:
        return
    given = any("not compiled" in record.message for record in caplog.records)
    assert given, "the program is right, and compiled, without the rule"
