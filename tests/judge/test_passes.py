"""Attribution to the pass: wrong passes are planted into torch, and each must be named.

At every hook of Inductor, a benign pass changes the graph, too. So an answer that counts changes,
or that names a neighbour, is wrong.
"""

import contextlib
import functools
import importlib
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any, NamedTuple
from unittest import mock

import pytest
import torch
from torch import fx

from aliasproof.corpus.bug_files import known_bugs
from aliasproof.ir.program import Program
from aliasproof.judge import compile_steps
from aliasproof.judge.compile_steps import Driver, PassWatch
from aliasproof.judge.localization import EXPERIMENTS, first_wrong_pass, in_code_generator, without
from aliasproof.judge.trial import Case, run_trial
from aliasproof.targets.registry import target
from tests.short_programs import known_bug, program_of, view

aten = torch.ops.aten


# --- wrong edits ----------------------------------------------------------------------------------


def calls(graph: fx.Graph, op: Any) -> Any:
    return graph.find_nodes(op="call_function", target=op)


def swap_operands(graph: fx.Graph) -> None:
    for node in calls(graph, aten.sub.Tensor):
        node.args = (node.args[1], node.args[0])


def drop_epilogue(graph: fx.Graph) -> None:
    for node in calls(graph, aten.copy_.default):
        node.replace_all_uses_with(node.args[0])
        graph.erase_node(node)


def remove_clone(graph: fx.Graph) -> None:
    """A clone is removed as a no-op, though its result is returned."""
    for node in calls(graph, aten.clone.default):
        node.replace_all_uses_with(node.args[0])
        graph.erase_node(node)


def overwrite_operand(graph: fx.Graph) -> None:
    """An op is put in place, though its operand is read later."""
    for node in calls(graph, aten.mul.Tensor):
        node.target = aten.mul_.Tensor


def write_first(graph: fx.Graph) -> None:
    """The write of an input moves before the reads of its old value."""
    first = next(node for node in graph.nodes if node.op == "call_function")
    for node in calls(graph, aten.copy_.default):
        value = graph.create_node("call_function", aten.full_like.default, (node.args[0], 5))
        value.meta["val"] = node.meta["val"]
        first.prepend(value)
        node.args = (node.args[0], value)
        first.prepend(node)


def wrong_slice(graph: fx.Graph) -> None:
    for node in calls(graph, aten.slice.Tensor):
        node.args = (node.args[0], 0, 0, 2)


def merge_equal(graph: fx.Graph) -> None:
    """Equal calls are merged, though their arguments differ in a number."""
    first, *others = calls(graph, aten.add.Tensor)
    for node in others:
        node.replace_all_uses_with(first)
        graph.erase_node(node)


def add_gradients(graph: fx.Graph) -> None:
    """In a backward graph, a product becomes a sum."""
    if any("tangents" in node.name for node in graph.nodes):
        for node in calls(graph, aten.mul.Tensor):
            node.target = aten.add.Tensor


def benign(graph: fx.Graph) -> None:
    """Negate a result of a call twice."""
    node = next(each for each in graph.nodes if each.op == "call_function")
    with graph.inserting_after(node):
        once = graph.call_function(aten.neg.default, (node,))
    with graph.inserting_after(once):
        twice = graph.call_function(aten.neg.default, (once,))
    node.replace_all_uses_with(twice, delete_user_cb=lambda user: user is not once)
    once.meta["val"] = twice.meta["val"] = node.meta["val"]


# --- where they are planted -----------------------------------------------------------------------

HOOKS = (
    "joint_custom_pre_pass",
    "joint_custom_post_pass",
    "post_grad_custom_pre_pass",
    "post_grad_custom_post_pass",
)


@contextlib.contextmanager
def settings(**changed: Any) -> Iterator[None]:
    from torch._inductor import config

    with config.patch({**dict.fromkeys(HOOKS, benign), **changed}):
        yield


@contextlib.contextmanager
def after(owner: str, name: str, edit: Callable[[fx.Graph], None], **more: Any) -> Iterator[None]:
    """A function of torch does its work, and then makes one wrong edit."""
    module = importlib.import_module(f"torch.{owner}")
    right = getattr(module, name)

    def wrong(*args: Any, **kwargs: Any) -> Any:
        result = right(*args, **kwargs)
        found = result[0] if isinstance(result, tuple) else result
        given = found if isinstance(found, (fx.Graph, fx.GraphModule)) else args[-1]
        edit(given.graph if isinstance(given, fx.GraphModule) else given)
        return result

    # Python reports the name in a function's code object.
    wrong.__code__ = wrong.__code__.replace(co_name=name)
    with mock.patch.object(module, name, wrong), settings(**more):
        yield


@contextlib.contextmanager
def pattern(module: str, index: int, handler: str = "swapped") -> Iterator[None]:
    """A wrong pattern in one of the lists of patterns: sub is swapped. `handler` is its name."""
    from torch._inductor import fx_passes, pattern_matcher

    lists = getattr(fx_passes, module)
    patterns = pattern_matcher.PatternMatcherPass(subsystem=f"{module}_passes")

    @pattern_matcher.register_graph_pattern(
        pattern_matcher.CallFunction(aten.sub.Tensor, pattern_matcher.Arg(), pattern_matcher.Arg()),
        pass_dict=patterns,
    )
    def swapped(match: Any, one: fx.Node, other: fx.Node) -> None:
        match.output_node().args = (other, one)

    swapped.__name__ = handler
    with (
        mock.patch.dict(lists.pass_patterns, {index: patterns})
        if isinstance(lists.pass_patterns, dict)
        else mock.patch.object(
            lists,
            "pass_patterns",
            [patterns if i == index else each for i, each in enumerate(lists.pass_patterns)],
        ),
        settings(),
    ):
        yield


@contextlib.contextmanager
def decomposition() -> Iterator[None]:
    """A wrong entry in the table of decompositions."""
    compile_fx: Any = importlib.import_module("torch._inductor.compile_fx")

    def wrong(one: torch.Tensor, other: torch.Tensor, *, alpha: int = 1) -> torch.Tensor:
        return one - other

    table = {**compile_fx.select_decomp_table(), aten.rsub.Tensor: wrong}
    with mock.patch.object(compile_fx, "select_decomp_table", return_value=table), settings():
        yield


@contextlib.contextmanager
def swapped_inputs() -> Iterator[None]:
    """The wrapper for inputs on one storage swaps two of them."""
    from torch._functorch._aot_autograd.runtime_wrappers import AOTSyntheticBaseWrapper

    right = AOTSyntheticBaseWrapper.pre_compile

    def wrong(self: Any, function: Any, *args: Any, **kwargs: Any) -> Any:
        return right(self, lambda *inputs: function(*reversed(inputs)), *args, **kwargs)

    with mock.patch.object(AOTSyntheticBaseWrapper, "pre_compile", wrong), settings():
        yield


@contextlib.contextmanager
def cloned_alias() -> Iterator[None]:
    """The runtime wrapper returns a copy where eager returns a view of an input."""
    runtime_wrappers: Any = importlib.import_module(f"torch.{AOT}.runtime_wrappers")
    right = runtime_wrappers.gen_alias_from_base
    wrong = lambda *args, **kwargs: right(*args, **kwargs).clone()  # noqa: E731
    with mock.patch.object(runtime_wrappers, "gen_alias_from_base", wrong), settings():
        yield


SUB = "v0 = aten.sub.Tensor(x0, x1)\nreturn (v0,)"
WRITE = "v0 = aten.mul.Tensor(x0, x1)\naten.add_.Tensor(x0, x1)\nreturn (v0,)"
CLONE = "v0 = aten.clone.default(x0)\nv1 = aten.neg.default(x0)\nreturn v0, v1"
READ_LATER = "v0 = aten.mul.Tensor(x0, x1)\nv1 = aten.sub.Tensor(x0, x1)\nreturn v0, v1"
SLICE = "v0 = aten.slice.Tensor(x0, 0, 1, 3)\nv1 = aten.neg.default(v0)\nreturn (v1,)"
TWO_SUMS = "v0 = aten.add.Tensor(x0, x1)\nv1 = aten.add.Tensor(x0, x1, alpha=2)\nreturn v0, v1"
RSUB = "v0 = aten.rsub.Tensor(x0, x1)\nreturn (v0,)"
VIEW = "v0 = aten.slice.Tensor(x0, 0, 1, 3)\nreturn (v0,)"


GRADIENTS = "v0 = aten.exp.default(x0)\nv1 = aten.mul.Tensor(v0, x1)\nreturn (v1,)"


class Planted(NamedTuple):
    """A wrong pass, the program that shows it, and the name that attribution must give."""

    name: str
    program: str
    plant: Callable[[], contextlib.AbstractContextManager[None]]
    target: str = "inductor-fx"


AOT, FX, GRAD = "_functorch._aot_autograd", "_inductor.fx_passes", "inductor-fx:grad"
P = functools.partial

# By the name that attribution must report: a function of torch with one wrong edit.
AFTER: dict[str, tuple[Any, ...]] = {
    "pre_grad: numpy_compat_normalization": (SUB, f"{FX}.pre_grad", swap_operands),
    "AOTAutograd: assert_functional_graph": (TWO_SUMS, f"{AOT}.graph_capture", merge_equal, "aot"),
    "AOTAutograd: run_joint_graph_passes_on_hops": (SUB, f"{AOT}.graph_compile", swap_operands),
    "joint_graph: canonicalize_aten_ir_passes": (SUB, f"{FX}.joint_graph", swap_operands),
    "post_grad: reorder_for_locality": (WRITE, f"{FX}.post_grad", write_first),
    "post_grad: reinplace_inplaceable_ops": (READ_LATER, f"{FX}.post_grad", overwrite_operand),
    "post_grad: decompose_auto_functionalized": (WRITE, f"{FX}.post_grad", drop_epilogue),
    "partitioner: fx_graph_cse": (SUB, "_functorch.partitioners", swap_operands, GRAD),
}
# Custom passes, which have the names of their functions: the part of Inductor, and the setting.
CUSTOM: tuple[tuple[Any, ...], ...] = (
    ("pre_grad", "pre_grad_custom_pass", wrong_slice, SLICE),
    ("joint_graph", "joint_custom_pre_pass", remove_clone, CLONE),
    ("joint_graph", "joint_custom_pre_pass", swap_operands, SUB, GRAD),
    ("post_grad", "post_grad_custom_post_pass", add_gradients, GRADIENTS, GRAD),
)
PLANTED = (
    *(
        Planted(name, body, P(after, owner, name.partition(": ")[2], edit), *tested)
        for name, (body, owner, edit, *tested) in AFTER.items()
    ),
    *(
        Planted(f"{part}: {hook} ({edit.__name__})", body, P(settings, **{hook: edit}), *tested)
        for part, hook, edit, body, *tested in CUSTOM
    ),
    Planted("AOTAutograd: AOTSyntheticBaseWrapper", "shared", swapped_inputs, "aot"),
    Planted("AOTAutograd: RuntimeWrapper", VIEW, cloned_alias),
    Planted(
        "AOTAutograd: functionalization",
        WRITE,
        P(after, f"{AOT}.graph_capture", "_create_graph", drop_epilogue),
        "aot",
    ),
    Planted("AOTAutograd: decomposition of aten.rsub.Tensor", RSUB, decomposition),
    Planted("joint_graph: pass_pattern_1 (swapped)", SUB, P(pattern, "joint_graph", 1)),
    Planted("post_grad: pass_pattern_2", SUB, P(pattern, "post_grad", 2, "_")),
    Planted(
        "post_grad: stable_sort",
        WRITE,
        P(after, f"{FX}.post_grad", "stable_topological_sort", write_first),
    ),
    Planted(
        "partitioner: split of the joint graph",
        SUB,
        P(after, "_inductor.compile_fx", "min_cut_rematerialization_partition", swap_operands),
        GRAD,
    ),
)


@pytest.fixture
def sharing() -> Program:
    """Two inputs on one storage, the second of which is written."""
    body = "aten.mul_.Scalar(x1, 3)\nv0 = aten.neg.default(x0)\nreturn (v0,)"
    return program_of(body, view(3, storage=0), view(3, storage=0, offset=1))


@pytest.mark.parametrize("planted", PLANTED, ids=lambda each: f"{each.target} {each.name}")
def test_the_wrong_pass_is_named(planted: Planted, program, sharing: Program) -> None:
    shown = sharing if planted.program == "shared" else program(planted.program, (4,), (4,))
    case, tested = Case.of(shown), target(planted.target)
    with settings():
        assert not run_trial(case, tested).judgement.violations
    with planted.plant():
        violation = run_trial(case, tested).judgement.violations[0]
        found = first_wrong_pass(case, tested, violation)
    assert found is not None
    assert found.name == planted.name


# --- the versions of a graph that a watch keeps ---------------------------------------------------


def draws(graph: fx.Graph) -> None:
    """Add a call for which torch writes `torch.ops.aten.random_.from`, a keyword of Python."""
    [x] = graph.find_nodes(op="placeholder")
    with graph.inserting_after(x):
        graph.call_function(getattr(aten.random_, "from"), (x, 0, 2))


def forgets(graph: fx.Graph) -> None:
    for node in graph.find_nodes(op="call_function", target=getattr(aten.random_, "from")):
        graph.erase_node(node)
    for node in graph.find_nodes(op="call_function", target=aten.neg.default):
        node.target = aten.abs.default


def puts_before_operand(graph: fx.Graph) -> None:
    """Put a call before what it reads; a later pass brings calls in order."""
    [call] = graph.find_nodes(op="call_function", target=aten.neg.default)
    [x] = graph.find_nodes(op="placeholder")
    x.prepend(call)


def brings_in_order(graph: fx.Graph) -> None:
    [call] = graph.find_nodes(op="call_function", target=aten.neg.default)
    [x] = graph.find_nodes(op="placeholder")
    x.append(call)
    call.target = aten.abs.default


def run_passes(graph: fx.Graph) -> None:
    draws(graph)
    forgets(graph)


def run_passes_that_reorder(graph: fx.Graph) -> None:
    puts_before_operand(graph)
    brings_in_order(graph)


@pytest.mark.parametrize(
    ("run_passes", "last"),
    [(run_passes, "forgets"), (run_passes_that_reorder, "brings_in_order")],
    ids=["code that Python does not read", "calls out of order"],
)
def test_a_graph_that_cannot_run_is_no_version(monkeypatch, run_passes, last):
    driver = Driver(run_passes, "a part", "graph")
    monkeypatch.setattr(compile_steps, "drivers", lambda: {id(run_passes.__code__): driver})
    graph = fx.Graph()
    graph.output(graph.call_function(aten.neg.default, (graph.placeholder("x"),)))
    watch = PassWatch()
    with watch.watching():
        run_passes(graph)
    assert [version.name for version in watch.versions[1:]] == [last]


def names_a_constant(graph: fx.Graph) -> None:
    """Add a constant to the module of the graph, as Inductor does to keep random calls in order."""
    assert graph.owning_module is not None
    graph.owning_module.register_buffer("constant", torch.ones(2))
    [output] = graph.find_nodes(op="output")
    with graph.inserting_before(output):
        graph.call_function(aten.neg.default, (graph.get_attr("constant"),))


def run_passes_that_name_constants(graph: fx.Graph) -> None:
    names_a_constant(graph)


def test_a_version_has_what_a_pass_put_into_the_module(monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_passes_that_name_constants
    monkeypatch.setattr(
        compile_steps, "drivers", lambda: {id(run.__code__): Driver(run, "a part", "graph")}
    )
    watch = PassWatch()
    module = fx.symbolic_trace(lambda x: x + 1)
    with watch.watching():
        run(module.graph)
    assert [version.name for version in watch.versions[1:]] == ["names_a_constant"]


@known_bug
def test_a_traced_pattern_is_named_by_its_function() -> None:
    program = known_bugs()["attention-mask-of-numbers"].program
    case, tested = Case.of(program), target("inductor-fx")
    violation = run_trial(case, tested).judgement.violations[0]
    named = first_wrong_pass(case, tested, violation)
    assert named is not None
    assert named.name == "joint_graph: pass_pattern_0 (_sfdp_pattern_15)"


def called():
    """Called by code that cannot be hashed."""


def test_passes_are_watched_beside_code_that_cannot_be_hashed():
    """Dynamo's code after a graph break can have a dict among its constants."""

    def plain():
        return called()

    made = plain.__code__.replace(co_consts=(*plain.__code__.co_consts, {}))
    with PassWatch().watching():
        assert FunctionType(made, globals())() is None


# --- parts of Inductor's code generator; each case compiles C++ several times ---------------------


INDUCTOR = target("inductor")
needs_compiler = pytest.mark.skipif(
    INDUCTOR.unavailable() is not None, reason=str(INDUCTOR.unavailable())
)


@contextlib.contextmanager
def swapped_lowering() -> Iterator[None]:
    from torch._inductor import lowering

    right = lowering.lowerings[aten.sub.Tensor]
    wrong = lambda one, other: right(other, one)  # noqa: E731
    with mock.patch.dict(lowering.lowerings, {aten.sub.Tensor: wrong}):
        yield


@contextlib.contextmanager
def swapped_vectors() -> Iterator[None]:
    """Vector subtraction has its operands swapped, scalar subtraction does not."""
    from torch._inductor.codegen.cpp import CppVecOverrides

    with mock.patch.object(CppVecOverrides, "sub", staticmethod(lambda a, b: f"{b} - {a}")):
        yield


@contextlib.contextmanager
def careless_in_place() -> Iterator[None]:
    """The scheduler reuses a buffer in place as if no later kernel read it."""
    from torch._inductor.scheduler import BaseSchedulerNode

    right = BaseSchedulerNode.decide_inplace_update

    def wrong(node: Any) -> None:
        others = {name for name in node.scheduler.name_to_node if name != node.get_name()}
        with mock.patch.object(node.scheduler, "completed_operations", others):
            right(node)

    with mock.patch.object(BaseSchedulerNode, "decide_inplace_update", wrong):
        yield


LATER = (
    "v0 = aten.mm.default(x0, x1)\nv1 = aten.neg.default(v0)\n"
    "v2 = aten.mm.default(v1, x1)\nv3 = aten.mm.default(v2, v0)\nreturn (v3,)"
)


@needs_compiler
@pytest.mark.parametrize(
    ("plant", "body", "size", "part"),
    [
        (swapped_lowering, SUB, (4,), "lowering of aten.sub.Tensor"),
        (swapped_vectors, SUB, (64,), "C++: vectorized code"),
        (careless_in_place, LATER, (4, 4), "scheduler: in-place buffers"),
    ],
)
def test_the_wrong_part_is_named(plant, body, size, part, program):
    case = Case.of(program(body, size, size))
    with plant():
        violation = run_trial(case, INDUCTOR).judgement.violations[0]
        quick = first_wrong_pass(case, INDUCTOR, violation, experiments=False)
        found = first_wrong_pass(case, INDUCTOR, violation)
    assert quick is not None
    assert quick.name == "code generation"
    assert found is not None
    assert found.name == part


def test_each_part_says_without_what_the_code_is_right() -> None:
    parts = [experiment.part for experiment in EXPERIMENTS]
    assert len(set(parts)) == len(parts)
    assert all(map(without, parts))
    assert all(map(in_code_generator, [*parts, "code generation", "lowering of aten.add.Tensor"]))
    assert not in_code_generator("post_grad: remove_noop_ops")
