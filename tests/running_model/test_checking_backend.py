"""A model under the check runs as in eager, and differences of its target are reported once."""

import re
import subprocess
import sys
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import fx, nn

from aliasproof.checks.check import check_target
from aliasproof.checks.preparation import prepare_as_called
from aliasproof.formats.stored_graph import StoredGraph
from aliasproof.ir.errors import UserError
from aliasproof.running_model.checked_graph import GraphDiffers
from aliasproof.running_model.checking_backend import aliasproof_check
from aliasproof.running_model.lifted_graph import without_narrow_conversions
from aliasproof.running_model.model_check import summary
from aliasproof.targets.gradients import WithGradients
from aliasproof.targets.registry import TARGETS
from tests.short_programs import known_bug

AOT = "aot-eager"


def counts(check, number: int = 0):
    return check.graphs[number].counts


def only(check):
    """The only difference."""
    (found,) = check.differences
    return found


# --- differences ----------------------------------------------------------------------------------


def test_a_wrong_forward_pass_is_told_at_the_first_call_and_the_model_goes_on(
    checking, planted, capsys
) -> None:
    def rotate(x):
        a, b = x.chunk(2, -1)
        return torch.cat((-b, a), -1)

    x = torch.arange(4.0)
    with checking(planted("loses_neg")) as check:
        compiled = torch.compile(rotate)
        for _ in range(2):
            assert torch.equal(compiled(x), rotate(x))
    found = only(check)
    assert (found.call.number, found.direction, found.violation.oracle) == (1, "forward", "values")
    (line,) = capsys.readouterr().err.splitlines()
    assert re.search(
        r"graph 0 \(test_checking_backend.py:\d+-\d+ in rotate\), call 1, forward: values: wrong"
        r" value in output 0 \(cat, test_checking_backend.py:\d+\): 2 of 4 elements, first \[0\]:"
        r" 2.0 for -2.0; stored in \S+graph-0-forward",
        line,
    )


def test_a_wrong_gradient_is_told_by_the_name_of_its_parameter(checking, planted, capsys) -> None:
    model, eager = nn.Linear(3, 3), nn.Linear(3, 3)
    eager.load_state_dict(model.state_dict())
    x = torch.randn(2, 3)
    with checking(planted("loses_silu_backward")) as check:
        compiled = torch.compile(lambda x: F.silu(model(x)).sum())
        for step in range(2):
            compiled(x).backward()
            assert len(check.differences) == 1, step
    F.silu(eager(x)).sum().backward()
    F.silu(eager(x)).sum().backward()
    assert model.weight.grad is not None
    assert eager.weight.grad is not None
    assert torch.equal(model.weight.grad, eager.weight.grad)
    assert only(check).direction == "backward"
    assert "the gradient of input 'model.weight'" in capsys.readouterr().err


def test_a_lost_write_is_told_and_the_model_has_it(checking, planted) -> None:
    def step(state, x):
        state.mul_(2)
        return x + 1

    state = torch.ones(3)
    with checking(planted("loses_writes")) as check:
        torch.compile(step)(state, torch.zeros(3))
    assert state.tolist() == [2.0, 2.0, 2.0]
    assert only(check).violation.oracle == "inputs"


def test_outputs_that_share_memory_are_told(checking, planted) -> None:
    with checking(planted("returns_first_twice")) as check:
        torch.compile(lambda x: (x + 1, 1 + x))(torch.ones(3))
    assert only(check).violation.oracle == "aliasing"


def test_what_the_target_raises_is_told_and_the_model_goes_on(checking, planted, capsys) -> None:
    with checking(planted("raises")) as check:
        compiled = torch.compile(lambda x: x + 1)
        assert compiled(torch.zeros(2)).tolist() == [1.0, 1.0]
    assert only(check).violation.oracle == "errors"
    assert "this backend takes no graph" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["loses_neg", "loses_silu_backward"])
def test_a_difference_can_be_an_error(checking, planted, name: str) -> None:
    x = torch.randn(3, requires_grad=True)
    with checking(planted(name), on_difference="raise") as check:
        compiled = torch.compile(lambda x: F.silu(-x).sum())
        with pytest.raises(GraphDiffers, match="graph 0"):
            compiled(x).backward()
    assert len(check.differences) == 1


# --- no differences -------------------------------------------------------------------------------


def test_rounding_is_no_difference(checking, planted) -> None:
    # The terms cancel, so the error is many times the last bit of the sum; in float64 it is not.
    torch.manual_seed(0)
    x = torch.rand(20_000) * 10_000 * torch.tensor([1.0, -1.0]).repeat(10_000)
    with checking(planted("sums_in_parts")) as check:
        compiled = torch.compile(lambda x: x.sum())
        for _ in range(2):
            compiled(x)
    assert check.differences == []
    assert (counts(check).rounding, counts(check).unjudged) == (2, {})
    assert any("rounding alone" in line for line in summary(check))


def test_a_call_whose_values_prove_nothing_is_not_counted_as_judged(checking, planted) -> None:
    # The order of a sum decides how much of each small number is left.
    x = torch.tensor([1e20, 3.0, -1e20, 4.0])
    with checking(planted("sums_in_parts")) as check:
        torch.compile(lambda x: x.sum())(x)
    assert (check.differences, counts(check).forward) == ([], 0)
    first, *_ = summary(check)
    assert first.startswith("NOT CHECKED: 1 of 1 call, because the oracle values cannot decide: ")


def test_a_masked_softmax_is_judged(checking, planted) -> None:
    def attend(score, seen):
        return score.exp().masked_fill(seen == 0, -torch.inf).softmax(-1).neg()

    with checking(planted("loses_neg")) as check:
        torch.compile(attend)(torch.randn(2, 4), torch.tensor([1, 1, 2, 0]))
    assert only(check).violation.oracle == "values"


def test_random_numbers_are_drawn_once_and_by_both_sides(checking) -> None:
    def noisy(x):
        return F.dropout(x, 0.5) + torch.rand_like(x)

    x = torch.ones(64)
    torch.manual_seed(0)
    expected = [noisy(x), noisy(x), torch.rand(2)]
    torch.manual_seed(0)
    with checking(AOT) as check:
        compiled = torch.compile(noisy)
        actual = [compiled(x), compiled(x), torch.rand(2)]
    assert all(map(torch.equal, expected, actual))
    assert check.differences == []


def sizes_change() -> None:
    compiled = torch.compile(lambda x: x.reshape(-1, 2).sum(0).mul_(x.shape[0]))
    for size in (4, 6, 8, 10):
        compiled(torch.randn(size, requires_grad=True)).sum().backward()


def numbers_change() -> None:
    compiled = torch.compile(lambda x, scale: x * scale)
    for scale in (1.5, 2.5, 3.5, 4.5):
        assert compiled(torch.ones(2), scale).tolist() == [scale, scale]


def inputs_share_memory() -> None:
    def shift(whole, part):
        part.add_(1)
        return whole * 2

    base = torch.zeros(4)
    assert torch.compile(shift)(base, base[1:3]).tolist() == [0.0, 2.0, 2.0, 0.0]


def inputs_are_results_of_autograd() -> None:
    leaf = torch.ones(2, requires_grad=True)
    torch.compile(lambda x: x.mul_(3))(leaf * 1).sum().backward()
    assert leaf.grad is not None
    assert leaf.grad.tolist() == [3.0, 3.0]


def modes_change() -> None:
    compiled = torch.compile(nn.Linear(4, 4))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert compiled(torch.ones(1, 4)).dtype == torch.bfloat16
    with torch.no_grad():
        assert not compiled(torch.ones(1, 4)).requires_grad
    with torch.inference_mode():
        assert compiled(torch.ones(1, 4)).is_inference()


def a_part_is_checkpointed() -> None:
    layer = nn.Linear(4, 4)

    def forward(x):
        return torch.utils.checkpoint.checkpoint(
            lambda y: F.dropout(layer(y).relu(), 0.5), x, use_reentrant=False
        ).sum()

    torch.compile(forward)(torch.randn(2, 4, requires_grad=True)).backward()


@pytest.mark.parametrize(
    ("run", "forward", "backward"),
    [
        (sizes_change, 4, 4),
        (numbers_change, 4, 0),
        (inputs_share_memory, 1, 0),
        (inputs_are_results_of_autograd, 1, 1),
        (modes_change, 3, 0),
        (a_part_is_checkpointed, 1, 1),
    ],
)
def test_each_call_is_judged_without_a_difference(checking, run, forward, backward) -> None:
    with checking(AOT) as check:
        run()
    assert check.differences == []
    assert sum(graph.counts.forward for graph in check.graphs) == forward
    assert sum(graph.counts.backward for graph in check.graphs) == backward


def test_a_mistake_of_ours_does_not_end_the_model(checking, monkeypatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise ZeroDivisionError("ours")

    for place in ("checked_graph.GraphCall.of", "checked_graph.judged", "model_check.where"):
        torch._dynamo.reset()
        with monkeypatch.context() as patched, checking(AOT) as check:
            patched.setattr(f"aliasproof.running_model.{place}", fails)
            compiled = torch.compile(lambda x: x + 1)
            assert compiled(torch.zeros(2)).tolist() == [1.0, 1.0]
        assert "please report it: ZeroDivisionError: ours" in "".join(summary(check)), place


def test_what_a_graph_captures_is_written_once(checking, planted) -> None:
    weight = nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([weight], lr=torch.tensor(1.0), momentum=0.5)
    for target, wrong in ((AOT, 0), (planted("loses_writes"), 1)):
        torch._dynamo.reset()
        before = weight.detach().clone()
        with checking(target) as check:
            step = torch.compile(optimizer.step)
            weight.grad = torch.ones(2)
            optimizer.state.clear()
            step()
        assert torch.equal(weight, before - 1)
        assert len(check.differences) == wrong


class _Remembers(torch.optim.Optimizer):
    """Keeps old parameters: the graph has parameters as attributes, and state as inputs."""

    @torch.no_grad()
    def advance(self):
        for p in self.param_groups[0]["params"]:
            before = p.clone()
            p.add_(1)
            self.state[p]["old"].copy_(before)


@known_bug
def test_what_a_graph_captures_comes_before_its_inputs_as_in_aotautograd(checking, capsys) -> None:
    # Inductor reads `p` after it is written back, and it is written back before `old`.
    weight = nn.Parameter(torch.ones(2))
    optimizer = _Remembers([weight], {})
    optimizer.state[weight]["old"] = torch.zeros(2)
    with checking("inductor") as check:
        torch.compile(optimizer.advance)()
    assert optimizer.state[weight]["old"].tolist() == [1.0, 1.0]
    assert only(check).violation.oracle == "inputs"
    assert "'self.state[0]['old']': 2 of 2 elements" in capsys.readouterr().err


def test_an_error_of_eager_is_the_models(checking) -> None:
    def fails(x, index):
        return x.index_select(0, index) + 1

    with checking(AOT) as check:
        compiled = torch.compile(fails)
        with pytest.raises((IndexError, RuntimeError)):
            compiled(torch.ones(2), torch.tensor([5]))
    assert check.differences == []


# --- where it is switched on ----------------------------------------------------------------------


def test_what_eager_raises_in_its_backward_pass_is_no_difference(checking) -> None:
    def step(weight, state):
        y = state @ weight
        state.add_(1)
        return y

    with checking(AOT) as check:
        y = torch.compile(step)(torch.ones(2, 2, requires_grad=True), torch.ones(2, 2))
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()
    assert not check.differences
    assert counts(check).unjudged == {
        "eager raises in the backward pass, what the target raises before it": 1
    }


def test_a_backward_pass_under_compiled_autograd_goes_on(checking) -> None:
    weight = torch.ones(2, 2, requires_grad=True)
    with checking(AOT) as check:
        with torch._dynamo.compiled_autograd._enable(torch.compile):
            torch.compile(lambda x: (x @ weight).square().sum())(torch.ones(2, 2)).backward()
        assert weight.grad is not None
        assert weight.grad.tolist() == [[8.0, 8.0], [8.0, 8.0]]
    assert counts(check).forward == 1
    assert counts(check, 1).unjudged == {"an input is of type list": 1}


def test_every_way_to_compile_is_checked_also_after_the_context(checking) -> None:
    class Twice(nn.Module):
        def forward(self, x):
            return x * 2

    module = Twice()
    with checking() as check:
        first = torch.compile(lambda x: x + 1, backend="eager")
        second = torch.compile(backend="aot_eager")(lambda x: x + 2)
        module.compile(backend="aot_eager", fullgraph=True)
    first(torch.ones(2))
    second(torch.ones(2))
    module(torch.ones(2))
    assert [graph.target.name for graph in check.graphs] == ["dynamo", "aot-eager", "aot-eager"]
    torch.compile(lambda x: x + 3, backend="eager")(torch.ones(2))
    assert len(check.graphs) == 3


def test_the_first_calls_can_be_enough(checking) -> None:
    with checking(AOT, calls=2) as check:
        compiled = torch.compile(lambda x: x + 1)
        for _ in range(5):
            compiled(torch.ones(2))
    assert (counts(check).calls, counts(check).forward) == (5, 2)


def test_the_summary_has_calls_differences_and_cost(checking, planted) -> None:
    with checking(planted("loses_neg")) as check:
        compiled = torch.compile(lambda x: -x)
        compiled(torch.ones(2))
        compiled(torch.ones(2))
    skipped, first, cost, reduction = summary(check)
    assert skipped == "NOT CHECKED: 1 of 2 calls, because an earlier call of the graph is wrong"
    assert first.endswith("1 graph, 2 calls: 1 judged, 0 with a backward pass; 1 graph differs")
    assert "compilations and first calls" in cost
    assert "aliasproof minimize" in reduction


def test_the_backend_has_a_name_options_and_a_summary_at_the_end(tmp_path) -> None:
    script = """
import torch
options = {"target": "aot-eager", "calls": 1, "out": None}
compiled = torch.compile(lambda x: x + 1, backend="aliasproof_check", options=options)
compiled(torch.ones(2)), compiled(torch.ones(2))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path, check=True
    )
    assert "aot-eager beside eager: 1 graph, 2 calls: 1 judged" in done.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"traget": "aot-eager"}, "has no option traget; it has target, calls"),
        ({"calls": 0}, "calls=0: give a whole number"),
        ({"on_difference": "stop"}, "give 'continue' or 'raise'"),
        ({"target": "fx-reinplace"}, "is no form of torch.compile"),
        ({"target": "aot-eagr"}, "aot-eager"),
    ],
)
def test_wrong_options_are_refused(options, message: str) -> None:
    with pytest.raises(UserError, match=message):
        aliasproof_check(torch.fx.symbolic_trace(nn.Identity()), [], options=options)


# --- bfloat16: float64 decides where rounding leaves a choice -------------------------------------


def loses_write_of_variance(graph: fx.Graph) -> None:
    """The second `copy_` into an input, which is that of `running_var`, is dropped."""
    writes = graph.find_nodes(op="call_function", target=torch.ops.aten.copy_.default)
    graph.erase_node([node for node in writes if node.meta["val"].shape == (32,)][1])


def train(options: dict[str, Any] | None, steps: int = 2) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 4))
    compiled = torch.compile(model, options=options)
    for _ in range(steps):
        with torch.autocast("cpu", torch.bfloat16):
            loss = compiled(torch.randn(64, 16)).float().pow(2).mean()
        loss.backward()


def test_forward_and_backward_passes_in_bfloat16_are_judged(checking) -> None:
    # The gradient of the bias before BatchNorm is zero, with noise that differs.
    with checking() as check:
        train(None)
    assert check.differences == []
    counts = check.graphs[0].counts
    assert (counts.forward, counts.backward, counts.unjudged) == (2, 2, {})


def test_a_lost_write_is_no_rounding(checking, capsys) -> None:
    with checking() as check:
        train({"post_grad_custom_post_pass": loses_write_of_variance}, steps=1)
    (found,) = check.differences
    assert (found.direction, found.violation.oracle) == ("forward", "inputs")
    assert "running_var" in capsys.readouterr().err


class Mixed(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        bits = x.to(torch.bfloat16).view(torch.int16).sum()
        return x.half().float() + torch.ones(3, dtype=torch.bfloat16) + bits


def test_a_control_converts_to_no_narrow_dtype() -> None:
    module = without_narrow_conversions(fx.symbolic_trace(Mixed()))
    named = [(node.target, node.args[1:], node.kwargs) for node in module.graph.nodes]
    assert ("to", (torch.float64,), {}) in named
    assert ("view", (torch.int16,), {}) in named
    assert [target for target, *_ in named].count("double") == 2


# --- histories of autograd: gradients that go elsewhere in compiled code --------------------------


def doubled_and_its_view(x):
    y = x * 2
    with torch.no_grad():
        v = y.view(2, 2)
    return y, v


@known_bug
def test_a_view_that_brings_gradients_in_compiled_code_only_is_told(checking, capsys) -> None:
    x = torch.ones(4, requires_grad=True)
    with checking(AOT) as check:
        y, v = torch.compile(doubled_and_its_view)(x)
        (y.sum() + 3 * v.sum()).backward()
    assert x.grad is not None
    assert x.grad.tolist() == [2.0] * 4
    (found,) = check.differences
    assert (found.direction, found.violation.oracle) == ("backward", "values")
    assert "the gradient of input 'x': 4 of 4 elements" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["detaches", "detaches_as_leaf"])
def test_a_lost_history_is_told_without_a_backward_pass(checking, planted, name: str) -> None:
    with checking(planted(name)) as check:
        torch.compile(lambda x: x * 2)(torch.ones(2, requires_grad=True))
    assert check.differences[0].direction == "backward"


def test_another_history_with_equal_gradients_is_counted(checking, planted) -> None:
    with checking(planted("requires_more")) as check:
        compiled = torch.compile(lambda x, y: (y.sin(), x * 2))
        for _ in range(2):
            compiled(torch.ones(2, requires_grad=True), torch.ones(2))
    counts = check.graphs[0].counts
    assert check.differences == []
    assert (counts.forward, list(counts.unjudged.values())) == (0, [2])
    assert any("2 of 2 calls, because a tensor is a leaf" in line for line in summary(check))


def test_gradients_that_are_differentiated_again_are_counted(checking) -> None:
    x = torch.ones(2, requires_grad=True)
    with checking(AOT) as check:
        result = torch.compile(torch.sin)(x).sum()
        (gradient,) = torch.autograd.grad(result, x, create_graph=True)
        gradient.sum().backward()
    assert check.graphs[0].counts.backward == 1
    (line,) = (line for line in summary(check) if "NOT CHECKED" in line)
    assert "the backward pass in 1 of 1 call, because create_graph=True records its" in line


def test_a_call_on_which_eager_raises_is_counted(checking) -> None:
    base = torch.zeros(4)
    with checking(AOT) as check, pytest.raises(RuntimeError, match="some elements"):
        torch.compile(lambda x, y: x.add_(y))(base[:3], base[1:])
    line = "NOT CHECKED: 1 of 1 call, because eager raises RuntimeError"
    assert line in summary(check)


def test_gradients_of_zeros_for_none_are_counted(checking) -> None:
    one, other = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    with checking(AOT) as check:
        torch.compile(lambda a, b: (a * 2, b * 3))(one, other)[0].sum().backward()
    assert check.differences == []
    assert check.graphs[0].counts.backward == 1
    assert any(
        "backward pass in 1 of 1 call, because a gradient is None on one" in line
        for line in summary(check)
    )


def test_gradients_of_a_program_end_at_a_view_that_was_made_without_gradients() -> None:
    x = torch.ones(4, requires_grad=True)
    gradient = WithGradients(doubled_and_its_view)(x)[-1]
    assert gradient.tolist() == [3, 6, 9, 12]  # of y and x


def weighted(weight, state):
    return (weight * state.clone()).sum()


def test_a_write_before_the_backward_pass_is_part_of_what_is_compared(checking, capsys) -> None:
    # Compiled code saves `state` itself, eager its clone.
    weight, state = torch.ones(2, requires_grad=True), torch.ones(2)
    with checking(AOT) as check:
        compiled = torch.compile(weighted)
        first = compiled(weight, state)
        torch.compile(lambda x: x.add_(1))(state)
        (first + compiled(weight, state)).backward()
    assert weight.grad is not None
    assert weight.grad.tolist() == [3.0, 3.0]
    (found,) = check.differences
    assert (found.call.number, found.violation.oracle) == (1, "errors")
    assert "not stored: it shows if an input is written before" in capsys.readouterr().err


def test_a_write_that_eager_refuses_is_no_difference(checking) -> None:
    weight, state = torch.ones(2, requires_grad=True), torch.ones(2)
    with checking(AOT) as check:
        loss = torch.compile(lambda weight, state: (weight * state).sum())(weight, state)
        state.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()
    assert check.differences == []


def test_an_optimizer_within_the_backward_pass_is_no_earlier_write(checking) -> None:
    weight = torch.ones(2, requires_grad=True)

    def descend(parameter):
        with torch.no_grad():
            parameter.sub_(parameter.grad)

    weight.register_post_accumulate_grad_hook(descend)
    with checking(AOT) as check:
        torch.compile(lambda x: (x * x).sum())(weight).backward()
    assert check.differences == []
    assert (check.graphs[0].counts.backward, check.graphs[0].counts.unjudged) == (1, {})


class Scaled(torch.nn.Module):
    scale: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(3))
        self.register_buffer("scale", torch.ones(3))

    def forward(self, x):
        with torch.no_grad():
            self.scale.mul_(1.5)
        return (x * self.weight * self.scale.clone()).sin()


@known_bug
def test_a_stored_graph_keeps_which_inputs_are_static(checking) -> None:
    # AOTAutograd saves a static input in place of its clone, and so reads it after the write.
    with checking(AOT) as check:
        torch.compile(Scaled())(torch.ones(2, 3)).sum().backward()
    (folder,) = check.folders
    stored = StoredGraph.read(folder)
    called = prepare_as_called(stored.module, tuple(stored.inputs))
    assert called is not None
    (found,) = check_target(called, TARGETS[AOT]).violations
    assert (found.oracle, found.place) == ("values", "l_self_parameters_weight_.grad")
