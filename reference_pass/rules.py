"""The rules of functionalization, as data.

`Rules` is to `functionalize` what `CONDITIONS` is to `reinplace`: a table of the decisions of the
pass, each one a function. A right function is defined in the file that explains it, and
`functionalize.RULES` is the table of the right ones. With another function in one place the pass
makes wrong programs, which is how `aliasproof/faults/` shows that each rule is needed:

    always = replace(RULES, is_base=lambda uses, geometry: True)
    functionalize(function, *sample_args, rules=always)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import fx
from torch._ops import OpOverload

from aliasproof.reference_pass.bases import StorageUses
from aliasproof.reference_pass.calls.storages import Geometry
from aliasproof.reference_pass.regions import Size
from aliasproof.reference_pass.views import Inverse, ToSteps


@dataclass(frozen=True, slots=True)
class Rules:
    """What functionalization decides, one function per decision."""

    # Each view op as view ops that have inverses (`views.VIEW_STEPS`).
    view_steps: Mapping[OpOverload, ToSteps]

    # The inverse of each view op: from the new value of the view to that of its parent
    # (`views.INVERSES`).
    inverses: Mapping[OpOverload, Inverse]

    # The functional form of a mutating op, or None (`operator_forms.functional_form`).
    functional_form: Callable[[OpOverload], OpOverload | None]

    # True if a functional op ignores the contents of its first operand
    # (`operand_reads.overwrites`).
    overwrites: Callable[[OpOverload], bool]

    # True if a tensor of this geometry shows every byte of its storage that the program sees, each
    # byte once (`bases.is_base`).
    is_base: Callable[[StorageUses, Geometry], bool]

    # (version of the value that is noted of a view, version of its storage) -> True if that value
    # is right (`functional_storage.is_current`).
    is_current: Callable[[int, int], bool]

    # (number of queued updates, current value of the view) -> True if a read of the view must apply
    # the queue first (`functional_storage.must_apply`).
    must_apply: Callable[[int, fx.Node | None], bool]

    # (geometry of the base, None if it is flattened; its new value) -> the strides that the new
    # value must have (`functional_storage.base_strides`).
    base_strides: Callable[[Geometry | None, torch.Tensor], Sequence[Size]]

    # (geometry of a view, dtype of the base if it is flattened) -> the offset for `as_strided`
    # (`flattening.as_strided_offset`).
    as_strided_offset: Callable[[Geometry, torch.dtype], Size]

    # The strides that a new tensor must have (`environment.result_strides`).
    result_strides: Callable[[Geometry], Sequence[Size]]

    # Whether `x.detach()` is another view than `x`, as it is to autograd (`eager.history`).
    detaches: bool = False
