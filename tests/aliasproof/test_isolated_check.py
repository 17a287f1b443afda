"""`check` survives whatever the user's file and the targets do, and reports who did it."""

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from aliasproof.checks.isolated_check import PRELOADED, Begun, CheckRequest, IsolatedCheck
from aliasproof.ir.errors import UserError
from aliasproof.oracles.check_result import Check as Checked
from aliasproof.oracles.check_result import EagerResult, TargetResult
from aliasproof.oracles.verdict import HOLDS, Verdict
from aliasproof.processes.isolation import Limits, start_server
from tests.subprocesses import aliasproof, started

LIMITS = Limits(seconds=5.0, nbytes=1 << 30)
HEAD = "import ctypes, os, sys, torch\n"
INPUTS = "def inputs():\n    return torch.arange(4.)\n"
# In a trace, tensors are fakes or functional wrappers, so only the target runs this branch.
TRACED = (
    "type(x.detach()) is not torch.Tensor or torch._C._functorch.maybe_current_level() is not None"
)


def traced(code: str) -> str:
    """A file whose function executes this code while it is traced, and adds 1."""
    return f"{HEAD}def program(x):\n    if {TRACED}:\n        {code}\n    return x + 1\n{INPUTS}"


Check = Callable[..., dict[str, TargetResult]]


@pytest.fixture
def check(tmp_path: Path) -> Check:
    """Checks a file with this text in isolated processes."""
    start_server(PRELOADED)

    def checked(text: str, *targets: str, limits: Limits = LIMITS) -> dict[str, TargetResult]:
        (tmp_path / "mine.py").write_text(text)
        request = CheckRequest(tmp_path / "mine.py", targets=targets or ("identity",))
        begun, *shown = IsolatedCheck(request, limits).results()
        assert isinstance(begun, Begun)
        return {each.target: each for each in shown if isinstance(each, TargetResult)}

    return checked


# CUDA raises this error in the call and in all later calls of the process.
ASSERTS = "raise RuntimeError('CUDA error: device-side assert triggered')"
DEADLY = {
    "ctypes.string_at(0)": "dies of signal 11 (SIGSEGV)",
    "os._exit(0)": "exits with status 0",
    "sys.exit(3)": "sys.exit(3)",
    "os.abort()": "dies of signal 6 (SIGABRT)",
    "while True: pass": "hangs (no end after 5 s)",
    "ctypes.CDLL(None).pause()": "hangs (no end after 5 s)",
    "os.read(os.pipe()[0], 1)": "hangs (no end after 5 s)",
    "torch.ones(10**10)": "runs out of memory",
    ASSERTS: "loses its device (a CUDA kernel ends with: device-side assert)",
}


@pytest.mark.parametrize("code", DEADLY)
def test_the_function_in_eager(check: Check, code: str) -> None:
    with pytest.raises(UserError) as raised:
        check(f"{HEAD}def program(x):\n    {code}\n    return x\n{INPUTS}")
    message = str(raised.value)
    assert "program" in message
    assert "\n" not in message
    assert DEADLY[code] in message
    # Only an exit leaves no stack.
    assert "line 3" in message or "exit" in code or "ones" in code or code == ASSERTS


ENDS = ["ctypes.string_at(0)", "os._exit(0)", "while True: pass", "torch.ones(10**10)"]


@pytest.mark.parametrize("code", ENDS)
def test_the_file(check: Check, code: str) -> None:
    ends = r"dies|exits|hangs|runs out of memory of 1\.0 GiB \(--memory\)"
    with pytest.raises(UserError, match=f"the file ({ends})"):
        check(f"{HEAD}{code}\n")


@pytest.mark.parametrize("code", [*ENDS, ASSERTS])
def test_the_target(check: Check, code: str) -> None:
    found = check(traced(code), "functionalize", "identity")
    (violation,) = found["functionalize"].violations
    assert violation.oracle == "errors"
    assert violation.kind == DEADLY[code].split(" (")[0]
    assert not found["identity"].violated
    assert found["identity"].reports["values"].verdict is Verdict.HOLDS


# The process dies in the next step, as if the function had destroyed the heap.
LATER = "import aliasproof.judge.trial as t; t.judge = lambda *_: os.abort()"


def test_a_target_that_ends_its_process_later(check: Check) -> None:
    found = check(traced(LATER), "functionalize")["functionalize"]
    (violation,) = found.violations
    assert (violation.oracle, violation.kind) == ("errors", "dies of signal 6")
    assert "the oracles, after the target" in str(violation.evidence["step"])


def test_a_death_that_eager_shows_too_is_not_of_the_target(check: Check) -> None:
    text = f"{HEAD}def program(x):\n    {LATER}\n    return x + 1\n{INPUTS}"
    found = check(text, "functionalize")
    assert not found["functionalize"].violated
    eager = EagerResult(None, None, None)
    sound = TargetResult("identity", None, {"values": HOLDS})
    assert Checked(eager, found | {"identity": sound}).exit_status() == 4


def test_a_slow_target_does_not_delay_the_others(check: Check, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(traced("while True: pass"))
    request = CheckRequest(tmp_path / "mine.py", targets=("functionalize", "identity"))
    _, first, second = IsolatedCheck(request, Limits(10.0, 1 << 30), most=2).results()
    assert isinstance(first, TargetResult)
    assert isinstance(second, TargetResult)
    assert [first.target, second.target] == ["identity", "functionalize"]


def test_a_file_that_has_no_end(check: Check, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "endless.py")
    request = CheckRequest(tmp_path / "endless.py")
    with pytest.raises(UserError, match=r"endless.py is not a regular file"):
        next(IsolatedCheck(request, LIMITS).results())


def test_each_process_makes_the_same_inputs(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import random, torch\ndef program(x, y):\n    return x + y\n"
        "def inputs():\n    return torch.rand(2), torch.tensor([random.random()])\n"
    )
    request = CheckRequest(tmp_path / "mine.py", targets=("identity",))
    begun = [next(IsolatedCheck(request, LIMITS).results()) for _ in range(2)]
    assert begun[0] == begun[1]


# --- the command ----------------------------------------------------------------------------------


def test_json_is_one_object_whatever_is_written(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        f"{HEAD}def program(x):\n    os.write(1, b'one')\n    os.system('echo two')\n"
        f"    print('three', input)\n    return x\n{INPUTS}"
    )
    done = aliasproof("check", "mine.py", "--target", "identity", "--json", cwd=tmp_path)
    assert json.loads(done.stdout)["violated"] is False
    assert "one" in done.stderr
    assert "two" in done.stderr
    assert "three" in done.stderr
    assert "resource_tracker" not in done.stderr, "a semaphore is left"


def test_ctrl_c_ends_all_processes(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        f"{HEAD}import subprocess\nchild = subprocess.Popen(['sleep', '1000'])\n"
        "print(os.getpid(), child.pid, flush=True)\nwhile True: pass\n"
    )
    process = started("-m", "aliasproof", "check", "mine.py", cwd=tmp_path)
    assert process.stderr is not None
    pids = [int(word) for word in process.stderr.readline().split()]
    interrupted = time.monotonic()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, "", "aliasproof: interrupted\n")
    assert time.monotonic() - interrupted < 10  # it takes 0.1
    # A killed process exists until the system has reaped it.
    while any(map(exists, pids)):
        assert time.monotonic() - interrupted < 20
        time.sleep(0.05)


def exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
