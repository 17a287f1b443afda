"""Questions of the algorithm about calls, as one value.

The first chapter believes schemas, in `writes` and `overload`. That is wrong for kernels that read
around their operand, or whose in-place form has other strides, because no schema says so. Each such
property of a call is a question of `Semantics`. Each question has a naive answer, from the schema
only, so the algorithm runs without any knowledge of kernels: `NAIVE`. The folder `eager` answers
them as torch does, and `pipeline.py` passes these answers:

    put_in_place(graph_module, NAIVE, conditions)        # from the schemas only
    put_in_place(graph_module, EAGER, conditions)        # as torch

`replace(EAGER, held=NAIVE.held)` leaves out one answer: for each answer, the tests have a program
that is then wrong or refused. A question of only one pass is an argument of that pass: `InEager` of
functionalization, and the layouts that a result and a copy may have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import fx
from torch._ops import OpOverload

from aliasproof.reference_pass.calls.nested import on_values
from aliasproof.reference_pass.calls.operator_forms import in_place_form

Values: TypeAlias = Callable[[fx.Node], Any]  # the values of operands on fakes


# --- the naive answers ----------------------------------------------------------------------------


def run_as_written(node: fx.Node, values: Values) -> Any:
    """The value of a call on fakes, as the fake kernel computes it."""
    args, kwargs = on_values((node.args, node.kwargs), values)
    assert callable(node.target)
    return node.target(*args, **kwargs)


def never(*asked: object) -> bool:
    """No: a call does nothing that its schema does not say."""
    return False


def none(*asked: object) -> None:
    """None: there is no such value."""


def nothing(*asked: object) -> tuple[()]:
    """Nothing: there are no such values."""
    return ()


def form_by_schema(node: fx.Node) -> OpOverload | None:
    """The operator that the schemas name, such as `add_` for `add`."""
    return in_place_form(node.target) if isinstance(node.target, OpOverload) else None


# --- the questions --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Semantics:
    """What calls do that their schemas do not say."""

    # (a call, the values of its operands) -> its value on fakes, with the layout of eager. Raises
    # `DataDependent` for a call that fakes cannot run.
    run: Callable[[fx.Node, Values], Any] = run_as_written

    # (a call, the values of its operands) -> the view that it copies, if that covers more than its
    # operand; or None.
    copied_around: Callable[[fx.Node, Values], torch.Tensor | None] = none

    # True if a functional op copies the whole storage of its first operand, and not only the bytes
    # that the operand covers. Then the result has the operand's offset, and `as_strided` of the
    # result shows bytes from around the operand.
    copies_whole_storage: Callable[[object], bool] = never

    # The nodes of a graph that read more of a storage than their first operand shows.
    reads_whole: Callable[[fx.Graph], Iterable[fx.Node]] = nothing

    # (a call, the values of its operands and its own) -> True if the bits that it computes may
    # depend on the strides of its operands. Then these must be as in eager.
    rounds_by_strides: Callable[[fx.Node, Values], bool] = never

    # The operator that writes what a functional call computes to its operands, with the same bits.
    in_place_form: Callable[[fx.Node], OpOverload | None] = form_by_schema

    # The values whose memory a call may use after it has returned.
    held: Callable[[fx.Node], Iterable[fx.Node]] = nothing


NAIVE = Semantics()
