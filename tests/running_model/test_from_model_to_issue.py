"""The walk-through of docs/models.md: from a training script to an issue by what is printed."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from aliasproof.targets import inductor

SCRIPT = Path(__file__).parent / "sharpness.py"


def ran(folder: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)


@pytest.mark.timeout(900)  # it compiles C++, also in fresh processes
@pytest.mark.skipif(inductor.unavailable() is not None, reason="needs a C++ compiler")
@pytest.mark.skipif(not torch.__version__.startswith("2.13."), reason="a bug of torch 2.13")
def test_what_the_tool_prints_leads_from_a_script_to_an_issue_that_runs(tmp_path: Path) -> None:
    checked = ran(tmp_path, "-m", "aliasproof", "run", SCRIPT)
    assert checked.returncode == 0, checked.stderr
    found, *_, hint = checked.stderr.splitlines()
    assert "forward: inputs: input ends wrong in input" in found
    command = shlex.split(hint.split(": aliasproof ")[1])

    reduced = ran(tmp_path, "-m", "aliasproof", *command)
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
    shown = ran(tmp_path, "of_issue.py")
    assert (shown.returncode, shown.stdout.strip() in issue) == (1, True)

    named = ran(tmp_path, "-m", "aliasproof", "bisect", folder)
    assert "the part at fault is joint_graph: remove_noop_ops" in named.stdout
