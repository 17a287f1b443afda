"""What the algorithm asks about calls, as one value.

The first chapter believes schemas, in `writes` and `overload`. That is wrong for kernels that read
around their operand, or give other strides in place, because no schema says so. What else a call
does is a question of `Semantics`. Each question has a naive answer, from the schema alone, so the
algorithm runs without any knowledge of kernels: `NAIVE`. The folder `eager` answers them as torch
does, and `pipeline.py` hands these answers over:

    functional_module(captured, analyse(captured, inputs), inputs)                    # naive
    functional_module(captured, analyse(captured, inputs, EAGER), inputs, EAGER)      # as torch

To leave out one answer is `replace(EAGER, held=NAIVE.held)`: the tests show for each of them a
program that is then wrong, or refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import fx
from torch._ops import OpOverload

from aliasproof.reference_pass.calls.nested import on_values
from aliasproof.reference_pass.calls.operator_forms import in_place_form
from aliasproof.reference_pass.regions import equal, known

if TYPE_CHECKING:  # these files ask
    from aliasproof.reference_pass.alias_analysis import Analysis, Effect
    from aliasproof.reference_pass.candidates import Candidate
    from aliasproof.reference_pass.environment import Environment
    from aliasproof.reference_pass.noops import Duplicate

Values: TypeAlias = Callable[[fx.Node], Any]  # the values of operands on fakes


# --- the naive answers ----------------------------------------------------------------------------


def run_as_written(node: fx.Node, values: Values) -> Any:
    """The value of a call on fakes: what the fake kernel gives."""
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


def same_layout(candidate: Candidate) -> str | None:
    """(1a) The operand has the layout of the result, since a use may depend on it.

    These are its strides, its offset, and the size of its storage.
    """
    for slot in candidate.slots:
        if not _same_layout(slot.destination.meta["val"], slot.value):
            return f"{slot.destination} has another layout than the result"
    return None


def same_layout_as_original(duplicate: Duplicate) -> bool:
    """A copy has the layout of its original, since a use may depend on it."""
    return duplicate.is_view or _same_layout(duplicate.value, duplicate.replacement)


def _same_layout(one: torch.Tensor, other: torch.Tensor) -> bool:
    return (
        equal(one.stride(), other.stride())
        and known(one.storage_offset() == other.storage_offset())
        and known(one.untyped_storage().nbytes() == other.untyped_storage().nbytes())
    )


# --- the questions --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Semantics:
    """What calls do that their schemas do not say."""

    # (a call, the values of its operands) -> its value on fakes, with the layout of eager. Raises
    # `DataDependent` for a call that fakes cannot run.
    run: Callable[[fx.Node, Values], Any] = run_as_written

    # (a call, the values of its operands) -> what it copies, as a view, if that is more than its
    # operand shows; or None.
    copied_around: Callable[[fx.Node, Values], torch.Tensor | None] = none

    # True if a functional op copies the whole storage of its first operand, and not only the bytes
    # that the operand covers. So the result has the operand's offset, and `as_strided` of the
    # result shows bytes from around the operand.
    copies_whole_storage: Callable[[object], bool] = never

    # Each storage that is such a copy, and its original, if the copy is seen around its tensor.
    copied_whole: Callable[[Analysis], Iterable[tuple[int, int]]] = nothing

    # The nodes of a graph that read more of a storage than their first operand shows.
    reads_whole: Callable[[fx.Graph], Iterable[fx.Node]] = nothing

    # (a call, the values of its operands and its own) -> True if the bits that it computes may
    # depend on the strides of its operands. Those must be as in eager then.
    rounds_by_strides: Callable[[fx.Node, Values], bool] = never

    # A call that needs more than current values of its operands: emits what does the same in the
    # new graph, and returns True. False for all other calls.
    call_in_eager: Callable[[Environment, fx.Node, Effect], bool] = never

    # The operator that writes what a functional call computes to its operands, with the same bits.
    in_place_form: Callable[[fx.Node], OpOverload | None] = form_by_schema

    # The values whose memory a call may use after it has returned.
    held: Callable[[fx.Node], Iterable[fx.Node]] = nothing

    # When a result may be in the memory of an operand, and a copy be its original, in spite of
    # their layouts and of rounding: the reasons against it, as in `conditions.py` and `noops.py`.
    conditions: tuple[Callable[[Candidate], str | None], ...] = (same_layout,)
    noop_rules: tuple[Callable[[Duplicate], bool], ...] = (same_layout_as_original,)


NAIVE = Semantics()
