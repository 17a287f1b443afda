"""Facts about operators, read from their schemas (`OpOverload._schema`), not only from names."""

from __future__ import annotations

import functools
import importlib
import re
from dataclasses import dataclass
from enum import Enum

import torch
from torch._ops import OpOverload, OpOverloadPacket

import aliasproof.ir.custom_operators  # noqa: F401 - it registers them
from aliasproof.ir.errors import UserError, did_you_mean, suggestion

_NAME = re.compile(r"[A-Za-z_]\w*\.[A-Za-z_]\w*\.[A-Za-z_]\w*")
_TOUCHES_FILES = {"aten.from_file.default", "aten.from_file.out"}


class Kind(Enum):
    """How an operator uses storage, by its schema."""

    FUNCTIONAL = "functional"  # fresh outputs, no argument written
    VIEW = "view"  # outputs may alias an argument, no argument written
    IN_PLACE = "in-place"  # writes to its first argument
    OUT = "out="  # writes only to arguments passed for that purpose
    MUTATING = "mutating"  # writes to other arguments than the first


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts in the schema of an operator.

    `writes` are the indices (into `schema.arguments`) of the arguments that the op writes.
    `overwrites` are those among them whose old contents it does not read: `out=` arguments, and
    the destination of a plain fill or copy. `pointwise` is true if element i of every output
    depends on element i of the broadcast operands only. `random` is true if the op draws numbers
    from torch's generator.
    """

    op: OpOverload
    kind: Kind
    writes: tuple[int, ...]
    overwrites: tuple[int, ...]
    pointwise: bool
    random: bool


# No schema says whether the old contents are read, so these two lists do.
_PLAIN_STORES = {
    *("aten.copy_.default", "aten.fill_.Scalar", "aten.fill_.Tensor", "aten.zero_.default"),
}
# These compute element by element, and torch tags none of their forms, or only one.
_UNTAGGED = {
    *("_add_relu", "floor_divide", "hardswish", "masked_fill", "gcd", "lcm", "threshold"),
    "__irshift",
    # Other names, and ops that call only pointwise ops.
    *("absolute", "arccos", "arccosh", "arcsin", "arcsinh", "arctan", "arctan2", "arctanh", "clip"),
    *("divide", "true_divide", "fix", "float_power", "greater", "greater_equal", "less"),
    *("less_equal", "multiply", "negative", "not_equal", "relu6", "selu", "square", "subtract"),
    *("__and", "__or", "__xor", "__iand", "__ior", "__ixor"),
}
# By the index of the argument: the op draws the noise, and never reads the old contents.
_OVERWRITTEN = {"aten.rrelu_with_noise.default": (1,), "aten.rrelu_with_noise_.default": (1,)}
_RANDOM_STORES = {
    *("uniform_", "normal_", "bernoulli_", "random_"),
    *("exponential_", "geometric_", "cauchy_", "log_normal_"),
}


@functools.cache
def resolve(name: str) -> OpOverload:
    """The operator overload with that full name, such as `aten.add_.Tensor`.

    Raises `UserError` with the nearest names if the dispatcher does not know it.
    """
    if not _NAME.fullmatch(name):
        raise UserError(
            f"'{name}' is not an operator name;"
            " write namespace.operator.overload, such as aten.add.Tensor"
        )
    # A program may come from a file, and running it must not be able to open another file.
    if name in _TOUCHES_FILES:
        raise UserError(f"operator '{name}' touches files, so a program may not use it")
    # `torch.ops` creates namespaces for any name, but packets and overloads only for known ones.
    namespace, operator, overload = name.split(".")
    packet = getattr(getattr(torch.ops, namespace), operator, None)
    if packet is None and namespace == "prims":
        # Inductor registers some prims of its own, which its decompositions call.
        importlib.import_module("torch._inductor.inductor_prims")
        packet = getattr(torch.ops.prims, operator, None)
    op = getattr(packet, overload, None)
    if isinstance(op, OpOverload):
        return op
    if isinstance(packet, OpOverloadPacket):
        hint = suggestion([f"{namespace}.{operator}.{known}" for known in packet.overloads()])
    else:
        # The dispatcher writes `aten::add.Tensor`, and `aten::relu` for the overload `default`.
        known = (
            name.replace("::", ".") if "." in name else f"{name.replace('::', '.')}.default"
            for name in torch._C._dispatch_get_all_op_names()
            if name.startswith(f"{namespace}::")
        )
        hint = did_you_mean(name, known, most=3)
    raise UserError(f"unknown operator '{name}'{hint}")


@functools.cache
def is_composite(op: OpOverload) -> bool:
    """True if the op calls other ops: a trace shows those instead, and traces may differ."""
    # The dispatcher does not have the ops of TorchScript, such as `aten.split.default`.
    if not torch._C._dispatch_has_kernel(op.name()):
        return True
    return torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), "CompositeImplicitAutograd")


@functools.cache
def facts(op: OpOverload) -> Facts:
    """The facts of an overload; see `Facts`."""
    arguments = op._schema.arguments
    writes = tuple(
        index
        for index, argument in enumerate(arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    )
    out = tuple(index for index in writes if arguments[index].is_out)
    name = str(op)
    plain = name in _PLAIN_STORES or op.overloadpacket.__name__ in _RANDOM_STORES
    if not writes:
        returns_alias = any(result.alias_info is not None for result in op._schema.returns)
        kind = Kind.VIEW if returns_alias else Kind.FUNCTIONAL
    elif writes == out:  # an op that writes an operand as well is not `out=`
        kind = Kind.OUT
    else:
        kind = Kind.IN_PLACE if writes[0] == 0 else Kind.MUTATING
    return Facts(
        op=op,
        kind=kind,
        writes=writes,
        overwrites=out or ((0,) if plain else _OVERWRITTEN.get(name, ())),
        # torch does not tag the plain stores as pointwise, though they are.
        pointwise=name in _PLAIN_STORES or _is_pointwise(op),
        random=torch.Tag.nondeterministic_seeded in op.tags,
    )


@functools.cache
def has_fake_kernel(op: OpOverload) -> bool:
    """True if fake tensors have a kernel for the op, which returns sizes without data."""
    if op.namespace != "aten":  # `torch.library` keeps these elsewhere
        return True
    composite = ("ImplicitAutograd", "ExplicitAutograd", "ExplicitAutogradNonFunctional")
    keys = ("Meta", *(f"Composite{name}" for name in composite))
    return any(torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), key) for key in keys)


def _is_pointwise(op: OpOverload) -> bool:
    """True if the op, or its functional form, has the tag: torch often tags only the latter."""
    if torch.Tag.pointwise in op.tags:
        return True
    name = op.overloadpacket.__name__.rstrip("_")
    if op.namespace != "aten" or name in _UNTAGGED:
        return op.namespace == "aten"
    overload = op._overloadname.removesuffix("out").removesuffix("_") or "default"
    form = getattr(getattr(torch.ops.aten, name, None), overload, None)
    return isinstance(form, OpOverload) and torch.Tag.pointwise in form.tags
