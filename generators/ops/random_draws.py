"""Ops that draw random numbers. The generator is set before each run, so all runs draw alike."""

from __future__ import annotations

from aliasproof.generators import arguments as randoms
from aliasproof.generators import tensor_arguments as tensors
from aliasproof.generators import view_arguments as views
from aliasproof.generators.operator import Operator, floating, line, real

_DROPPED = {"p": views.probability, "train": randoms.training}

RANDOM_DRAWS: tuple[Operator, ...] = (
    line("random", "uniform_.default", floating),
    line("random", "normal_.default", floating),
    line("random", "bernoulli_.float", p=views.probability),
    line("random", "bernoulli_.Tensor", p=randoms.probabilities),
    line("random", "random_.default", real),
    line("random", "random_.to", real, to=randoms.limit),
    line("random", "exponential_.default", floating),
    line("random", "geometric_.default", real, p=randoms.inner_probability),
    line("random", "cauchy_.default", floating),
    line("random", "log_normal_.default", floating),
    *(
        line("random", f"{name}_.default", floating, **_DROPPED)
        for name in ("dropout", "alpha_dropout", "feature_dropout", "feature_alpha_dropout")
    ),
    line("random", "rrelu_.default", floating, training=randoms.training),
    line(
        "random",
        "rrelu_with_noise_.default",
        floating,
        noise=randoms.noise,
        training=randoms.training,
    ),
    # New tensors.
    line("random", "rand_like.default", floating),
    line("random", "randn_like.default", floating),
    line("random", "randint_like.default", real, high=randoms.limit),
    line("random", "bernoulli.p", p=views.probability),
    line("random", "native_dropout.default", floating, input=tensors.itself, **_DROPPED),
)
