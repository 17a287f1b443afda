"""`Contract`: what a target promises, and the reason for each promise that it does not make."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from programs.regions import Region, overlap, overlaps_itself
from programs.trace import Trace


class Promise(Enum):
    """One thing that eager does and a target may promise to do, too."""

    VALUES = "outputs equal eager's"
    INPUTS = "inputs end as in eager, with the bytes around them"
    NO_NEW_ALIAS = "no input and output, and no two outputs, share a byte that do not in eager"
    KEEPS_ALIASES = "inputs and outputs that share a byte in eager still do"
    IDENTITY = "an output that is an input in eager is that very object"
    SIZE_AND_DTYPE = "outputs have eager's sizes and dtypes"
    STRIDE = "outputs have eager's strides"
    OFFSET = "outputs have eager's storage offsets"
    INPUT_METADATA = "inputs end with eager's sizes, dtypes and strides"
    NO_NEW_ERROR = "raises only if eager raises"
    SAME_ERROR = "raises if eager raises"
    EQUIVALENCE = "computes what eager computes for all inputs: it does no arithmetic of its own"
    GRAPHS = (
        "its graphs keep the invariants of FX passes: true metadata, no mutation except an epilogue"
    )


@dataclass(frozen=True, slots=True)
class Waiver:
    """A promise that is not made, and the reason: a sentence with its source.

    For eager runs with `unless`, the promise is made after all.
    """

    promise: Promise
    reason: str
    unless: Callable[[Trace], bool] | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Precondition:
    """What must be true of an eager run for the contract to say anything about it."""

    name: str
    reason: str
    holds: Callable[[Trace], bool] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error that the target is documented to raise: it does not support the program.

    `message` is a regular expression; `when` says for which eager runs the refusal is documented.
    """

    message: str
    reason: str
    when: Callable[[Trace], bool] = field(default=lambda trace: True, repr=False)

    def covers(self, error: BaseException, trace: Trace) -> bool:
        """Whether this is the documented error."""
        return re.search(
            self.message, f"{type(error).__name__}: {error}"
        ) is not None and self.when(trace)


@dataclass(frozen=True, slots=True)
class Contract:
    """All promises except the waived ones, for programs that meet the preconditions."""

    waivers: tuple[Waiver, ...] = ()
    preconditions: tuple[Precondition, ...] = ()
    refusals: tuple[Refusal, ...] = ()

    def promises(self, promise: Promise, trace: Trace) -> bool:
        """Whether the promise is made for a function with this trace of its eager run."""
        # All waivers of it must be lifted: each has a reason of its own.
        waivers = (waiver for waiver in self.waivers if waiver.promise is promise)
        return all(waiver.unless is not None and waiver.unless(trace) for waiver in waivers)

    def unmet(self, trace: Trace) -> Precondition | None:
        """The first precondition that the eager run does not meet, or None."""
        return next((each for each in self.preconditions if not each.holds(trace)), None)

    def refusal(self, error: BaseException, trace: Trace) -> Refusal | None:
        """The documented refusal that this error is, or None."""
        return next((known for known in self.refusals if known.covers(error, trace)), None)


def written_inputs_disjoint(trace: Trace) -> bool:
    """No two inputs that share a byte are on a storage that is written."""
    written = [view for view in trace.inputs if view.storage in trace.written]
    return not any(
        one.storage == other.storage and overlap(one.region, other.region)
        for index, one in enumerate(written)
        for other in written[:index]
    )


def as_written(trace: Trace) -> bool:
    """Each call can be decomposed in one way only."""
    return trace.as_written


def no_overlapping_as_strided(trace: Trace) -> bool:
    """No `as_strided` call makes a view that overlaps itself."""
    return not trace.overlapping_as_strided


def written_inputs_apart(trace: Trace) -> bool:
    """No two inputs are on one storage that is written, whether they overlap or not."""
    written = [view.storage for view in trace.inputs if view.storage in trace.written]
    return len(written) == len(set(written))


def as_strided_stays_inside(trace: Trace) -> bool:
    """No `as_strided` call makes a view of bytes outside its argument."""
    return not trace.outside


def overlapping_writes_come_from_expand(trace: Trace) -> bool:
    """A region that is written and overlaps itself does so by strides of 0 only."""
    return not any(map(_overlaps_without_stride_0, trace.overlapping_writes))


def no_overlapping_input_is_written(trace: Trace) -> bool:
    """No input that overlaps itself is written directly, without a view between."""
    return not any(view.region in trace.overlapping_writes for view in trace.inputs)


def _overlaps_without_stride_0(region: Region) -> bool:
    """Whether the region overlaps itself also without its expanded dims."""
    kept = [
        (size, stride) for size, stride in zip(region.sizes, region.strides, strict=True) if stride
    ]
    # The start does not matter for an overlap with itself.
    sizes, strides = tuple(size for size, _ in kept), tuple(stride for _, stride in kept)
    return overlaps_itself(Region(0, sizes, strides, region.itemsize))
