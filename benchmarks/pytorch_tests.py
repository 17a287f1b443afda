"""PyTorch's own tests of functionalization, reinplacing and AOTAutograd, with the reference pass.

`python -m benchmarks pytorch_tests --checkout PATH` reads them from a clone of
https://github.com/pytorch/pytorch, which should be at the tag of the installed torch
(`git checkout v2.13.0`). Each file runs twice in a process of its own: unmodified, and with the
reference pass in the place of torch's passes and compilers (`pytorch_tests_plugin`).

How to read a row: how many tests the unmodified file *passes*, and how many the reference pass
passes, *refuses* with a reason, fails *as torch*'s own passes do with the same installation, and
fails *alone*. Graphs as text are not compared. *Not comparable* are tests of what only torch's own
implementation has; the notes name them with the reason.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree as ET

from aliasproof.programs.errors import UserError
from benchmarks.tables import Table

FILES = (
    "test/test_fx_reinplace_pass.py",
    "test/test_functionalization.py",
    "test/functorch/test_aotdispatch.py",
)
PASSED, REFUSED, SKIPPED, FAILED = "passed", "refused", "skipped", "failed"
SECONDS = 3600.0  # for one file
_PLUGIN = "benchmarks.pytorch_tests_plugin"
_NOT_COMPARABLE = {
    "test_freeze": "torch._freeze_functional_tensor is of torch's functional tensors",
    "test_resize_larger_invalid": "expects the error of a limit of torch's pass",
    "test_save_for_backwards_segfault": "captures a tensor subclass",
    "test_mixed_wrappers_valid": "captures a tensor subclass",
    "test_view_clone_view_inplace": "autograd runs on the functional graph itself",
    "test_mutation_overlapping_mem": "expects torch's refusal; `strict=True` refuses it, too",
    **dict.fromkeys(
        (
            "test_python_functionalization_conj",
            "test_python_functionalization_lift_fresh",
            "test_python_functionalization_neg",
            "test_python_functionalization_zero_tensor",
        ),
        "compares graphs of two implementations of torch as text",
    ),
}


@dataclass(frozen=True, slots=True)
class TestOutcome:
    """The end of one test, and its message."""

    __test__ = False  # pytest would take it for tests

    kind: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class FileOutcomes:
    """The outcomes of one file by test: of torch's own passes, and of ours."""

    file: str
    theirs: Mapping[str, TestOutcome]
    ours: Mapping[str, TestOutcome]

    def with_kind(self, kind: str) -> list[str]:
        """The tests with this outcome of ours."""
        return [name for name, outcome in self.ours.items() if outcome.kind == kind]

    def alone(self) -> list[str]:
        """The tests that only ours fails, and that it could pass."""
        return [
            name
            for name in self.with_kind(FAILED)
            if self.theirs[name].kind != FAILED and _method(name) not in _NOT_COMPARABLE
        ]

    def not_comparable(self) -> list[str]:
        """The tests of torch's own implementation that ours fails."""
        return [
            name
            for name in self.with_kind(FAILED)
            if self.theirs[name].kind != FAILED and _method(name) in _NOT_COMPARABLE
        ]


@dataclass(frozen=True, slots=True)
class PytorchTests:
    """All files."""

    files: Sequence[FileOutcomes]

    def tables(self) -> list[Table]:
        """A row per file; refusals and failures as notes."""
        rows, notes = [], []
        for each in self.files:
            as_torch = len(each.with_kind(FAILED)) - len(each.alone()) - len(each.not_comparable())
            counts = (
                len(each.theirs),
                sum(outcome.kind == PASSED for outcome in each.theirs.values()),
                len(each.with_kind(PASSED)),
                len(each.with_kind(REFUSED)),
                as_torch,
                len(each.not_comparable()),
                len(each.alone()),
            )
            rows.append((each.file, *map(str, counts)))
            notes += [
                f"refused: {name}: {each.ours[name].message}" for name in each.with_kind(REFUSED)
            ]
            notes += [
                f"not comparable: {name}: {_NOT_COMPARABLE[_method(name)]}"
                for name in each.not_comparable()
            ]
            notes += [f"alone: {name}: {each.ours[name].message}" for name in each.alone()]
        columns = (
            "file",
            "tests",
            "torch",
            "reference",
            REFUSED,
            "as torch",
            "not comparable",
            "alone",
        )
        return [Table("pytorch_tests: tests that pass", columns, rows, notes)]


def measure(checkout: Path, files: Sequence[str] = FILES) -> PytorchTests:
    """Run the files of a checkout. Raises `UserError` if one is not there, or does not start."""
    found = []
    for file in files:
        if not (checkout / file).is_file():
            raise UserError(
                f"--checkout {checkout} has no {file}; give a clone of"
                " https://github.com/pytorch/pytorch"
            )
        found.append(
            FileOutcomes(file, _outcomes(checkout, file), _outcomes(checkout, file, _PLUGIN))
        )
    return PytorchTests(found)


def _method(name: str) -> str:
    return name.rpartition(".")[2]


def _outcomes(checkout: Path, file: str, plugin: str | None = None) -> dict[str, TestOutcome]:
    """Run one file with pytest, in the folder where it is."""
    path = (checkout / file).resolve()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        # No settings of a project, neither of ours nor of theirs.
        options = ["-q", "-c", os.devnull, "--rootdir", str(path.parent), "-p", "no:cacheprovider"]
        options += ["--junitxml", str(report), *(("-p", plugin) if plugin else ())]
        root = Path(__file__).parents[1]
        searched = os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")])
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *options, str(path)],
            cwd=path.parent,
            env={**os.environ, "PYTHONPATH": searched, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        # 2 and more: interrupted, or nothing could be collected.
        if done.returncode > 1 or not report.is_file():
            lines = [line for line in done.stdout.splitlines() if line.startswith("E ")]
            raise UserError(
                f"{file} does not start: {' '.join(lines[-1:]) or done.stderr[-300:]}; check out"
                " the tag of the installed torch"
            )
        return _read(report)


def _read(report: Path) -> dict[str, TestOutcome]:
    """The outcomes in a JUnit report, by class and name."""
    tree = ET.parse(report)  # noqa: S314 - pytest wrote it just now
    return {
        f"{case.get('classname', '').rpartition('.')[2]}.{case.get('name')}": _of_case(case)
        for case in tree.iter("testcase")
    }


def _of_case(case: ET.Element) -> TestOutcome:
    skipped = case.find("skipped")
    if skipped is not None:
        message = " ".join(skipped.get("message", "").split("\n\n")[0].split())
        if message.startswith("Refused: "):
            return TestOutcome(REFUSED, message.removeprefix("Refused: "))
        return TestOutcome(SKIPPED, message)
    for kind in ("failure", "error"):
        if (failed := case.find(kind)) is not None:
            text = failed.get("message", "") or (failed.text or "")
            # What torch's pass is known to get wrong, and this one does not.
            if "unexpected success" in text.lower():
                return TestOutcome(PASSED)
            return TestOutcome(FAILED, " ".join(text.split())[:200])
    return TestOutcome(PASSED)
