"""Oracle *clobbers*: no instruction overwrites bytes that it, or a later one, still reads.

By itself, an instruction must not

- read bytes that it overwrites at other positions (an elementwise op may read the very element that
  it writes),
- write through memory that overlaps itself (unless it stores one value there), or write the same
  memory through two arguments.

And it must not overwrite a value that is read later. `stage_comparison` decides that: it compares
the stage with the one before it.

Compare `can_inplace` in `torch/_inductor/fx_passes/reinplace.py`. It asks which other nodes use the
storage, not which bytes they use.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise

import torch
from torch._ops import OpOverload

from aliasproof.eager.definedness_rules import read_as_number_first
from aliasproof.eager.trace import Trace
from aliasproof.ir.custom_operators import NAMESPACE
from aliasproof.ir.eager_call import is_foreach
from aliasproof.ir.regions import overlaps_itself
from aliasproof.ir.schemas import Kind, facts, is_composite
from aliasproof.oracles.contract import Contract, Difference, Promise
from aliasproof.oracles.forms import functional_form
from aliasproof.oracles.oracle import Needs, Oracle
from aliasproof.oracles.stage_comparison import StageComparison
from aliasproof.oracles.stage_run import NodeCall, NodeRun, Operand, StageRun
from aliasproof.oracles.verdict import (
    Report,
    Verdict,
    Violation,
    not_applicable,
    of_all_stages,
    report_of,
)


def judge(contract: Contract, stages: Sequence[StageRun], trace: Trace) -> Report:
    """Judge each stage against the one before it; the first has none before it."""
    pairs = [(None, stages[0]), *pairwise(stages)] if stages else []
    # If so, a call of the program has overlapping operands, too, and it is defined in eager.
    overlaps = trace.overlapping_operands
    report = of_all_stages([judge_stage(run, before, overlaps=overlaps) for before, run in pairs])
    differences = [Difference(Promise.NO_CLOBBERS, violation) for violation in report.violations]
    return contract.report(differences, trace, report) if differences else report


def judge_stage(run: StageRun, before: StageRun | None = None, *, overlaps: bool = False) -> Report:
    """Judge a stage that writes.

    `before` is the functional stage that it was made from, run on equal inputs. Without `before`,
    nothing says which value a later read should get, so each instruction is judged by itself. With
    `overlaps`, arguments of our custom operators may overlap each other.
    """
    # Without writes there is nothing to clobber.
    if not any(node.call is not None and node.call.written for node in run.nodes):
        return _unless_raised(run, not_applicable("the graphs write nothing"))
    violations = [
        violation
        for node in run.nodes
        if node.call is not None
        for violation in _by_itself(run, node, node.call, overlaps=overlaps)
    ]
    if before is None:
        report = report_of(violations)
        return report if violations else _unless_raised(run, report)
    clobbered, reason = StageComparison(before, run).judge()
    violations += clobbered
    if violations or not reason:
        return report_of(violations)
    return Report(Verdict.UNKNOWN, reason=reason)


def _unless_raised(run: StageRun, report: Report) -> Report:
    """Unknown if the run raised: the rest of the stage did not run."""
    return report if run.error is None else Report(Verdict.UNKNOWN, reason=run.raised)


def _by_itself(
    run: StageRun, node: NodeRun, call: NodeCall, *, overlaps: bool
) -> Iterator[Violation]:
    """Violations by an instruction that do not depend on other instructions."""
    # Without an operator, the order of its reads and writes is unknown.
    written = call.written if call.op is not None else []
    # Our custom operators compute in memory of their own (`aliasproof.ir.custom_operators`).
    ours = call.op is not None and call.op.namespace == NAMESPACE
    overlaps = ours and (overlaps or is_composite(call.op))
    place = run.name(node.node)
    for index, target in enumerate(written):
        evidence = {"writes": _evidence(target)}
        for item, operand in () if overlaps else _items(call.read):
            # A `_foreach_` op works on its items one after the other, or on all at once.
            own = item == index or call.op is None or not is_foreach(call.op)
            if not operand.written and _reads_elsewhere(call, target, operand, own=own):
                kind = "reads bytes that it overwrites at other positions"
                yield Violation("clobbers", kind, place, evidence | {"reads": _evidence(operand)})
        if _stores_twice(call, target):
            kind = "writes through memory that overlaps itself"
            yield Violation("clobbers", kind, place, evidence)
        for other in () if overlaps else written[:index]:
            if _overlap_in_kernel(call.op, target, other):
                kind = "writes the same memory through two arguments"
                yield Violation(
                    "clobbers", kind, place, evidence | {"and writes": _evidence(other)}
                )


def _items(operands: Sequence[Operand]) -> Iterator[tuple[int, Operand]]:
    """Each operand with its index in its list argument."""
    seen: Counter[str] = Counter()
    for operand in operands:
        yield seen[operand.argument], operand
        seen[operand.argument] += 1


def _reads_elsewhere(call: NodeCall, target: Operand, operand: Operand, *, own: bool) -> bool:
    """Whether a call reads bytes of the target for another element than the one stored there.

    `own`: the call reads the operand only to compute this target.
    """
    assert call.op is not None
    number_first = read_as_number_first(call.op, operand.argument, len(operand.location.sizes))
    # A kernel may load a 0-d operand as a number before it writes anything.
    if number_first or not _overlap_in_kernel(call.op, target, operand):
        return False
    same = target.location.same_elements(operand.location)
    return not (own and _elementwise(call.op) and same)


def _overlap_in_kernel(op: OpOverload | None, one: Operand, other: Operand) -> bool:
    """Whether two operands have a byte in common when the kernel runs.

    If a kernel does not know the lazy bit of an operand, the dispatcher gives it a copy, and writes
    the copy back after the call (`aten/src/ATen/native/MathBitsFallback.h`).
    """
    here, there = one.location, other.location
    bits = {"Conjugate": here.conj or there.conj, "Negative": here.neg or there.neg}
    copied = op is not None and any(
        lazy and not torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), key)
        for key, lazy in bits.items()
    )
    return not copied and here.overlaps(there)


@functools.cache
def _elementwise(op: OpOverload) -> bool:
    """Whether element i of the result depends only on elements i that are read.

    Some ops say so only in their functional form.
    """
    # The tag `pointwise` may be missing from the in-place form.
    form = functional_form(op)
    tagged = facts(op).pointwise or (form is not None and facts(form).pointwise)
    return tagged or is_foreach(op)


def _stores_twice(call: NodeCall, target: Operand) -> bool:
    """Whether a call stores several values to one byte."""
    assert call.op is not None
    if call.op is torch.ops.aten.copy_.default:
        return call.conflicts  # whether the values differ shows only in the run
    # `dropout_` with probability 0 stores nothing. Only the run knows whether it does.
    if facts(call.op).random and is_composite(call.op):
        return False
    # A fill stores the same value everywhere.
    fills = target.overwritten and facts(call.op).kind is not Kind.OUT
    fills = fills or call.op is torch.ops.aten.fill_diagonal_.default
    return not fills and overlaps_itself(target.location.region)


def _evidence(operand: Operand) -> dict[str, object]:
    region = operand.location.region
    return {
        "argument": operand.argument,
        "storage": operand.location.storage,
        "start in bytes": region.start,
        "sizes": list(region.sizes),
        "strides in bytes": list(region.strides),
        "bytes per element": region.itemsize,
    }


ORACLE = Oracle(
    "clobbers",
    "no instruction overwrites bytes that it, or a later one, still reads",
    Needs.STAGES,
    judge,
)
