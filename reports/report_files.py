"""The files of a report: a page, JUnit XML, SARIF, a summary in Markdown, JSON."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any
from urllib.parse import quote
from xml.etree import ElementTree as ET

from aliasproof.oracles.judge import ORACLES
from aliasproof.reports.console import counted, relative, shortened
from aliasproof.reports.page.run_page import run_page
from aliasproof.reports.run_report import ReportedFinding, RunReport

# --- github summary -------------------------------------------------------------------------------
#
# A report for GitHub Actions: annotations, and Markdown for the summary of a step.


MOST_ANNOTATIONS = 10  # per kind; GitHub shows no more per step
MOST_BYTES = 1_000_000  # of a summary; GitHub refuses one larger than a MiB


def workflow_commands(report: RunReport) -> Iterator[str]:
    """The commands that annotate the reproducers: errors for silent findings, else warnings."""
    kinds = {"error": True, "warning": False}
    for kind, silent in kinds.items():
        findings = [finding for finding in report.unsettled if finding.silent is silent]
        for finding in findings[:MOST_ANNOTATIONS]:
            file = relative(Path(finding.folder) / "reproducer.py")
            title = f"aliasproof: {finding.identifier}"
            text = f"{finding.title}\n{finding.source}"
            yield f"::{kind} file={_value(str(file))},line=1,title={_value(title)}::{_text(text)}"
        if len(findings) > MOST_ANNOTATIONS:
            rest = len(findings) - MOST_ANNOTATIONS
            yield f"::notice title=aliasproof::{counted(rest, 'finding')} more: see the summary"


def step_summary(
    report: RunReport,
    findings: Sequence[ReportedFinding],
    which: str,
    notes: Sequence[str] = (),
) -> str:
    """These findings with their issues, then counts and known bugs.

    `which` is the noun that is counted: 'new finding'.
    """
    count, size = len(findings), 0
    lines = [f"## {counted(count, which)}, torch {', '.join(report.torches)}", ""]
    for number, finding in enumerate(findings):
        text = _finding(finding)
        size += len(text.encode())
        if size > MOST_BYTES * 0.8:
            lines += [f"{counted(count - number, 'finding')} more: see the page of the run.", ""]
            break
        lines.append(text)
    if report.programs:
        lines += ["| target | programs | with a violation |", "|---|---|---|"]
        lines += [
            f"| {name} | {programs} | {report.violating.get(name, 0)} |"
            for name, programs in report.programs.items()
        ]
        lines.append("")
    states = Counter(finding.state for finding in report.findings)
    each = ", ".join(f"{number} {state}" for state, number in states.most_common())
    waiting = len(report.findings) - len(report.confirmed)
    rest = f", {waiting} not confirmed" if waiting else ""
    lines.append(f"{counted(len(report.confirmed), 'finding')} in all{rest}{each and ': '}{each}.")
    lines += [f"- mistake of aliasproof: {_in_a_cell(text)}" for text in notes]
    if report.known:
        lines += ["", "| known bug | violations | issue |", "|---|---|---|"]
        lines += [
            f"| {bug.identifier}: {_in_a_cell(bug.title)} | {times} | {bug.link or 'none found'} |"
            for bug, times in report.known
        ]
    return "\n".join(lines) + "\n"


def _finding(finding: ReportedFinding) -> str:
    """A finding, with the text of its issue to copy."""
    kind = shortened(_in_a_cell(finding.violation.kind), 300)
    about = f"`{finding.identifier}`: {finding.target} {finding.violation.oracle}, {kind}"
    body = finding.issue or finding.script
    if not body:
        return f"### {about}\n"
    # Longer than any fence in the text.
    fence = "`" * (1 + max(map(len, re.findall(r"`{3,}", body)), default=3))
    head = "<details><summary>issue</summary>"
    return f"### {about}\n\n{head}\n\n{fence}\n{body.rstrip()}\n{fence}\n\n</details>\n"


def _in_a_cell(text: str) -> str:
    """In one line, without characters that end a table cell or begin a tag."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def _text(text: str) -> str:
    """A text as the message of a workflow command (`escapeData` of `@actions/core`)."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _value(text: str) -> str:
    """A text as a property of a workflow command (`escapeProperty`)."""
    return _text(text).replace(":", "%3A").replace(",", "%2C")


# --- junit xml ------------------------------------------------------------------------------------
#
# A report as JUnit XML, which CI systems show as tests: a suite per target, a case per finding.
#
# A finding that needs a person's attention fails. Settled ones (known, fixed, documented, not
# confirmed) are skipped, with the reason. Each suite also has a passing case: its programs.


# Characters that XML 1.0 cannot represent.
_FORBIDDEN = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit_xml(report: RunReport) -> str:
    targets = dict.fromkeys([*report.programs, *(it.target for it in report.findings)])
    suites = [
        _suite(target, [it for it in report.findings if it.target == target], report)
        for target in targets
    ]
    root = ET.Element("testsuites", name=_allowed(f"aliasproof {report.name}"))
    for name in ("tests", "failures", "skipped"):
        root.set(name, str(sum(int(suite.get(name, "0")) for suite in suites)))
    root.set("errors", "0")
    root.set("time", f"{report.seconds:.1f}")
    root.extend(suites)
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _suite(target: str, findings: Sequence[ReportedFinding], report: RunReport) -> ET.Element:
    skipped = sum(finding.settled for finding in findings)
    ran = target in report.programs
    suite = ET.Element(
        "testsuite",
        name=_allowed(target),
        tests=str(len(findings) + ran),
        failures=str(len(findings) - skipped),
        errors="0",
        skipped=str(skipped),
        time="0",
    )
    properties = ET.SubElement(suite, "properties")
    for name, value in (("torch", ", ".join(report.torches)), ("run", report.name)):
        ET.SubElement(properties, "property", name=name, value=_allowed(value))
    if ran:
        case = ET.SubElement(suite, "testcase", classname=_class(target), name="programs", time="0")
        violating = counted(report.violating.get(target, 0), "violation")
        text = f"{counted(report.programs[target], 'program')}, {violating}"
        ET.SubElement(case, "system-out").text = text
    suite.extend(_case(finding) for finding in findings)
    return suite


def _case(finding: ReportedFinding) -> ET.Element:
    # The name is the same in each run that finds it, so that CI can track it.
    case = ET.Element(
        "testcase", classname=_class(finding.target), name=_allowed(finding.identifier), time="0"
    )
    message = _allowed(shortened(" ".join(finding.violation.describe().split()), 300))
    if finding.settled:
        known = f" {finding.known.identifier}" if finding.known is not None else ""
        ET.SubElement(case, "skipped", message=f"{finding.state}{known}: {message}")
        return case
    failure = ET.SubElement(case, "failure", message=message, type=finding.violation.oracle)
    failure.text = _allowed(finding.issue or finding.source)
    ET.SubElement(case, "system-out").text = _allowed(f"folder: {finding.folder}")
    return case


def _class(target: str) -> str:
    # A dot would start a new package.
    return _allowed(f"aliasproof.{target.replace('.', '_')}")


def _allowed(text: str) -> str:
    return _FORBIDDEN.sub("\ufffd", text)


# --- sarif ----------------------------------------------------------------------------------------
#
# A report as SARIF 2.1.0, which code scanning reads (OASIS, https://docs.oasis-open.org/sarif).
#
# A rule per oracle, a result per finding. Settled findings are suppressed, with the reason. The
# location of a result is the first line of its reproducer.


SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def sarif(report: RunReport) -> dict[str, Any]:
    oracles = list(dict.fromkeys(finding.violation.oracle for finding in report.findings))
    driver = {"name": "aliasproof", "version": _version(), "rules": list(map(_rule, oracles))}
    run = {
        "tool": {"driver": driver},
        "automationDetails": {"id": f"aliasproof/{report.name}/"},
        "invocations": [{"executionSuccessful": True}],
        "columnKind": "unicodeCodePoints",
        "results": [_result(finding, oracles) for finding in report.findings],
        "properties": {"torch": list(report.torches), "programs": dict(report.programs)},
    }
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _version() -> str:
    try:
        return version("aliasproof")
    except PackageNotFoundError:  # a checkout on PYTHONPATH
        return "0"


def _rule(oracle: str) -> dict[str, object]:
    promise = next(each.promise for each in ORACLES if each.name == oracle)
    return {
        "id": f"aliasproof/{oracle}",
        "name": oracle.capitalize(),
        "shortDescription": {"text": f"The oracle {oracle}: {promise}"},
        "fullDescription": {"text": f"A compiled program breaks what eager promises: {promise}."},
        "defaultConfiguration": {"level": "error"},
        "help": {"text": "Run the reproducer. It needs torch alone, and exits 1 while it shows."},
    }


def _result(finding: ReportedFinding, oracles: list[str]) -> dict[str, object]:
    oracle = finding.violation.oracle
    # Relative to the working directory if below it.
    path = relative(Path(finding.folder) / "reproducer.py")
    uri = path.as_uri() if path.is_absolute() else quote(path.as_posix())
    after = f" First wrong after {finding.wrong_part}." if finding.wrong_part else ""
    result: dict[str, object] = {
        "ruleId": f"aliasproof/{oracle}",
        "ruleIndex": oracles.index(oracle),
        "kind": "fail",
        "level": "note" if finding.settled else "error" if finding.silent else "warning",
        "message": {"text": f"{finding.title}.{after}"},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": uri},
                    "region": {"startLine": 1},
                }
            }
        ],
        "partialFingerprints": {"aliasproof/v1": finding.identifier},
        "properties": {
            "target": finding.target,
            "first wrong after": finding.wrong_part,
            "place": finding.violation.place,
            "silent": finding.silent,
            "state": finding.state,
            "violations": finding.times,
        },
    }
    if finding.settled:
        known = f": {finding.known.title}" if finding.known is not None else ""
        reason = f"{finding.state}{known}"
        result["suppressions"] = [{"kind": "external", "justification": reason}]
    return result


# By format: the name of the file, and a function for its text.
FILES: Mapping[str, tuple[str, Callable[[RunReport], str]]] = {
    "html": ("report.html", run_page),
    "junit": ("junit.xml", junit_xml),
    "sarif": ("aliasproof.sarif", lambda report: json.dumps(sarif(report), indent=1) + "\n"),
    "github": (
        "summary.md",
        lambda report: step_summary(report, report.unsettled, "unsettled finding"),
    ),
    "json": (
        "report.json",
        lambda report: json.dumps(report.to_json(), indent=1, default=str) + "\n",
    ),
}
NAMES = frozenset(name for name, _ in FILES.values())


def file_of(form: str, report: RunReport) -> tuple[str, str]:
    """The file name and the text of a report in one of the formats."""
    name, text = FILES[form]
    return name, text(report)
