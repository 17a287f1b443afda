"""Attribution to the parts of Inductor's code generator. Each case compiles C++ several times."""

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest
import torch

from aliasproof.judge.localization import EXPERIMENTS, first_wrong_pass, in_code_generator, without
from aliasproof.judge.trial import Case, run_trial
from aliasproof.targets.registry import target

INDUCTOR = target("inductor")
needs_compiler = pytest.mark.skipif(
    INDUCTOR.unavailable() is not None, reason=str(INDUCTOR.unavailable())
)
aten = torch.ops.aten


@contextlib.contextmanager
def swapped_lowering() -> Iterator[None]:
    from torch._inductor import lowering

    right = lowering.lowerings[aten.sub.Tensor]
    wrong = lambda one, other: right(other, one)  # noqa: E731
    with mock.patch.dict(lowering.lowerings, {aten.sub.Tensor: wrong}):
        yield


@contextlib.contextmanager
def swapped_vectors() -> Iterator[None]:
    """Vector subtraction has its operands swapped, scalar subtraction does not."""
    from torch._inductor.codegen.cpp import CppVecOverrides

    with mock.patch.object(CppVecOverrides, "sub", staticmethod(lambda a, b: f"{b} - {a}")):
        yield


@contextlib.contextmanager
def careless_in_place() -> Iterator[None]:
    """The scheduler reuses a buffer in place as if no later kernel read it."""
    from torch._inductor.scheduler import BaseSchedulerNode

    right = BaseSchedulerNode.decide_inplace_update

    def wrong(node: Any) -> None:
        others = {name for name in node.scheduler.name_to_node if name != node.get_name()}
        with mock.patch.object(node.scheduler, "completed_operations", others):
            right(node)

    with mock.patch.object(BaseSchedulerNode, "decide_inplace_update", wrong):
        yield


SUB = "v0 = aten.sub.Tensor(x0, x1)\nreturn (v0,)"
LATER = (
    "v0 = aten.mm.default(x0, x1)\nv1 = aten.neg.default(v0)\n"
    "v2 = aten.mm.default(v1, x1)\nv3 = aten.mm.default(v2, v0)\nreturn (v3,)"
)


@needs_compiler
@pytest.mark.parametrize(
    ("plant", "body", "size", "part"),
    [
        (swapped_lowering, SUB, (4,), "lowering of aten.sub.Tensor"),
        (swapped_vectors, SUB, (64,), "C++: vectorized code"),
        (careless_in_place, LATER, (4, 4), "scheduler: in-place buffers"),
    ],
)
def test_the_wrong_part_is_named(plant, body, size, part, program):
    case = Case.of(program(body, size, size))
    with plant():
        violation = run_trial(case, INDUCTOR).judgement.violations[0]
        quick = first_wrong_pass(case, INDUCTOR, violation, experiments=False)
        found = first_wrong_pass(case, INDUCTOR, violation)
    assert quick is not None
    assert quick.name == "code generation"
    assert found is not None
    assert found.name == part


def test_each_part_says_without_what_the_code_is_right() -> None:
    parts = [experiment.part for experiment in EXPERIMENTS]
    assert len(set(parts)) == len(parts)
    assert all(map(without, parts))
    assert all(map(in_code_generator, [*parts, "code generation", "lowering of aten.add.Tensor"]))
    assert not in_code_generator("post_grad: remove_noop_ops")
