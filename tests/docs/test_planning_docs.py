"""docs/planning.md: its programs do what they do in eager, and its pictures are up to date.

Run as a script, this file makes the pictures anew. A picture has the parts of the output of
`explain --plan` whose titles are in it.
"""

import re
from pathlib import Path
from typing import Any

import pytest

from aliasproof.checks.explaining import explain
from aliasproof.judge.trial import Case, run_trial
from aliasproof.targets.registry import TARGETS

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs" / "planning.md"
TESTS = ROOT / "tests" / "reference_pass" / "test_planning.py"
SITUATION = re.compile(
    r"^### (?P<title>[^\n]+)\n(?P<prose>(?:(?!^#|^```).*\n)*)"
    r"```python\n(?P<code>(?:(?!^```).*\n)*)```\n\n```text\n(?P<shown>(?:(?!^```).*\n)*)```$",
    re.MULTILINE,
)
SITUATIONS = {
    each["title"]: each for each in SITUATION.finditer(DOCUMENT.read_text(encoding="utf-8"))
}


def defined(code):
    names: dict[str, Any] = {}
    exec(code, names)
    return names["program"], names["inputs"]()


def picture(situation):
    """The parts of the plan of a situation that the document shows of it."""
    titles = situation["shown"].splitlines()
    parts = explain(*defined(situation["code"]), plan=True).parts
    shown = (f"{title}\n{indented(text)}" for title, text in parts.items() if title in titles)
    return "\n\n".join(shown) + "\n"


def indented(text):
    return "\n".join(f"  {line}" for line in text.splitlines())


def test_every_program_of_the_document_is_a_situation():
    text = DOCUMENT.read_text(encoding="utf-8")
    assert len(SITUATIONS) == text.count("def program(") == text.count("\n### ") > 0


@pytest.mark.parametrize("title", SITUATIONS)
def test_each_situation_has_a_test_of_its_name(title):
    name = re.sub(r"\W+", "_", title.lower())
    assert f"\ndef test_{name}(" in TESTS.read_text(encoding="utf-8")


@pytest.mark.parametrize("title", SITUATIONS)
def test_a_planned_situation_does_what_eager_does(title):
    function, inputs = defined(SITUATIONS[title]["code"])
    trial = run_trial(Case.of_function(function, inputs), TARGETS["reference-planned"])
    assert trial.eager.error is None
    assert trial.judgement.violations == []
    assert trial.judgement.documented == []


@pytest.mark.parametrize("title", SITUATIONS)
def test_the_pictures_are_what_explain_prints(title):
    shown = SITUATIONS[title]["shown"]
    assert "timeline of the planned graph\n" in shown
    assert shown == picture(SITUATIONS[title])


def rewrite():
    text = SITUATION.sub(
        lambda each: each[0].replace(f"```text\n{each['shown']}", f"```text\n{picture(each)}"),
        DOCUMENT.read_text(encoding="utf-8"),
    )
    DOCUMENT.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    rewrite()
