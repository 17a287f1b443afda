"""The decisions of functionalization, as one table of functions.

Each right function is a default of `Rules`: one-line functions are here, the others where they are
explained. With another function in its place the pass makes wrong programs, which is how
`aliasproof/faults/` shows that each rule is needed:

    always = Rules(is_base=lambda uses, geometry: True)
    functionalize(function, *sample_args, rules=always)

The first chapter has its decisions in the code, as where `apply` makes each new base contiguous.
That is wrong for a base with strides, because `as_strided` and outputs show them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import fx
from torch._ops import OpOverload

from aliasproof.reference_pass.bases import StorageUses, is_base
from aliasproof.reference_pass.calls.operand_reads import overwrites
from aliasproof.reference_pass.calls.operator_forms import functional_form
from aliasproof.reference_pass.calls.regions import Size
from aliasproof.reference_pass.calls.storages import Geometry
from aliasproof.reference_pass.calls.view_forms import ToSteps
from aliasproof.reference_pass.views import INVERSES, VIEW_STEPS, Inverse


@dataclass(frozen=True, slots=True)
class Rules:
    """What functionalization decides, one function per decision."""

    # Each view op as view ops that have inverses.
    view_steps: Mapping[OpOverload, ToSteps] = field(default_factory=lambda: VIEW_STEPS)

    # The inverse of each view op: from the new value of the view to that of its parent.
    inverses: Mapping[OpOverload, Inverse] = field(default_factory=lambda: INVERSES)

    # The functional form of a mutating op, or None.
    functional_form: Callable[[OpOverload], OpOverload | None] = functional_form

    # True if a functional op ignores the contents of its first operand.
    overwrites: Callable[[OpOverload], bool] = overwrites

    # True if a tensor of this geometry shows every byte of its storage that the program sees, each
    # byte once.
    is_base: Callable[[StorageUses, Geometry], bool] = is_base

    # True if a value of a view, noted at one version of its storage, is right at another one.
    is_current: Callable[[int, int], bool] = lambda noted, version: noted == version

    # True if a read of a view must apply the queue first, given the number of updates in it and the
    # current value of the view: any of them may overlap the view.
    must_apply: Callable[[int, fx.Node | None], bool] = lambda queued, value: queued > 0

    # The strides that a new value of a base must have; a flattened base has no geometry.
    base_strides: Callable[[Geometry | None, torch.Tensor], Sequence[Size]] = (
        lambda geometry, value: (1,) if geometry is None else geometry.strides
    )

    # The offset of a view in elements of its own dtype, whatever dtype the chain starts from.
    as_strided_offset: Callable[[Geometry, torch.dtype], Size] = lambda geometry, start: (
        geometry.offset
    )

    # The strides that a new tensor must have: those of eager.
    result_strides: Callable[[Geometry], Sequence[Size]] = lambda geometry: geometry.strides

    # Whether `x.detach()` is another view than `x`, as it is to autograd (`eager.history`).
    detaches: bool = False


RULES = Rules()
