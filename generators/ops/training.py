"""Ops that write several lists or tensors at once: optimizers, gradient scalers, statistics."""

from __future__ import annotations

import torch

from aliasproof.generators import number_arguments as numbers
from aliasproof.generators import tensor_arguments as tensors
from aliasproof.generators.draft import Draft, Drawer
from aliasproof.generators.operator import at_least, floating, group, line, lines, of_rank, often
from aliasproof.generators.scenario_steps import like
from aliasproof.generators.scene import NoChoice
from aliasproof.ir.program import Argument, Ref


def parameters(draft: Draft) -> Argument:
    """One or two tensors to train."""
    fitting = draft.scene.newest_first(
        # The kernels ignore strides, so tensors must be contiguous.
        lambda t: t.dtype in (torch.float32, torch.float64) and t.is_contiguous() and t.numel() > 0
    )
    if not fitting:
        other = draft.pick.one(draft.scene.newest_first(lambda t: not t.is_complex()))
        fitting = [
            *draft.scene.call("aten.new_full.default", Ref(other), (3,), 2, dtype=torch.float32)
        ]
    chosen = [draft.pick.one(fitting)]
    apart = draft.scene.apart(fitting, chosen)
    if apart and draft.pick.chance(50):
        chosen.append(draft.pick.one(apart))
    return tuple(map(Ref, chosen))


def per_parameter(draft: Draft) -> Argument:
    """For each parameter a tensor like it, disjoint from all arguments so far."""
    used = [name for argument in draft.drawn for name in draft.names(argument)]
    chosen: list[str] = []
    for name in draft.names("self"):
        own, values = draft.scene.values[name], draft.scene.values
        names = [it for it in draft.scene.newest_first(like(own)) if values[it].is_contiguous()]
        apart = draft.scene.apart(names, [*used, *chosen])
        if apart and draft.pick.chance(70):
            chosen.append(draft.pick.one(apart))
        else:
            value = draft.pick.integer(0, 3)
            chosen.append(draft.new_full(own.shape, value, like=name).name)
    return tuple(map(Ref, chosen))


def more_than_one_per_channel(draft: Draft) -> Argument:
    """The first tensor, unless a channel has one number: its variance is NaN, and fakes raise."""
    if draft.self.numel() == draft.self.shape[1]:
        raise NoChoice
    return tensors.itself(draft)


def per_channel(draft: Draft) -> Argument:
    """A vector with a number per channel, disjoint from all arguments so far."""
    used = [ref.name for ref in draft.drawn.values() if isinstance(ref, Ref)]
    dtype, shape = draft.self.dtype, (draft.self.shape[1],)
    fitting = draft.scene.newest_first(lambda t: t.dtype == dtype and tuple(t.shape) == shape)
    apart = draft.scene.apart(fitting, used)
    if apart and draft.pick.chance(70):
        return Ref(draft.pick.one(apart))
    return draft.new_full(shape, 2)


def step_per_parameter(draft: Draft) -> Argument:
    """For each parameter, the number of its updates: a new tensor of shape (1,)."""
    return tuple(draft.new_full((1,), 2, torch.float32, like=name) for name in draft.names("self"))


def one_number(draft: Draft) -> Argument:
    """A new tensor with one number, in the dtype of the parameters."""
    return draft.new_full((1,), 1, draft.self.dtype)


def counter(draft: Draft) -> Argument:
    """A new tensor with one int32, for a first tensor with one number."""
    if draft.self.numel() != 1:
        raise NoChoice
    return draft.new_full((1,), 0, torch.int32)


def zero_or_one(draft: Draft) -> Argument:
    """A new tensor: 1 if a gradient was infinite, else 0."""
    return draft.new_full((1,), draft.pick.integer(0, 1), torch.float32)


_RATE = numbers.one_of(0.5, 1.0)
_SHARE = numbers.one_of(0.0, 0.5)
_OF_ALL: dict[str, Drawer] = {
    "self": parameters,
    "grads": per_parameter,
    "weight_decay": _SHARE,
    "maximize": numbers.flag,
}
_OF_SGD: dict[str, Drawer] = {
    **_OF_ALL,
    "momentum_buffer_list": per_parameter,
    "momentum": numbers.one_of(0.5),
    "dampening": _SHARE,
    "nesterov": numbers.flag,
    "is_first_step": numbers.flag,
}
_OF_ADAM: dict[str, Drawer] = {
    **_OF_ALL,
    **dict.fromkeys(("exp_avgs", "exp_avg_sqs", "max_exp_avg_sqs"), per_parameter),
    "state_steps": step_per_parameter,
    **dict.fromkeys(("beta1", "beta2"), numbers.one_of(0.5)),
    "eps": numbers.one_of(1.0),
    "amsgrad": numbers.flag,
}
_OF_ADAGRAD: dict[str, Drawer] = {
    **_OF_ALL,
    "state_sums": per_parameter,
    "state_steps": step_per_parameter,
    "lr_decay": _SHARE,
    "eps": numbers.one_of(1.0),
}
_OF_BATCH_NORM: dict[str, Drawer] = {
    "input": more_than_one_per_channel,
    **dict.fromkeys(("weight", "bias", "running_mean", "running_var"), per_channel),
    "momentum": numbers.one_of(0.5),
    "eps": numbers.one_of(1.0),
}

TRAINING = group(
    "foreach",
    *lines("_fused_sgd_.default", lr=_RATE, **_OF_SGD),
    *lines("_fused_sgd_.tensor_lr", lr=one_number, **_OF_SGD),
    *lines("_fused_adam_.default _fused_adamw_.default", lr=_RATE, **_OF_ADAM),
    *lines("_fused_adam_.tensor_lr _fused_adamw_.tensor_lr", lr=one_number, **_OF_ADAM),
    *lines("_fused_adagrad_.default", lr=_RATE, **_OF_ADAGRAD),
    *lines("_fused_adagrad_.tensor_lr", lr=one_number, **_OF_ADAGRAD),
    line(
        "_amp_foreach_non_finite_check_and_unscale_.default",
        self=parameters,
        found_inf=zero_or_one,
        inv_scale=one_number,
    ),
    *often(
        line(
            "_amp_update_scale_.default",
            lambda dtype: dtype == torch.float32,
            growth_tracker=counter,
            found_inf=zero_or_one,
            scale_growth_factor=numbers.one_of(2.0),
            scale_backoff_factor=numbers.one_of(0.5),
            growth_interval=numbers.one_of(1, 2),
        )
    ),
) + group(
    "reduction",
    *of_rank(
        at_least(2),
        *often(
            line(
                "_native_batch_norm_legit.default",
                floating,
                training=numbers.flag,
                **_OF_BATCH_NORM,
            ),
            line("_batch_norm_with_update.default", floating, **_OF_BATCH_NORM),
        ),
    ),
)
