"""`check` on the kinds of functions that users have: each is judged, and each can fail.

`forgetful` loses each write to an input, and `stale` returns the results for the inputs of the
build. A function that these targets get wrong has results that are compared.
"""

import enum
import importlib
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
import torch

import aliasproof
from aliasproof.checks.check import check
from aliasproof.oracles.verdict import Verdict
from tests.aliasproof.planted_targets import SAFE, judged_equal, places

# --- forms of inputs ------------------------------------------------------------------------------


class Scale(NamedTuple):
    by: torch.Tensor
    twice: bool


@dataclass
class Cache:
    k: torch.Tensor
    v: torch.Tensor
    position: int


def test_keyword_arguments_and_dicts(forgetful_target):
    def attend(*, cache: dict[str, torch.Tensor], x: torch.Tensor, flag: bool) -> dict:
        assert flag
        cache["k"].add_(x)
        return {"sum": cache["k"] + cache["v"]}

    cache = {"k": torch.zeros(3), "v": torch.ones(3)}
    inputs = {"cache": cache, "x": torch.ones(3), "flag": True}
    found = check(attend, inputs, ["aot", "identity", "forgetful"])
    judged_equal(found, "aot", "identity")
    assert places(found, "forgetful", "inputs") == {"input 'cache['k']'"}
    assert torch.equal(cache["k"], torch.zeros(3))


def test_dataclasses_named_tuples_and_both_kinds_of_arguments(stale_target):
    def step(cache: Cache, scale: Scale, mode: str = "keep") -> Cache:
        assert mode == "add"
        assert scale.twice
        cache.k[cache.position].add_(scale.by)
        cache.v = cache.v * 2
        cache.position += 1
        return Cache(cache.k + 1, cache.v, cache.position)

    cache = Cache(torch.zeros(4, 2), torch.ones(4, 2), 2)
    given = ((cache, Scale(torch.ones(2), True)), {"mode": "add"})
    found = check(step, given, ["aot", "functionalize", "identity", "stale"])
    judged_equal(found, "aot", "identity")
    assert not found.results["functionalize"].violated
    left = {"output 'k'", "output 'v'", "'cache.v' afterwards"}
    assert places(found, "stale", "values") == left
    assert cache.position == 2


def test_a_container_that_is_changed(stale_target):
    def appends(x: torch.Tensor, seen: list[torch.Tensor]) -> None:
        seen.append(x * 2)
        seen[0] = x.add_(1)

    found = check(appends, (torch.ones(2), [torch.zeros(2)]), ["aot", "identity", "stale"])
    judged_equal(found, "aot", "identity")
    assert places(found, "stale", "values") == {"'seen[0]' afterwards", "'seen[1]' afterwards"}


@pytest.mark.parametrize(
    ("given", "args", "kwargs"),
    [
        (torch.ones(1), 1, []),
        ((torch.ones(1), 3), 2, []),
        ([torch.ones(1), None], 2, []),
        ({"x": torch.ones(1)}, 0, ["x"]),
        (((torch.ones(1),), {"flag": True}), 1, ["flag"]),
        (([torch.ones(1)], {"flag": True}), 2, []),
        (Scale(torch.ones(1), True), 1, []),
        ({1: torch.ones(1)}, 1, []),
    ],
)
def test_forms_of_inputs(given, args, kwargs):
    def function(*positional: object, **named: object) -> tuple[int, list[str]]:
        return len(positional), list(named)

    found = check(function, given, ["identity"])
    assert found.eager.observation is not None
    assert found.eager.observation.outputs == [args, *kwargs]


# --- state around the function --------------------------------------------------------------------


class Counting(torch.nn.Module):
    """A buffer that is written, one that is replaced, and an attribute that is no tensor."""

    written: torch.Tensor
    exchanged: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)
        self.register_buffer("written", torch.zeros(()))
        self.register_buffer("exchanged", torch.zeros(()))
        self.calls = 0

    def forward(self, x: torch.Tensor) -> Any:
        self.written += 1
        self.exchanged = self.exchanged + x.sum()
        self.calls += 1
        return self.linear(x).relu_()


def test_a_module_with_buffers(forgetful_target, stale_target):
    module = Counting()
    found = check(module, torch.randn(2, 3), [*SAFE, "forgetful", "stale"])
    judged_equal(found, *SAFE)
    assert places(found, "forgetful", "inputs") == {"input 'written'"}
    assert "'exchanged' afterwards" in places(found, "stale", "values")
    assert "captured tensors are passed as further inputs: " in found.notes[0]
    names = set(found.eager.names.values())
    assert {"input 'x'", "input 'linear.weight'", "'calls' afterwards"} <= names
    assert module.calls == 0
    assert module.written == 0


STATE = torch.zeros(2)


def rebinds(x: torch.Tensor) -> Any:
    global STATE  # noqa: PLW0603
    STATE = STATE + x
    return x + 1


def test_a_global_that_is_assigned(stale_target):
    before = STATE
    found = check(rebinds, torch.ones(2), ["aot", "identity", "stale"])
    judged_equal(found, "aot", "identity")
    assert "'STATE' afterwards" in places(found, "stale", "values")
    assert STATE is before


def test_an_argument_and_a_global_of_one_name(stale_target):
    def uses_both(STATE: torch.Tensor) -> Any:  # noqa: N803
        return rebinds(STATE)

    found = check(uses_both, torch.ones(2), ["identity", "stale"])
    judged_equal(found, "identity")
    assert "'STATE (2)' afterwards" in places(found, "stale", "values")


class Mode(enum.IntEnum):
    ADD = 1
    SUBTRACT = -1


def test_members_of_an_enum_are_constants(stale_target):
    def moves(x: torch.Tensor, mode: Mode) -> Any:
        return x + int(mode is Mode.ADD)

    judged_equal(check(moves, (torch.ones(2), Mode.ADD), ["aot-eager", "identity"]), "aot-eager")


class NamedByClass(dict):
    """Stores its values under other keys than the given ones, so a copy by items has other keys."""

    def __setitem__(self, key: object, value: object) -> None:
        super().__setitem__(type(key).__name__, value)


SCALES = NamedByClass()
SCALES[1] = 3.0


def test_a_value_whose_copy_is_another_one_is_not_copied():
    def scaled(x: torch.Tensor) -> Any:
        return x * SCALES["int"]

    found = check(scaled, torch.ones(2), ["aot-eager"])
    assert found.eager.raised is None
    judged_equal(found, "aot-eager")


def test_the_globals_of_an_installed_package_are_not_compared(tmp_path, monkeypatch):
    package = tmp_path / "site-packages" / "counted_calls.py"
    package.parent.mkdir()
    package.write_text(
        "import torch\n"
        "seen = []\n"
        "def twice(x):\n"
        "    if torch.compiler.is_compiling():\n"
        "        seen.append('compiled')\n"
        "    return x * 2\n"
    )
    monkeypatch.syspath_prepend(package.parent)
    twice = importlib.import_module("counted_calls").twice

    def uses_it(x: torch.Tensor) -> Any:
        return twice(x)

    judged_equal(check(uses_it, torch.ones(2), ["aot-eager"]), "aot-eager")


def buckets(x: torch.Tensor, most: int) -> torch.Tensor:
    """The last bucket is for far values. An infinite distance is cast, but not chosen."""
    return torch.where(x < most, x.long(), most)


def test_what_a_cast_leaves_undefined_may_be_computed_if_it_is_not_used(stale_target):
    x = torch.tensor([0.0, 3.0, torch.inf, 1.0])
    found = check(buckets, (x, 4), ["aot-eager", "stale"])
    judged_equal(found, "aot-eager")
    assert places(found, "stale", "values") == {"output 0"}
    assert any("undefined" in note for note in found.notes)
    used = check(lambda x: x.long(), x, ["aot-eager"])
    assert "cannot represent" in str(used.eager.unjudged)


# --- autograd -------------------------------------------------------------------------------------

WEIGHT = torch.nn.Parameter(torch.arange(16.0).reshape(4, 4))


def loss_of(x: torch.Tensor) -> Any:
    return (x @ WEIGHT).sin().sum()


def calls_backward(x: torch.Tensor) -> Any:
    loss = loss_of(x)
    loss.backward()
    return loss


def calls_grad(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return torch.autograd.grad(loss_of(x), [x, WEIGHT])


def test_gradients_are_outputs(stale_target):
    x = torch.ones(2, 4, requires_grad=True)
    found = check(calls_backward, x, ["functionalize", "aot", "identity", "stale"])
    judged_equal(found, "aot", "identity")
    assert {"gradient of 'x'", "gradient of 'WEIGHT'"} <= places(found, "stale", "values")
    # torch.func documents what it does not support, so that is neither right nor wrong.
    errors = found.results["functionalize"].reports["errors"]
    assert errors.verdict is Verdict.DOCUMENTED
    assert x.grad is None
    assert WEIGHT.grad is None


def test_gradients_that_are_added_to(forgetful_target):
    x = torch.ones(2, 4, requires_grad=True)
    x.grad = torch.ones(2, 4)
    found = check(calls_backward, x, ["aot", "identity"])
    judged_equal(found, "aot", "identity")
    assert found.eager.observation is not None
    names = list(found.eager.names.values())
    afterwards = found.eager.observation.inputs[names.index("input 'x.grad'")]
    loss = loss_of(alone := torch.ones(2, 4, requires_grad=True))
    (expected,) = torch.autograd.grad(loss, alone)
    assert torch.allclose(afterwards, expected + 1)
    assert torch.equal(x.grad, torch.ones(2, 4))


def test_autograd_without_a_gradient_left(stale_target):
    x = torch.ones(2, 4, requires_grad=True)
    found = check(calls_grad, x, ["aot", "reference", "identity", "stale"])
    judged_equal(found, "aot", "reference", "identity")
    assert places(found, "stale", "values") == {"output 0", "output 1"}


def test_a_gradient_of_a_gradient_is_refused_as_documented():
    def penalty(x: torch.Tensor) -> Any:
        (slope,) = torch.autograd.grad(loss_of(x), WEIGHT, create_graph=True)
        slope.square().sum().backward()

    results = check(penalty, torch.ones(2, 4), ["aot-eager", "reference"]).results
    for row in ("aot-eager", "aot-eager as called", "reference as called"):
        (difference,) = results[row].reports["errors"].documented
        assert difference.limitation.name == "refuses 'double backward'"


def test_a_step_of_an_optimizer(forgetful_target):
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)

    def train(x: torch.Tensor) -> Any:
        optimizer.zero_grad()
        loss = model(x).pow(2).sum()
        loss.backward()
        optimizer.step()
        return loss

    before = model.weight.detach().clone()
    found = check(train, torch.randn(4, 3), ["aot", "identity", "forgetful"])
    judged_equal(found, "aot", "identity")
    assert {"input 'model.weight'", "input 'model.bias'"} == places(found, "forgetful", "inputs")
    assert any("exp_avg" in name for name in found.eager.names.values())
    assert torch.equal(model.weight, before)
    assert not optimizer.state


def test_inputs_that_require_gradients_but_need_none():
    x = torch.ones(3, requires_grad=True)
    found = check(lambda y: y * 2, x, ["aot", "aot:grad"])
    judged_equal(found, "aot", "aot:grad")
    assert "aot:grad" in found.notes[0]


# --- second inputs --------------------------------------------------------------------------------


def test_a_result_with_gradients_that_is_left_twice_stays_one_object():
    """Each place is detached for the comparison, which must not make two objects of one."""

    def step(weight, state, x):
        state["h"] = torch.tanh(weight * x)
        return state["h"], state

    inputs = torch.ones(3, requires_grad=True), {"h": torch.zeros(3)}, torch.ones(3)
    result = check(step, inputs, "dynamo", grad=False).results["dynamo"]
    assert result.reports["objects"].verdict is Verdict.HOLDS


def test_second_inputs_may_share_one_tensor():
    once = torch.zeros(2)
    given = (torch.zeros(2), torch.ones(2))
    found = check(
        lambda x, y: (x.add_(1), y * 2)[1], given, ["identity"], second_inputs=(once, once)
    )
    assert found.eager.unjudged is None


def test_second_inputs_are_compared_by_default():
    class Ring:
        def push(self, to, tensor):
            to.mul_(0.5)
            return tensor + to

    ring, base, other = Ring(), torch.arange(8.0), torch.arange(8.0)
    # Only in the second call does what is read overlap what is written.
    second = base[:4], base[2:6]
    result = check(ring.push, (other[:4], other[4:]), second_inputs=second)
    assert [name for name, it in result.results.items() if it.violated] == ["aot-eager:second-call"]


def test_second_inputs_differ_in_tensors_alone():
    first = (torch.zeros(2), 3)
    found = check(lambda x, n: x.add_(n), first, ["aot-eager:second-call"], second_inputs=first)
    assert found.eager.unjudged is None
    with pytest.raises(aliasproof.UserError, match="all arguments but tensors"):
        check(lambda x, n: x.add_(n), first, ["identity"], second_inputs=(torch.zeros(2), 4))


class Merged(torch.nn.Module):
    """A weight that is written by an augmented assignment to the attribute."""

    def __init__(self):
        super().__init__()
        self.base = torch.nn.Linear(4, 3).requires_grad_(False)
        self.update = torch.nn.Parameter(torch.ones(3, 4))

    def forward(self, x):
        with torch.no_grad():
            self.base.weight += self.update
        return self.base(x)


def test_a_parameter_may_be_assigned_what_it_was():
    found = check(Merged(), torch.ones(2, 4), ["aot-eager"])
    judged_equal(found, "aot-eager")
