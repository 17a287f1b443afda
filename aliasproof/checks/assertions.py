"""`assert_equivalent`: a check in one line, for the tests of any project (docs/pytest.md)."""

from __future__ import annotations

import contextlib
import logging
import textwrap
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import torch
from hypothesis import currently_in_test_context, event, reject

from aliasproof.checks.check import GivenTarget, check
from aliasproof.checks.preparation import AS_CALLED
from aliasproof.ir.errors import UserError
from aliasproof.ir.execution import keep_random_state, seed_generators
from aliasproof.ir.lifting import lift_program
from aliasproof.ir.program import Program
from aliasproof.ir.values import clone_inputs
from aliasproof.minimization.candidate_checks import file_source
from aliasproof.oracles.check_result import DIFFERS, NOTHING_JUDGED, Check
from aliasproof.oracles.given_tolerance import compared_within
from aliasproof.reports.verdict_table import Shown, check_text
from aliasproof.targets.target import Function
from aliasproof.user_code.comparable import Comparable

MOST_ELEMENTS = 200  # of all storages together, whose values a message prints
NO_GRAPHS = "not asked, since the results differ already"
NO_FILE = "put the function into FILE.py as program(), with inputs() beside it"


class NotJudged(UserError):
    """Nothing was compared: eager is undefined or raises, or the target cannot run the function."""


def assert_equivalent(
    function: Program | Function,
    *inputs: object,
    target: GivenTarget = "inductor",
    kwargs: Mapping[str, object] | None = None,
    second_inputs: object = None,
    device: str | None = None,
    accept_documented: bool = False,
    rtol: float | None = None,
    atol: float | None = None,
    grad: bool | None = None,
) -> None:
    """Assert that a target does with a function, or a program, what eager does.

    The same oracles judge as in `aliasproof check`, in this process. `target` is a name, or your
    own pass or `torch.compile` backend. `rtol` and `atol` are the tolerance for all values, instead
    of the tolerance known for each operator. `kwargs` are keyword arguments of the function. The
    other options, such as `grad`, are those of `check`. Neither function nor inputs are changed.

    Raises `AssertionError` with the output of `check` if the target differs from eager; with
    `accept_documented`, only if its documentation does not allow the difference. Raises `NotJudged`
    if nothing could be compared, so that no test passes without a comparison. In a Hypothesis test,
    a drawn program of that kind is rejected instead, and counted in the statistics.
    """
    __tracebackhide__ = True
    if isinstance(function, Program) and (inputs or kwargs):
        raise UserError("assert_equivalent(program): a program brings its own inputs; give no more")
    given = None if isinstance(function, Program) else (tuple(inputs), dict(kwargs or {}))
    # A shrinker tries many programs, but shows only one.
    shrinking = given is None and currently_in_test_context()
    options: dict[str, Any] = {"second_inputs": second_inputs, "device": device, "grad": grad}
    compare = partial(check, function, given, [target], **options)
    with _quiet_logs(), compared_within((rtol, atol)):
        # The oracles on graphs take long, and most failures show without them.
        try:
            comparison = compare(without_graphs=NO_GRAPHS if shrinking else "")
            if shrinking and not comparison.violated:
                comparison = compare()
        except UserError as error:  # the test shows its message, without frames of ours
            raise error.with_traceback(None) from error.__cause__
    status = comparison.exit_status()
    if status == NOTHING_JUDGED:
        if shrinking:
            event("not judged")
            reject()
        raise NotJudged(f"nothing was compared\n{comparison}")
    if status == DIFFERS or (comparison.documented and not accept_documented):
        rows = comparison.results.values()
        differs = next(it for it in rows if it.violated or (it.documented and status != DIFFERS))
        found = (*differs.violations, *(it.difference for it in differs.documented))[0]
        head = f"{differs.target} differs from eager: {found.oracle}: {found.describe()}"
        shown = check_text(comparison, Shown(documented=True))
        raise AssertionError(f"{head}\n\n{shown}\n{_reproduction(function, given, comparison)}")


@contextlib.contextmanager
def _quiet_logs() -> Iterator[None]:
    """Silence torch's logs, which are of all runs: pytest would show them beside a failure."""
    loggers = [logging.getLogger(name) for name in ("torch", "torch.__trace")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _reproduction(function: Program | Function, inputs: object, comparison: Check) -> str:
    """How to see the difference again from the command line."""
    first = next((it for it in comparison.results.values() if it.violated), None)
    name = next(iter(comparison.results)) if first is None else first.target
    target, more = name.removesuffix(AS_CALLED), ""
    if "<locals>" in target:  # no command can import it
        target, more = f"FILE.py:{target.rpartition('.')[2]}", " and the target"
    command = f"python -m aliasproof check FILE.py --target {target}"
    program: Program | None = None
    if isinstance(function, Program):
        program = function
    elif not name.endswith(AS_CALLED):  # the calls of a program have no gradients
        with _quiet_logs():
            program = _as_program(function, inputs)
    if program is None:
        return f"\nTo reproduce by the command line, {NO_FILE}{more}:\n    {command}"
    what = ("this" if program is function else "its ATen calls") + more
    source = textwrap.indent(file_source(program), "    ").rstrip()
    return f"\nTo reproduce, put {what} into FILE.py:\n    {command}\n\n{source}"


def _as_program(function: Function, inputs: object) -> Program | None:
    """The function as a program with its inputs' values; None if that is too long or impossible."""
    try:
        comparable = Comparable.of(function, inputs)
        with torch.no_grad(), keep_random_state():
            seed_generators()
            program = lift_program(comparable, clone_inputs(comparable.inputs)).program
    except Exception:  # noqa: BLE001 - the function of the user may raise anything
        return None
    elements = sum(storage.length for storage in program.storages)
    return program if elements <= MOST_ELEMENTS else None
