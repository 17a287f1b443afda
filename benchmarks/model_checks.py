"""What a check of a running model says, and what it costs: graphs, calls, verdicts, factor.

`python -m benchmarks model_checks`, and `optimizer_checks` for the steps of optimizers alone
(`benchmarks/optimizer_steps.py`). Each model (`benchmarks/running_models.py`) runs for a few steps
under `checking_compiled`, with `aot_eager` and with Inductor. *same* says whether it computes what
it computes without a check, with the backend `eager`. *times the target* is the time of later
calls, checks included, divided by that of the target alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from aliasproof.ir.errors import UserError, did_you_mean
from aliasproof.running_model.checking_backend import checking_compiled
from aliasproof.running_model.model_check import ModelCheck
from benchmarks.running_models import MODELS, Steps
from benchmarks.tables import Table

BACKENDS = ("aot_eager", "inductor")


@dataclass(frozen=True, slots=True)
class CheckedModel:
    """What a check says of one model; `factor` is None if no call was timed."""

    model: str
    backend: str
    graphs: int
    calls: int
    judged: int
    backward: int
    differences: int
    rounding: int
    same: bool
    factor: float | None


@dataclass(frozen=True, slots=True)
class ModelChecks:
    """A row for each model and backend."""

    rows: Sequence[CheckedModel]

    def tables(self) -> list[Table]:
        """The table for people."""
        columns = ("model", "backend", "graphs", "calls", "judged", "with backward", "differ")
        further = ("rounding alone", "same", "times the target")
        rows = [
            [
                *(row.model, row.backend, str(row.graphs), str(row.calls), str(row.judged)),
                *(str(row.backward), str(row.differences), str(row.rounding)),
                "yes" if row.same else "no",
                "-" if row.factor is None else f"{row.factor:.1f}",
            ]
            for row in self.rows
        ]
        return [Table("models under a check", (*columns, *further), rows)]


def measure(
    only: Sequence[str] | None = None, subjects: Mapping[str, Steps] = MODELS
) -> ModelChecks:
    """Check the models, or those whose names begin with one of these. Raises `UserError`."""
    chosen = {name: it for name, it in subjects.items() if _is_meant(name, only)}
    if not chosen:
        hint = did_you_mean((only or [""])[0], subjects)
        raise UserError(f"no model is called {', '.join(only or ())}{hint}")
    rows = [_row(name, it, backend) for name, it in chosen.items() for backend in BACKENDS]
    return ModelChecks(rows)


def _is_meant(name: str, only: Sequence[str] | None) -> bool:
    return not only or any(name.lower().startswith(prefix.lower()) for prefix in only)


def _row(name: str, steps: Steps, backend: str) -> CheckedModel:
    expected = _results(steps, "eager")
    with checking_compiled(out=None, summary=False) as check:
        same = _results(steps, backend) == expected
    counts = [graph.counts for graph in check.graphs]
    return CheckedModel(
        model=name,
        backend=backend,
        graphs=len(counts),
        calls=sum(it.calls for it in counts),
        judged=sum(it.forward for it in counts),
        backward=sum(it.backward for it in counts),
        differences=len(check.differences),
        rounding=sum(it.rounding for it in counts),
        same=same,
        factor=_factor(check),
    )


def _results(steps: Steps, backend: str) -> list[float]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    return steps(lambda function: torch.compile(function, backend=backend))


def _factor(check: ModelCheck) -> float | None:
    counts = [graph.counts for graph in check.graphs]
    alone = sum(it.target for it in counts)
    return sum(it.model + it.checking for it in counts) / alone if alone else None
