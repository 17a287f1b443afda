"""All pages: each link and each named file exists, and the pages stay short."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
LINK = re.compile(r"\]\(([^)\s\[]+)\)")
NAMED = re.compile(
    r"`((?:aliasproof|oracles|generators|reference_pass|reports|tests)/[\w/]+\.\w+)`"
)
WORDS, README_LINES, CHANGELOG_LINES = 22_000, 120, 30


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives the headings of a page, and those that it writes itself."""
    text = page.read_text(encoding="utf-8")
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    kept = (re.sub(r"[^\w\- ]", "", title.lower()) for title in titles)
    return {title.replace(" ", "-") for title in kept} | set(re.findall(r'<a id="(\S+)">', text))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for link in LINK.findall(page.read_text(encoding="utf-8")):
        if "://" in link:
            continue
        name, _, anchor = link.partition("#")
        there = page.parent / name if name else page
        assert there.exists(), link
        assert not anchor or anchor in anchors(there), link


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_that_a_page_names_exist(page: Path) -> None:
    # A walk-through creates new files.
    text = re.sub(r"New\s+file\s+`[^`]+`", "", page.read_text(encoding="utf-8"))
    for name in NAMED.findall(text):
        assert (ROOT / name).exists(), name


def test_the_pages_are_short() -> None:
    """A page states rules; a command prints tables, and `benchmarks` measures."""
    words = sum(
        len(page.read_text(encoding="utf-8").split())
        for page in PAGES
        if page.parent.name == "docs"
    )
    assert words <= WORDS
    for name, most in (("README.md", README_LINES), ("CHANGELOG.md", CHANGELOG_LINES)):
        assert len((ROOT / name).read_text(encoding="utf-8").splitlines()) <= most
