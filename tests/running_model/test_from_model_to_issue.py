"""The walk-through of docs/models.md: from a training script to an issue by printed commands."""

import re
import shlex
from pathlib import Path

import pytest

from aliasproof.targets import inductor
from tests.short_programs import known_bug
from tests.subprocesses import aliasproof, python

SCRIPT = Path(__file__).parent / "sharpness.py"


@pytest.mark.timeout(900)  # it compiles C++, also in fresh processes
@pytest.mark.skipif(inductor.unavailable() is not None, reason="needs a C++ compiler")
@known_bug
def test_what_the_tool_prints_leads_from_a_script_to_an_issue_that_runs(tmp_path: Path) -> None:
    checked = aliasproof("run", SCRIPT, cwd=tmp_path)
    assert checked.returncode == 0, checked.stderr
    found, *_, hint = checked.stderr.splitlines()
    assert "forward: inputs: input ends wrong in input" in found
    command = shlex.split(hint.split(": aliasproof ")[1])

    reduced = aliasproof(*command, cwd=tmp_path)
    assert reduced.returncode == 0, reduced.stderr
    kept = reduced.stderr.splitlines()[0]
    assert "known bug copy-of-written-input: Inductor removes a clone" in kept
    assert "https://github.com/pytorch/pytorch/issues/198131" in kept

    folder = tmp_path / command[-1]
    issue = (folder / "issue.md").read_text()
    assert "Inductor's joint_graph pass remove_noop_ops" in issue
    assert "Found in a model that was compared with eager while it ran: graph 0" in issue
    script = re.findall(r"```python\n(.*?)```", issue, re.DOTALL)[0]
    assert len(script.split("def inputs")[0].split("def program")[1].splitlines()) <= 6
    (tmp_path / "of_issue.py").write_text(script)
    shown = python("of_issue.py", cwd=tmp_path)
    assert (shown.returncode, shown.stdout.strip() in issue) == (1, True)

    named = aliasproof("bisect", folder, cwd=tmp_path)
    assert "the part at fault is joint_graph: remove_noop_ops" in named.stdout
