"""docs/reference_pass.md and docs/planning.md show the present output of the reference pass.

Run as a script, this file rewrites the graphs and the pictures in the documents. A picture shows
the parts of the output of `explain --plan` whose titles it contains.
"""

import re
from pathlib import Path
from typing import Any

import pytest

from aliasproof.checks.explaining import explain
from aliasproof.judge.trial import Case, run_trial
from aliasproof.targets.registry import TARGETS

ROOT = Path(__file__).parents[2]
DOCUMENTS = (ROOT / "docs" / "reference_pass.md", ROOT / "docs" / "planning.md")
TESTS = ROOT / "tests" / "reference_pass" / "test_planning.py"
EXAMPLE = re.compile(
    r"^### (?P<title>[^\n]+)\n(?P<prose>(?:(?!^#|^```).*\n)*)"
    r"```python\n(?P<code>(?:(?!^```).*\n)*)```\n\n```text\n(?P<shown>(?:(?!^```).*\n)*)```$",
    re.MULTILINE,
)
EXAMPLES, SITUATIONS = (
    {each["title"]: each for each in EXAMPLE.finditer(document.read_text(encoding="utf-8"))}
    for document in DOCUMENTS
)


def defined(code):
    names: dict[str, Any] = {}
    exec(code, names)
    return names["program"], names["inputs"]()


def printed(example):
    """The text that the document should have for a program: the graphs, or parts of the plan."""
    if "timeline" in example["shown"]:
        titles = example["shown"].splitlines()
        plan = explain(*defined(example["code"]), plan=True).parts()
        parts = {title: text for title, text in plan.items() if title in titles}
    else:
        parts = dict(explain(*defined(example["code"])).parts())
        del parts["ATen calls"], parts["bytes of the ATen calls"]
    return "\n\n".join(f"{title}\n{indented(text)}" for title, text in parts.items()) + "\n"


def indented(text):
    return "\n".join(f"  {line}" for line in text.splitlines())


def test_every_program_of_the_documents_is_an_example():
    text, planning = (document.read_text(encoding="utf-8") for document in DOCUMENTS)
    assert len(EXAMPLES) == text.count("def program(") == text.count("```\n\n```text\n") == 1
    assert len(SITUATIONS) == planning.count("def program(") == planning.count("\n### ") > 0


@pytest.mark.parametrize("title", SITUATIONS)
def test_each_situation_has_a_test_of_its_name(title):
    name = re.sub(r"\W+", "_", title.lower())
    assert re.search(rf"^(def test_)?{name}\(", TESTS.read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.parametrize(
    ("example", "target"),
    [(example, "reference-planned") for example in SITUATIONS.values()]
    + [
        (example, target)
        for example in EXAMPLES.values()
        for target in ("reference", "reference-copy", "reference-planned")
    ],
)
def test_a_compiled_example_does_what_eager_does(example, target):
    function, inputs = defined(example["code"])
    trial = run_trial(Case.of_function(function, inputs), TARGETS[target])
    assert trial.eager.error is None
    assert trial.judgement.violations == []
    assert trial.judgement.documented == []


@pytest.mark.parametrize("title", [*EXAMPLES, *SITUATIONS])
def test_what_is_shown_is_what_the_pass_prints(title):
    example = {**EXAMPLES, **SITUATIONS}[title]
    assert example["shown"] == printed(example)
    assert title in EXAMPLES or "timeline of the planned graph\n" in example["shown"]


def rewrite():
    for document in DOCUMENTS:
        text = EXAMPLE.sub(
            lambda each: each[0].replace(f"```text\n{each['shown']}", f"```text\n{printed(each)}"),
            document.read_text(encoding="utf-8"),
        )
        document.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    rewrite()
