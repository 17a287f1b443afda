"""Facts about operators, and the *forms* of an operator: functional, in-place, out=.

All facts are read off schemas (`OpOverload._schema`). A schema marks each argument that the
operator writes with `!`:

    add_.Tensor(Tensor(a!) self, Tensor other, *, Scalar alpha=1) -> Tensor(a!)

So `add_` writes `self` and returns `self`. Its functional form is the overload of `add` that takes
the same arguments, writes none of them, and returns one new tensor for each argument that `add_`
writes.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeGuard

import torch
from torch import fx
from torch._ops import OpOverload, OpOverloadPacket

aten = torch.ops.aten


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts of a schema.

    `names` are all arguments in order, `writes` those that are written, `outs` those of `writes`
    that are `out=` arguments. `fresh` are the indices of the returns that are not a returned
    argument.
    """

    names: tuple[str, ...]
    writes: tuple[str, ...]
    outs: tuple[str, ...]
    fresh: tuple[int, ...]
    random: bool


@functools.cache
def facts(op: OpOverload) -> Facts:
    """The facts of an overload."""
    arguments, returns = op._schema.arguments, op._schema.returns
    return Facts(
        names=tuple(it.name for it in arguments),
        writes=tuple(it.name for it in arguments if _is_written(it)),
        outs=tuple(it.name for it in arguments if it.is_out and _is_written(it)),
        # A return that is marked as written is a returned argument.
        fresh=tuple(index for index, it in enumerate(returns) if not _is_written(it)),
        random=torch.Tag.nondeterministic_seeded in op.tags,
    )


def _is_written(it: Any) -> bool:
    """True for `Tensor(a!) self`; `Tensor(a) self`, without `!`, is a view."""
    return it.alias_info is not None and bool(it.alias_info.is_write)


def writes(op: object) -> TypeGuard[OpOverload]:
    """True if a call of this operator writes to an argument."""
    return isinstance(op, OpOverload) and bool(facts(op).writes)


def writes_outs_alone(op: object) -> TypeGuard[OpOverload]:
    """True if a call of this operator writes its `out=` arguments and nothing else."""
    return writes(op) and facts(op).outs == facts(op).writes


def bind(op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The given arguments, by name."""
    # Not strict: trailing arguments with defaults are often not given.
    return dict(zip(facts(op).names, args, strict=False)) | kwargs


def unbind(op: OpOverload, given: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and keyword arguments for a call: the inverse of `bind`.

    A positional argument that is not given, but comes before one that is, gets its default.
    """
    positional = [argument for argument in op._schema.arguments if not argument.kwarg_only]
    # Trailing arguments that are not given are left out, so the call reads as it was written.
    while positional and positional[-1].name not in given:
        positional.pop()
    args = tuple(given.get(argument.name, argument.default_value) for argument in positional)
    return args, {
        argument.name: given[argument.name]
        for argument in op._schema.arguments
        if argument.kwarg_only and argument.name in given
    }


# The calls of an epilogue: `copy_` for the contents of inputs, the others for the metadata of
# inputs that the program changed.
EPILOGUE = {aten.copy_.default, aten.set_.source_Tensor, aten.resize_.default}


# --- forms ----------------------------------------------------------------------------------------


@functools.cache
def functional_form(op: OpOverload) -> OpOverload | None:
    """The overload that computes what a mutating overload writes; None if there is none.

    It returns the fresh returns of `op`, then the new contents of each written argument. Only for
    `aten` operators, since other libraries may use these names for something else.
    """
    known = facts(op)
    if op.namespace != "aten" or not known.writes:
        return None
    # An `out=` argument is only a destination, so the functional form has none for it.
    wanted = signature(op, leave_out=known.outs)
    for candidate in overloads(*_functional_names(op)):
        arguments, returns = candidate._schema.arguments, candidate._schema.returns
        # A form that aliases or writes an argument is not functional.
        if any(it.alias_info is not None for it in (*arguments, *returns)):
            continue
        counts_match = len(returns) == len(known.fresh) + len(known.writes)
        if counts_match and signature(candidate) == wanted:
            return candidate
    return None


def functional_call(
    op: OpOverload, form: OpOverload, given: dict[str, Any], dtype: torch.dtype | None = None
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a mutating call, for its functional form.

    The form may have other names for them. `dtype` is the dtype of the destination: the call
    computes in it if the form takes a dtype and none is given.
    """
    names = [name for name in facts(op).names if name not in facts(op).outs]
    defaults = {it.name: it.default_value for it in op._schema.arguments}
    # The form may require an argument that has a default in `op`.
    required = [it.name for it in form._schema.arguments if not it.has_default_value()]
    # By position, since names may differ. Arguments that are not given get the form's default.
    given = {
        new: given.get(old, defaults[old])
        for old, new in zip(names, facts(form).names, strict=True)
        if old in given or new in required
    }
    # A reduction into an `out=`, such as `sum`, computes in the dtype of that tensor.
    if dtype is not None and "dtype" in facts(form).names and given.get("dtype") is None:
        given["dtype"] = dtype
    return unbind(form, given)


@functools.cache
def in_place_form(op: OpOverload) -> OpOverload | None:
    """The overload that writes what `op` computes to its operands; None if there is none."""
    return next((form for form in _mutating_forms(op) if not facts(form).outs), None)


@functools.cache
def out_form(op: OpOverload) -> OpOverload | None:
    """The overload that writes what `op` computes to one `out=`; None if there is none."""
    # Several outs would need several destinations that are free at once; no pointwise op has them.
    forms = [form for form in _mutating_forms(op) if len(facts(form).writes) == 1]
    return next((form for form in forms if facts(form).outs), None)


# The key in the metadata of a node that is the functional form of an in-place call.
WRITTEN_IN_PLACE = "written in place"


def is_pointwise(op: OpOverload) -> bool:
    """True if element i of the result depends only on element i of each operand.

    So the result may overwrite an operand.
    """
    return torch.Tag.pointwise in op.tags or op.overloadpacket in _UNTAGGED


_UNTAGGED = (
    *(aten._add_relu, aten.floor_divide, aten.gcd, aten.lcm, aten.masked_fill, aten.threshold),
)


def _functional_names(op: OpOverload) -> list[str]:
    # `add` of `add_`, `add` of the out= overload of `add`, and `normal_functional` of `normal_`.
    name = op.overloadpacket.__name__
    if name.startswith("__i"):  # `&=` is `__iand__`
        return [f"__{name[3:]}"]
    return [name.rstrip("_"), name, name + "_functional", name.rstrip("_") + "_functional"]


def _mutating_forms(op: OpOverload) -> Iterator[OpOverload]:
    if op.namespace != "aten":
        return
    name = op.overloadpacket.__name__.removesuffix("_functional")
    # `&=` is `__iand__`, and `__lshift__` has no other form.
    in_place = f"__i{name[2:]}" if name.startswith("__") else name + "_"
    for candidate in overloads(in_place, name):
        # Searched in this direction, so that the two directions cannot disagree.
        if functional_form(candidate) is op:
            yield candidate


def overloads(*names: str) -> Iterator[OpOverload]:
    """The overloads of the ATen operators with these names."""
    for name in dict.fromkeys(names):  # the names of one op may coincide
        packet = getattr(aten, name, None)
        if isinstance(packet, OpOverloadPacket):
            for overload in packet.overloads():
                yield getattr(packet, overload)


def signature(op: OpOverload, leave_out: tuple[str, ...] = ()) -> list[str]:
    """The types of the arguments. Their names differ between forms, so they do not count."""
    return [
        str(argument.type) for argument in op._schema.arguments if argument.name not in leave_out
    ]


# The view that each scatter stores through. A scatter reads all bytes of its base (its first
# operand) except those that this view covers.
SCATTERS = {
    aten.slice_scatter.default: aten.slice.Tensor,
    aten.select_scatter.default: aten.select.int,
    aten.diagonal_scatter.default: aten.diagonal.default,
    aten.as_strided_scatter.default: aten.as_strided.default,
}


def stores_through(scatter: fx.Node) -> tuple[OpOverload, tuple[Any, ...]]:
    """The view op that a scatter stores through, and its arguments; the first one is the base."""
    assert isinstance(scatter.target, OpOverload)
    given = bind(scatter.target, scatter.args, scatter.kwargs)
    del given["src"]  # the other arguments have the same names in the view op
    view = SCATTERS[scatter.target]
    return view, unbind(view, given)[0]


def is_opaque(op: object) -> bool:
    """True for an operator of another library, of which only the schema is known.

    Its results may depend on everything that it can see of an operand: its strides, its offset, the
    size of its storage, and which operands share memory.
    """
    return isinstance(op, OpOverload) and op.namespace not in ("aten", "prims")
