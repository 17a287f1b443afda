"""Bad input ends in one line on standard error and exit code 2, without a traceback."""

import json
import re

import pytest

from aliasproof.commands import ops
from aliasproof.ir.errors import InternalError, OutOfMemory
from aliasproof.targets.names import REGISTERED
from aliasproof.targets.registry import TARGETS
from tests.aliasproof.conftest import Outcome
from tests.subprocesses import python

GOOD = "import torch\ndef program(x):\n    return x\ndef inputs():\n    return torch.ones(3)\n"


def given(text: str) -> str:
    """A good file except for these inputs."""
    return GOOD.replace("torch.ones(3)", text)


def assert_bad_input(outcome, *parts):
    assert outcome.refusal.count("\n") == 1, "no note comes before"
    for part in parts:
        assert part in outcome.refusal


@pytest.mark.parametrize(
    ("command", "part"),
    [
        ("fuzz --device mps", "device 'mps' is not supported; give cpu, cuda or cuda:NUMBER"),
        ("fuzz --device cuda:999", "device 'cuda:999'"),
        ("fuzz --run a-file", "a-file"),
        ("fuzz --run a-file/below", "a-file/below"),
        ("fuzz --run /proc/nowhere", "/proc/nowhere"),
        ("fuzz --run not-empty", "not empty"),
        ("hunt --target functionalize", "give one of identity, dynamo"),
        ("gate --rebuild nothing", "name the folder of a run"),
        ("ops --status undrwn", "no op has the status 'undrwn'; did you mean 'undrawn'?"),
    ],
)
def test_options(call, tmp_path, command, part):
    (tmp_path / "a-file").touch()
    (tmp_path / "not-empty").mkdir()
    (tmp_path / "not-empty" / "precious").touch()
    assert_bad_input(call(*command.split()), part)


@pytest.mark.parametrize(
    "options",
    [
        ("gate", "--target", "functionalize", "--baseline", "/proc/x.json"),
        ("minimize", "mine.py", "--finding", "/proc/x"),
        ("minimize", "mine.py", "--output", "/proc/x.py"),
        ("report", "run", "--out", "/proc/x"),
    ],
)
def test_what_cannot_be_written_is_refused_before_the_work(call, tmp_path, monkeypatch, options):
    def worked(*_args):
        raise AssertionError("the work began")

    monkeypatch.setattr("aliasproof.campaigns.run.gate.run_entries", worked)
    monkeypatch.setattr("aliasproof.minimization.minimizing.reduce_file", worked)
    monkeypatch.setattr("aliasproof.findings.reporting.report", worked)
    (tmp_path / "mine.py").write_text("def program(x):\n    return x\n")
    assert_bad_input(call(*options), "/proc/x", "cannot be written")


def test_fuzz_where_runs_is_a_file(call, tmp_path):
    (tmp_path / "runs").touch()
    assert_bad_input(call("fuzz", "--programs", 1), "runs", "--run")


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("def inputs():\n    return 1\n", ["no 'program'"]),
        ("def program(x):\n    return x\n", ["no 'inputs'", "it defines program"]),
        ("program = 3\ninputs = 4\n", ["'program' is of type int, not callable"]),
        ("def program(x): ...\ninputs = 4\n", ["'inputs' is of type int, not callable"]),
        ("import torch\n\n1 / 0\n", ["ZeroDivisionError: division by zero", "line 3"]),
        ("import no_such_module\n", ["ModuleNotFoundError", "line 1"]),
        ("import sys\nsys.exit(3)\n", ["SystemExit: 3", "line 2"]),
        ("open('nowhere')\n", ["FileNotFoundError", "line 1"]),
        ("def program(x:\n", ["line 1", "not Python"]),
        ("x = " + "-" * 200_000 + "1", ["cannot be read"]),
        (
            GOOD + "    raise ValueError('two\\nlines')\ndef inputs():\n    raise KeyError(3)\n",
            ["inputs() raises KeyError: 3", "line 8"],
        ),
        (given("torch.ones(3), 5"), ["2 positional arguments", "too many positional arguments"]),
        (given("{'y': torch.ones(3)}"), ["0 positional arguments and y"]),
        (
            given("(torch.ones(3) for _ in range(1))"),
            ["inputs() returns a value of type generator", "a tuple of positional arguments"],
        ),
        (given("None"), ["returns None"]),
        (given("torch.ones(3).to_sparse()"), ["inputs()[0] is of layout torch.sparse_coo"]),
        (given("torch.ones(3, device='meta')"), ["a meta tensor"]),
        (given("torch.ones(3).cfloat().conj()"), ["resolve_conj()"]),
        (
            GOOD.replace("(x)", "(x, y)"),
            ["program(x, y)", "1 positional argument:", "missing a required argument: 'y'"],
        ),
        (given("()"), ["0 positional arguments"]),
        (GOOD.replace("return x", "raise SystemExit(4)"), ["sys.exit(4)"]),
    ],
)
def test_check_of_python(call, tmp_path, text, parts):
    (tmp_path / "mine.py").write_text(text)
    assert_bad_input(call("check", "--in-process", "mine.py"), "mine.py", *parts)


@pytest.mark.parametrize(
    ("name", "content", "part"),
    [
        ("broken.json", b'{"version": 1,\n "seed": }', "line 2 column 10"),
        ("list.json", b"[]", "expected an object"),
        ("not-text.json", b"\xff\xfe", "UTF-8"),
        ("not-text.py", b"\xff\xfe", "not Python"),
        ("nul.py", b"x = 1\0\n", "nul.py"),
        ("program.md", b"x", "neither a .py, a .json, a .txt nor a .pt2 file"),
        ("folder/else", b"", "folder without program.json"),
        (None, b"", "missing.py does not exist"),
    ],
    ids=str,
)
def test_check_of_other_files(call, tmp_path, name, content, part):
    if name:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
    given = "folder" if name == "folder/else" else name or "missing.py"
    assert_bad_input(call("check", "--in-process", given), part)


def test_check_names_the_place_in_a_program(call, tmp_path):
    call_of_no_op = {"op": "aten.ad_.Tensor", "args": []}
    program = {"version": 1, "storages": [], "inputs": [], "outputs": []}
    program |= {"instructions": [call_of_no_op]}
    (tmp_path / "program.json").write_text(json.dumps(program))
    assert_bad_input(
        call("check", "--in-process", "program.json"),
        "program.json: instructions[0].op",
        "aten.add_.Tensor",
    )


def test_check_with_other_names(call, tmp_path):
    (tmp_path / "mine.py").write_text(GOOD)
    assert_bad_input(
        call("check", "--in-process", "mine.py", "--function", "f"),
        "no 'f'",
        "it defines inputs, program",
    )
    assert_bad_input(call("check", "--in-process", "mine.py", "--inputs", "g"), "no 'g'")


@pytest.mark.parametrize(
    ("name", "files", "part"),
    [
        ("aot-values-00000000", {}, "no finding 'aot-values-00000000'"),
        ("folder", {"folder/x": ""}, "it has no finding.json"),
        ("folder", {"folder/program.json": "{"}, "it has no finding.json"),
        (
            "folder",
            {"folder/program.json": "{", "folder/finding.json": "{}"},
            "program.json: line 1",
        ),
        ("run", {"run/findings/aot-values-1/x": ""}, "name one of its findings: aot-values-1"),
        ("aot-values-2", {"runs/1/findings/aot-values-1/x": ""}, "did you mean 'aot-values-1'?"),
    ],
    ids=str,
)
def test_show(call, tmp_path, name, files, part):
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    assert_bad_input(call("show", name), part)


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (
            InternalError("the deciders disagree"),
            3,
            "aliasproof: .*the deciders disagree; please report it .*torch 2.*\n",
        ),
        (
            ZeroDivisionError("oops"),
            3,
            r"Traceback[\s\S]*\naliasproof: internal error: ZeroDivisionError: oops.*\n",
        ),
        (KeyboardInterrupt(), 130, "aliasproof: interrupted\n"),
        (OutOfMemory(""), 1, "aliasproof: out of memory:\n"),
        (OutOfMemory("no memory\nin two lines"), 1, "aliasproof: out of memory: no memory\n"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_error_of_ours_has_a_status_and_a_line(call, monkeypatch, error, code, said):
    def broken():
        raise error

    monkeypatch.setattr(ops, "listed_ops", broken)
    outcome = call("ops")
    assert outcome.code == code
    assert re.fullmatch(said, outcome.err), outcome.err


# --- without torch --------------------------------------------------------------------------------


# A command line, and what the line that refuses it says. `mine.py` is this file.
WITHOUT_TORCH = """
check => Missing argument 'FILE'. (see 'aliasproof check --help')
show => --help
nonsense => --help
--nonsense => --help
check absent.py => absent.py does not exist
check mine.py -t aot-eagr => did you mean 'aot-eager'
check mine.py -t absent.py:f => there is no file absent.py
check absent.py:step => absent.py does not exist
check mine.py: => :' does not end with the name of a function
check mine.py:a-b => give FILE.py, FILE.py:FUNCTION,
check mine.py:a --function b => :a and --function b are two functions
minimize mine.py:a --function b => :a and --function b are two functions
minimize absent.py => absent.py does not exist
minimize mine.py -t aott => did you mean 'aot'?
minimize mine.py -t aot --interesting mine.py => either --target or --interesting
explain absent.py => absent.py does not exist
explain mine.py --views both => --views both: give one of alias, copy
prove mine.py --sizes 5:2 => --sizes 5:2: give LOW:HIGH
prove mine.py --sizes 64 => --sizes 64: give LOW:HIGH
prove mine.py --sizes -1:4 => --sizes -1:4: give LOW:HIGH
prove mine.py --sizes one:two => give LOW:HIGH in whole numbers
prove mine.py --limit 0 => --limit 0: give seconds above 0
prove mine.py --limit nan => --limit nan: give seconds above 0
prove mine.py -t inducktor => unknown target 'inducktor'
replay absent => 'absent' does not exist
faults --programs 0 => at least 1
faults --workers 0 => at least 1
stats --programs 0 => --programs 0: give at least 1
run --verify --target inductor mine.py => leave out --target, --calls and --raise
run --verify --calls 1 mine.py => leave out --target, --calls and --raise
run --verify --raise mine.py => leave out --target, --calls and --raise
hunt --shard 3/2 => give I/N
hunt --workers 9999 => give at most
fuzz --target inducter => did you mean 'inductor'
fuzz --target fx-reinplce => did you mean 'fx-reinplace'?
fuzz --target zzz => targets: identity,
fuzz --seconds -1 => --seconds -1
fuzz --seconds 0 => --seconds 0
fuzz --seconds nan => --seconds nan
fuzz --seconds inf => --seconds inf
fuzz --seconds soon => --seconds
fuzz --programs 0 => --programs 0
fuzz --programs -3 => --programs -3
fuzz --programs 2.5 => --programs
fuzz --workers 0 => --workers 0
fuzz --jobs 1000 => give at most
fuzz --until 24:00 => --until 24:00: give a time of the day as HH:MM
fuzz --until 6:30 --seconds 3 => give no --seconds or --programs with it
fuzz --shard 3/2 => --shard 3/2: give I/N
fuzz --profile nightli => did you mean 'nightly'?
fuzz --limit 0 => --limit 0
fuzz --memory nan => --memory nan
fuzz --seed -1 => --seed -1
fuzz --no-such-option => No such option
fuzz leftover => leftover
"""
# Prints the status, standard output and standard error of each command.
COMMANDS = """
import contextlib, io, json, sys
sys.modules["torch"] = None
from aliasproof.commands.command_line import run
for arguments in json.loads(sys.argv[1]):
    with (
        contextlib.redirect_stderr(io.StringIO()) as errors,
        contextlib.redirect_stdout(io.StringIO()) as printed,
    ):
        status = run(arguments)
    print(json.dumps([status, printed.getvalue(), errors.getvalue()]))
"""


def test_usage_errors_come_without_torch(subtests):
    lines = [line.split(" => ") for line in WITHOUT_TORCH.strip().splitlines()]
    given = [command.replace("mine.py", __file__).split() for command, _ in lines]
    ended = python("-c", COMMANDS, json.dumps(given))
    for (command, message), line in zip(lines, ended.stdout.splitlines(), strict=True):
        with subtests.test(command):
            assert_bad_input(Outcome(*json.loads(line)), message)


def test_the_names_that_need_no_torch_are_those_of_the_targets():
    assert tuple(TARGETS) == REGISTERED
