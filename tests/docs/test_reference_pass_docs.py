"""docs/reference_pass.md: its programs do what they do in eager, and its graphs are up to date.

Run as a script, this file writes the graphs and the table of conditions into the document anew.
"""

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from aliasproof.checks.explaining import explain, step_of
from aliasproof.judge.trial import Case, run_trial
from aliasproof.reference_pass.pipeline import CONDITIONS
from aliasproof.reference_pass.rules import Rules
from aliasproof.targets.registry import TARGETS

DOCUMENT = Path(__file__).parents[2] / "docs" / "reference_pass.md"
EXAMPLE = re.compile(
    r"^### (?P<title>[^\n]+)\n(?P<prose>(?:(?!^#|^```).*\n)*)"
    r"```python\n(?P<code>(?:(?!^```).*\n)*)```\n\n```text\n(?P<shown>(?:(?!^```).*\n)*)```$",
    re.MULTILINE,
)
RULES = re.compile(r"^\| rule \| decides \|.*?\n\n", re.MULTILINE | re.DOTALL)
TABLE = re.compile(r"^\| step \| condition \|.*?\n\n", re.MULTILINE | re.DOTALL)
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


def table():
    rows = ["| step | condition | holds if |", "|---|---|---|"]
    for each in CONDITIONS:
        step = step_of(each.__name__) or ""
        rows.append(f"| {step} | `{each.__name__}` | {meaning(each, step)} |")
    return "\n".join(rows) + "\n\n"


def meaning(condition, step):
    text = " ".join(condition.__doc__.split()).removeprefix(step).lstrip(": ")
    return (text[:1].upper() + text[1:]).replace("|", "\\|")


def test_every_program_of_the_document_is_an_example():
    text = DOCUMENT.read_text(encoding="utf-8")
    assert len(EXAMPLES) == text.count("def program(") == text.count("```\n\n```text\n") == 9


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


def test_the_table_of_conditions_is_what_their_docstrings_say():
    (found,) = TABLE.findall(DOCUMENT.read_text(encoding="utf-8"))
    assert found == table()


def test_the_table_of_rules_has_each_rule():
    (found,) = RULES.findall(DOCUMENT.read_text(encoding="utf-8"))
    assert re.findall(r"^\| `(\w+)` \|", found, re.MULTILINE) == [
        rule.name for rule in fields(Rules)
    ]


def rewrite():
    text = DOCUMENT.read_text(encoding="utf-8")
    text = EXAMPLE.sub(
        lambda each: each[0].replace(
            f"```text\n{each['shown']}", f"```text\n{printed(each['code'])}"
        ),
        text,
    )
    DOCUMENT.write_text(TABLE.sub(lambda _: table(), text), encoding="utf-8")


if __name__ == "__main__":
    rewrite()
