"""The page of a run in a browser: it sorts, filters, copies, and requests nothing."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from aliasproof.reports.page.run_page import run_page
from tests.reports.chromium import Chromium, browser, chromium
from tests.reports.reported_findings import REPORT, many

PATH = browser()
pytestmark = pytest.mark.skipif(
    PATH is None, reason="no Chromium here; install it, or name one in ALIASPROOF_BROWSER"
)
NAMES = "[...document.querySelectorAll('#rows .what small')].map(it => it.textContent)"
INPUT = "new Event('input', {bubbles: true})"
MANY = 10_000


@pytest.fixture(scope="module")
def running() -> Iterator[Chromium]:
    assert PATH is not None
    with chromium(PATH) as page:
        yield page


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(run_page(REPORT), encoding="utf-8")
    return path


@pytest.fixture
def page(running: Chromium, file: Path) -> Iterator[Chromium]:
    """The page, freshly opened. At the end, there must be no request and no console output."""
    running.look(1200, 900)
    running.open(file)
    running.run("window.hostile = 0")
    yield running
    assert running.run("window.hostile") == 0
    assert {*running.requests} <= {file.as_uri()}
    assert running.errors == []


def click(page: Chromium, selector: str) -> None:
    page.run(f"document.querySelector({selector!r}).click()")


def opened(page: Chromium, name: str) -> None:
    number = page.run(NAMES).index(name)
    page.run(f"document.querySelectorAll('#rows .what')[{number}].click()")
    page.until("document.querySelectorAll('.details .lead').length === 1")


def test_a_head_sorts_and_sorts_the_other_way(page):
    size = "#head th[data-column=size]"
    click(page, f"{size} button")
    assert page.run(NAMES) == ["aot-values-1", "known-expand-inverse", "inductor-errors-2"]
    click(page, f"{size} button")
    assert page.run(NAMES) == ["inductor-errors-2", "known-expand-inverse", "aot-values-1"]
    assert page.run(f"document.querySelector('{size}').getAttribute('aria-sort')") == "descending"
    assert page.run("document.querySelector('#said').textContent") == "Sorted by size, descending"


def test_words_states_and_boxes_filter(page):
    def filtered(change: str) -> list[str]:
        page.run("document.querySelector('.filters').reset()")
        page.until(f"{NAMES}.length === 3")
        page.run(f"{change}; document.querySelector('#search').dispatchEvent({INPUT})")
        names: list[str] = page.run(NAMES)
        return names

    assert filtered("document.querySelector('#search').value = 'RuntimeError inductor'") == [
        "inductor-errors-2"
    ]
    assert filtered("document.querySelector('#state').value = 'known'") == ["known-expand-inverse"]
    assert filtered("document.querySelector('#oracle').value = 'errors'") == ["inductor-errors-2"]
    assert filtered("document.querySelector('#open').checked = true") == [
        "aot-values-1",
        "inductor-errors-2",
    ]
    assert page.run("document.querySelector('#shown').textContent") == "2 of 3 findings"


def test_details_open_with_hostile_texts_as_texts(page):
    opened(page, "inductor-errors-2")
    assert "window.hostile = 1" in page.run("document.querySelector('.details .lead').textContent")
    assert page.run("document.querySelectorAll('.details script, .details img').length") == 0
    assert page.run("location.hash") == "#inductor-errors-2"


def test_what_is_open_stays_open_when_the_table_is_sorted_and_filtered(page):
    opened(page, "aot-values-1")
    click(page, "#head th[data-column=target] button")
    click(page, "#open")
    assert page.run("document.querySelectorAll('.details .lead').length") == 1
    assert (
        page.run("document.querySelector('.details').previousElementSibling.dataset.number") == "0"
    )
    opened_button = "document.querySelector('[aria-expanded=true] small').textContent"
    assert page.run(opened_button) == "aot-values-1"
    click(page, "[aria-expanded=true]")
    assert page.run("document.querySelectorAll('.details').length") == 0


def test_a_button_copies_and_says_so(page):
    page.ask("Browser.grantPermissions", permissions=["clipboardReadWrite"])
    opened(page, "aot-values-1")
    click(page, "[data-copy=f0-script]")
    page.until("document.querySelector('[data-copy=f0-script]').textContent === 'Copied'")
    assert page.run("document.querySelector('#said').textContent") == "Copied the reproducer"
    assert page.run("navigator.clipboard.readText()") == "print('the script')\n"


def test_all_can_be_done_with_keys(page):
    page.press("/")
    assert page.run("document.activeElement.id") == "search"
    page.run("document.querySelector('#rows .what').focus()")
    page.press("ArrowDown")
    page.press("Enter")
    page.until("document.querySelectorAll('.details .lead').length === 1")
    assert page.run("document.activeElement.getAttribute('aria-expanded')") == "true"
    page.run("document.querySelector('.details pre').focus()")
    page.press("Escape")
    assert page.run("document.querySelectorAll('.details').length") == 0
    assert page.run("document.activeElement.className") == "what"


def test_an_address_opens_a_finding(page, file):
    page.open(file, "#known-expand-inverse")
    page.until("document.querySelectorAll('.details .lead').length === 1")
    page.run("window.hostile = 0")


@pytest.mark.parametrize("width", [400, 1400])
@pytest.mark.parametrize("dark", [False, True])
def test_nothing_is_wider_than_the_window_and_both_themes_can_be_read(page, width, dark):
    page.look(width, 900, dark=dark)
    opened(page, "aot-values-1")
    assert page.run("document.documentElement.scrollWidth <= innerWidth")
    brightness = "getComputedStyle(document.body).{}.match(/\\d+/g).map(Number)[1]"
    back, ink = page.run(f"[{brightness.format('backgroundColor')}, {brightness.format('color')}]")
    assert abs(back - ink) > 150
    assert (back < ink) == dark


def test_ten_thousand_findings_open_in_two_seconds(running, tmp_path):
    file = tmp_path / "many.html"
    file.write_text(run_page(many(MANY)), encoding="utf-8")
    start = time.monotonic()
    running.open(file)
    running.until("document.querySelectorAll('#rows tr').length > 0")
    assert time.monotonic() - start < 2
    assert running.run("document.querySelector('#shown').textContent") == f"{MANY} findings"
    start = time.monotonic()
    click(running, "#head th[data-column=size] button")
    opened(running, "finding-0")
    assert time.monotonic() - start < 2
    assert running.errors == []
