"""The page of a run: its contents, that all texts are escaped, and that it needs no network."""

import base64
import json
import re
import zlib
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from aliasproof.ir.errors import UserError
from aliasproof.oracles.verdict import Violation
from aliasproof.reports.page import run_page as page_module
from aliasproof.reports.page.run_page import (
    bars_of,
    by_target,
    cells_of,
    kill_matrix,
    marked,
    marks_of,
    op_coverage,
    run_page,
    ticks_of,
)
from aliasproof.reports.storage_strips import Strip, ViewRow
from tests.reports.reported_findings import FINDING, HOSTILE, KNOWN, RAISING, REPORT, STRIPS

VOID = {"meta", "input", "img", "link", "br", "path", "rect", "polyline"}


class Elements(HTMLParser):
    """The elements of a page, its texts, and the elements that are open at its end."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.open: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.found if name == tag]


def details(html: str) -> list[str]:
    """The details of all findings, unpacked."""
    chunks = re.findall(r'<script type="text/plain" class="chunk">(.*?)</script>', html)
    return [
        text for chunk in chunks for text in json.loads(zlib.decompress(base64.b64decode(chunk)))
    ]


@pytest.fixture(scope="module")
def page() -> str:
    return run_page(REPORT)


def test_each_element_is_closed_and_the_summary_needs_no_script(page):
    elements = Elements(page)
    assert elements.open == []
    texts = " ".join(elements.texts)
    for said in ("night", "torch 2.13.0", "5,000", "expand-inverse", "a write through expand"):
        assert said in texts
    labels = [it["aria-label"] for it in elements.named("svg")]
    assert labels[0] == "findings: 3 after 1:00"


def test_nothing_is_asked_of_a_network(page):
    for text in (page, *details(page)):
        for tag, attributes in Elements(text).found:
            assert tag not in ("link", "img", "iframe", "object", "embed", "base")
            assert attributes.keys().isdisjoint({"src", "srcset", "action", "style", "onclick"})
    policy = next(it for it in Elements(page).named("meta") if it.get("http-equiv"))["content"]
    assert policy is not None
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy


def test_hostile_texts_are_texts(page):
    for text in (page, *details(page)):
        scripts = Elements(text).named("script")
        assert len(scripts) == (3 if text is page else 0)
        assert "<img" not in text
        assert "window.hostile" not in re.sub(r'<script type="application/json".*', "", text) or (
            "&lt;script&gt;window.hostile" in text
        )
    raising = details(page)[1]
    assert raising.count("&lt;/script&gt;&lt;script&gt;") >= 5
    # A person may give an issue any address; only web addresses become links.
    assert [it["href"] for it in Elements(raising).named("a")] == []


def test_the_block_of_json_ends_no_script(page):
    (block,) = re.findall(r'<script type="application/json" id="index">(.*?)</script>', page)
    rows = json.loads(block)["rows"]
    assert [row[0] for row in rows] == ["aot-values-1", "inductor-errors-2", "known-expand-inverse"]
    assert rows[1][4] == HOSTILE


def test_the_details_have_all_that_an_engineer_asks_for(page):
    first = details(page)[0]
    elements = Elements(first)
    texts = " ".join(" ".join(elements.texts).split())
    for said in (
        "Still there in torch 2.13.0.",
        "AOTAutograd: functionalization",
        "silent: a wrong result, no exception",
        'torch.compile(backend="inductor")',
        "def program(x0):",
        "byte 4 is in v0[0] and in x0[1]",
        "print('the script')",
        "the issue",
        "wrong value (output 0)",
        "look here",
        "2 instructions, from 20",
    ):
        assert said in texts, said
    assert re.search(r"tensor\(\[1\., <mark>2\.</mark>\]\)", first)
    copied = [it["data-copy"] for it in elements.named("button")]
    ids = {it["id"] for _, it in elements.found if "id" in it}
    assert ids.issuperset(copied)
    assert {"f0-program", "f0-script", "f0-issue"} <= {*copied}
    pictures = [it["aria-label"] for it in elements.named("svg") if it.get("role") == "img"]
    assert pictures[2] == "add_ writes bytes 4 to 15"


def test_what_did_not_run_again_says_why(page):
    assert "aliasproof show runs/" in " ".join(Elements(details(page)[1]).texts)


def test_a_report_of_one_finding_has_no_counts():
    page = run_page(replace(REPORT, findings=(FINDING,), command="", programs={}, moments=()))
    assert "with a violation" not in " ".join(Elements(page).texts)
    assert "Yield over time" not in page


def test_what_is_not_confirmed_is_no_finding():
    waits = replace(KNOWN, identifier="waits", state="reduced", known=None)
    html = run_page(replace(REPORT, findings=(FINDING, waits)))
    assert "1 new finding, 1 of them silent; 1 not confirmed</p>" in html
    assert "<title>night: 1 finding " in html


def test_the_findings_come_before_the_charts(page):
    outcome, table, chart = map(page.index, ('class="outcome', 'id="rows"', "<polyline"))
    assert outcome < table < chart


def test_what_is_known_is_not_new():
    assert "No new findings; 1 by known bugs</p>" in run_page(replace(REPORT, findings=(KNOWN,)))


def test_a_run_without_findings_has_a_page():
    page = run_page(replace(REPORT, findings=()))
    assert '"rows": []' in page
    assert 'class="outcome"' in page
    assert "No new findings</p>" in page


def test_without_jinja_one_line_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "jinja2", None)
    with pytest.raises(UserError, match=r"pip install 'aliasproof\[pages\]'"):
        page_module.run_page(REPORT)


def test_a_kill_matrix_and_a_coverage_of_ops_are_tables_of_the_page():
    faults = {
        "faults": [{"fault": HOSTILE, "programs until killed": 3, "by oracle": {"values": 3}}],
        "killed": 1,
        "survivors": [],
        "only killer of": {"values": [], "aliasing": []},
    }
    ops = {"aten.t.default": 4, "aten.never.default": 0}
    drawn = {"groups": {"view": {"instructions": 4, "ops": ops}}, "programs": 9}
    page = run_page(replace(REPORT, faults=faults, drawn=drawn))
    assert "<img" not in page
    texts = " ".join(Elements(page).texts)
    assert "Killed: 1 of 1 planted fault." in texts
    assert "1 of 2" in texts
    assert "aten.never.default" in texts


@pytest.mark.parametrize("data", [{}, [], {"faults": 3}, {"groups": {"a": 1}, "programs": 2}])
def test_other_json_is_refused(data):
    with pytest.raises(UserError, match="the file is not what 'aliasproof faults --json' writes"):
        kill_matrix(data)
    with pytest.raises(UserError, match="the file is not what 'aliasproof stats --json' writes"):
        op_coverage(data)


# --- parts ----------------------------------------------------------------------------------------


def test_the_elements_that_differ_are_marked():
    ours, theirs = marked("tensor([1., -2., 3.])", "tensor([1., 2., 3.])")
    assert [part.text for part in ours if part.differs] == ["-2."]
    assert [part.text for part in theirs if part.differs] == ["2."]
    assert "".join(part.text for part in ours) == "tensor([1., -2., 3.])"


def test_what_only_one_text_has_is_marked_where_the_texts_have_other_lengths():
    ours, theirs = marked("tensor([1., 2.])", "tensor([1., 2., 3.])")
    assert [part.text for part in theirs if part.differs] in ([" 3.,"], [", 3."])
    assert not any(part.differs for part in ours)


def test_equal_texts_have_no_mark():
    assert not any(part.differs for text in marked("nan", "nan") for part in text)


def test_a_picture_has_a_cell_per_byte_and_marks_where_a_byte_is_shared():
    strip = STRIPS.strips[0]
    assert cells_of(strip) == 16
    assert bars_of(strip.rows[1], strip) == [(4, 12, False)]
    assert [marks_of(row, strip) for row in strip.rows] == [[4], [4], [4]]
    assert [tick.byte for tick in ticks_of(strip)] == [0, 2, 4, 6, 8, 10, 12, 14, 16]


def test_a_large_storage_is_drawn_in_part():
    row = ViewRow("v", "", "", ((0, 10), (5000, 10_000)))
    bars = bars_of(row, Strip("A", 10_000, (row,)))
    assert [(bar.left, bar.partly) for bar in bars] == [(0, True), (256, False)]


def test_an_empty_storage_has_a_picture():
    row = ViewRow("v", "", "", ())
    assert bars_of(row, Strip("A", 0, (row,))) == []
    assert row.label == "v covers no bytes"


def test_evidence_of_any_form_is_text():
    evidence = {"list": [1, 2], "none": None, "text": "a\nb"}
    finding = replace(FINDING, violation=Violation("values", "k", "p", evidence), second=None)
    texts = " ".join(Elements(details(run_page(replace(REPORT, findings=(finding,))))[0]).texts)
    assert "[1, 2]" in texts
    assert "null" in texts
    assert RAISING.second is None


def test_a_run_on_several_targets_shows_each_program_through_all_of_them() -> None:
    others = {"openvino": "wrong: values", "onnx": "rejected: no kernel for <x>"}
    assert FINDING.second is not None
    again = replace(FINDING, second=replace(FINDING.second, others=others))
    counts = {FINDING.target: 5, "openvino": 5, "onnx": 5}
    report = replace(REPORT, findings=(again, RAISING), programs=counts)
    table = by_target(report)
    assert table is not None
    assert table.head == ("finding", FINDING.target, "openvino", "onnx")
    row = (FINDING.identifier, "found here", "wrong: values", "rejected: no kernel for <x>")
    assert table.rows == (row,)
    assert "rejected: no kernel for &lt;x&gt;" in run_page(report)
    assert by_target(replace(report, findings=(FINDING,))) is None
