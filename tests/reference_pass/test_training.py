"""Training programs that write: each call as in eager, for inputs that share memory or not."""

import logging
import random
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, fx
from torch._higher_order_ops.invoke_subgraph import mark_compile_region
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn import functional  # noqa: F401 - the programs call it
from torch.utils.checkpoint import checkpoint

from aliasproof.generators.features import Features
from aliasproof.generators.scene import Counts
from aliasproof.generators.strategies import sample
from aliasproof.ir.execution import as_graph, seed_generators
from aliasproof.ir.values import input_tensors
from aliasproof.reference_pass import views
from aliasproof.reference_pass.backend import aliasproof, building
from aliasproof.reference_pass.backend.differentiation import TRAINING
from aliasproof.reference_pass.calls import operand_reads
from aliasproof.reference_pass.calls.operator_forms import functional_form, writes
from aliasproof.reference_pass.capture.autograd_notes import KEEP_HISTORY
from tests.reference_pass.scene import names, programs_of

aten = torch.ops.aten

# The inputs of one call, and the leaves whose gradients are compared.
Inputs = Callable[[], tuple[Sequence[Tensor], Sequence[Tensor]]]


def weights(count: int = 3) -> Tensor:
    return torch.arange(1.0, count + 1).requires_grad_()


def results(function: Callable[..., Any], calls: Sequence[Inputs]) -> list[Any]:
    """All results of each call: outputs, inputs, gradients, and the next random number."""
    torch.manual_seed(0)
    left: list[Any] = []
    for inputs in calls:
        given, leaves = inputs()
        output = function(*given)
        outputs = [output] if isinstance(output, Tensor) else list(output or ())
        tensors = [*outputs, *given]
        ends = [tensor for tensor in tensors if tensor.requires_grad]
        numbers = [torch.arange(1.0, end.numel() + 1).view(end.shape).to(end.dtype) for end in ends]
        gradients: Sequence[Tensor] = ()
        if ends and leaves:
            gradients = torch.autograd.grad(ends, leaves, numbers, materialize_grads=True)
        # As text, a zero has a sign, and NaN equals itself.
        left += [repr(tensor.tolist()) for tensor in (*tensors, *gradients, torch.rand(1))]
        left += [(tensor.stride(), tensor.requires_grad) for tensor in tensors]
    return left


def assert_as_eager(function: Callable[..., Any], *calls: Inputs) -> None:
    expected = results(function, calls)
    assert results(torch.compile(function, backend=aliasproof), calls) == expected


def computed(*values: Tensor) -> Inputs:
    """Copies of these values. Those that require a gradient are computed from leaves."""

    def made() -> tuple[Sequence[Tensor], Sequence[Tensor]]:
        copies = [x.detach().clone().requires_grad_(x.requires_grad) for x in values]
        return [x * 1 for x in copies], [x for x in copies if x.requires_grad]

    return made


def parts(count: int, *views: Callable[[Tensor], Tensor]) -> Inputs:
    """Views of one tensor of `count` elements, which is computed from a leaf."""

    def made() -> tuple[Sequence[Tensor], Sequence[Tensor]]:
        leaf = weights(count)
        base = leaf * 1
        return [view(base) for view in views], [leaf]

    return made


def transposed() -> Tensor:
    return torch.arange(1.0, 7).view(2, 3).t().requires_grad_()


def with_weights(*shape: int) -> Inputs:
    """Numbers, and weights that multiply their last dimension."""

    def made() -> tuple[Sequence[Tensor], Sequence[Tensor]]:
        w = weights(shape[-1])
        return (torch.arange(float(torch.Size(shape).numel())).view(shape), w), [w]

    return made


def windows(*starts: int, count: int = 3) -> Inputs:
    """Windows of one tensor, and weights; in separate tensors without starts."""

    def made() -> tuple[Sequence[Tensor], Sequence[Tensor]]:
        w, source = weights(count), torch.arange(12.0)
        shown = [source[start : start + count] for start in starts]
        return (*(shown or [source[:count].clone(), source[:count].clone()]), w), [w]

    return made


SEPARATE, TOGETHER = computed(weights(), weights()), parts(4, lambda x: x[:3], lambda x: x[1:])


class ScalesInPlace(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.mark_dirty(x.mul_(2))
        return x

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient * 4


COMPLEX = computed(torch.arange(1.0, 4).to(torch.complex64).requires_grad_())


@torch.library.custom_op("limits::sine", mutates_args=())
def sine(x: torch.Tensor) -> torch.Tensor:
    return x.sin()


@sine.register_fake
def _(x):
    return torch.empty_like(x)


sine.register_autograd(
    lambda ctx, gradient: gradient * ctx.saved_tensors[0].cos(),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
)


SQUARE = computed((torch.eye(3) * 2 + 0.1).requires_grad_())
SEVENTHS = computed((torch.arange(1.0, 4) / 7).requires_grad_())


@torch.library.custom_op("reference_pass_tests::double_strided", mutates_args=("y",))
def double_strided(y: Tensor) -> None:
    y.mul_(2)


@torch.library.custom_op("reference_pass_tests::scale", mutates_args=("y",))
def scale(x: Tensor, y: Tensor) -> Tensor:
    y.mul_(3)
    return x * 2


@scale.register_fake
def _(x: Tensor, y: Tensor) -> Tensor:
    return torch.empty_like(x)


def draws(x):
    y = torch.empty(2, 3).t()
    y.uniform_()
    return (x * y).sin()


@mark_compile_region
def region(x: Tensor, w: Tensor) -> Tensor:
    z = x * w
    z.view(1, -1)[:, 1:].mul_(2)
    return z


def trains(*calls: Inputs, compiled: bool | None = None) -> tuple[Sequence[Inputs], bool | None]:
    """The inputs for which a function is compared with eager, and whether it is compiled at all."""
    return calls, compiled


EXAMPLES = programs_of(
    """
# --- views that functionalization in AOTAutograd gets wrong, or refuses ---------------------------

expands(x, w): with_weights(3), with_weights(3)
    z = x[:1] + 1
    z.expand(3).fill_(2)
    return z * w

unfolds(x, w): with_weights(8)
    z = x.clone()
    z.unfold(0, 2, 3).add_(1)
    return z * 2 * w

fills_bools(x, w): with_weights(3), with_weights(3)
    z = x > 1
    z[:1].expand(4).fill_(True)
    return z * w

restrides_a_slice(x, w): with_weights(3), with_weights(3)
    z = x.clone()
    z[1:2].as_strided((2,), (1,)).add_(1)
    return z * w

scales_blocks(x, w): with_weights(3), with_weights(3)
    z = x * w
    z.as_strided((2,), (2,)).mul_(3)
    return z + 1

assigns_rows(x, w): with_weights(3), with_weights(3)
    z = torch.zeros(2, 3)
    z[0] = x * w
    z[1, 1:] += w[:2]
    return z.sin()

# --- what autograd sees of a write ----------------------------------------------------------------

detaches_and_scales(x, w): with_weights(3), with_weights(3)
    y = x * w
    y.detach()[1:].mul_(2)
    return y * w

scales_data(x, w): with_weights(3), with_weights(3)
    y = x * w
    y.data.mul_(2)
    return y + w

turns(x, w): with_weights(3), with_weights(3)
    with torch.no_grad():
        y = x - 1
        y.unsqueeze_(0)
        z = torch.empty(0)
        torch.add(x, w, out=z)
    return y * w + z

compares(x, w): with_weights(3), with_weights(3)
    y = x * w
    torch.eq(y, x, out=y)
    return y * w

clamps_weights(x, w): with_weights(3), with_weights(3)
    with torch.no_grad():
        w.clamp_(1.5, 2.5)
    return (x * w).sum()

writes_a_view_of_a_leaf(x, w): *[with_weights(4, 3)] * 3
    view = w.view(3, 1).t()
    with torch.no_grad():
        view[0].mul_(0.5)
    return x @ w

chooses_by_data(x): *[computed(torch.tensor([1.0, -1.0, 2.0]).requires_grad_())] * 3
    z = x[x > 0] * 2
    z.mul_(3)
    return z.sum()

decides(x, w): with_weights(3), with_weights(3)
    y = x * w
    y[1:].logical_not_()
    return y * w

averages_without_gradients(x, w): with_weights(3), with_weights(3)
    with torch.no_grad():
        x.mul_(0.5).add_(w, alpha=0.25)
        copy = w * 2
    return x * w + copy, copy

draws_numbers(x, w): with_weights(3), with_weights(3)
    y = x * w
    y[1:].bernoulli_(1.0)
    return y * w

zeroes_logarithms(x, w): with_weights(3), with_weights(3)
    y = w - 1
    y.view(1, 3).log_()
    y.zero_()
    return y.isnan(), y * x

normalises_batches(x, w): with_weights(4, 3)
    return functional.batch_norm(x * w, torch.zeros(3), torch.ones(3), training=True).square()

writes_an_input_with_a_gradient_and_returns_one_without(x, y): computed(weights(), torch.arange(3))
    x.add_(1)
    y.add_(1)
    return y

needs_in_the_backward_what_an_input_was(x, w): *[computed(weights(), weights())] * 2
    x.mul_(w)
    y = x * 2
    return x[0], y, y[1:], x.detach()

needs_in_the_backward_the_sine_of_what_an_input_was(x): computed(torch.arange(3.0).requires_grad_())
    x.cos_()
    return x * 2

# --- inputs that share memory in some calls -------------------------------------------------------

adds_to_a_window(a, b, w): windows(), windows(0, 1), windows(), windows(4, 4), windows(5, 3)
    a.add_(1)
    return b * w

reads_from_the_start(x): *(parts(6, lambda x, at=at: x[at : at + 2]) for at in (2, 0, 3))
    return x.as_strided((2,), (1,), 0) * x

rolls_a_window(previous, new, w): *(windows(at, at + 2, count=4) for at in range(4))
    new.copy_((previous * w + 1).detach())
    return (new * w).sum()

adds_to_what_shares_memory(a, b): TOGETHER, SEPARATE, TOGETHER
    a.add_(1)
    return a * b

calls_a_region_beside_a_write(a, b, w): windows(), windows(0, 1), windows()
    a.mul_(2)
    return region(a, w) * b, region(b, w)

scales_detached_memory(a, b): TOGETHER, SEPARATE, TOGETHER
    a.detach()[1:].mul_(2)
    return b * 3

scales_by_a_function_with_a_backward(x): computed(weights())
    return ScalesInPlace.apply(x) + 1

# --- training where autograd, or AOTAutograd, has a limit: as eager, whatever runs ----------------

zeroes_complex_numbers(x): COMPLEX
    x.zero_()
    return x * 2

adds_to_complex_numbers(x): COMPLEX
    x[:2].add_(1)
    return x * 2

turns_an_input_without_gradients(x): parts(4, lambda x: x.view(2, 2).t())
    with torch.no_grad():
        aten.transpose_.default(x, 0, 1)
    return x.view(-1) * torch.arange(4.0)

sine_of_a_doubled_row(x): SEVENTHS
    y = x.view(3, 1) * torch.ones(3, 2)
    y.t()[0].mul_(2)
    return sine(y)

elu_of_a_view(x): SEVENTHS
    y = x.view(3, 1) * torch.tensor([1.0, -17.0])
    functional.elu_(y.t())
    return y

celu_of_a_view(x): SEVENTHS
    y = x.view(3, 1) * torch.tensor([1.0, -7.5])
    torch.celu_(y.t(), 1.2)
    return y

fills_a_diagonal(x): parts(6, lambda x: x.view(3, 2))
    # The fake `addr` with `beta=0` is contiguous, and the real one has the strides of its operand.
    # AOTAutograd traces with that fake.
    y = torch.addr(x.t(), torch.ones(2), torch.ones(3), beta=0)
    y.addbmm_(torch.ones(1, 2, 1), torch.ones(1, 1, 3))
    y.as_strided((2,), (3,)).zero_()
    return y * x.t()

adds_to_a_list(x, y, w): windows(), windows(0, 1)
    # Fakes have no new version after it.
    torch._foreach_add_([x], 1)
    return y * w

takes_sines_of_a_list(x, y): computed(torch.arange(3.0), weights())
    aten._foreach_sin_.default([x[:2], y[:2]])
    return y * 2

reshapes_by_strides_that_fakes_have_wrong(v): computed(weights(2))
    # It makes a view of this `reshape`, which is a copy in eager: its graph cannot run.
    return torch.addr(torch.ones(3, 2).t(), v, torch.arange(3.0), beta=0).reshape(-1) * 2

slides(x): computed(weights())
    return (x * 2).unfold(0, 2, 1)

returns_one_tensor_twice(x): computed(weights())
    view = x.view_as(x)
    return view, view.contiguous(), x * 2

fills_what_overlaps_itself(x): computed(weights())
    with torch.no_grad():
        x.as_strided((2, 2), (1, 1)).zero_()
    return x * 2

signs_and_fills(x, y): *[parts(3, lambda x: x.as_strided((4,), (0,)), lambda x: x[1:2])] * 2
    # The gradient of `sgn` is such zeros, and what is added to them is written in place.
    signs = aten.mul.Scalar(y, 2).sgn_()
    y.masked_fill_(y > 2, -1)
    return signs, y, x

writes_what_drops_nothing(x): computed(weights())
    torch.dropout(x, 0.1, False).zero_()
    return x * 2

has_another_history_through_detach(cache, x): computed(torch.ones(3), weights(1)[0])
    # Two tensors of one memory have different gradients, which no functional graph has.
    row = cache.detach()
    row[...] = x
    return row * 2

detaches_what_has_no_finite_gradient(x): computed(weights())
    y = (x - 1).log()
    x.zero_()
    return y.detach(), x * 2

# --- what is overwritten --------------------------------------------------------------------------

takes_logarithms_and_zeroes(x): computed(transposed()), compiled=True
    x.sub_(x.detach().clone()).log_()
    x.zero_()

negates_and_copies_and_negates_a_new_tensor(x): computed(transposed()), compiled=True
    y = -x
    y.copy_(torch.ones(3, 2))
    return -y

negates_and_draws(x): computed(transposed()), compiled=True
    x.neg_()
    x.uniform_()

adds_to_a_part(x): computed(transposed()), compiled=True
    y = -x
    y[0].zero_()
    y[1:].neg_()
    return y

negates_parts_and_zeroes(x): computed(transposed()), compiled=True
    x[1:].neg_()
    torch.diagonal(x)[:1].neg_()
    x.t()[0].neg_()
    x.zero_()

draws_a_part_of_negatives(x): computed(transposed()), compiled=True
    y = -x
    y[1:].uniform_()
    z = y * 1
    y.zero_()
    return z[:2]

compares_with_itself(x): computed(transposed()), compiled=True
    y = x.view(6) if x.is_contiguous() else x.t().reshape(6)
    y[1:].le_(y[:-1].clone())
    return y

calls_a_custom_operator(x): computed(transposed()), compiled=True
    y = torch.ones(3, 2).t()
    double_strided(y)
    with torch.no_grad():
        double_strided(x)
    return x * y.t()

# --- random numbers, and strides of what is written -----------------------------------------------

fills(x): computed(transposed()), compiled=True
    x.bernoulli_()
    x.mul_(2)
    return x

fills_a_new_tensor(x): computed(transposed()), compiled=True
    y = x + 1
    y.t()[1:].normal_()
    return y, y.uniform_() * x

draws_what_nothing_uses(x): computed(transposed()), compiled=True
    (x + 1).uniform_()
    torch.rand(2)
    return torch.randn_like(x) * x

draws_without_writes(x): computed(transposed()), compiled=True
    torch.rand(3)
    y = torch.rand(3, 2) * x
    torch.rand(3)
    return y * torch.rand(1)

needs_what_it_drew_in_the_backward(x): computed(weights())
    torch.rand(3)
    return (torch.rand(3) * x).exp()

truncates_sizes_of_one(x): parts(16, lambda x: x.as_strided((1, 8, 1, 2), (16, 1, 16, 8)))
    with torch.no_grad():
        x.div_(x, rounding_mode="trunc")
    return torch.cat([x, x])  # their strides decide the memory format

scatters(x): computed(transposed()), compiled=True
    y = x + 1
    y.scatter_(0, torch.zeros(1, 1, dtype=torch.int64), 0)
    return y

writes_an_out(x): computed(transposed()), compiled=True
    y = x.new_empty([3, 2])
    with torch.no_grad():
        torch.sigmoid(x, out=y)
    return y, x * y

draws_again_in_the_backward(x): SQUARE, compiled=True
    draws = lambda x: functional.dropout(x * 2, 0.5).sin()
    return checkpoint(draws, x, use_reentrant=False) * torch.rand(3)

draws_again_in_the_order_of_memory(x): SQUARE, compiled=True
    draws = lambda x: functional.dropout(x.t() * 2, 0.5).sin() + torch.rand_like(x)
    return checkpoint(draws, x, use_reentrant=False) * torch.rand(3)

draws_twice_again(x): SQUARE, compiled=True
    draws = lambda x: functional.dropout(functional.dropout(x).relu_()).exp()
    return checkpoint(draws, x, use_reentrant=False) * torch.rand(3)

draws_in_a_checkpoint(x): computed(transposed()), compiled=True
    x = x * 2
    x[0].zero_()
    return checkpoint(draws, x, use_reentrant=False)

switches_on(x): computed(transposed()), compiled=True
    with torch.no_grad():
        torch._dynamo.graph_break()
        x.mul_(2)
    x.zero_()

switches_off(x): computed(transposed()), compiled=True
    x.neg_()
    with torch.no_grad():
        x.mul_(2)
        torch._dynamo.graph_break()
        x.add_(1)
    return x * 2

scatters_a_diagonal(x): parts(6, lambda x: x.as_strided((2, 1), (3, 1))), compiled=True
    x.log10_()  # the copy of the input keeps its strides
    return x.diagonal_scatter(x.diagonal())

# --- higher-order operators of AOTAutograd --------------------------------------------------------

takes_a_root(x): SQUARE, compiled=True
    return torch.linalg.cholesky(x)  # `with_effects` around the check for errors

inverts(x): SQUARE, compiled=True
    return torch.linalg.inv(x)

calls_a_custom_operator_with_a_result(x): SQUARE, compiled=True
    y = x.detach() * 1  # `auto_functionalized_v2`
    z = scale(x.detach(), y)
    return x * y + z

# --- as it was given ------------------------------------------------------------------------------

as_given(x): computed(transposed()), compiled=False
    x.polygamma_(0)
    return x * 2

steps(x): computed(transposed()), compiled=False
    aten._fused_sgd_.default(
        [x], [x * 2], [], weight_decay=0, momentum=0, lr=0.1, dampening=0, nesterov=False,
        maximize=False, is_first_step=True,
    )

checks_for_numbers(x): computed(transposed()), compiled=False
    with torch.no_grad():
        x.mul_(2)
    torch._amp_foreach_non_finite_check_and_unscale_([x], torch.zeros(1), torch.ones(1))

shows_other_memory(x): computed(transposed()), compiled=False
    y = aten.alias.default(x.t().reshape(-1))
    with torch.no_grad():
        y.set_(torch.zeros(6))
    return y * 2

shows_more_than_a_row(x): computed(transposed()), compiled=False
    row = x[:1]
    x.add_(1)
    return row.as_strided([3], [1]) * 2

shows_more_than_a_row_without_writes(x): computed(transposed()), compiled=False
    return x[:1].as_strided([3], [1])

drops_all(x): computed(transposed()), compiled=False
    x.sin_()
    torch.native_dropout(x, 1.0, True)

drops_all_without_writes(x): computed(transposed()), compiled=False
    torch.native_dropout(x, 1.0, True)
    return x * 2
""",
    globals(),
    trains,
)
BY_NAME = {function.__name__: function for function, _ in EXAMPLES}


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

    compiled, saved = torch.compile(checkpointed, backend=aliasproof), list[Tensor]()
    assert results(compiled, [inputs, inputs]) == results(checkpointed, [inputs, inputs])
    with torch.autograd.graph.saved_tensors_hooks(saved.append, lambda tensor: tensor):
        compiled(*inputs()[0])
    assert sorted(tuple(tensor.shape) for tensor in saved) == [(3, 4), (4, 4)]


def test_hooks_on_saved_tensors_see_those_of_the_call_alone():
    saved: list[Tensor] = []
    (x, w), _ = with_weights(3)()
    with torch.autograd.graph.saved_tensors_hooks(saved.append, lambda tensor: tensor):
        torch.compile(BY_NAME["assigns_rows"], backend=aliasproof)(x, w)
    assert saved
    assert not any(isinstance(tensor, FakeTensor) for tensor in saved)


# --- each rule of training is needed --------------------------------------------------------------


@pytest.mark.parametrize(
    ("rules", "name"),
    [
        (replace(TRAINING, inverses=views.INVERSES), "detaches_and_scales"),
        (replace(TRAINING, detaches=False), "detaches_and_scales"),
        (replace(TRAINING, functional_form=functional_form), "draws_numbers"),
        (replace(TRAINING, overwrites=operand_reads.overwrites), "zeroes_logarithms"),
    ],
)
def test_without_a_rule_of_training_a_program_is_wrong(monkeypatch, caplog, rules, name):
    caplog.set_level(logging.INFO, logger="aliasproof")
    monkeypatch.setattr(building, "TRAINING", rules)
    try:
        assert_as_eager(BY_NAME[name], with_weights(3))
    except AssertionError:
        return
    given = any("not compiled" in record.message for record in caplog.records)
    assert given, "the program is right, and compiled, without the rule"


# --- training beyond a limit of autograd or AOTAutograd: as eager, whatever runs ------------------


def test_memory_around_an_input_keeps_its_gradient():
    def expands_and_adds(x):
        wide = x.expand(3, 4)
        x.add_(1)
        return wide.sum(1) + wide[0, 0]

    def gradient(function):
        leaf = torch.arange(6.0).requires_grad_()
        base = leaf * 1
        ends = function(base[2:5].view(3, 1)).sum() + (base * torch.arange(1.0, 7)).sum()
        (found,) = torch.autograd.grad(ends, leaf)
        return found.tolist()

    compiled = torch.compile(expands_and_adds, backend=aliasproof)
    assert gradient(compiled) == gradient(expands_and_adds)


def test_a_gradient_with_the_lazy_conjugate_bit():
    x = weights()
    y = torch.compile(lambda x: x.to(torch.complex64)._conj(), backend=aliasproof)(x)
    assert y.is_conj()
    (gradient,) = torch.autograd.grad(y, x, torch.ones(3, dtype=torch.complex64))
    assert gradient.tolist() == [1.0] * 3


def test_a_backward_graph_gets_gradients_without_lazy_bits():
    x = weights()
    y = torch.compile(lambda x: x.to(torch.complex64) * 1j, backend=aliasproof)(x)
    given = torch.full((3,), 2 + 3j).conj()
    assert given.is_conj()
    (gradient,) = torch.autograd.grad(y, x, given)
    assert gradient.tolist() == [-3.0] * 3


def test_what_dynamo_makes_of_addcmul_keeps_its_gradients():
    def adds(x, y):
        z = x * 1
        z.t().addcmul_(y, y, value=3.14)  # with `prims.fma`, whose backward is in Python
        return z

    x, y = (torch.arange(float(n), n + 6).view(2, 3).requires_grad_() for n in (0, 1))
    transposed = y.detach().t().contiguous().requires_grad_()
    result = torch.compile(adds, backend=aliasproof)(x, transposed)
    gradients = torch.autograd.grad(result.sum(), (x, transposed))
    assert gradients[0].tolist() == torch.ones(2, 3).tolist()
    torch.testing.assert_close(gradients[1], 6.28 * transposed)


def test_what_is_resized_is_in_the_storage_of_each_call():
    def resizes(x, y):
        aten.resize_as_(y, x)
        return x * 2

    compiled = torch.compile(resizes, backend=aliasproof)
    for y, offset in ((torch.arange(3)[2:], 2), (torch.arange(1), 0)):
        compiled(torch.tensor(1.0).requires_grad_(), y)
        assert (y.shape, y.storage_offset()) == ((), offset)


def test_writes_to_gradients_of_8_bits_run_as_given():
    """Torch cannot add such numbers."""

    def fills(x):
        x.zero_()

    leaf = torch.ones(()).to(torch.float8_e5m2).requires_grad_()
    x = leaf.clone()
    torch.compile(fills, backend=aliasproof)(x)
    x.backward()
    assert leaf.grad is not None
    assert leaf.grad.item() == 0


def test_one_tensor_that_is_returned_twice_is_one_object():
    twice: Any = torch.compile(BY_NAME["returns_one_tensor_twice"], backend=aliasproof)
    first, second, _ = twice(weights() * 1)
    assert first is second


def writes_what_it_saved(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    t = a * b
    b[1:].mul_(2)
    return t.sum()


def writes_a_saved_leaf(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    t = a.view_as(a) ** 2
    a.detach().mul_(2)
    return t.sum()


def writes_a_saved_result(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    t = a.exp()
    u = t.sum()
    t[1:].mul_(2)
    return u


@pytest.mark.parametrize(
    "function", [writes_what_it_saved, writes_a_saved_leaf, writes_a_saved_result]
)
def test_a_write_to_what_autograd_saved_is_refused_in_backward(function) -> None:
    total = torch.compile(function, backend="aliasproof")(
        torch.ones(3).requires_grad_(), torch.ones(3)
    )
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        total.backward()


def test_a_trace_that_is_given_up_leaves_the_switches():
    def draws(x):
        with torch.no_grad(), torch.autocast("cpu"):
            torch._amp_foreach_non_finite_check_and_unscale_([x], torch.zeros(1), torch.ones(1))
            x.unsqueeze_(0)
            x.squeeze_(0)
        return x * 2

    torch.compile(draws, backend=aliasproof)(torch.ones(2, requires_grad=True) * 1)
    assert torch.is_grad_enabled()
    assert not torch.is_autocast_enabled("cpu")


@pytest.mark.parametrize("new", [False, True])
def test_a_tensor_that_loses_its_history_in_place(new):
    def detaches(x, w):
        y = aten.mul.Tensor(x, 1) if new else x
        aten.detach_.default(y)
        return aten.mul.Tensor(y, w)

    def compiled(x, w):
        return aliasproof(fx.symbolic_trace(detaches), [x, w])(x, w)

    calls = [computed(weights(), weights())]
    assert results(compiled, calls) == results(detaches, calls)


def test_dropout_of_nothing_is_its_operand():
    x = torch.ones(3, requires_grad=True) * 1
    compiled = torch.compile(lambda x: torch.dropout(x, 0.0, False), backend=aliasproof)
    assert compiled(x) is x


# --- drawn programs: three calls, each with a loss of some outputs --------------------------------


PROGRAMS = 12


def with_leaves(inputs: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    """The inputs, computed from new leaves, and the leaves: one per storage of one dtype."""
    made, leaves = list(inputs), []
    numbers = [x.untyped_storage()._cdata for x in inputs]
    for number in dict.fromkeys(numbers):
        views = {index: x for index, x in enumerate(inputs) if numbers[index] == number}
        dtypes = {x.dtype for x in views.values()}
        (dtype, *others) = dtypes
        if others or not (dtype.is_floating_point or dtype.is_complex):
            continue
        first = next(iter(views.values()))
        flat: Any = first.new_empty(0)
        leaves.append(flat.set_(first.untyped_storage()).requires_grad_())
        base = flat.clone()
        for index, x in views.items():
            made[index] = base.as_strided(x.shape, x.stride(), x.storage_offset())
    return made, leaves


def seen(value: Any) -> object:
    """The compared form of a value. `repr` distinguishes NaN and the sign of zero."""
    if not isinstance(value, Tensor):
        return value
    return tuple(value.shape), value.stride(), repr(value.detach().resolve_conj().tolist())


def three_calls(
    call: Callable[..., Any], make: Callable[[], list[Tensor]], seed: int
) -> list[object]:
    """The results of three calls, each with a backward pass from some outputs."""
    draw, left = random.Random(seed), list[object]()
    for _ in range(3):
        seed_generators()
        inputs, leaves = with_leaves(make())
        outputs = call(*inputs)
        graded = [x for x in outputs if isinstance(x, Tensor) and x.requires_grad]
        loss = [x for x in graded if draw.random() < 0.5] or graded[:1]
        if loss:
            torch.autograd.backward(loss, list(map(torch.ones_like, loss)))
        left += map(seen, (*outputs, *inputs, *(leaf.grad for leaf in leaves)))
    return left


@pytest.mark.parametrize("seed", range(1000, 1000 + PROGRAMS))
def test_a_loss_of_some_outputs_gives_the_gradients_of_eager(seed: int) -> None:
    (program,) = sample(Features(), seed, 1, Counts())

    def make() -> list[Tensor]:
        return input_tensors(program)

    def graph() -> fx.GraphModule:
        return fx.GraphModule(torch.nn.Module(), as_graph(program))

    try:
        expected = three_calls(graph(), make, seed)
    except RuntimeError as error:
        pytest.skip(f"eager raises: {error}")
    assert three_calls(aliasproof(graph(), with_leaves(make())[0]), make, seed) == expected


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
@pytest.mark.parametrize(("function", "given"), EXAMPLES, ids=names(EXAMPLES))
def test_it_trains_as_in_eager(function, given, caplog):
    calls, compiled = given
    caplog.set_level(logging.INFO, logger="aliasproof")
    assert_as_eager(function, *calls)
    if compiled is not None:
        assert any("not compiled" in each.message for each in caplog.records) != compiled


# --- the notes on what autograd does with operators, compared with autograd itself ----------------


def keeps_history(op: OpOverload) -> bool:
    """True if an in-place operator does not change the history of its written operand."""
    written = torch.full((3,), 0.5).requires_grad_() * 1
    before = written.grad_fn
    required = [each for each in op._schema.arguments[1:] if not each.has_default_value()]
    values = {"Tensor": torch.ones(3), "number": 1, "int": 1, "float": 0.5, "bool": True}
    given = {each.name: values.get(str(each.type)) for each in required}
    try:
        op(written, **given)
    except (RuntimeError, TypeError, IndexError):  # the op does not take such arguments
        return False
    return written.grad_fn is before


def overloads(name: str) -> list[OpOverload]:
    packet = getattr(aten, name)
    return [getattr(packet, overload) for overload in packet.overloads()]


def test_these_operators_alone_keep_the_history_of_what_they_write():
    names = {name.partition(".")[0] for name in torch._C._dispatch_get_all_op_names()}
    methods = [
        name[6:]
        for name in sorted(names)
        if name.startswith("aten::") and name.endswith("_") and hasattr(Tensor, name[6:])
    ]
    methods.remove("requires_grad_")
    in_place = [op for name in methods for op in overloads(name) if writes(op)]
    assert len(in_place) > 100
    with warnings.catch_warnings(action="ignore"):
        assert {op for op in in_place if keeps_history(op)} == KEEP_HISTORY
