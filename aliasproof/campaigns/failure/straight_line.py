"""`straight_line`: a Python program that is a line of ATen calls, as the `Program` that it is.

What a campaign of such programs calls the same violation is then the name of this one, too: one
cause is one finding in both languages.
"""

from __future__ import annotations

import ast
from typing import Any, NamedTuple

import torch
from torch.utils import _pytree as pytree

from aliasproof.campaigns.failure.recognition import recognised
from aliasproof.campaigns.failure.signature import signature, symptom_class
from aliasproof.ir.errors import InternalError, Rejected, UserError
from aliasproof.ir.lifting import lift_program
from aliasproof.ir.program import Program
from aliasproof.ir.python_program import CALLS, COMPILED, PythonProgram
from aliasproof.judge.examination import examine
from aliasproof.judge.trial import Case
from aliasproof.targets.registry import target as target_named


class LineName(NamedTuple):
    """What a campaign of `Program`s calls a violation, and the known bug that it is, if any.

    `documented` says why it is none, if the documentation of the target allows it.
    """

    identifier: str = ""
    known: str = ""
    documented: str = ""


class _LiftedError(Exception):
    """Ends a run whose call was lifted."""


def straight_line(program: PythonProgram) -> Program | None:
    """The ATen calls of `program`, if it is called once, on tensors that require no gradients.

    None if it has state of its own, returns something else than tensors, or does what a `Program`
    cannot say. Raises `InternalError` for a mistake of ours.
    """
    tree = ast.parse(program.source)
    called = [getattr(it.func, "id", "") for it in ast.walk(tree) if isinstance(it, ast.Call)]
    names = [getattr(it, "name", "") for it in tree.body if not isinstance(it, ast.Import)]
    if names != [COMPILED, CALLS] or called.count(COMPILED) != 1:
        return None
    lines: list[Program] = []

    def lift(function: Any) -> Any:
        def lifting(*arguments: Any) -> None:
            lines.append(_lifted(function, arguments))
            raise _LiftedError

        return lifting

    try:
        program.run(lift)
    except (_LiftedError, UserError, Rejected):
        return next(iter(lines), None)
    except InternalError:
        raise
    except Exception:  # noqa: BLE001 - any error of the program: then it is no line
        return None
    return None


def _lifted(function: Any, arguments: tuple[Any, ...]) -> Program:
    if not all(_is_plain(it) for it in arguments):
        raise Rejected("arguments that are no tensors, or require gradients")
    returned: list[object] = []

    def noting(*tensors: torch.Tensor) -> object:
        returned.append(function(*tensors))
        return returned[0]

    with torch.no_grad():  # as programs run that need no gradients
        lifted = lift_program(noting, arguments)
    if not all(_is_plain(leaf) for leaf in pytree.tree_leaves(returned) if leaf is not None):
        raise Rejected("results that are no tensors, or require gradients")
    return lifted.program


def _is_plain(value: object) -> bool:
    return isinstance(value, torch.Tensor) and not value.requires_grad


def name_of_line(program: Program, target: str, oracle: str) -> LineName | None:
    """What a campaign calls the violation of this oracle by a target; None if it shows none.

    Raises `InternalError` for a mistake of ours.
    """
    examination = examine(Case.of(program), target_named(target))
    if examination.mistake is not None:
        raise examination.mistake
    symptom = examination.symptom
    for it in examination.documented if not examination.failed else ():
        if it.difference.oracle == oracle:
            return LineName(documented=it.limitation.reason)
    # All that a caller reaches counts as an output of a Python program, also inputs.
    if not examination.failed or symptom is None or symptom_class(symptom).split(":")[0] != oracle:
        return None
    known = recognised(program, symptom, reduced=True).known
    error = None if examination.trial is None else examination.trial.target.error
    return LineName(signature(symptom, program, error, known).identifier, known or "")
