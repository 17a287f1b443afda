"""`check`: the verdict on a user's own function."""

import functools
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch._higher_order_ops import while_loop
from torch._higher_order_ops.map import map as hop_map

import aliasproof
from aliasproof.checks.check import check
from aliasproof.ir.errors import UserError
from aliasproof.oracles.check_result import Check
from aliasproof.oracles.judge import ON_GRAPHS
from aliasproof.oracles.observation import Observation
from aliasproof.oracles.verdict import Verdict
from aliasproof.reports.side_by_side import rows, value_text
from aliasproof.targets import identity, second_calls
from aliasproof.targets.target import Build
from tests.aliasproof.planted_targets import SAFE
from tests.targets.test_second_calls import without_alias


def eager_outputs(found: Check) -> list[str]:
    assert found.eager.observation is not None
    return [value_text(output) for output in found.eager.observation.outputs]


def increments(x):
    return x.add_(1) * 2


@dataclass
class Pair:
    first: torch.Tensor
    second: object


WEIGHT = torch.arange(3.0)
LINEAR = torch.nn.Linear(3, 3)


def mutated_global(x):
    return WEIGHT.add_(x) + 1


def branches(x):
    return x + 1 if x.sum() > 1 else x - 1


@pytest.mark.parametrize(
    "function",
    [
        increments,
        lambda x: {"a": x + 1, "b": None, "c": [3, "text", True], "d": x.dtype, "e": x.shape},
        lambda x: Pair(x + 1, Pair(x.neg_(), None)),
        lambda x: None,
        lambda x: x * WEIGHT,
        lambda x: (WEIGHT, x.add_(WEIGHT)),
        mutated_global,
        LINEAR,
        lambda x: LINEAR(x).relu_(),
        LINEAR.forward,
        lambda x: x.add_(torch.rand(3)) + torch.rand(3),
        torch.vmap(lambda row: row + row),
        torch.func.grad(lambda y: (y * y).sum()),
        lambda x: torch.Tensor([1, 2, 3]).add_(x),
        lambda x: x[torch.tensor([0, 2])],
    ],
)
def test_any_function_that_torch_runs(function):
    found = check(function, [torch.arange(3.0)], SAFE)
    assert found.eager.unjudged is None
    assert not found.violated
    for name, result in found.results.items():
        for oracle, report in result.reports.items():
            allowed = {Verdict.HOLDS}
            # Not all targets show a graph, and functionalize promises neither identity nor layout.
            if oracle in ON_GRAPHS:
                allowed |= {Verdict.NOT_APPLICABLE, Verdict.UNKNOWN}
            plain = name in ("functionalize", "fx-reinplace")
            if plain and oracle in ("aliasing", "objects", "metadata"):
                allowed.add(Verdict.DOCUMENTED)
            assert report.verdict in allowed, (name, oracle)


def test_data_dependent_branches_are_run_where_they_can_be():
    assert not check(branches, [torch.ones(3)], ["identity", "aot"]).violated


def test_the_random_numbers_of_the_caller_go_on():
    def states():
        return str((torch.get_rng_state().tolist(), random.getstate(), np.random.get_state()))  # noqa: NPY002

    before = states()
    check(increments, [torch.zeros(1)], ["identity"])
    assert states() == before


@pytest.mark.parametrize(
    ("function", "error"),
    [
        (lambda x: x + torch.full((3,), 2.0), "AssertionError: Please convert all Tensors"),
        (lambda x: (x + 1, torch.full((2,), 3.0)), "TypeError: an output is a fake tensor"),
    ],
)
def test_a_pass_that_leaves_fake_tensors_in_a_graph_is_wrong(function, error):
    def fold(module: torch.fx.GraphModule) -> torch.fx.GraphModule:
        (full,) = module.graph.find_nodes(op="call_function", target=torch.ops.aten.full.default)
        module.register_buffer("folded", full.target(*full.args, **full.kwargs))
        with module.graph.inserting_before(full):
            full.replace_all_uses_with(module.graph.get_attr("folded"))
        return module

    (result,) = check(function, [torch.ones(3)], [fold]).results.values()
    (violation,) = result.reports["errors"].violations
    assert violation.kind.startswith(f"raises {error}")


@pytest.mark.filterwarnings("ignore:Dynamo does not know how to trace")
@pytest.mark.parametrize(
    "draw", [random.random, np.random.rand, lambda: torch.rand(3)], ids=range(3)
)
def test_a_function_may_draw_random_numbers(draw):
    found = check(lambda x: x.mul_(draw()), [torch.ones(3)], ["identity", "aot-eager"])
    assert found.results.keys() == {"identity", "aot-eager"}
    assert [it for it in found.results.values() if it.violated] == []


def test_a_lazy_module_is_refused_and_stays_as_it_is():
    module = torch.nn.LazyLinear(3)
    with pytest.raises(UserError, match=r"weight has no shape yet: call its module once"):
        check(module, [torch.ones(2, 4)])
    assert module.has_uninitialized_params()
    module(torch.ones(2, 4))
    assert not check(module, [torch.ones(2, 4)], ["aot-eager"]).results["aot-eager"].violated


def test_a_module_that_keeps_state_is_also_compiled_once_and_called_twice():
    norm = torch.nn.BatchNorm1d(3)
    found = check(norm, [torch.randn(4, 3)], ["export", "aot"])
    assert list(found.results) == ["export", "export:kept-buffers", "aot"]
    assert not found.violated
    assert "export" in str(found.results["export:kept-buffers"].after)
    unwritten = check(LINEAR, [torch.randn(4, 3)], ["export"])
    assert list(unwritten.results) == ["export"]


def test_inputs_that_share_a_storage_still_do(forgetful_target):
    base = torch.zeros(4)
    found = check(lambda x, y: x.add_(y), [base[:3], base[1:]], ["identity"])
    assert "reads memory that it is writing" in (found.eager.unjudged or "")
    found = check(
        lambda x, y: (x.add_(1), y + 0)[1], [base[:3], base[1:]], ["identity", "forgetful"]
    )
    kinds = [violation.kind for violation in found.results["forgetful"].violations]
    twice = ["input ends wrong"] * 2 + ["wrong symbolic value"] * 2
    assert kinds == ["wrong value", *twice]


def test_state_that_no_run_can_put_back_is_not_judged():
    calls = itertools.count()
    found = check(lambda x: x + next(calls), [torch.zeros(1)])
    assert not found.violated
    assert "two eager runs on equal inputs differ" in (found.eager.unjudged or "")


def test_what_cannot_be_looked_into_is_not_called_right():
    found = check(lambda x: [object()], [torch.zeros(1)], ["identity"])
    report = found.results["identity"].reports["values"]
    assert report.verdict is Verdict.UNKNOWN
    assert "by their types alone: object" in report.reason


@pytest.mark.parametrize(
    ("function", "target", "kind", "status"),
    [
        (lambda x: (x + 1, object()), "identity", "object", 0),
        (lambda x: reversed([x + 1]), "aot-eager", "iterator", 4),  # of another class
        (lambda x: (x + 1, x.numpy().sum()), "aot-eager", "NumPy array", 0),  # or a scalar
    ],
)
def test_an_output_of_another_type_is_not_wrong(function, target, kind, status):
    found = check(function, [torch.ones(3)], [target])
    assert found.exit_status() == status
    assert f"by their types alone: {kind}" in found.notes[0]


def test_an_output_of_another_type_leaves_the_tensors_judged():
    wrong = check(lambda x: (x.expand(3, 4).zero_(), object()), [torch.arange(4.0)], ["aot"])
    assert wrong.exit_status() == 1


def test_code_generation_is_not_at_fault_where_the_graphs_are_wrong():
    def keeps_a_gradient(w, x):
        y = (w * x).sum()
        y.backward()
        with torch.no_grad():
            w -= 0.1 * w.grad
            w.grad = None
        return (w * x).sin(), y

    inputs = [torch.ones(3, requires_grad=True), torch.arange(3.0)]
    found = check(keeps_a_gradient, inputs, ["inductor-fx", "inductor"])
    assert found.results["inductor"].violated
    assert found.results["inductor"].wrong_part == ""


def test_a_violation_counts_if_it_comes_again(plant):
    builds = []

    def wrong_at_first(function, inputs) -> Build:
        builds.append(function)
        difference = 1 if len(builds) == 1 else 0
        return Build(
            lambda x: [output + difference if difference else output for output in function(x)], []
        )

    plant("moody", wrong_at_first, contract=identity.TARGET.contract)
    found = check(lambda x: x * 2, [torch.ones(2)], ["moody"])
    assert not found.violated
    assert found.results["moody"].reports["values"].verdict is Verdict.UNKNOWN
    assert "not in a second run" in found.results["moody"].reports["values"].reason


@dataclass  # has `__eq__`, and so no `__hash__`
class Unchanged:
    """A pass that is an object."""

    __name__ = "unchanged"

    def __call__(self, module: torch.fx.GraphModule) -> torch.fx.GraphModule:
        return module


def test_a_pass_need_not_be_hashable():
    results = check(lambda x: x + 1, torch.ones(2), [Unchanged(), "identity", "identity"]).results
    assert [result.violated for result in results.values()] == [False, False]


def test_a_program_needs_no_inputs(adding_program):
    assert not check(adding_program, targets=["identity", "aot"]).violated


def test_one_target_or_several_under_either_name():
    by_position = check(increments, [torch.ones(1)], "identity")
    named = check(increments, [torch.ones(1)], target="identity")
    assert [*by_position.results] == [*named.results] == ["identity"]
    with pytest.raises(aliasproof.UserError, match="target or targets"):
        check(increments, [torch.ones(1)], "identity", target="aot")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((increments,), "inputs are missing"),
        ((increments, [torch.ones(1).to_sparse()]), r"inputs\[0\] is of layout torch.sparse_coo"),
        ((increments, [torch.ones(1)], ["idntity"]), "did you mean 'identity'"),
    ],
)
def test_wrong_arguments(arguments, message):
    with pytest.raises(aliasproof.UserError, match=message):
        check(*arguments)


def test_captured_tensors_that_share_a_storage_still_do():
    base = torch.zeros(4)
    left, right = base[:3], base[1:]

    def through_both(x: torch.Tensor) -> torch.Tensor:
        left.add_(x)
        return right + 0

    found = check(through_both, [torch.ones(3)], ["identity", "aot"])
    assert not found.violated
    assert eager_outputs(found) == ["tensor([1., 1., 0.])"]


def test_a_global_that_is_an_input_is_that_input():
    x = torch.zeros(2)
    function: Callable[[torch.Tensor], torch.Tensor] = lambda y: x.add_(1) + y  # noqa: E731
    found = check(function, [x], ["identity", "aot"])
    assert not found.violated
    assert found.notes == []
    assert eager_outputs(found) == ["tensor([2., 2.])"]


def test_inputs_that_are_no_tuple_get_advice():
    x = torch.ones(1)
    for more in ((x, x), (x, x, x), (x, torch.nn.Identity())):
        with pytest.raises(aliasproof.UserError, match="takes all inputs as one argument"):
            check(increments, *more)


def test_a_notebook_shows_verdicts_and_what_is_wrong():
    found = check(lambda x: x.expand(3, 4).zero_() + 0, [torch.arange(4.0)], ["functionalize"])
    page = found._repr_html_()
    assert "<td>functionalize</td>" in page
    assert "<td>wrong</td>" in page
    assert "wrong value" in page
    assert "in eager, tensor(" in page


def test_text_is_that_of_the_command_line_and_repr_is_short(monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    found = check(increments, [torch.ones(1)], target="identity")
    assert "Nothing wrong: identity." in str(found)
    assert "\x1b" not in str(found)
    assert repr(found) == "<Check increments: identity holds>"


# --- gradients that exist before the call: a step of an optimizer uses them -----------------------

MODEL = torch.nn.Linear(3, 2)
OPTIMIZER = torch.optim.SGD(MODEL.parameters(), lr=0.5)


def scaled_step(scale: torch.Tensor) -> list[torch.Tensor]:
    with torch.no_grad():
        for parameter in MODEL.parameters():
            assert parameter.grad is not None
            parameter.grad.mul_(scale)
    return step(scale)


def step(scale: torch.Tensor) -> list[torch.Tensor]:
    OPTIMIZER.step()
    return [parameter.detach().clone() for parameter in MODEL.parameters()]


def test_a_step_by_given_gradients_is_judged():
    MODEL.zero_grad()
    MODEL(torch.ones(4, 3)).sum().backward()
    before = MODEL.bias.detach().clone()
    for function, factor in ((scaled_step, 0.5), (step, 1.0)):
        found = check(function, (torch.tensor(0.5),), ["aot-eager", "reference"])
        assert not found.violated
        assert found.eager.unjudged is None
        assert found.eager.observation is not None
        stepped = found.eager.observation.outputs[1]
        assert isinstance(stepped, torch.Tensor)
        assert torch.allclose(stepped, before - 0.5 * factor * 4)
    # Nothing that the caller has changes.
    assert torch.equal(MODEL.bias, before)
    assert MODEL.bias.grad is not None
    assert MODEL.bias.grad.tolist() == [4, 4]


# --- a second call, and buffers where inputs require gradients ------------------------------------


def test_a_check_shows_the_inputs_of_the_first_call(plant):
    change = second_calls.CHANGES["second-call"]
    build = functools.partial(change.build, without_alias)
    plant("wrong", build, contract=identity.TARGET.contract, conditions=change.conditions)
    base = torch.arange(3.0)
    found = check(lambda x, y: (y.add_(1), x + 0)[1], (base, base.view(3)), ["wrong"])
    assert found.results["wrong"].violated
    rows = {row[0]: row[1:] for row in found.results["wrong"].rows}
    first = str(torch.arange(3.0))
    assert rows["input 'x' in the first call"] == (first, first)
    assert rows["in one storage in the first call"] == ("none", "none")
    assert "input 'x' afterwards" in rows


def test_buffers_of_a_module_do_not_require_gradients():
    module = torch.nn.BatchNorm1d(3)  # eager writes its buffers, and no autograd may see that
    found = check(module, torch.randn(4, 3), ["aot:grad", "identity:grad"])
    for name in ("aot:grad", "identity:grad"):
        assert found.results[name].verdict is Verdict.HOLDS
        eager = found.results[name].eager
        assert eager is not None
        # The input, the weight and the bias have gradients; two buffers do not.
        assert len(eager.outputs) == 4


@pytest.mark.parametrize(
    ("left", "shown"),
    [
        ([1, 5, 2], [("outputs", "1\n2", "1\n5\n2")]),
        ([1, 5], [("output 0", "1", "1"), ("output 1", "2", "5")]),
        ([], [("output 0", "1", "not there"), ("output 1", "2", "not there")]),
    ],
)
def test_outputs_of_another_number_are_not_paired(left: list[int], shown: list[object]) -> None:
    assert [*rows(Observation([], [], [1, 2]), Observation([], [], left))] == shown


class Counting(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        (half,) = while_loop(lambda y: y.sum() > 1, lambda y: (y / 2,), (x,))
        self.calls += 1
        return half


def test_a_row_that_is_wrong_like_an_earlier_one_has_its_part():
    """Dynamo loses a count, and Inductor's graphs are judged after AOTAutograd has made them."""
    found = check(Counting(), torch.ones(3), ["aot-eager", "inductor-fx"])
    assert [result.violated for result in found.results.values()] == [True, True]
    assert {found.wrong_part(it) for it in found.results.values()} == {"Dynamo: captured graph"}
    assert "as in aot-eager" in str(found)


def test_a_function_that_raises_only_where_nothing_is_compiled_is_not_judged() -> None:
    def sine(row: Any, *_: Any) -> Any:
        return row.sin()

    def program(x):
        return hop_map(sine, x).sum()

    found = check(program, torch.ones(3, 4, requires_grad=True), ["aot-eager"], grad=True)
    assert not found.violated
    assert (
        "eager compiles a part of it"
        in found.results["aot-eager as called"].reports["values"].reason
    )
