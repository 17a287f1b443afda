"""The command `report`: what a run found, as a page, and in the forms that CI systems read."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from aliasproof.commands.options import OwnTarget, argument, at_least_zero, option, require_writable
from aliasproof.ir.errors import UserError, did_you_mean
from aliasproof.ir.stored_text import writing
from aliasproof.processes.isolation import start_server
from aliasproof.reports.console import notes, print_lines, progress_bar, relative, results

if TYPE_CHECKING:  # they import torch
    from aliasproof.reports.run_report import RunReport

SESSION = "aliasproof.findings.second_run"
HTML = "html"
FORMATS = (HTML, "junit", "sarif", "github", "json")
Given = Annotated[
    str,
    argument("RUN|FINDING", "Folder of a run, also a merged one; or a finding."),
]
Out = Annotated[Path, option("DIR", "New folder for the files.", "--out", "-o")]
Formats = Annotated[
    list[str] | None,
    option(
        "|".join(FORMATS), "What to write. Repeat the option for more. Default: html.", "--format"
    ),
]
Seconds = Annotated[
    float,
    at_least_zero(
        "SECONDS",
        "Run findings again for so long, those to look at first; 0 for none: a report then has what"
        " the run stored.",
    ),
]
Faults = Annotated[
    Path | None,
    option("FILE", "Add a kill matrix: what 'faults --json' wrote."),
]
Drawn = Annotated[
    Path | None,
    option("FILE", "Add the coverage of ops: what 'stats --json' wrote."),
]


def report(
    given: Given,
    out: Out = Path("report"),
    formats: Formats = None,
    seconds: Seconds = 120.0,
    target: OwnTarget = None,
    faults: Faults = None,
    drawn: Drawn = None,
) -> None:
    """Write a report on a run, or on one finding: a page, and what CI systems read.

    The page is one HTML file, which needs no network: the findings with program, eager against
    target, memory call by call, graphs, oracles, reproducer and issue. Findings run again in a
    process apart for it. 'github' prints annotations, and adds to the step summary.

    Exit status: 0, or 2 for bad input.
    """
    asked = list(dict.fromkeys(formats or (HTML,)))
    for name in asked:
        if name not in FORMATS:
            advice = f"give one of {', '.join(FORMATS)}"
            raise UserError(f"--format {name}{did_you_mean(name, FORMATS, advice)}")
    _require_free(out)
    require_writable(out)
    further = {"faults": faults, "drawn": drawn}
    values = {name: _json(file, name) for name, file in further.items() if file is not None}
    if seconds:
        start_server([SESSION])  # it imports torch while this process does
    from aliasproof.findings import reporting
    from aliasproof.judge.trial import quiet_torch

    quiet_torch()
    with progress_bar() as progress:
        task = progress.add_task("running findings again", total=None)
        written = reporting.report(
            given,
            seconds,
            target,
            lambda done, total: progress.update(task, completed=done, total=total),
        )
    _write(out, replace(written, **values), asked)


def _json(file: Path, option: str) -> Any:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"--{option}: {file} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"--{option}: {file} is no JSON: {error}") from error


def _require_free(out: Path) -> None:
    """Raises `UserError` if the folder has files of others: reports alone are replaced."""
    from aliasproof.reports.report_files import NAMES

    if out.exists() and not out.is_dir():
        raise UserError(f"--out {out} is a file; name a folder")
    others = sorted(path.name for path in out.glob("*") if path.name not in NAMES)
    if others:
        raise UserError(
            f"--out {out} exists, and has {others[0]}, which no report wrote; name a new folder"
        )


def _write(out: Path, report: RunReport, formats: list[str]) -> None:
    from aliasproof.reports.report_files import file_of, workflow_commands

    files = {name: file_of(name, report) for name in formats}
    with writing(f"--out {out}"):
        out.mkdir(parents=True, exist_ok=True)
        for name, (file, text) in files.items():
            (out / file).write_text(text, encoding="utf-8")
            print_lines(notes(), f"{name}: {relative(out / file)}")
    if "github" in formats:
        for line in workflow_commands(report):
            results().out(line, highlight=False)
        if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
            with Path(summary).open("a", encoding="utf-8") as step:
                step.write(files["github"][1])
