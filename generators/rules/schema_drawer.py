"""A call of any operator, drawn by its schema alone, for operators that the table does not have.

The name or the type of an argument decides what is tried; eager decides what is accepted.
"""

from __future__ import annotations

import torch
from torch._ops import OpOverload

from aliasproof.generators.draft import Draft, Drawer
from aliasproof.generators.features import Features
from aliasproof.generators.index_arguments import positions
from aliasproof.generators.number_arguments import dimension
from aliasproof.generators.rules.literals import literal
from aliasproof.generators.scene import Pick, Scene
from aliasproof.generators.tensor_arguments import mask
from aliasproof.ir.program import Argument, Ref, names_in

MOST_IN_LIST = 3
_EVERYTHING = Features()
# Arguments that must fit to the first tensor. All others are tried at random.
_FITTING: dict[tuple[str, str], Drawer] = {
    ("dim", "int"): dimension,
    ("index", "Tensor"): positions,
    ("mask", "Tensor"): mask,
    ("condition", "Tensor"): mask,
}


def call_by_schema(pick: Pick, scene: Scene, op: OpOverload, first: str | None = None) -> list[str]:
    """Call the operator on values of the scene; the names of its results.

    `first` is its first tensor, drawn if None. Raises `NoChoice` if eager refuses the call.
    """
    draft = Draft(pick, scene, _EVERYTHING)
    args: list[Argument] = []
    kwargs: dict[str, Argument] = {}
    given = len(op._schema.arguments) if pick.chance(50) else 0
    for index, parameter in enumerate(op._schema.arguments):
        if parameter.has_default_value() and (index >= given or parameter.name in _LEFT_OUT):
            # What comes after is given by name.
            given = 0 if not parameter.kwarg_only else given
            continue
        if first is not None and _takes_tensor(parameter) and not draft.drawn:
            drawn: Argument = Ref(first)
            if _is_list(parameter):
                drawn = (drawn, *_tensors(draft, pick.integer(0, 1)))
        else:
            drawn = _argument(draft, parameter)
        draft.drawn[parameter.name] = drawn
        if parameter.kwarg_only:
            kwargs[parameter.name] = drawn
        else:
            args.append(drawn)
    return list(scene.call(str(op), *args, named=True, **kwargs))


# A program is on one device, and names no layout and no generator.
_LEFT_OUT = ("device", "layout", "pin_memory", "memory_format", "generator", "requires_grad")


def _argument(draft: Draft, parameter: torch.Argument) -> Argument:
    kind = str(parameter.real_type)
    plain = kind.removeprefix("Optional[").removesuffix("]") if "Optional" in kind else kind
    fitting = _FITTING.get((parameter.name, plain))
    of_dim = parameter.name != "index" or isinstance(draft.drawn.get("dim"), int)
    if fitting is not None and of_dim and any(names_in(tuple(draft.drawn.values()))):
        return fitting(draft)
    if not _takes_tensor(parameter):
        return _plain(draft, parameter, plain)
    if kind.startswith("Optional[") and draft.pick.chance(50):
        return None
    if _is_list(parameter):
        return _tensors(draft, draft.pick.integer(1, MOST_IN_LIST))
    return _tensors(draft, 1)[0]


def _plain(draft: Draft, parameter: torch.Argument, kind: str) -> Argument:
    """An argument that is no tensor."""
    pick = draft.pick
    tensors = [draft.scene.values[name] for name in names_in(tuple(draft.drawn.values()))]
    if kind == "str":
        return pick.one(_WORDS.get(parameter.name, _ANY_WORD))
    if kind == "List[bool]":
        return tuple(not pick.chance(20) for _ in range(3))
    if kind == "List[number]":
        return tuple(pick.integer(1, 3) for _ in range(pick.integer(1, 2)))
    if kind in ("List[int]", "List[SymInt]") and parameter.name in _OF_IMAGES:
        dims = max(tensors[0].dim() - 2, 1) if tensors else 2
        return (pick.one(_OF_IMAGES[parameter.name]),) * pick.one((dims, 2, 2 * dims))
    return literal(pick, parameter, tensors)


# What is not in the schema: the words that an argument may be, and what has a number per dimension
# of an image.
_ANY_WORD = ("none", "mean", "sum", "amax", "constant", "reflect")
_WORDS = {
    "approximate": ("none", "tanh"),
    "rounding_mode": ("floor", "trunc"),
    "reduce": ("sum", "prod", "mean", "amax", "amin"),
    "indexing": ("ij", "xy"),
    "norm": ("backward", "forward", "ortho"),
    "UPLO": ("L", "U"),
    "ord": ("fro",),
    "equation": ("ij,jk->ik", "ij->ji", "ii->i", "i,j->ij", "ij,ij->"),
    "mode": ("constant", "reflect", "replicate", "circular"),
    "padding": ("valid", "same"),
}
_OF_IMAGES = {
    "output_size": (2, 1, 3, 4),
    "kernel_size": (2, 1, 3),
    "input_size": (3, 2, 4),
    "stride": (1, 2),
    "padding": (0, 1),
    "dilation": (1, 2),
    "output_padding": (0,),
}


def _takes_tensor(parameter: torch.Argument) -> bool:
    return "Tensor" in str(parameter.real_type)


def _is_list(parameter: torch.Argument) -> bool:
    return "List[" in str(parameter.real_type)


def _tensors(draft: Draft, count: int) -> tuple[Argument, ...]:
    """Values of the scene; in most cases, all have the sizes and dtype of the first one drawn."""
    scene, pick = draft.scene, draft.pick
    before = next(names_in(tuple(draft.drawn.values())), None)
    names = scene.newest_first()
    if before is not None and pick.chance(50):
        own = scene.values[before]
        names = scene.newest_first(lambda t: t.dtype == own.dtype and t.shape == own.shape)
    elif before is not None and pick.chance(50):
        names = scene.newest_first(lambda t: t.dtype == scene.values[before].dtype)
    first = pick.one(names)
    alike = scene.newest_first(
        lambda t: t.dtype == scene.values[first].dtype and t.shape == scene.values[first].shape
    )
    others = [pick.one(alike) for _ in range(count - 1)]
    return tuple(Ref(name) for name in (first, *others))[:count]
