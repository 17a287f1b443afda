"""Functions as people write them: `check` calls none of them wrong, and sees what is planted.

The files beside this one are ordinary code. Their `INPUTS` make the inputs of each function or
module. Each is right under `torch.compile` and the reference pass, so *wrong* is a false alarm.
Then faults of the catalogue are planted: each that changes what a plain run leaves is to be
flagged. `pytest -s` prints both rates.
"""

from __future__ import annotations

import importlib
import itertools
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

from aliasproof.checks.check import check, check_target
from aliasproof.checks.preparation import prepare
from aliasproof.faults.catalogue import FAULTS
from aliasproof.faults.fault import Fault
from aliasproof.judge.trial import Case
from aliasproof.reference_pass.exceptions import Refused
from aliasproof.targets.reference import REFERENCE
from aliasproof.targets.target import Build

FOLDER = Path(__file__).parent
FILES = sorted({path.stem for path in FOLDER.glob("*.py")} - {Path(__file__).stem})
TARGETS = ("aot-eager", "reference")
NEEDS_DYNAMO = {"newton_root", "leaky_scan"}  # the reference pass traces without it
PLANTED = 1  # for each sample, of the faults that show in it
TRIED = 16  # for each sample, since most faults change nothing


@pytest.mark.filterwarnings("ignore")  # of torch, about odd programs
@pytest.mark.timeout(900)  # minutes, on a machine that others use
@pytest.mark.parametrize("file", FILES)
def test_no_sample_is_called_wrong_and_what_is_planted_is_flagged(file: str) -> None:
    module, path = importlib.import_module(f"tests.samples.{file}"), FOLDER / f"{file}.py"
    alarms: dict[tuple[str, str], list[str]] = {}
    flagged: dict[tuple[str, str], bool] = {}
    rows = 0
    for name, inputs_of in module.INPUTS.items():
        torch._dynamo.reset()
        torch.manual_seed(20)
        function, inputs = getattr(module, name), inputs_of()
        targets = TARGETS[:1] if name in NEEDS_DYNAMO else TARGETS
        found = check(function, inputs, targets, file=path)
        assert found.eager.unjudged is None, (name, found.eager.unjudged)
        for target, result in found.results.items():
            rows += 1
            if result.violated:
                alarms[name, target] = [f"{it.oracle}: {it.describe()}" for it in result.violations]
        prepared = prepare(function, inputs, file=path)
        assert isinstance(prepared.case, Case)
        for fault in itertools.islice(faults_that_show(prepared.case, name), PLANTED):
            planted = check_target(prepared, fault.target, without_graphs="results are to tell")
            flagged[name, fault.name] = planted.violated
    missed = [name for name, is_flagged in flagged.items() if not is_flagged]
    print(f"{file}: {len(alarms)} of {rows} rows are false alarms")
    print(f"{file}: {len(flagged) - len(missed)} of {len(flagged)} planted faults are flagged")
    assert (alarms, missed) == ({}, [])
    assert flagged


def faults_that_show(case: Case, seed: str) -> Iterator[Fault]:
    """Of some faults, those that change the graph and what a plain run of it leaves."""
    known = [fault for fault in FAULTS.values() if fault.right is REFERENCE]
    try:
        right = codes(REFERENCE.build(case.function, case.fresh_inputs()))
        expected = left(case.function, case)
    except Exception:  # noqa: BLE001 - the reference pass refuses it, or `cond` outside of a compiler
        return
    for fault in random.Random(seed).sample(known, TRIED):
        try:
            build = fault.make(case.function, case.fresh_inputs())
            shows = codes(build) != right and differ(expected, left(build.function, case))
        except Exception as error:  # noqa: BLE001 - a kernel refuses what the wrong graph asks for
            shows = not isinstance(error, Refused)
        if shows:
            yield fault


def codes(build: Build) -> list[str]:
    return [stage.graph.code for stage in build.stages]


def left(function: Any, case: Case) -> list[Any]:
    """What a run returns, and the inputs afterwards."""
    inputs = case.fresh_inputs()
    return pytree.tree_leaves((function(*inputs), inputs))


def differ(expected: Sequence[Any], given: Sequence[Any]) -> bool:
    return len(expected) != len(given) or any(map(unlike, expected, given))


def unlike(one: Any, other: Any) -> bool:
    if not isinstance(one, torch.Tensor) or not isinstance(other, torch.Tensor):
        return type(one) is not type(other) or (one == one and one != other)
    if (one.shape, one.dtype) != (other.shape, other.dtype):
        return True
    one, other = (it.detach().to(torch.complex128) for it in (one, other))
    return not torch.allclose(one, other, rtol=1e-4, atol=1e-5, equal_nan=True)
