"""`Contract`: the promises of a target, and the exceptions that its documentation makes.

Oracles always compare everything. `Contract.report` then sorts the differences that they find into
violations, documented differences and notes.
"""

from __future__ import annotations

import dis
import itertools
import re
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from aliasproof.eager.trace import InputLocation, Trace
from aliasproof.ir.regions import Region, overlap, overlaps_itself
from aliasproof.oracles.verdict import (
    HOLDS,
    Documented,
    Limitation,
    Report,
    Violation,
    with_differences,
)


class Promise(Enum):
    """One thing that eager does and a target may promise to do, too."""

    VALUES = "outputs equal eager's"
    ROUNDING = "rounds each bfloat16 and float16 result before it is read, as eager does"
    INPUTS = "inputs end as in eager, with the bytes around them"
    BOUNDS = "generated code writes nothing around its buffers"
    INITIALISED = "no result depends on memory that nothing wrote"
    NO_NEW_ALIAS = "no input and output, and no two outputs, share a byte that do not in eager"
    KEEPS_ALIASES = "inputs and outputs that share a byte in eager still do"
    IDENTITY = "an output that is an input in eager is that very object"
    OBJECTS = "no two outputs are one object that are two in eager"
    KEEPS_OBJECTS = "two outputs that are one object in eager still are"
    SIZE_AND_DTYPE = "outputs have eager's sizes and dtypes"
    STRIDE = "outputs have eager's strides"
    STRIDE_OF_PART = "an output that is a part of an intermediate result has eager's strides"
    OFFSET = "outputs have eager's storage offsets"
    INPUT_METADATA = "inputs end with eager's sizes, dtypes and strides"
    NO_NEW_ERROR = "raises only if eager raises"
    SAME_ERROR = "raises if eager raises"
    SAME_OVERLAP_ERROR = "raises if eager raises since memory overlaps"
    EQUIVALENCE = "computes what eager computes for all inputs: it does no arithmetic of its own"
    NO_CLOBBERS = "no instruction overwrites bytes that it, or a later one, still reads"
    GRAPHS = "its graphs keep the invariants of FX passes: no mutation except an epilogue"
    GRAPH_METADATA = "the metadata in its graphs is true of a run"
    NOTED = "each value in its graphs has metadata"


# A waiver of the value also waives the key.
WIDER = {Promise.STRIDE_OF_PART: Promise.STRIDE}

# These are visible in graphs only; no result depends on them.
ON_GRAPHS_ALONE = {Promise.GRAPHS, Promise.GRAPH_METADATA, Promise.NOTED}


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference from eager and the promise that it breaks.

    `error` is what the target raised. `of_input` is the index of the input that the promise is
    about; None if it is about no input.
    """

    promise: Promise
    shown: Violation
    error: Exception | None = None
    of_input: int | None = None


# --- who raised an error --------------------------------------------------------------------------

NATIVE = "native code"
# This module drops the traceback of an error that native code raised below the code of a graph.
_DROPS_TRACEBACK = "torch.fx.graph_module"


def raiser(error: BaseException) -> str | None:
    """The module whose `raise` or `assert` raised an error; None without a traceback.

    `NATIVE` if there was no such statement: a call or an operator raised it.
    """
    innermost = error.__traceback__
    if innermost is None:
        return None
    while innermost.tb_next is not None:
        innermost = innermost.tb_next
    frame = innermost.tb_frame
    module = str(frame.f_globals.get("__name__"))
    statement = dis.opname[frame.f_code.co_code[innermost.tb_lasti]]
    raised = statement in ("RAISE_VARARGS", "RERAISE") and module != _DROPS_TRACEBACK
    return module if raised else NATIVE


def _made_of(error: BaseException) -> Iterator[BaseException]:
    """The error, then the error that it was made of, and so on.

    An error that was raised `from None` was made of the one that was handled; without `from`, not.
    """
    made: BaseException | None = error
    while made is not None:
        yield made
        before = made.__context__ if made.__suppress_context__ else None
        # Dynamo and Inductor keep a backend's error in `inner_exception`.
        made = getattr(made, "inner_exception", None) or made.__cause__ or before


# --- clauses --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Waiver:
    """A promise that is not made, and the reason: a sentence with its source.

    With `unless`, the promise is made after all for the eager runs for which that holds. With
    `only`, it is waived only for the inputs (given by index) for which that holds.
    """

    promise: Promise
    reason: str
    unless: Callable[[Trace], bool] | None = field(default=None, repr=False)
    only: Callable[[Trace, int], bool] | None = field(default=None, repr=False)

    @property
    def limitation(self) -> Limitation:
        """The name of this clause where it explains a difference."""
        return Limitation(f"does not promise '{self.promise.value}'", self.reason)

    def applies(self, trace: Trace, of_input: int | None) -> bool:
        """Whether the promise is waived for this eager run and this input."""
        if self.unless is not None and self.unless(trace):
            return False
        return self.only is None or (of_input is not None and self.only(trace, of_input))


@dataclass(frozen=True, slots=True)
class Precondition:
    """A condition on the eager run; where it is not met, the target promises nothing."""

    name: str
    reason: str
    holds: Callable[[Trace], bool] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error that the target is documented to raise: it does not support the program.

    `message` is a regular expression. `when` is the documented condition: the same error for
    another eager run is a violation. An error with this message is a violation, too, if its type is
    not in `raises` (empty: any type), if no module in `raised_by`, or below one of those, raised it
    (see `raiser`), or if it was raised outside of a call by the module `during`.
    """

    name: str
    message: str
    reason: str
    when: Callable[[Trace], bool] = field(repr=False)
    raises: tuple[str, ...] = ("RuntimeError",)
    raised_by: tuple[str, ...] = (NATIVE,)
    during: str | None = None

    def covers(self, error: BaseException, trace: Trace) -> bool:
        """Whether this is the documented error, or was made of it (see `_made_of`)."""
        return self.when(trace) and any(map(self._is, _made_of(error)))

    def _is(self, error: BaseException) -> bool:
        by = f"{raiser(error)}."
        frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
        callers = (str(frame.f_globals.get("__name__")) for frame in frames)
        return (
            (not self.raises or type(error).__name__ in self.raises)
            and re.search(self.message, str(error)) is not None
            and any(by.startswith(f"{module}.") for module in self.raised_by)
            and self.during in (None, *callers)
        )


@dataclass(frozen=True, slots=True)
class Dispute:
    """Violations that maintainers doubt to be bugs, with a link to where they said so."""

    name: str
    reason: str
    when: Callable[[Difference, Trace], bool] = field(repr=False)


# --- contract -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Contract:
    """All promises except the waived ones, for programs that meet the preconditions."""

    waivers: tuple[Waiver, ...] = ()
    preconditions: tuple[Precondition, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    disputes: tuple[Dispute, ...] = ()

    def report(
        self, differences: Iterable[Difference], trace: Trace, otherwise: Report = HOLDS
    ) -> Report:
        """Sort the differences that an oracle found. `otherwise` is the report without any."""
        violations, documented, notes = [], [], []
        for difference in differences:
            limitation = self.limitation(difference, trace)
            if limitation is None:
                violations.append(self._violation(difference, trace))
            elif difference.promise in ON_GRAPHS_ALONE:
                notes.append(_with_evidence(difference.shown, "cause", limitation.reason))
            else:
                documented.append(Documented(difference.shown, limitation))
        return with_differences(violations, documented, notes, otherwise)

    def limitation(self, difference: Difference, trace: Trace) -> Limitation | None:
        """The most specific clause that covers a difference; None if none does."""
        error = difference.error
        refusal = None if error is None else self.refusal(error, trace)
        if refusal is not None:
            return Limitation(f"refuses '{refusal.name}'", refusal.reason)
        waiver = self.waiver(difference.promise, trace, difference.of_input)
        # Other arithmetic does not excuse a difference (see `aliasproof.oracles.equivalence`).
        if waiver is not None and waiver.promise is not Promise.EQUIVALENCE:
            return waiver.limitation
        return self.outside(trace)

    def outside(self, trace: Trace) -> Limitation | None:
        """Why the target promises nothing for this eager run; None if it promises something."""
        if trace.unspecified is not None:
            return Limitation("unspecified in eager", trace.unspecified)
        # If the function catches that error, eager and target continue differently.
        if trace.overlap_error and (raised := self.waiver(Promise.SAME_OVERLAP_ERROR, trace)):
            return raised.limitation
        unmet = self.unmet(trace)
        return None if unmet is None else Limitation(f"requires '{unmet.name}'", unmet.reason)

    def promises(self, promise: Promise, trace: Trace) -> bool:
        """Whether the promise is made for a function with this trace of its eager run."""
        return self.waiver(promise, trace) is None

    def waiver(self, promise: Promise, trace: Trace, of_input: int | None = None) -> Waiver | None:
        """The first waiver of the promise that applies to the eager run and the input, or None."""
        promises = (promise, WIDER.get(promise))
        waivers = (waiver for waiver in self.waivers if waiver.promise in promises)
        return next((waiver for waiver in waivers if waiver.applies(trace, of_input)), None)

    def unmet(self, trace: Trace) -> Precondition | None:
        """The first precondition that the eager run does not meet, or None."""
        return next(
            (precondition for precondition in self.preconditions if not precondition.holds(trace)),
            None,
        )

    def refusal(self, error: BaseException, trace: Trace) -> Refusal | None:
        """The first documented refusal that covers this error, or None."""
        return next((known for known in self.refusals if known.covers(error, trace)), None)

    def _violation(self, difference: Difference, trace: Trace) -> Violation:
        dispute = next(
            (candidate for candidate in self.disputes if candidate.when(difference, trace)), None
        )
        if dispute is None:
            return difference.shown
        return replace(
            _with_evidence(difference.shown, "disputed", dispute.reason), label="disputed"
        )


EVERYTHING = Contract()  # the empty contract promises everything


def _with_evidence(violation: Violation, key: str, reason: str) -> Violation:
    return replace(violation, evidence={**violation.evidence, key: reason})


# --- conditions on eager runs ---------------------------------------------------------------------


def always(trace: Trace) -> bool:
    """Of a refusal whose message says enough, such as which operator is not supported."""
    return True


def written_inputs_disjoint(trace: Trace) -> bool:
    """No two inputs that share a byte are on a storage that is written."""
    written = [view for view in trace.inputs if view.storage in trace.written]
    return not any(
        one.storage == other.storage and overlap(one.region, other.region)
        for index, one in enumerate(written)
        for other in written[:index]
    )


def writes_no_input(trace: Trace) -> bool:
    """No storage of an input is written."""
    return not any(view.storage in trace.written for view in trace.inputs)


def mutates_no_input_metadata(trace: Trace) -> bool:
    """No call changed sizes, strides or the storage of a tensor on the storage of an input."""
    return not any(view.storage in trace.reshaped for view in trace.inputs)


def changes_metadata(trace: Trace) -> bool:
    """A call changed sizes, strides or the storage of a tensor."""
    return bool(trace.reshaped)


def as_written(trace: Trace) -> bool:
    """Each call can be decomposed in one way only."""
    return trace.as_written is True


def differentiates(trace: Trace) -> bool:
    """Autograd runs inside of the function."""
    return trace.differentiates


def draws_nothing(trace: Trace) -> bool:
    """No op draws random numbers."""
    return not trace.random


def calls_a_custom_write(trace: Trace) -> bool:
    """An operator of another library than torch writes a tensor."""
    return trace.custom_write


def shows_no_location(trace: Trace) -> bool:
    """No operator returns the offset of a tensor or the size of its storage."""
    return not trace.reads_location


def reads_before_it_writes(trace: Trace) -> bool:
    """No operator reads bytes of an argument again after it wrote them through another one."""
    return not trace.reads_again


def no_overlapping_as_strided(trace: Trace) -> bool:
    """No `as_strided` call makes a view that overlaps itself."""
    return not trace.overlapping_as_strided


def is_merged(trace: Trace, index: int) -> bool:
    """The input is on a written storage with other inputs, some of which may overlap."""
    storage = trace.inputs[index].storage
    # AOTAutograd proves some interleaved inputs disjoint, others not
    # (`compute_overlapping_inputs`). It merges all inputs of the storage if two may overlap.
    spans = sorted(
        view.region.interval
        for view in trace.inputs
        if view.storage == storage and view.region.numel
    )
    meet = any(end > start for (_, end), (start, _) in itertools.pairwise(spans))
    return storage in trace.written and meet


def as_strided_stays_inside(trace: Trace) -> bool:
    """No `as_strided` call makes a view of bytes outside its argument."""
    return not trace.outside


def overlapping_writes_come_from_expand(trace: Trace) -> bool:
    """A region that is written and overlaps itself does so by strides of 0 only."""
    return not any(map(_overlaps_without_stride_0, trace.overlapping_writes))


def writes_overlapping_input(trace: Trace) -> bool:
    """An input that overlaps itself is written, directly or through a view."""
    overlapping = [view.region for view in trace.inputs if overlaps_itself(view.region)]
    return any(_is_written(region, trace) for region in overlapping)


def comes_from_expand(difference: Difference, trace: Trace) -> bool:
    """The wrong data come from a write through a region that overlaps itself."""
    if difference.error is not None:
        refused = re.search(_INVERSE_OF_EXPAND_RAISES, str(difference.error)) is not None
        return bool(trace.overlapping_writes) and refused
    place = re.search(r"(?:input|output) \d+", difference.shown.place)
    # The write cannot change layouts or aliasing.
    of_data = difference.promise in (Promise.VALUES, Promise.INPUTS, Promise.EQUIVALENCE)
    return of_data and place is not None and place[0] in trace.from_expanded


# The inverse of `expand` computes `base + sum_to_size(written - base)`; some dtypes lack kernels.
_INVERSE_OF_EXPAND_RAISES = r"Subtraction, the `-` operator|\"add_stub\" not implemented"


def writes_through_as_strided(trace: Trace) -> bool:
    """A write goes through a chain of views with `as_strided` in it."""
    return trace.written_as_strided


def depends_on_data(trace: Trace) -> bool:
    """A call reads tensor data into Python or into a size."""
    return trace.data_dependent is not None


def has_no_fake_kernel(trace: Trace) -> bool:
    """A call has no kernel for fake tensors."""
    return trace.without_fake


def is_python_function(trace: Trace) -> bool:
    """The function is Python code, which may do more than call ATen ops."""
    return not trace.is_program


def writes_inputs_of_two_dtypes(trace: Trace) -> bool:
    """Inputs of two dtypes overlap, and the memory that they cover is written."""
    return any(
        len({view.dtype for view in group}) > 1
        and any(_is_written(view.region, trace) for view in group)
        for group in _overlapping_groups(trace.inputs)
    )


def _is_written(region: Region, trace: Trace) -> bool:
    """Whether a write covers a byte of the region."""
    return any(overlap(region, written) for written in trace.written_regions)


def _overlapping_groups(inputs: Sequence[InputLocation]) -> list[list[InputLocation]]:
    """Group the inputs: two are in one group if they overlap, directly or through other inputs."""
    groups: list[list[InputLocation]] = []
    for view in inputs:
        joined = [view]
        apart = []
        for group in groups:
            if any(overlap(view.region, other.region) for other in group):
                joined += group
            else:
                apart.append(group)
        groups = [*apart, joined]
    return groups


def _overlaps_without_stride_0(region: Region) -> bool:
    """Whether the region overlaps itself even without its expanded dims."""
    kept = [
        (size, stride) for size, stride in zip(region.sizes, region.strides, strict=True) if stride
    ]
    # The start does not matter for an overlap with itself.
    sizes, strides = tuple(size for size, _ in kept), tuple(stride for _, stride in kept)
    return overlaps_itself(Region(0, sizes, strides, region.itemsize))
