"""A report as JUnit XML, which CI systems show as tests: a suite per target, a case per finding.

A finding that somebody has to look at fails. What is settled (known, fixed, documented, not
confirmed) is skipped, with the reason. Each suite also has a case that passes: its programs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from xml.etree import ElementTree as ET

from aliasproof.reports.run_report import ReportedFinding, RunReport
from aliasproof.reports.wording import counted, shortened

# What XML 1.0 has no way to write.
_FORBIDDEN = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit_xml(report: RunReport) -> str:
    """The text of the file."""
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
    # The name is the same in each run that finds it, so that a CI can follow it.
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
    # A dot would begin a package of its own.
    return _allowed(f"aliasproof.{target.replace('.', '_')}")


def _allowed(text: str) -> str:
    return _FORBIDDEN.sub("\ufffd", text)
