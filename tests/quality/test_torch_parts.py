"""The private parts of torch are in one table, and each may move: that only costs features."""

import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable

import pytest

from aliasproof.corpus.patching import replaces
from aliasproof.plugins import plugins
from aliasproof.torch_parts import EVERYTHING, LOST, TABLE, is_there, missing_parts, needed
from tests.quality.torch_parts_table import table
from tests.quality.torch_references import MOVED, ROOT

# `V.graph` has its attributes only while Inductor compiles, so they cannot be looked up.
UNSEEN = "torch._inductor.virtualized.V.graph."
# If only a compiler that is not installed needs a part, nothing is off without it.
NOT_HERE = {f"target {name}" for name, plugin in plugins().items() if plugin.missing()}
PARTS = [
    part
    for part, features in needed().items()
    if not part.startswith(UNSEEN) and not NOT_HERE.issuperset(features)
]
# Of everything; of patches and sites; of targets, rules and sites; of proofs.
SAMPLE = [
    "torch._C._dispatch_get_all_op_names",
    "torch._functorch._aot_autograd.schemas.OutputType",
    "torch._inductor.virtualized.V.set_fake_mode",
    "torch.utils._sympy.functions.ModularIndexing",
]
# Of attribution; of models.
OF_OTHER_FEATURES = [
    "torch._dynamo.backends.common.AotAutograd",
    "torch._TorchCompileInductorWrapper",
]
# Each process moves several parts at once, and prints those with which a command ends wrongly.
IN_CHILDREN = """
import os, sys
import torch, torch._dynamo, torch._inductor.compile_fx, torch._inductor.lowering, torch.onnx
import torch._inductor.codegen.cpp, torch._inductor.fx_passes.joint_graph
import hypothesis, rich.progress, rich.table, typer, z3
from tests.quality.torch_references import move

for argument in sys.argv[1:]:
    parts = argument.split()
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.dup2(writer, 1), os.dup2(writer, 2)
        move(*parts)
        from aliasproof.commands.command_line import run
        codes = run(["--help"]), run(["doctor"])
        print("codes", codes, flush=True)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        said = pipe.read()
    os.wait()
    named = any(part + "_moved" in said for part in parts)
    if "Traceback" in said or "codes (0, 1)" not in said or not named:
        print(parts, said)
"""


def test_the_table_is_that_of_the_sources():
    written = TABLE.read_text(encoding="utf-8")
    assert written == table(), "run python -m tests.quality.torch_parts_table"
    features = {feature for row in needed().values() for feature in row}
    assert {feature.partition(" ")[0] for feature in features} == {*LOST}


def test_this_torch_has_all_parts():
    assert missing_parts() == ()


def test_a_patch_is_not_applied_where_torch_is_not_what_it_knows():
    missing = replaces("torch._inductor.graph:GraphLowering.gone")(lambda original: None)
    assert "torch has no torch._inductor.graph:GraphLowering.gone" in str(missing.why_not())
    run_node = replaces("torch._inductor.graph:GraphLowering.run_node")
    assert "takes other arguments" in str(run_node(lambda original: None).why_not())
    assert run_node(lambda original, graph, node: None).why_not() is None


def wrong_ones(groups: Iterable[Iterable[str]]) -> str:
    done = subprocess.run(
        [sys.executable, "-c", IN_CHILDREN, *map(" ".join, groups)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_any_part_is_missed_where_it_has_moved():
    assert [part for part in PARTS if is_there(f"{part}_moved")] == []


@pytest.mark.parametrize("half", range(2))
def test_help_and_doctor_work_where_all_parts_of_the_same_features_have_moved(half):
    """Each part turns off the same features, so moving all together hides no remaining use."""
    groups = defaultdict(list)
    for part in PARTS:
        rows = [row for name, row in needed().items() if f"{name}.".startswith(f"{part}.")]
        off = frozenset(feature for row in rows for feature in row)
        groups[EVERYTHING if EVERYTHING in off else off].append(part)
    assert not wrong_ones([*groups.values()][half::2])


def campaign(part: str, folder) -> subprocess.CompletedProcess[str]:
    """A campaign of five programs, in whose processes a part has moved."""
    (folder / "sitecustomize.py").write_text("import tests.quality.torch_references")
    paths = os.pathsep.join([str(folder), str(ROOT)])
    arguments = ["fuzz", "--programs", "5", "--seed", "1", "-j", "1"]
    arguments += ["--target", "inductor-fx", "--target", "aot"]
    return subprocess.run(
        [sys.executable, "-m", "aliasproof", *arguments, "--run", str(folder / "run")],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": paths, MOVED: part},
    )


@pytest.mark.parametrize("part", [*SAMPLE, *OF_OTHER_FEATURES])
def test_a_campaign_works_or_refuses_in_one_line(part, tmp_path):
    done = campaign(part, tmp_path)
    assert "Traceback" not in done.stderr + done.stdout
    assert done.returncode in (0, 2), done.stdout + done.stderr
    if done.returncode == 2:
        assert "aliasproof: " in done.stderr.splitlines()[-1]
        assert f"{part}_moved" in done.stderr.splitlines()[-1]
    else:
        assert " programs in " in done.stdout + done.stderr
