"""How the lists of a `_foreach_` op are drawn: the tensors that it writes, and operands for each.

Every drawer takes the `Draft` of the call so far and gives one argument, or raises `NoChoice`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch

from aliasproof.generators.draft import Draft
from aliasproof.generators.number_arguments import number
from aliasproof.generators.tensor_arguments import broadcasts
from aliasproof.ir.program import Argument, Ref
from aliasproof.ir.regions import Region, overlap

# Torch runs such an op on one tensor after the other, or on all at once. So a program with
# operands that overlap the tensors of other items has no specified meaning.
UNSPECIFIED_SHARE = 10  # percent of the items that may overlap others


def tensors_to_write(draft: Draft) -> Argument:
    """One to three tensors, of any shapes, mostly of one dtype."""
    names = draft.scene.newest_first(lambda tensor: draft.accepts(tensor.dtype))
    chosen = [draft.pick.one(names[:4] if draft.pick.chance(50) else names)]
    dtype = draft.scene.values[chosen[0]].dtype
    alike = [name for name in names if draft.scene.values[name].dtype == dtype]
    for _ in range(draft.pick.integer(0, 2)):
        others = names if draft.pick.chance(15) else alike
        apart = _apart(draft, chosen, others)
        if apart:  # the scene may have no tensor left
            chosen.append(draft.pick.one(apart))
    return tuple(map(Ref, chosen))


def operand_per_item(draft: Draft) -> Argument:
    """For each tensor written, one of its dtype that broadcasts to its shape."""
    return _per_item(
        draft,
        lambda own, tensor: own.dtype == tensor.dtype and broadcasts(tensor.shape, own.shape),
    )


def source_per_item(draft: Draft) -> Argument:
    """For each tensor written, one to copy from."""

    def fits(own: torch.Tensor, tensor: torch.Tensor) -> bool:
        # Eager warns when a copy discards imaginary parts.
        real = own.is_complex() or not tensor.is_complex()
        return real and broadcasts(tensor.shape, own.shape)

    return _per_item(draft, fits)


def number_per_item(draft: Draft) -> Argument:
    """For each tensor written, a number."""
    return tuple(number(draft) for _ in draft.elements("self"))


def _per_item(
    draft: Draft, fits: Callable[[torch.Tensor, torch.Tensor], bool]
) -> tuple[Argument, ...]:
    written, chosen = _written_names(draft), []
    for index, name in enumerate(written):
        own = draft.scene.values[name]
        fitting = draft.scene.newest_first(functools.partial(fits, own))
        others = written[:index] + written[index + 1 :]
        if "aliased operands" in draft.features.scenarios and draft.pick.chance(30):
            near = {name, *draft.scene.aliases(name)}
            fitting = [candidate for candidate in fitting if candidate in near] or fitting
        chosen.append(Ref(draft.pick.one(_apart(draft, others, fitting))))
    return tuple(chosen)


def _written_names(draft: Draft) -> list[str]:
    return [ref.name for ref in draft.elements("self") if isinstance(ref, Ref)]


def _apart(draft: Draft, written: list[str], names: list[str]) -> list[str]:
    """The names of tensors that share no byte with those written; seldom, all names."""
    if draft.pick.chance(UNSPECIFIED_SHARE):
        return names
    values = draft.scene.values
    regions = [Region.of(values[name]) for name in written]
    return [
        name
        for name in names
        if not any(overlap(Region.of(values[name]), region) for region in regions)
    ]
