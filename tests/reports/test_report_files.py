"""Reports for machines: JUnit XML, SARIF, GitHub's annotations and summary, JSON."""

import json
import os
from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest

from aliasproof.oracles.verdict import Violation
from aliasproof.reports.report_files import (
    FILES,
    MOST_ANNOTATIONS,
    file_of,
    junit_xml,
    sarif,
    step_summary,
    workflow_commands,
)
from tests.reports.reported_findings import FINDING, HOSTILE, KNOWN, RAISING, REPORT

NOTHING = replace(REPORT, findings=(), known=())


def parsed(text: str) -> ET.Element:
    return ET.fromstring(text)  # noqa: S314 - our own


# --- JUnit ----------------------------------------------------------------------------------------


def test_a_suite_counts_its_cases():
    root = parsed(junit_xml(REPORT))
    counts = [root.get(name) for name in ("tests", "failures", "skipped")]
    assert (root.tag, counts) == ("testsuites", ["5", "2", "1"])
    for suite in root:
        cases = suite.findall("testcase")
        assert suite.get("tests") == str(len(cases))
        assert suite.get("failures") == str(len(suite.findall("testcase/failure")))
        assert suite.get("skipped") == str(len(suite.findall("testcase/skipped")))
        assert all(case.get("classname") and case.get("name") for case in cases)
    assert [suite.get("name") for suite in root] == ["aot", "inductor"]


def test_a_finding_to_look_at_fails_with_its_issue_and_a_known_one_is_skipped():
    root = parsed(junit_xml(REPORT))
    failure = root.find(".//testcase[@name='aot-values-1']/failure")
    assert failure is not None
    assert (failure.get("message"), failure.get("type")) == ("wrong value (output 0)", "values")
    assert failure.text == "the issue\n"
    skipped = root.find(".//testcase[@name='known-expand-inverse']/skipped")
    assert skipped is not None
    assert skipped.get("message", "").startswith("known expand-inverse: ")


def test_what_xml_cannot_say_is_replaced():
    finding = replace(RAISING, issue="\x1b[31m\0 \ud800 ok 😀")
    (suite,) = parsed(junit_xml(replace(NOTHING, findings=(finding,), programs={})))
    failure = suite.find("testcase/failure")
    assert failure is not None
    assert failure.text == "\ufffd[31m\ufffd \ufffd ok 😀"
    assert "<script>" in failure.get("message", "")


def test_a_run_without_findings_passes():
    root = parsed(junit_xml(NOTHING))
    assert (root.get("tests"), root.get("failures")) == ("2", "0")


# --- SARIF ----------------------------------------------------------------------------------------


def test_sarif_has_what_the_schema_requires():
    log = sarif(REPORT)
    assert log["version"] == "2.1.0"
    (run,) = log["runs"]
    driver = run["tool"]["driver"]
    assert driver["name"] == "aliasproof"
    rules = driver["rules"]
    assert [rule["id"] for rule in rules] == ["aliasproof/values", "aliasproof/errors"]
    assert all(rule["shortDescription"]["text"] for rule in rules)
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["level"] in ("error", "warning", "note")
        assert result["message"]["text"]
        (location,) = result["locations"]
        physical = location["physicalLocation"]
        assert physical["artifactLocation"]["uri"].endswith("reproducer.py")
        assert physical["region"]["startLine"] == 1
        assert result["partialFingerprints"]["aliasproof/v1"]
    json.dumps(log)


def test_a_known_finding_is_suppressed_with_the_reason():
    first, raising, known = sarif(REPORT)["runs"][0]["results"]
    assert (first["level"], raising["level"], known["level"]) == ("error", "warning", "note")
    assert "suppressions" not in first
    (suppression,) = known["suppressions"]
    assert suppression == {"kind": "external", "justification": "known: a write through expand"}


def test_a_location_is_a_uri(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    odd = replace(FINDING, folder="runs/a b%c")
    other = replace(FINDING, folder="/elsewhere/x")
    results = sarif(replace(REPORT, findings=(odd, other)))["runs"][0]["results"]
    uris = [
        result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for result in results
    ]
    assert uris == ["runs/a%20b%25c/reproducer.py", "file:///elsewhere/x/reproducer.py"]


# --- GitHub ---------------------------------------------------------------------------------------


def test_annotations_are_one_line_each_and_escape_what_ends_a_command():
    lines = [*workflow_commands(REPORT)]
    assert len(lines) == 2
    assert lines[0].startswith(
        "::error file=runs/x/findings/aot-values-1/reproducer.py,line=1,title=aliasproof%3A aot-v"
    )
    assert lines[0].endswith(
        "::aot: wrong value (output 0)%0Adef program(x0):%0A    return (x0,)%0A"
    )
    assert lines[1].startswith("::warning file=")
    assert not any("\n" in line or "\r" in line for line in lines)
    odd = replace(FINDING, folder="a,b:c%", violation=Violation("values", "100 %\r\n::x", "p"))
    (line,) = workflow_commands(replace(REPORT, findings=(odd,)))
    assert "file=a%2Cb%3Ac%25/reproducer.py," in line
    assert "100 %25 ::x" in line


def test_more_annotations_than_github_shows_are_counted():
    findings = tuple(replace(FINDING, identifier=f"f{n}") for n in range(MOST_ANNOTATIONS + 2))
    *shown, last = workflow_commands(replace(REPORT, findings=findings))
    assert len(shown) == MOST_ANNOTATIONS
    assert last == "::notice title=aliasproof::2 findings more: see the summary"


def test_the_summary_has_issues_counts_and_known_bugs():
    text = step_summary(REPORT, REPORT.unsettled, "unsettled finding", ["a | mistake"])
    assert text.startswith("## 2 unsettled findings, torch 2.13.0\n")
    assert "\n````\nthe issue\n````\n" in text
    assert "| aot | 3000 | 12 |" in text
    assert "3 findings in all: 2 reproduced, 1 known." in text
    assert (
        "| expand-inverse: a write through expand | 2 | https://github.com/x/y/issues/1 |" in text
    )
    assert "- mistake of aliasproof: a \\| mistake" in text


def test_a_fence_is_longer_than_any_in_an_issue():
    finding = replace(FINDING, issue="`````\ncode\n`````")
    text = step_summary(replace(REPORT, findings=(finding,)), [finding], "finding")
    assert "\n``````\n`````\ncode" in text


def test_a_summary_is_no_longer_than_github_takes():
    findings = [replace(FINDING, issue="long " * 20_000)] * 20
    text = step_summary(replace(REPORT, findings=tuple(findings)), findings, "finding")
    assert len(text.encode()) < 2**20
    assert "more: see the page of the run." in text


# --- all ------------------------------------------------------------------------------------------


def test_json_has_all_of_the_report():
    name, text = file_of("json", REPORT)
    data = json.loads(text)
    assert name == "report.json"
    assert data["version"] == 1
    first = data["findings"][0]
    assert first["second"]["strips"][0]["strips"][0]["shared"][0]["byte"] == 4
    assert first["second"]["graphs"][0]["lines"][-2]["marked"] is True
    assert data["moments"][1]["findings"] == 3
    assert data["findings"][1]["violation"]["place"] == HOSTILE


@pytest.mark.parametrize("form", FILES)
def test_each_form_is_a_file_with_another_name(form):
    name, text = file_of(form, replace(REPORT, findings=(KNOWN,)))
    assert text.endswith(("\n", "</html>"))
    assert os.path.basename(name) == name  # noqa: PTH119
