"""The reference pass on every operator and module that PyTorch tests, in four modes.

For each sample of `op_db` and `module_db`: in the dtypes of `sweep_subjects.DTYPES`, contiguous and
transposed, and where there is one also the in-place form. The modes are: the passes alone;
`torch.compile` for inference and for training; and symbolic sizes, at other sizes than traced.

How to read a row: how many calls in a mode were *right* (bit for bit as eager: values, inputs
afterwards, sharing of memory, sizes and strides), *wrong*, a *crash* (another error than `Refused`,
or the end of the process), or *refused*. The rest says nothing about the passes: eager itself
*differs* from run to run; `aot_eager` differs *as* we do; the call is *undefined* in eager, is *not
compiled* by Dynamo, *raises* in eager, or has results that are *not dense*.

`--resume FILE` keeps the results by operator, and goes on where a run ended.
"""

from __future__ import annotations

import collections
import functools
import json
import logging
import random
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import torch

from aliasproof.ir.errors import UserError
from aliasproof.processes.isolation import Isolated, Limits, start_server
from aliasproof.processes.outcome import Death, Raised, Returned
from benchmarks import sweep_modes
from benchmarks.sweep_modes import MODES, Outcome, SweepAnswer
from benchmarks.sweep_subjects import LAYOUTS, SampleCall, calls_of, dtypes_of, subjects
from benchmarks.tables import Table

SAMPLES = 2  # of each operator and dtype
LIMITS = Limits(seconds=120.0, nbytes=6 * 2**30)
_SUBJECTS_PER_PROCESS = 25  # Dynamo and the caches of fakes keep memory
_BAD = (SweepAnswer.WRONG, SweepAnswer.CRASH)


@dataclass(frozen=True, slots=True)
class Swept:
    """What was found on one operator or module.

    `counts` by mode and answer. `refused` by mode and reason. `shown` says what was wrong, crashed
    or could not be compared, one line each.
    """

    subject: str
    counts: Mapping[tuple[str, str], int]
    refused: Mapping[tuple[str, str], int]
    shown: Sequence[tuple[str, str]] = ()  # the answer, and the call with the evidence

    def line(self) -> str:
        """What was found, in one line."""
        answers: collections.Counter[str] = collections.Counter()
        for (_, answer), count in self.counts.items():
            answers[answer] += count
        return (
            f"{self.subject}: {', '.join(f'{count} {answer}' for answer, count in answers.items())}"
        )


@dataclass(frozen=True, slots=True)
class SweepTable:
    """All of them. `subjects` is how many there are."""

    subjects: int
    swept: Sequence[Swept]

    def total(self, answer: SweepAnswer) -> int:
        """How many calls in all modes have this answer."""
        return sum(
            count
            for result in self.swept
            for (_, given), count in result.counts.items()
            if given == answer
        )

    def tables(self) -> list[Table]:
        """The answers by mode, what was wrong or crashed as notes, and refusals by reason."""
        counts: collections.Counter[tuple[str, str]] = collections.Counter()
        refused: collections.Counter[tuple[str, str]] = collections.Counter()
        for result in self.swept:
            counts.update(result.counts)
            refused.update(result.refused)
        rows = [
            (mode.name, *(str(counts[mode.name, answer]) for answer in SweepAnswer))
            for mode in MODES
        ]
        notes = [f"{len(self.swept)} of {self.subjects} operators and modules."]
        notes += [
            f"{answer}: {text}"
            for result in self.swept
            for answer, text in result.shown
            if answer in _BAD
        ]
        reasons = [(reason, mode, str(count)) for (mode, reason), count in refused.most_common()]
        return [
            Table(
                "sweep: the reference pass on op_db and module_db",
                ("mode", *SweepAnswer),
                rows,
                notes,
            ),
            Table("sweep: refusals", ("reason", "mode", "calls"), reasons),
        ]


def measure(
    *,
    samples: int = SAMPLES,
    seed: int = 0,
    seconds: float | None = None,
    resume: Path | None = None,
    names: Sequence[str] = (),
) -> SweepTable:
    """Sweep these subjects, or all of them, in an order that the seed decides.

    No other subject is begun after that many seconds. Results are read from and added to the file
    `resume`.
    """
    infos = subjects()
    if unknown := [name for name in names if name not in infos]:
        raise UserError(f"no operator or module '{unknown[0]}' in op_db or module_db")
    order = list(names) or random.Random(seed).sample(sorted(infos), len(infos))
    settings = {"samples": samples, "seed": seed, "torch": torch.__version__}
    known = {} if resume is None else _read(resume, settings)
    swept = [known[name] for name in order if name in known]
    deadline = time.monotonic() + (float("inf") if seconds is None else seconds)
    start_server(["benchmarks.sweep"])
    process = _Process(samples, seed)
    try:
        for name in [name for name in order if name not in known]:
            if time.monotonic() > deadline:
                break
            swept.append(_swept(name, process))
            if resume is not None:
                _write(resume, settings, swept[-1])
            print(f"{len(swept)} of {len(order)}: {swept[-1].line()}", flush=True)
    finally:
        process.stop()
    return SweepTable(len(order), swept)


def _swept(name: str, process: _Process) -> Swept:
    """All calls of one operator or module in all modes."""
    counts: collections.Counter[tuple[str, str]] = collections.Counter()
    refused: collections.Counter[tuple[str, str]] = collections.Counter()
    shown: list[tuple[str, str]] = []
    samples = process.samples_of(name)
    if not isinstance(samples, list):
        # To list samples calls no pass, so this is torch's, or ours.
        shown.append(
            (str(SweepAnswer.EAGER_RAISES), f"{name}, its samples: {_failure_text(samples)}")
        )
        return Swept(name, counts, refused, shown)
    for sample in samples:
        for layout in LAYOUTS:
            for mode, outcome in process.outcomes(sample, layout):
                counts[mode, outcome.answer] += 1
                if outcome.answer == SweepAnswer.REFUSED:
                    refused[mode, outcome.detail] += 1
                elif outcome.answer not in (SweepAnswer.RIGHT, SweepAnswer.EAGER_RAISES):
                    shown.append(
                        (str(outcome.answer), f"{sample}, {layout}, {mode}: {outcome.detail}")
                    )
    return Swept(name, counts, refused, shown)


# --- the process that runs calls ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Sample:
    """Names a call: an operator or module, a dtype, and which call of these."""

    subject: str
    dtype: str
    index: int
    called: str

    def __str__(self) -> str:
        return f"{self.subject} {self.dtype} {self.called}"


@dataclass(slots=True)
class _Process:
    """An isolated process. Another one is started after a death, and now and then."""

    samples: int
    seed: int
    _isolated: Isolated | None = None
    _subjects: int = 0

    def stop(self) -> None:
        """End the process."""
        if self._isolated is not None:
            self._isolated.stop()
        self._isolated = None

    def samples_of(self, subject: str) -> list[Sample] | Death | Raised:
        """The calls of a subject."""
        self._subjects += 1
        if self._subjects % _SUBJECTS_PER_PROCESS == 0:
            self.stop()
        reply = self._call("listed_calls", subject, self.samples, self.seed)
        return reply.value if isinstance(reply, Returned) else reply

    def outcomes(self, sample: Sample, layout: str) -> Iterator[tuple[str, Outcome]]:
        """The outcome in each mode that is for the call, with the name of the mode."""
        for mode in MODES:
            reply = self._call("call_outcome", sample, layout, mode.name, self.samples, self.seed)
            if not isinstance(reply, Returned):
                yield mode.name, _failed_outcome(reply)
            elif reply.value is not None:
                yield mode.name, reply.value

    def _call(self, function: str, *arguments: object) -> Returned | Raised | Death:
        if self._isolated is None:
            self._isolated = Isolated(LIMITS)
        self._isolated.call(f"benchmarks.sweep:{function}", *arguments)
        while (reply := self._isolated.outcome()) is None:
            wait(self._isolated.waitable, max(0.0, self._isolated.seconds_left) + 0.01)
        if isinstance(reply, Death):
            self._isolated = None
        return reply


def _failed_outcome(failure: Death | Raised) -> Outcome:
    """The answer where a call returned none. The step of a death says whose fault that is.

    An error is of the sweep itself, since an error of the passes is part of their outcome.
    """
    died_in_eager = isinstance(failure, Death) and failure.step == sweep_modes.EAGER_STEP
    answer = SweepAnswer.EAGER_RAISES if died_in_eager else SweepAnswer.CRASH
    return Outcome(answer, _failure_text(failure))


def _failure_text(failure: Death | Raised) -> str:
    if isinstance(failure, Raised):
        return " ".join(str(failure.error).split())[-400:]
    return f"{failure.step}: {failure.describe()} {' < '.join(map(str, failure.stack[:3]))}"


@functools.lru_cache(maxsize=8)
def _calls(subject: str, dtype: torch.dtype, samples: int, seed: int) -> Sequence[SampleCall]:
    return list(calls_of(_subjects()[subject], dtype, samples, seed))


@functools.cache
def _subjects() -> dict[str, Any]:
    # In the process that runs the calls, where nobody reads warnings.
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    torch.set_num_threads(1)
    return subjects()


def listed_calls(subject: str, samples: int, seed: int) -> list[Sample]:
    """The calls of a subject, in the isolated process."""
    return [
        Sample(subject, str(dtype).removeprefix("torch."), index, call.name)
        for dtype in dtypes_of(_subjects()[subject])
        for index, call in enumerate(_calls(subject, dtype, samples, seed))
    ]


def call_outcome(sample: Sample, layout: str, mode: str, samples: int, seed: int) -> Outcome | None:
    """The outcome of one call in one mode, in the isolated process."""
    dtype: torch.dtype = getattr(torch, sample.dtype)
    call = _calls(sample.subject, dtype, samples, seed)[sample.index]
    chosen = next(candidate for candidate in MODES if candidate.name == mode)
    return sweep_modes.outcome(call.in_layout(layout), chosen)


# --- the file of results --------------------------------------------------------------------------


def _write(path: Path, settings: Mapping[str, object], swept: Swept) -> None:
    """Add a line."""
    line = {
        "settings": settings,
        "subject": swept.subject,
        "counts": [[*key, count] for key, count in swept.counts.items()],
        "refused": [[*key, count] for key, count in swept.refused.items()],
        "shown": swept.shown,
    }
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def _read(path: Path, settings: Mapping[str, object]) -> dict[str, Swept]:
    """The results in a file that were found with the same settings, by subject."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        return {}
    results = {}
    for text in path.read_text(encoding="utf-8").splitlines():
        line = json.loads(text)
        if line["settings"] == settings:
            counts, refused = (
                {(mode, key): count for mode, key, count in line[part]}
                for part in ("counts", "refused")
            )
            shown = [(answer, text) for answer, text in line["shown"]]
            results[line["subject"]] = Swept(line["subject"], counts, refused, shown)
    return results
