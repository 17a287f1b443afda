"""Usage errors are reported before torch is imported, which takes seconds."""

import json
import subprocess
import sys

from aliasproof.targets.names import REGISTERED
from aliasproof.targets.registry import TARGETS

HERE = __file__


CASES = [
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
    (["minimize", HERE, "-t", "aot", "--interesting", HERE], "either --target or --interesting"),
    (["replay", "absent"], "'absent' does not exist"),
]
# Prints the status and standard error of each command.
COMMANDS = """
import contextlib, io, json, sys
sys.modules["torch"] = None
from aliasproof.commands.command_line import run
for arguments in json.loads(sys.argv[1]):
    with contextlib.redirect_stderr(io.StringIO()) as errors:
        status = run(arguments)
    print(json.dumps([status, errors.getvalue()]))
"""


def test_usage_errors_come_without_torch(subtests):
    command = [sys.executable, "-c", COMMANDS, json.dumps([given for given, _ in CASES])]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    for (given, message), line in zip(CASES, ended.stdout.splitlines(), strict=True):
        with subtests.test(" ".join(given)):
            status, said = json.loads(line)
            assert (status, len(said.splitlines())) == (2, 1)
            assert message in said


def test_the_names_that_need_no_torch_are_those_of_the_targets():
    assert tuple(TARGETS) == REGISTERED
