"""docs/reference_pass.md: its programs do what they do in eager, and its graphs are up to date.

Run as a script, this file writes the graphs into the document anew.
"""

import re
from pathlib import Path
from typing import Any

import pytest

from aliasproof.checks.explaining import explain
from aliasproof.judge.trial import Case, run_trial
from aliasproof.targets.registry import TARGETS

DOCUMENT = Path(__file__).parents[2] / "docs" / "reference_pass.md"
EXAMPLE = re.compile(
    r"^### (?P<title>[^\n]+)\n(?P<prose>(?:(?!^#|^```).*\n)*)"
    r"```python\n(?P<code>(?:(?!^```).*\n)*)```\n\n```text\n(?P<shown>(?:(?!^```).*\n)*)```$",
    re.MULTILINE,
)
EXAMPLES = {each["title"]: each for each in EXAMPLE.finditer(DOCUMENT.read_text(encoding="utf-8"))}


def defined(code):
    names: dict[str, Any] = {}
    exec(code, names)
    return names["program"], names["inputs"]()


def printed(code):
    """What the pass prints of a program."""
    parts = dict(explain(*defined(code)).parts)
    del parts["ATen calls"], parts["bytes of the ATen calls"]
    return "\n\n".join(f"{title}\n{indented(text)}" for title, text in parts.items()) + "\n"


def indented(text):
    return "\n".join(f"  {line}" for line in text.splitlines())


def test_every_program_of_the_document_is_an_example():
    text = DOCUMENT.read_text(encoding="utf-8")
    assert len(EXAMPLES) == text.count("def program(") == text.count("```\n\n```text\n") == 1


@pytest.mark.parametrize("target", ["reference", "reference-copy", "reference-planned"])
@pytest.mark.parametrize("title", EXAMPLES)
def test_a_compiled_example_does_what_eager_does(title, target):
    function, inputs = defined(EXAMPLES[title]["code"])
    trial = run_trial(Case.of_function(function, inputs), TARGETS[target])
    assert trial.eager.error is None
    assert trial.judgement.violations == []
    assert trial.judgement.documented == []


@pytest.mark.parametrize("title", EXAMPLES)
def test_the_graphs_shown_are_what_the_pass_prints(title):
    assert EXAMPLES[title]["shown"] == printed(EXAMPLES[title]["code"])


def rewrite():
    text = DOCUMENT.read_text(encoding="utf-8")
    text = EXAMPLE.sub(
        lambda each: each[0].replace(
            f"```text\n{each['shown']}", f"```text\n{printed(each['code'])}"
        ),
        text,
    )
    DOCUMENT.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    rewrite()
