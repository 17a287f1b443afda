"""`Signature`: what makes two reduced violations the same finding.

A violation that is a known bug has the signature of that bug. Any other is identified by the
target, the pass at fault, and the *cause*: what survives reduction and renaming. The cause of an
error is the function of torch that raised it. The cause of a silent violation is what the program
does with storages, without the names of its ops: one bug of a compiler shows through many ops.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from traceback import walk_tb

from aliasproof.ir.program import Program, names_in
from aliasproof.ir.schemas import Facts, Kind, facts, resolve
from aliasproof.judge.attribution import Symptom
from aliasproof.judge.localization import FUNCTIONALIZATION, inside_torch
from aliasproof.oracles.verdict import ON_VALUES
from aliasproof.targets.variants import folder_name

# --- aliasing kinds -------------------------------------------------------------------------------
#
# `aliasing_kinds`: what a program does with storages, without the names of its ops.
#
# Nothing can be left out of a reduced program. So the kinds of its writes and views, and which
# storages its inputs share, distinguish its cause from others.


# Which kind of view an op makes; each kind is undone in its own way. Other views change the shape.
_VIEWS = {
    "expand": ("expand", "expand_as", "broadcast_to", "broadcast_tensors"),
    "unfold": ("unfold",),
    "as_strided": ("as_strided", "as_strided_"),
    "window": (
        "select", "slice", "narrow", "diagonal", "split", "split_with_sizes", "unbind", "chunk",
        "tensor_split", "hsplit", "vsplit",
    ),
    "complex": ("view_as_real", "view_as_complex", "real", "imag", "_conj", "_neg_view"),
}  # fmt: skip
_KIND_OF_VIEW = {name: kind for kind, names in _VIEWS.items() for name in names}


def aliasing_kinds(program: Program) -> tuple[str, ...]:
    """The kinds of writes, of views of written storages, and of sharing, in order and in words."""
    # The views and the writes, each with a name for its storage.
    storage_of = {view.name: f"storage {view.storage}" for view in program.inputs}
    views, writes = [], []
    for call in program.instructions:
        known = facts(resolve(call.op))
        operands = [storage_of[name] for name in names_in((call.args, *dict(call.kwargs).values()))]
        if known.kind is Kind.VIEW and operands:
            views.append((operands[0], _kind_of_view(call.op)))
        arguments, given = known.op._schema.arguments, dict(call.kwargs)
        for index in known.writes:
            value = call.args[index] if index < len(call.args) else given.get(arguments[index].name)
            writes += [(storage_of[name], _kind_of_write(known)) for name in names_in((value,))]
        # A result of an op that makes no alias is a storage of its own.
        aliasing = known.kind in {Kind.VIEW, Kind.IN_PLACE} and bool(operands)
        for result in call.results:
            storage_of[result] = operands[0] if aliasing else result
    written = {storage for storage, _ in writes}
    kinds = {f"writes {kind}" for _, kind in writes}
    kinds |= {f"views by {kind}" for storage, kind in views if storage in written}
    if any(call.op.split(".")[1].endswith("_scatter") for call in program.instructions):
        kinds.add("scatters")
    used = [view.storage for view in program.inputs]
    if len(set(used)) < len(used):
        kinds.add("inputs share a storage")
    return tuple(sorted(kinds))


def _kind_of_view(op: str) -> str:
    _, name, overload = op.split(".")
    if name == "view" and overload == "dtype":
        return "dtype"
    return _KIND_OF_VIEW.get(name, "shape")


def _kind_of_write(known: Facts) -> str:
    """How the op writes: into an output argument, a plain store, at indices, or in place."""
    name = known.op.overloadpacket.__name__
    if known.kind is Kind.OUT:
        return "out="
    if known.overwrites:
        return "by a store"
    if name.startswith(("index_", "scatter", "masked_", "put_")):
        return "at indices"
    return "in place"


@dataclass(frozen=True, slots=True)
class Signature:
    """A symptom, the cause in words, and the identifier of the known bug that it is, if any.

    `wrong_part` is the pass after which the target is wrong; empty if it was not found. One cause
    can have two symptoms: one write can leave both an output and an input wrong.
    """

    symptom: Symptom
    cause: str
    known: str | None = None
    wrong_part: str = ""

    @property
    def identifier(self) -> str:
        """A short name that is the same in every run, such as `aot-values-3f2a91c0`."""
        if self.known is not None:
            return f"known-{self.known}"
        # Identifiers are names of folders and occur in reports: what is hashed here must never
        # change.
        what = symptom_class(self.symptom)
        text = f"{self.symptom.target}\n{what}\n{self.cause}"
        # Two passes are two causes, even if programs do the same with storages. Errors are
        # identified by the function that raised, which is more precise. FUNCTIONALIZATION is what
        # the first layer does, so it adds nothing.
        implied = self.wrong_part in ("", FUNCTIONALIZATION) or self.symptom.oracle == "errors"
        text += "" if implied else f"\n{self.wrong_part}"
        digest = hashlib.sha256(text.encode()).hexdigest()[:8]
        return f"{folder_name(self.symptom.target)}-{what.split(':')[0]}-{digest}"


def symptom_class(symptom: Symptom) -> str:
    """What a wrong result is about: values, wherever they are, or the subject of one oracle."""
    if symptom.oracle in ON_VALUES:
        return "values"
    if symptom.oracle in {"errors", "aliasing", "objects"}:
        return symptom.oracle
    return f"{symptom.oracle}: {symptom.kind}"


def signature(
    symptom: Symptom,
    program: Program,
    error: BaseException | None = None,
    known: str | None = None,
    wrong_part: str = "",
) -> Signature:
    """The signature of a reduced program.

    `error` is what the target raised, if anything, `known` the known bug that the program shows,
    and `wrong_part` the pass at fault.
    """
    if symptom.oracle == "errors":
        # The function that raised, or the message if only C++ code raised. The type of the
        # exception is left out: measured, one mistake in `gen_alias_from_base` raised five messages
        # of three types, depending on what the wrong view did to the next call.
        frame = None if error is None else innermost_frame(error)
        cause = symptom.kind if frame is None else f"error in {frame}"
        return Signature(symptom, cause, known, wrong_part)
    # Metadata goes wrong in the same way by every kind of write, and through every view.
    kinds = () if symptom.oracle == "metadata" else aliasing_kinds(program)
    return Signature(symptom, ", ".join(kinds) or symptom.kind, known, wrong_part)


# --- the innermost frame in torch -----------------------------------------------------------------

# Every operator passes through these files, so they do not identify the one that raised.
_DISPATCH = (
    "_ops.py",
    "_compile.py",
    "_library/",
    "_subclasses/",
    "_prims_common/wrappers.py",
    "_functorch/_aot_autograd/schemas.py",
    "_utils.py",
    "fx/",
    "utils/",
)
# These only report an error, so the frame above is at fault.
_CHECKS = ("_check", "_check_with", "_check_index", "_check_value", "check")


def innermost_frame(error: BaseException) -> str | None:
    """The innermost function of torch that identifies where an error began, as `file: function`.

    None if the error comes from C++ through only the dispatcher, or from other code.
    """
    innermost = None
    for frame, _ in walk_tb(error.__traceback__):
        inside, name = inside_torch(frame), frame.f_code.co_name
        if not inside:
            innermost = None  # code that torch generates has no file, and calls operators
        elif name not in _CHECKS:
            innermost = None if inside.startswith(_DISPATCH) else f"{inside}: {name}"
    return innermost
