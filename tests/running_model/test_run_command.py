"""`aliasproof run`: a script runs as by Python; differences of its graphs are stored."""

import json
import re
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.subprocesses import aliasproof, python

SCRIPT = """
import sys
import torch
import torch.nn.functional as F

class Gate(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = torch.nn.Linear(4, 8), torch.nn.Linear(4, 8)

    def forward(self, x):
        x = x / x.norm(dim=-1, keepdim=True)
        a, b = self.up(x).chunk(2, -1)
        turned = torch.cat((-b, a), -1)
        return (F.silu(turned) * self.down(x)).mean()

if __name__ == "__main__":
    torch.manual_seed(0)
    model = Gate()
    optimizer = torch.optim.AdamW(model.parameters())
    compiled = torch.compile(model, backend="aot_eager")
    for _ in range(int(sys.argv[1])):
        loss = compiled(torch.randn(3, 4))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(loss.item())
    sys.exit(int(sys.argv[2]))
"""


@pytest.fixture
def ran(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs a command in a folder with the script."""
    (tmp_path / "train.py").write_text(SCRIPT)

    return partial(aliasproof, cwd=tmp_path)


def test_a_script_runs_as_by_python(ran, tmp_path: Path) -> None:
    plain = python("train.py", 2, 3, cwd=tmp_path)
    checked = ran("run", "train.py", "--", 2, 3)
    assert (checked.stdout, checked.returncode) == (plain.stdout, 3)
    first, cost = checked.stderr.splitlines()
    assert first.endswith("2 calls: 2 judged, 2 with a backward pass; 0 graphs differ")
    assert "times the target alone" in cost


LOSES = """
import torch
from torch._dynamo.backends.common import aot_autograd

def loses_neg(module, examples):
    for node in module.graph.find_nodes(op="call_function", target=torch.ops.aten.neg.default):
        node.replace_all_uses_with(node.args[0])
    module.recompile()
    return module.forward

def boxed(module, examples):
    forward = loses_neg(module, examples)
    return lambda args: forward(*args)

boxed._boxed_call = True
named = aot_autograd(fw_compiler=boxed)

if __name__ == "__main__":
    torch.compile(lambda x: torch.neg(x) + 1, backend=BACKEND)(torch.ones(2))
"""


def test_a_backend_of_the_script_is_named_so_that_a_command_imports_it(ran, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(LOSES.replace("BACKEND", "named"))
    checked = ran("run", "own.py")
    (printed,) = re.findall(r"reduce what differs first: aliasproof (.*)", checked.stderr)
    assert printed.endswith(" --target own.py:named")
    small = ran(*printed.split(), "--json")
    assert small.returncode == 0, small.stderr
    assert json.loads(small.stdout)["instructions"]["after"] == 1


def test_a_backend_without_a_name_is_reported_without_a_command(ran, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(LOSES.replace("BACKEND", "aot_autograd(fw_compiler=boxed)"))
    checked = ran("run", "own.py")
    assert "1 graph differs" in checked.stderr
    assert "no command can import the backend of aliasproof-graphs/graph-0" in checked.stderr
    assert "aliasproof minimize" not in checked.stderr


def test_a_script_that_compiles_nothing_is_told_so(ran, tmp_path: Path) -> None:
    (tmp_path / "plain.py").write_text("import torch; print(torch.ones(1))")
    done = ran("run", "plain.py")
    assert done.returncode == 0
    assert "NOT CHECKED: plain.py compiled nothing in its own process" in done.stderr
    assert ran("run", "--fail-on-differences", "plain.py").returncode == 1


def test_a_script_of_which_nothing_is_judged_fails_if_it_is_asked_to(ran, tmp_path: Path) -> None:
    (tmp_path / "lazy.py").write_text(
        "import torch\ntorch.compile(torch.abs, backend='aot_eager')(torch.tensor([1j]).conj())\n"
    )
    done = ran("run", "--fail-on-differences", "lazy.py")
    assert done.returncode == 1
    assert done.stderr.startswith("aliasproof: NOT CHECKED: 1 of 1 call, because")


def test_a_process_that_dies_names_the_graph_that_ran(ran, tmp_path: Path) -> None:
    (tmp_path / "dies.py").write_text(
        "import os, torch\n"
        "def backend(module, examples):\n"
        "    return lambda *args: os.kill(os.getpid(), 9)\n"
        "torch.compile(lambda x: x + 1, backend='eager')(torch.ones(2))\n"
        "torch.compile(lambda x: x + 2, backend=backend)(torch.ones(2))\n"
    )
    done = ran("run", "dies.py")
    assert done.returncode == -9
    assert done.stderr.splitlines()[-1] == (
        "aliasproof: NOT CHECKED to the end: the process of the script died while graph 1"
        " (dies.py:5 in <lambda>), call 1, forward, through dies.py:backend ran"
    )


def test_an_error_of_the_script_is_shown_as_by_python(ran, tmp_path: Path) -> None:
    (tmp_path / "fails.py").write_text("def f():\n    return 1 / 0\n\nf()\n")
    done = ran("run", "fails.py")
    assert done.returncode == 1
    lines = [line for line in done.stderr.splitlines() if line.lstrip().startswith("File")]
    assert [line.split(",")[1] for line in lines] == [" line 4", " line 2"]
    assert "NOT CHECKED: fails.py ended with status 1 before a graph was compiled" in done.stderr


def test_a_script_that_is_interrupted_has_a_summary(ran, tmp_path: Path) -> None:
    (tmp_path / "stopped.py").write_text(
        "import os, signal, torch\n"
        "torch.compile(torch.neg, backend='aot_eager')(torch.ones(2))\n"
        "os.kill(os.getpid(), signal.SIGINT)\n"
    )
    done = ran("run", "stopped.py")
    assert done.returncode == 130
    assert "KeyboardInterrupt\naliasproof: aot-eager beside eager: 1 graph, 1 call" in done.stderr


def test_threads_of_the_script_end_as_by_python(ran, tmp_path: Path) -> None:
    (tmp_path / "threads.py").write_text(
        "import threading, time\n"
        "from concurrent.futures import ThreadPoolExecutor\n"
        "pool = ThreadPoolExecutor(1)\n"
        "print(pool.submit(lambda: 1).result(), flush=True)\n"
        "threading.Thread(target=lambda: (time.sleep(1), print(2, flush=True))).start()\n"
    )
    done = ran("run", "threads.py")
    assert (done.returncode, done.stdout) == (0, "1\n2\n")


def test_raise_ends_the_script_at_the_first_difference(ran, planted) -> None:
    options = ("--raise", "--target", planted("loses_neg"), "--out", "kept")
    done = ran("run", "train.py", *options, "--", 2, 0)
    assert (done.returncode, done.stdout) == (1, "")
    assert "GraphDiffers: graph 0" in done.stderr


def test_a_module_and_a_missing_script(ran, tmp_path: Path) -> None:
    done = ran("run", "-m", "train", "--", 1, 0)
    assert done.returncode == 0
    assert "1 graph, 1 call: 1 judged" in done.stderr
    done = ran("run", "absent.py")
    assert (done.returncode, "absent.py is not a file" in done.stderr) == (2, True)


@pytest.mark.parametrize(("factor", "status"), [("1.0", 0), ("1.01", 1)])
def test_verify_compares_what_is_printed_and_held_at_the_end(ran, tmp_path, factor, status):
    (tmp_path / "verified.py").write_text(
        "import sys, time, torch\n"
        "def backend(module, examples):\n"
        "    return lambda *args: [it * float(sys.argv[1]) for it in module(*args)]\n"
        "def main():\n"
        "    torch.manual_seed(0)\n"
        "    model = torch.nn.Linear(3, 1)\n"
        "    optimizer = torch.optim.Adam(model.parameters())\n"
        "    loss = torch.compile(model, backend=backend)(torch.ones(2, 3)).sum()\n"
        "    loss.backward()\n"
        "    optimizer.step()\n"
        "    print(time.time_ns())\n"
        "    print('loss', loss.item())\n"
        "main()\n"
    )
    done = ran("run", "--verify", "--fail-on-differences", "verified.py", "--", factor)
    assert done.returncode == status, done.stderr
    (line,) = done.stderr.splitlines()
    if status:
        assert "NOT THE SAME: of what it prints and 10 tensors of its modules and" in line
        assert "Adam 0: state of parameter 0, exp_avg_sq" in line
        assert "printed line 2" in line
    else:
        assert "agree in what it prints and 10 tensors of its modules and optimizers" in line


GRADIENT_FUNCTION = """\
print(torch.compile(lambda x: x.pow(2).mean(), backend='aot_eager')(leaf))
"""
OPTIMIZER = """\
optimizer = torch.optim.Adam([leaf])
leaf.sum().backward()
torch.compile(optimizer.step, backend='eager')()
"""
QUIET = """\
torch.compile(lambda x: x + 1, backend='eager')(leaf)
"""
VERIFIED = {
    GRADIENT_FUNCTION: "verified: eager and compiled agree in what it prints and 0 tensors",
    OPTIMIZER: "verified: eager and compiled agree in what it prints and 3 tensors",
    QUIET: "NOT VERIFIED: nothing is left of what it prints and 0 tensors",
}


@pytest.mark.parametrize(("text", "expected"), VERIFIED.items(), ids=range(len(VERIFIED)))
def test_verify_says_what_agrees(ran, tmp_path: Path, text: str, expected: str) -> None:
    script = f"import torch\nleaf = torch.ones(2, requires_grad=True)\n{text}"
    (tmp_path / "verified.py").write_text(script)
    done = ran("run", "--verify", "--fail-on-differences", "verified.py")
    assert expected in done.stderr
    assert done.returncode == ("verified" not in expected)


@pytest.mark.parametrize("lost", [False, True])
def test_verify_leaves_out_what_rounding_alone_changes(ran, tmp_path: Path, lost: bool) -> None:
    (tmp_path / "noise.py").write_text(
        "import sys, torch\n"
        "def backend(module, examples):\n"
        "    def run(*args):\n"
        "        args = [it.clone() for it in args] if len(sys.argv) > 1 else args\n"
        "        return [it * (1 + 2**-22) for it in module(*args)]\n"
        "    return run\n"
        "class Model(torch.nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.linear = torch.nn.Linear(3, 4, bias=False)\n"
        "        self.register_buffer('calls', torch.zeros(()))\n"
        "    def forward(self, x):\n"
        "        self.calls.add_(1)\n"
        "        return self.linear(x)\n"
        "torch.manual_seed(0)\n"
        "model = Model()\n"
        "optimizer = torch.optim.Adam(model.parameters(), lr=0.1)\n"
        # The gradient of the weight is zero in exact arithmetic.
        "out = torch.compile(model, backend=backend)(torch.randn(50, 3))\n"
        "out.softmax(-1).sum().backward()\n"
        "optimizer.step()\n"
    )
    given = ["--", "lost"] if lost else []
    done = ran("run", "--verify", "--fail-on-differences", "noise.py", *given)
    assert done.returncode == lost, done.stderr
    (line,) = done.stderr.splitlines()
    wrong, left_out = line.split("; not compared")
    assert "Linear 0: weight" in left_out
    assert ("1 differ: Model 0: calls" if lost else "verified") in wrong
