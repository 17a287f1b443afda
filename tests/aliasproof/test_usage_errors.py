"""What is wrong with a command is said before torch, which takes seconds, is imported."""

from __future__ import annotations

import subprocess
import sys

import pytest

from aliasproof.targets.names import REGISTERED
from aliasproof.targets.registry import TARGETS

HERE = __file__


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["check", "absent.py"], "absent.py does not exist"),
        (["check", HERE, "--target", "aot-eagr"], "did you mean 'aot-eager'"),
        (["check", HERE, "--target", "absent.py:f"], "there is no file absent.py"),
        (["check", "absent.py:step"], "absent.py does not exist"),
        (["check", f"{HERE}:"], ":' does not end with the name of a function"),
        (["check", f"{HERE}:a-b"], "give FILE.py, FILE.py:FUNCTION,"),
        (["check", f"{HERE}:a", "--function", "b"], ":a and --function b are two functions"),
        (["minimize", f"{HERE}:a", "--function", "b"], ":a and --function b are two functions"),
        (["explain", "absent.py"], "absent.py does not exist"),
        (["explain", HERE, "--views", "both"], "give one of alias, copy"),
        (["prove", HERE, "--sizes", "3"], "give LOW:HIGH"),
        (["fuzz", "--target", "inducter"], "did you mean 'inductor'"),
        (["minimize", "absent.py"], "absent.py does not exist"),
        (
            ["minimize", HERE, "-t", "aot", "--interesting", HERE],
            "either --target or --interesting",
        ),
        (["replay", "absent"], "'absent' does not exist"),
    ],
)
def test_usage_errors_come_without_torch(arguments, message):
    code = (
        "import sys; sys.modules['torch'] = None;"
        "from aliasproof.commands.command_line import run; sys.exit(run(sys.argv[1:]))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stdout) == (2, "")
    assert message in ended.stderr
    assert len(ended.stderr.splitlines()) == 1


def test_the_names_that_need_no_torch_are_those_of_the_targets():
    assert tuple(TARGETS) == REGISTERED
