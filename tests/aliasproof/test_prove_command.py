"""`aliasproof prove`: what is printed about a user's file."""

import json
import re
from pathlib import Path

import pytest
import torch

from aliasproof.ir.program import Input, Instruction, Program, Ref, Storage
from aliasproof.ir.serialization import dumps
from tests.oracles.proofs.sized_programs import no_clones

DOCUMENT = Path(__file__).parents[2] / "docs" / "proofs.md"
HALVES = """
import torch


def program(x):
    half = x.shape[0] // 2
    top, bottom = x[:half], x[half:]
    top.add_(1)
    return bottom, top.clone(), x + 0


def inputs():
    return torch.ones(6, 4)
"""


@pytest.fixture
def mine(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(HALVES)
    return path


def test_the_command_prints_all_pairs_and_counts_them(call, mine):
    done = call("prove", mine, "--target", "aot")
    assert done.code == 0
    assert "input 0 is [n0, n1]; sizes from 1 to 64" in done.out
    assert re.search(r"input 0, output 0 +proved +as in eager +\d", done.out)
    assert re.search(r"output 0, output 1 +proved +different storages +\d", done.out)
    assert done.out.splitlines()[-1] == "6 proved, 0 refuted, 0 unknown, 0 vacuous"


def test_a_refutation_ends_in_exit_code_1_and_can_be_checked_by_hand(call, mine, planted):
    planted("careless", no_clones)
    done = call("prove", mine, "--target", "careless")
    assert done.code == 1
    assert re.search(r"input 0, output 1 +refuted", done.out)
    shown = re.search(
        r"with input 0 of size \[(\d+), (\d+)\]: input 0 at \[(\d+), (\d+)\]"
        r" and output 1 at \[(\d+), (\d+)\] both contain byte (\d+)",
        done.out,
    )
    assert shown is not None
    rows, columns, *indices, byte = map(int, shown.groups())
    for row, column in (indices[:2], indices[2:]):
        assert 0 <= row < rows
        assert byte // 4 == row * columns + column


def test_json_has_all_of_it(call, mine, planted):
    planted("careless", no_clones)
    done = call(
        "prove", mine, "--target", "careless", "--target", "reference", "--sizes", "2:", "--json"
    )
    assert done.code == 1
    given = json.loads(done.out)
    assert given["sizes"] == [2, None]
    careless, reference = given["targets"]["careless"], given["targets"]["reference"]
    assert careless["inputs"] == [["n0", "n1"]]
    assert "2 <= n0" in careless["assumptions"]
    assert careless["sizes that satisfy them"] is None
    assert reference["counts"] == {"proved": 6, "refuted": 0, "unknown": 0, "vacuous": 0}
    refuted = [pair for pair in careless["pairs"] if pair["answer"] == "refuted"]
    assert refuted
    assert all(
        set(pair["counterexample"]) == {"sizes of inputs", "indices", "shared byte"}
        for pair in refuted
    )
    assert all(pair["counterexample"] is None for pair in reference["pairs"])


def test_one_reason_for_all_pairs_is_said_once(call, mine):
    done = call("prove", mine, "--target", "reference", "--sizes", "1:1")
    assert done.code == 0
    assert done.out.count("all pairs vacuous: no sizes in range satisfy the assumptions") == 1
    assert done.out.splitlines()[-1] == "0 proved, 0 refuted, 0 unknown, 6 vacuous"


def test_a_stored_program_is_proved(call, tmp_path):
    program = Program(
        storages=(Storage(torch.float32, 4),),
        inputs=(Input("x", 0, torch.float32, (4,), (1,), 0),),
        instructions=(Instruction("aten.add.Scalar", (Ref("x"), 1), (), ("v",)),),
        outputs=("v",),
    )
    path = tmp_path / "program.json"
    path.write_text(dumps(program))
    done = call("prove", path, "--target", "reference")
    assert (done.code, done.out.splitlines()[-1]) == (
        0,
        "1 proved, 0 refuted, 0 unknown, 0 vacuous",
    )


def test_it_is_said_if_no_size_is_a_symbol(call, tmp_path):
    path = tmp_path / "one.py"
    path.write_text(
        "import torch\ndef program(x): return x + 1\ndef inputs(): return torch.ones(1)\n"
    )
    done = call("prove", path, "--target", "reference", "--sizes", "2:3")
    assert "no size became a symbol" in done.err
    assert "input 0 is [1]\n" in done.out
    assert " in range" not in done.out


def test_captured_tensors_are_named(call, tmp_path):
    path = tmp_path / "captures.py"
    path.write_text(
        "import torch\nW = torch.ones(5)\n"
        "def program(x): return x * W\ndef inputs(): return torch.ones(5)\n"
    )
    assert (
        "input 0 is [n0], input 1 (W) is [n1]; sizes"
        in call("prove", path, "--target", "reference").out
    )
    given = json.loads(call("prove", path, "--target", "reference", "--json").out)
    assert given["targets"]["reference"]["captured by the function"] == ["W"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--sizes", "5:2"], "--sizes 5:2: give LOW:HIGH"),
        (["--sizes", "64"], "--sizes 64: give LOW:HIGH"),
        (["--sizes", "-1:4"], "--sizes -1:4: give LOW:HIGH"),
        (["--sizes", "one:two"], "give LOW:HIGH in whole numbers"),
        (["--limit", "0"], "--limit 0: give seconds above 0"),
        (["--limit", "nan"], "--limit nan: give seconds above 0"),
        (["--target", "inducktor"], "unknown target 'inducktor'"),
    ],
)
def test_bad_options_end_in_one_line(call, mine, options, message):
    done = call("prove", mine, *options)
    assert (done.code, done.out) == (2, "")
    assert message in done.err
    assert len(done.err.splitlines()) == 1


def test_a_function_that_raises_in_eager_is_bad_input(call, tmp_path):
    path = tmp_path / "wrong.py"
    path.write_text(
        "import torch\ndef program(x): return x.view(3, 3)\ndef inputs(): return torch.ones(4)\n"
    )
    done = call("prove", path, "--target", "reference")
    assert done.code == 2
    assert "eager raises RuntimeError" in done.err


def test_the_document_shows_what_the_command_prints(call, tmp_path):
    """Times and the version of torch can differ."""
    text = DOCUMENT.read_text(encoding="utf-8")
    code, *_ = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (tmp_path / "mine.py").write_text(code)
    (shown,) = re.findall(r"```console\n\$ aliasproof (.*?)\n(.*?)```", text, re.DOTALL)
    done = call(*shown[0].split())
    assert plain(done.out) == plain(shown[1])
    # The ranges come first, and are ours.
    assert "assumptions: 2 <= n0 <= 64, 2 <= n1 <= 64, " in done.out
    assert "assumptions: 2 <= n0 <= 64, 2 <= n1 <= 64, " in shown[1]


def plain(text):
    """The lines without times, widths and the version of torch.

    Each version of torch notes other guards for the same program, in another order.
    """
    lines = [
        re.sub(r" +[\d.]+$", "", line)
        for line in text.splitlines()
        if line and " in torch " not in line and not line.startswith("assumptions: ")
    ]
    return [re.sub(r"[ ─]+", " ", line).strip() for line in lines]
