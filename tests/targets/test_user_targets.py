"""A user's own pass, backend or `Target`: when it is imported, its kinds, and its findings."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, fx
from torch.fx.passes.infra.pass_base import PassBase, PassResult

from aliasproof.campaigns.run.shard import recording_for
from aliasproof.ir.errors import UserError
from aliasproof.ir.values import clone_inputs
from aliasproof.judge.examination import Examination, examine
from aliasproof.judge.trial import Case
from aliasproof.oracles.contract import Contract
from aliasproof.oracles.observation import observe
from aliasproof.targets import registry, user_names
from aliasproof.targets.identity import build
from aliasproof.targets.registry import is_importable, target
from aliasproof.targets.target import Target
from aliasproof.targets.user_names import CodeName, code_name, grant
from aliasproof.targets.user_targets import YOUR_PASS, UserBackend, UserPass, classify
from tests.targets.conftest import defined_by, stages_of, trial_of

CODE = """
import functools
import torch
from torch import fx

aten = torch.ops.aten


def nothing(gm: fx.GraphModule) -> fx.GraphModule:
    return gm


def dead_code(gm):
    for node in reversed(gm.graph.nodes):
        if node.op == "call_function" and not node.users:
            gm.graph.erase_node(node)


def on_copies(gm, example_inputs):
    return lambda *args: gm.forward(*(arg.clone() for arg in args))


def honest(gm, example_inputs):
    return gm.forward


def inner(gm):
    return gm.no_such_attribute


def raises(gm):
    return inner(gm)


def backend_raises(gm, example_inputs):
    return inner(gm)


def double(gm):
    for node in gm.graph.find_nodes(op="call_function", target=aten.mul.Tensor):
        if node.args[1] == 2:
            node.target, node.args = aten.add.Tensor, (node.args[0], node.args[0])


class Cleanup:
    def __call__(self, graph: fx.Graph):
        assert isinstance(graph, fx.Graph)


class Owner:
    @staticmethod
    def method(gm):
        return gm


number = 3
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with `ownpasses/passes.py` and `passes.py`, in which nothing is granted."""
    (tmp_path / "ownpasses").mkdir()
    (tmp_path / "ownpasses" / "__init__.py").touch()
    for name in ("ownpasses/passes.py", "passes.py"):
        (tmp_path / name).write_text(CODE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(user_names, "_granted", set())
    monkeypatch.setattr(registry, "OWN", {})
    monkeypatch.setattr(sys, "path", [*sys.path])
    before = {*sys.modules}
    yield tmp_path
    for name in {*sys.modules} - before:
        if name.startswith(("ownpasses", "aliasproof_target_")):
            del sys.modules[name]


def granted(name: str) -> Target:
    grant([name])
    return target(name)


def examined(name: str, function: Callable[..., object], *inputs: Tensor) -> Examination:
    return examine(Case.of_function(function, inputs), granted(name))


def writes(x: Tensor) -> Tensor:
    x.add_(1)
    return x * 2


# --- names ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("ownpasses.passes:nothing", "ownpasses.passes:nothing"),
        ("./passes.py:nothing", "passes.py:nothing"),
        ("passes.py:nothing:symbolic:decompose", "passes.py:nothing:decompose:symbolic"),
        ("ownpasses/../passes.py:nothing", "passes.py:nothing"),
        ("ownpasses.passes:Owner.method:grad", "ownpasses.passes:Owner.method:grad"),
        ("ownpasses.passes:honest:symbolic", "ownpasses.passes:honest:symbolic"),
    ],
)
def test_a_module_or_a_file_and_a_function_name_a_target(here: Path, given: str, name: str) -> None:
    assert granted(given).name == name
    assert all(target(fewer.name).name == fewer.name for fewer in target(name).earlier)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("ownpasses.passes:notthing", "has no 'notthing'; did you mean 'nothing'?"),
        ("ownpasses.passs:nothing", "no module 'ownpasses.passs' in this folder or among the"),
        ("ownpasses.passs:nothing", "did you mean 'ownpasses.passes'?"),
        ("zzz:nothing", "give PACKAGE.MODULE:FUNCTION or FILE.py:FUNCTION"),
        ("zzz.py:nothing", "there is no file zzz.py"),
        ("hypothesis.passes:nothing", "for the file, give hypothesis/passes.py:nothing"),
        ("ownpasses.passes:number", "is of type int, not callable; expected a pass (it takes"),
        ("ownpasses.passes:nothing:symbol", "did you mean 'symbolic'?"),
        (
            "ownpasses.passes:nothing:zzz",
            "; variants: decompose, symbolic, grad, half-grad, kept-outputs",
        ),
        ("ownpasses.passes:nothing:second-call", "has no variant 'second-call' (it has decompose,"),
        ("broken.py:cleanup", "broken.py:3 in helper"),
        ("broken.py:cleanup", "its import raises ZeroDivisionError: division by zero"),
        (
            "imports.py:cleanup",
            "its import raises ModuleNotFoundError: No module named 'not_there'",
        ),
        ("exits.py:cleanup", "its import raises SystemExit: 3"),
        ("syntax.py:cleanup", "syntax.py, line 1: not Python"),
    ],
)
def test_what_cannot_be_imported_is_one_clear_error(here: Path, name: str, message: str) -> None:
    (here / "hypothesis").mkdir()
    (here / "hypothesis" / "passes.py").write_text(CODE)
    (here / "broken.py").write_text("\ndef helper():\n    1 / 0\nhelper()\n")
    (here / "imports.py").write_text("import not_there\n")
    (here / "exits.py").write_text("raise SystemExit(3)\n")
    (here / "syntax.py").write_text("def f(:\n")
    with pytest.raises(UserError) as raised:
        granted(name)
    assert message in str(raised.value)


def test_code_that_was_not_granted_is_not_imported(here: Path) -> None:
    (here / "trap.py").write_text("open('imported', 'w').close()\ndef cleanup(gm): pass\n")
    for name in ("trap:cleanup", "trap.py:cleanup", "./trap.py:cleanup:grad", "os:system"):
        assert not is_importable(name)
        with pytest.raises(UserError, match=r"is not imported; if you trust it, add --target"):
            target(name)
    assert not (here / "imported").exists()
    assert granted("trap:cleanup").name == "trap:cleanup"
    assert (here / "imported").exists()
    # A grant covers one function, with all its variants.
    assert is_importable("trap:cleanup:grad")
    assert not is_importable("trap:other")


def test_names_of_targets_need_no_grant() -> None:
    assert all(map(is_importable, ("aot", "aot:grad", "inductor:memory_planning=True", "zzz")))


# --- kinds of user code ---------------------------------------------------------------------------


class Infra(PassBase):
    def call(self, graph_module: fx.GraphModule) -> PassResult:
        return PassResult(graph_module, modified=False)


def one(gm): ...
def on_graph(graph: fx.Graph): ...
def in_text(graph: torch.fx.Graph): ...
def module_in_text(graph: torch.fx.GraphModule): ...
def with_examples(gm, *, example_inputs): ...
def with_options(gm, mode="fast", **options): ...
def two(gm, example_inputs): ...
def two_and_more(gm, example_inputs, mode=None, **options): ...
def three(gm, example_inputs, mode): ...
def says_inference(graph, is_inference): ...
def hidden(*args, **kwargs): ...


@functools.wraps(one)
def decorated(*args, **kwargs): ...


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (one, (False, False)),
        (on_graph, (True, False)),
        (in_text, (True, False)),
        (module_in_text, (False, False)),
        (with_examples, (False, True)),
        (with_options, (False, False)),
        (decorated, (False, False)),
        (says_inference, (True, False)),
        (functools.partial(three, mode=3), None),
        (functools.partial(three, None, None), (False, False)),
        (two, None),
        (two_and_more, None),
        (Infra, (False, False)),
        (Infra(), (False, False)),
        (torch.nn.Identity().forward, (False, False)),
    ],
)
def test_the_signature_says_what_it_is(value: Any, expected: tuple[bool, bool] | None) -> None:
    found = classify(value, CodeName("n", "m", "a"))
    if expected is None:
        assert isinstance(found, UserBackend)
    else:
        assert isinstance(found, UserPass)
        assert (found.on_graph, found.with_examples) == expected


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (three, r"takes \(gm, example_inputs, mode\); expected a pass"),
        (hidden, "functools.wraps keeps the signature"),
        (type("Needs", (), {"__init__": lambda self, x: None}), r"Needs\(\) raises TypeError"),
        ("aot", "is of type str, not callable"),
    ],
)
def test_anything_else_is_refused(value: object, message: str) -> None:
    with pytest.raises(UserError, match=message):
        classify(value, CodeName("n", "m", "a"))


def test_inductors_interfaces(here: Path) -> None:
    from torch._inductor.custom_graph_pass import CustomGraphPass, CustomSchedulerPass

    class Graphs(CustomGraphPass):
        def __call__(self, graph: fx.Graph) -> None: ...
        def uuid(self) -> None: ...

    class Nodes(CustomSchedulerPass):
        def __call__(self, nodes: list) -> list:
            return nodes

        def uuid(self) -> None: ...

    found = classify(Graphs(), CodeName("n", "m", "a"))
    assert isinstance(found, UserPass)
    assert found.on_graph
    of_inference = classify(says_inference, CodeName("n", "m", "a"))
    assert isinstance(of_inference, UserPass)
    assert of_inference.source("clean") == "clean(graph.graph, True)"
    with pytest.raises(UserError, match="is a Nodes, which works on no graph of ATen calls"):
        classify(Nodes(), CodeName("n", "m", "a"))


def test_a_target_of_a_user_keeps_all_but_its_name(here: Path) -> None:
    own = Target("theirs", "what they say", Contract(), build, "a recipe")
    (here / "passes.py").write_text("own = None\n")
    grant(["passes.py:own"])
    user_names.load(code_name("passes.py:own") or CodeName("", "", ""))
    sys.modules["aliasproof_target_passes"].own = own  # type: ignore[attr-defined]
    found = target("passes.py:own")
    assert (found.name, found.summary, found.recipe) == ("passes.py:own", own.summary, own.recipe)
    with pytest.raises(UserError, match="has no variant 'grad'"):
        target("passes.py:own:grad")


# --- findings -------------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", ["", ":symbolic", ":decompose", ":grad"])
def test_a_pass_that_does_nothing_is_right(here: Path, variant: str) -> None:
    found = examined(f"ownpasses.passes:nothing{variant}", writes, torch.ones(3))
    assert found.violations == []
    names = [stage.name for stage in stages_of(trial_of(found))]
    kinds = ["forward", "backward"] if variant == ":grad" else ["inference"]
    assert names == [name for k in kinds for name in (f"{k} graph", f"{k} graph after nothing")]


@pytest.mark.parametrize(("name", "changes"), [("nothing", False), ("dead_code", True)])
def test_it_is_recorded_whether_a_pass_changes_a_graph(here, name, changes):
    with recording_for(f"passes.py:{name}") as recorder:
        examined(f"passes.py:{name}", writes, torch.ones(3))
        fired, refused = recorder.take()
    assert (YOUR_PASS in fired, YOUR_PASS in refused) == (changes, not changes)


@pytest.mark.parametrize("name", ["dead_code", "on_copies", "dead_code:symbolic"])
def test_a_wrong_one_is_at_fault(here: Path, name: str) -> None:
    found = examined(f"ownpasses.passes:{name}", writes, torch.ones(3))
    assert found.symptom is not None
    assert (found.symptom.target, found.symptom.kind) == (
        f"ownpasses.passes:{name.split(':', maxsplit=1)[0]}",
        "input ends wrong",
    )


def test_a_bug_of_autograd_below_it_is_not_the_pass_at_fault(here: Path) -> None:
    found = examined("passes.py:nothing", lambda x: x.expand(3, 4).zero_() + 0, torch.ones(4))
    if found.symptom is not None:  # torch may have fixed it
        assert found.symptom.target in ("aot", "functionalize")


def test_other_arithmetic_is_not_wrong(here: Path) -> None:
    found = examined("passes.py:double", lambda x: x * 2, torch.ones(3))
    assert found.violations == []
    assert found.reports["equivalence"].verdict.name == "UNKNOWN"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("raises", "raises AttributeError: 'GraphModule' object has no attribute"),
        ("backend_raises", "raises BackendCompilerFailed by AttributeError: "),
    ],
)
def test_an_exception_is_a_violation_with_the_users_frame(here: Path, name: str, kind: str) -> None:
    found = examined(f"passes.py:{name}", writes, torch.ones(3))
    (main,) = found.reports["errors"].violations
    assert main.kind.startswith(kind) or "no_such_attribute" in main.kind
    line = CODE.splitlines().index("    return gm.no_such_attribute") + 1
    assert f"{here / 'passes.py'}:{line} in inner" in str(main.evidence["note"])


@pytest.mark.filterwarnings("ignore:Your compiler for AOTAutograd")  # a script may be warned
@pytest.mark.parametrize(
    "name", ["ownpasses.passes:dead_code", "passes.py:dead_code:grad", "passes.py:on_copies"]
)
def test_a_recipe_does_what_build_does(here: Path, name: str) -> None:
    tested = granted(name)
    for folder in [path for path in sys.path if path == str(here)]:
        sys.path.remove(folder)  # the recipe adds it again
    namespace = defined_by(tested.recipe)
    case = Case.of_function(writes, [torch.ones(3)]).under(tested)
    inputs, function = case.fresh_inputs(), case.function
    compiled = namespace["compiled"](
        namespace["conditions"](writes, clone_inputs)[0] if "grad" in name else function, inputs
    )
    by_recipe = observe(compiled, case.fresh_inputs())
    built = tested.build(case.function, case.fresh_inputs())
    ours = observe(built.function, case.fresh_inputs())
    assert by_recipe.error is None
    assert str(by_recipe.outputs) == str(ours.outputs)
    assert str(by_recipe.inputs) == str(ours.inputs)


# --- entry points ---------------------------------------------------------------------------------


@pytest.fixture
def points(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = [
        EntryPoint(name, value, user_names.GROUP)
        for name, value in (
            ("mine", "ownpasses.passes:dead_code"),
            ("gone", "ownpasses.passes:gone"),
            ("aot", "ownpasses.passes:nothing"),
        )
    ]
    monkeypatch.setattr(user_names, "entry_points", lambda group: found)


def test_an_entry_point_is_a_target_without_a_grant(points: None) -> None:
    assert is_importable("mine")
    assert target("mine:grad").name == "mine:grad"
    assert examine(Case.of_function(writes, [torch.ones(3)]), target("mine")).failed
    assert "from ownpasses.passes import dead_code" in target("mine").recipe
    with pytest.raises(UserError, match="unknown target 'minee'; did you mean 'mine'"):
        target("minee")


def test_an_entry_point_does_not_replace_a_target(points: None) -> None:
    assert "your pass" not in target("aot").summary
