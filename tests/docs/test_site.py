"""The site: each page is in the navigation, and it builds in strict mode, so each link is right."""

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_the_navigation_has_each_page_once() -> None:
    pages = runpy.run_path(str(ROOT / "docs" / "site_pages.py"))["pages"]()
    listed = re.findall(r"- (\S+\.md)$", (ROOT / "mkdocs.yml").read_text("utf-8"), re.MULTILINE)
    kept = {path.name for path in (ROOT / "docs").glob("*.md")}
    assert sorted(listed) == sorted(kept | set(pages))
    assert "## check\n" in pages["reference/commands.md"]
    assert "does not promise" in pages["reference/targets.md"]
    chapter = (ROOT / "docs" / "first_chapter.py").read_text("utf-8")
    assert pages["first_chapter.md"].count("\n## ") == chapter.count("\n# --- ") > 0


def test_it_builds(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs", reason="needs the extra docs: make docs installs it")
    command = [sys.executable, "-m", "mkdocs", "build", "-d", str(tmp_path)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(
        command, check=False, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True
    )
    assert built.returncode == 0, built.stderr
    assert (tmp_path / "reference" / "known_bugs" / "index.html").exists()
