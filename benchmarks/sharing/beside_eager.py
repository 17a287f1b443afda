"""Compares a program under a backend of `torch.compile` with eager, call by call."""

from __future__ import annotations

import importlib
import logging
import math
import textwrap
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Tensor

from aliasproof.processes.isolation import step
from benchmarks.sharing.call_records import (
    PlaceRecord,
    SharedCallError,
    SharedCallRecord,
    call_records,
)
from benchmarks.sharing.shared_arguments import PROGRAMS, SharingProgram

MODES = ("inference", "training")
LAST_BITS = 2e-5  # a larger difference, relative to numbers above one, is no rounding
_SHOWN = 12  # differences
Backend: TypeAlias = "str | Callable[..., Any]"


class SharingAnswer(StrEnum):
    """What is said of one program in one mode."""

    RIGHT = "right"
    BITS = "bits"  # differs from eager in the last bits alone
    WRONG = "wrong"
    RAISES = "raises"


@dataclass(frozen=True, slots=True)
class SharingResult:
    """The answer for a program, and what differs from eager, one line each."""

    program: str
    backend: str
    mode: str
    answer: str
    differences: Sequence[str] = ()


def programs() -> dict[str, SharingProgram]:
    """All programs by name: those of the modules `programs_*` beside this one."""
    for path in sorted(Path(__file__).parent.glob("programs_*.py")):
        importlib.import_module(f"{__package__}.{path.stem}")
    return PROGRAMS


def prepare() -> None:
    """Make this process one that runs programs, where nobody reads warnings."""
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    torch.set_num_threads(1)
    programs()


def named_result(name: str, backend: str, mode: str, seed: int) -> SharingResult:
    """The result of the program with this name."""
    answer, shown = compare(programs()[name], backend, training=mode == "training", seed=seed)
    return SharingResult(name, backend, mode, str(answer), shown)


def compare(
    program: SharingProgram, backend: Backend, *, training: bool, seed: int = 0
) -> tuple[SharingAnswer, list[str]]:
    """The answer, and the differences that it is due to. Zeros and NaN have no sign.

    Calls that eager refuses are left out.
    """
    step("eager")
    eager, without = eager_records(program, training=training, seed=seed)
    step("compiled")
    torch._dynamo.reset()
    try:
        compiled = call_records(
            program,
            lambda target: torch.compile(target, backend=backend),
            training=training,
            seed=seed,
            without=without,
        )
    except SharedCallError as error:
        return SharingAnswer.RAISES, [_text_of(error)]
    differences = list(_differences(eager, compiled))
    if not differences:
        return SharingAnswer.RIGHT, []
    wrong = [difference for difference in differences if difference.size > LAST_BITS]
    answer = SharingAnswer.WRONG if wrong else SharingAnswer.BITS
    return answer, [difference.text for difference in wrong or differences][:_SHOWN]


def eager_records(
    program: SharingProgram, *, training: bool, seed: int = 0
) -> tuple[list[SharedCallRecord], set[int]]:
    """The records of eager, and the numbers of the calls that eager itself refuses."""
    refused: set[int] = set()
    while True:
        try:
            records = call_records(
                program, lambda target: target, training=training, seed=seed, without=refused
            )
        except SharedCallError as error:
            # What it did to the state of a module must not be seen, so all begins anew.
            refused.add(error.number)
        else:
            return records, refused


def _text_of(failure: SharedCallError) -> str:
    # Dynamo wraps what a backend raises.
    error = getattr(failure.error, "inner_exception", failure.error)
    message = textwrap.shorten(str(error), 150, placeholder=" ...")
    return f"{failure.call}: {type(error).__name__}: {message}"


# --- differences ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Difference:
    text: str
    size: float = math.inf  # of the values, relative to those of eager


def _differences(
    eager: Sequence[SharedCallRecord], compiled: Sequence[SharedCallRecord]
) -> Iterator[_Difference]:
    for ours, theirs in zip(compiled, eager, strict=True):
        for place in {**theirs.places, **ours.places}:
            where = f"{theirs.call}, {place}"
            if place not in ours.places:
                yield _Difference(f"{where} is missing")
            elif place not in theirs.places:
                yield _Difference(f"{where} is not there in eager")
            else:
                yield from _of_place(where, ours.places[place], theirs.places[place])


def _of_place(where: str, ours: PlaceRecord, theirs: PlaceRecord) -> Iterator[_Difference]:
    one, other = ours.value, theirs.value
    if not isinstance(one, Tensor) or not isinstance(other, Tensor):
        if not _same_value(one, other):
            yield _Difference(f"{where}: {_shown(one)} instead of {_shown(other)}")
        return
    for fact in {**theirs.facts, **ours.facts}:
        given, expected = ours.facts.get(fact, "none"), theirs.facts.get(fact, "none")
        if given != expected:
            yield _Difference(f"{where}: {fact} {given} instead of {expected}")
    if one.shape == other.shape and one.dtype == other.dtype:
        size = _distance(_real(one), _real(other))
        if size:
            yield _Difference(f"{where}: values differ by {size:.1e}", size)


def _same_value(one: object, other: object) -> bool:
    return type(one) is type(other) and (one == other or (one != one and other != other))


def _shown(value: object) -> str:
    return "a tensor" if isinstance(value, Tensor) else repr(value)


def _distance(ours: Tensor, theirs: Tensor) -> float:
    """The largest difference, relative to numbers above one. NaN equals NaN."""
    equal = (ours == theirs) | (ours.isnan() & theirs.isnan())
    relative = (ours - theirs).abs() / theirs.abs().clamp(min=1)
    distances = relative.masked_fill(equal, 0).nan_to_num(nan=math.inf)
    return float(distances.max()) if distances.numel() else 0.0


def _real(tensor: Tensor) -> Tensor:
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    return tensor.double()
