"""`Signature`: what makes two reduced violations the same finding.

A violation that is a known bug has the signature of that bug. Any other is told by the target and
the pass at fault, and by the *cause*: what survives reduction and renaming. The cause of an error
is the function of torch that raised it. The cause of a silent violation is what the program does
with storages, and not the names of its ops: the same bug of a compiler shows through many of them.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import torch

from aliasproof.campaigns.failure.aliasing_kinds import aliasing_kinds
from aliasproof.ir.program import Program
from aliasproof.judge.attribution import Symptom
from aliasproof.judge.localization import FUNCTIONALIZATION
from aliasproof.oracles.verdict import ON_VALUES
from aliasproof.targets.variants import folder_name


@dataclass(frozen=True, slots=True)
class Signature:
    """A symptom, the cause in words, and the identifier of the known bug that it is, if any.

    `blamed` is the pass after which the target is wrong; empty if nothing tells.
    Two symptoms of one cause can differ: an output and an input end wrong by the same write.
    """

    symptom: Symptom
    cause: str
    known: str | None = None
    blamed: str = ""

    @property
    def identifier(self) -> str:
        """A short name that is the same in every run, such as `aot-values-3f2a91c0`."""
        if self.known is not None:
            return f"known-{self.known}"
        # Identifiers are names of folders and in reports: what is hashed here must never change.
        what = symptom_class(self.symptom)
        text = f"{self.symptom.target}\n{what}\n{self.cause}{self._pass}"
        digest = hashlib.sha256(text.encode()).hexdigest()[:8]
        return f"{folder_name(self.symptom.target)}-{what.split(':')[0]}-{digest}"

    @property
    def _pass(self) -> str:
        """What the blamed pass adds to the identifier.

        Two passes are two causes, even if programs do the same with storages. A wrong pass is one
        cause for all that it does wrong with the same kinds of writes and views. Errors are told by
        the function that raised, which says more. That a graph is wrong once it is functionalized
        is what the first layer does, and says nothing new.
        """
        implied = not self.blamed or self.blamed == FUNCTIONALIZATION
        return "" if implied or self.symptom.oracle == "errors" else f"\n{self.blamed}"


def symptom_class(symptom: Symptom) -> str:
    """What a wrong result is about: values wherever they are, or one oracle's matter."""
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
    blamed: str = "",
) -> Signature:
    """The signature of a reduced program.

    `error` is what the target raised, if it did, `known` the known bug that it shows, and `blamed`
    the pass at fault.
    """
    if symptom.oracle == "errors":
        return Signature(symptom, _cause_of_error(symptom, error), known, blamed)
    # Metadata goes wrong in the same way by every kind of write, and through every view.
    kinds = () if symptom.oracle == "metadata" else aliasing_kinds(program)
    return Signature(symptom, ", ".join(kinds) or symptom.kind, known, blamed)


def _cause_of_error(symptom: Symptom, error: BaseException | None) -> str:
    """The function that raised, or the message where only C++ knows the function."""
    # The type of the exception is left out: measured, one mistake in `gen_alias_from_base` raised
    # five messages of three types, by what the wrong view made of the next call.
    frame = None if error is None else innermost_frame(error)
    return symptom.kind if frame is None else f"error in {frame}"


# --- the innermost frame in torch -----------------------------------------------------------------

_TORCH = Path(torch.__file__).parent

# Every operator passes through these, so they say nothing about the one that raised.
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
# Only report an error, so the frame above is at fault.
_CHECKS = ("_check", "_check_with", "_check_index", "_check_value", "check")


def innermost_frame(error: BaseException) -> str | None:
    """The innermost function of torch that tells where an error began, as `file: function`.

    None if the error comes from C++ by way of the dispatcher alone, or from other code.
    """
    traceback, innermost = error.__traceback__, None
    while traceback is not None:
        innermost = _telling_frame(traceback.tb_frame, innermost)
        traceback = traceback.tb_next
    return innermost


def _telling_frame(frame: FrameType, before: str | None) -> str | None:
    path = Path(frame.f_code.co_filename)
    name = frame.f_code.co_name
    if not path.is_relative_to(_TORCH):
        # Code that torch generates has no file. It calls operators, as a program does.
        return None
    inside = path.relative_to(_TORCH).as_posix()
    if name in _CHECKS:
        return before
    return None if inside.startswith(_DISPATCH) else f"{inside}: {name}"
