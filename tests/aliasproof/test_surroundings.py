"""State that is restored between runs, also in packages; files that run once per process."""

import functools
import importlib
import sys
import types
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from aliasproof.checks.check import check
from aliasproof.user_code.surroundings import Surroundings
from aliasproof.user_code.user_file import CallArguments
from tests.aliasproof.planted_targets import judged_equal, places

TARGETS = ("aot-eager", "identity", "inductor-fx")
COUNTER = """
    import torch
    from {name} import inner

    calls = 0
    past = []
    total = torch.zeros(2)

    class Meter:
        uses = 0
        def add(self, x):
            Meter.uses += 1
            return x * Meter.uses

    meter = Meter()

    def counted(x, seen={{"sum": 0}}):
        global calls, total
        calls += 1
        past.append(calls)
        seen["sum"] += len(past)
        total = total + x
        return inner.scaled(meter.add(total * calls) + seen["sum"])
"""
INNER = """
    times = 1

    def scaled(x):
        global times
        times *= 2
        return x * times
"""


@pytest.fixture(params=["beside the file", "installed"])
def counter(
    request: pytest.FixtureRequest, write_package: Callable[[bool], ModuleType]
) -> ModuleType:
    return write_package(request.param == "installed")


@pytest.fixture
def write_package(tmp_path: Path, monkeypatch) -> Callable[[bool], ModuleType]:
    """Makes a package of two modules that keep state, in its own folder."""

    def written(installed: bool) -> ModuleType:
        name = f"counted_{'installed' if installed else 'beside'}_{tmp_path.name}"
        folder = tmp_path / ("site-packages" if installed else "project") / name
        folder.mkdir(parents=True)
        for file, text in (("__init__", COUNTER), ("inner", INNER)):
            lines = text.format(name=name) if file == "__init__" else text
            (folder / f"{file}.py").write_text("\n".join(it[4:] for it in lines.splitlines()))
        monkeypatch.syspath_prepend(folder.parent)
        module = importlib.import_module(name)
        monkeypatch.setitem(sys.modules, name, module)
        return module

    return written


@pytest.mark.parametrize("by_module", [False, True], ids=["function", "module"])
def test_each_run_starts_from_the_same_state_of_a_package(counter, by_module: bool) -> None:
    function = counter.counted

    def through_name(x: torch.Tensor) -> Any:
        return function(x)

    def through_module(x: torch.Tensor) -> Any:
        return counter.counted(x)

    x = torch.ones(2)
    for targets in (TARGETS, TARGETS[::-1]):
        found = check(through_module if by_module else through_name, x, targets)
        assert found.eager.unjudged is None
        judged_equal(found, *targets)
    assert (counter.calls, counter.past, counter.meter.uses) == (0, [], 0)
    assert (counter.inner.times, counter.total.tolist()) == (1, [0.0, 0.0])
    assert counter.counted.__defaults__ == ({"sum": 0},)


def test_what_a_function_leaves_in_a_module_of_the_user_is_compared(write_package, monkeypatch):
    counter = write_package(False)

    def counts(x: torch.Tensor) -> Any:
        if not torch.compiler.is_compiling():
            counter.calls += 1
        return x + 1

    assert places(check(counts, torch.ones(2), ["aot-eager"]), "aot-eager", "values")


def test_objects_that_a_package_registers_are_left_alone(write_package):
    counter = write_package(True)
    counter.registry = {"meter": counter.meter, "names": ["a"]}

    def looks_up(x: torch.Tensor) -> Any:
        return x * len(counter.registry["names"])

    surroundings = Surroundings.of(looks_up, CallArguments.of(torch.ones(2)))
    with surroundings.copy_with({}):
        assert counter.registry["meter"] is counter.meter


class WithHook(torch.nn.Module):
    """Has a partial of one of its methods, and a method that `forward` calls."""

    def __init__(self) -> None:
        super().__init__()
        self.hook = functools.partial(self.scaled, by=2.0)

    def scaled(self, x: torch.Tensor, by: float) -> torch.Tensor:
        STATE["calls"] += 1
        return x * by * STATE["calls"]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.scaled(self.hook(x), 1.0)


STATE = {"calls": 0}


def test_what_a_method_of_a_module_changes_is_put_back():
    found = check(WithHook(), torch.ones(2), ["aot-eager", "identity"])
    assert found.eager.unjudged is None
    judged_equal(found, "aot-eager", "identity")
    assert STATE == {"calls": 0}


def count(*_: object) -> int:
    STATE["calls"] += 1
    return STATE["calls"]


@pytest.mark.parametrize("kind", [lambda method: method, staticmethod, classmethod, property])
def test_what_a_method_of_an_object_changes_is_put_back(kind: Callable[..., Any]) -> None:
    meter: Any = type("Meter", (), {"number": kind(count)})()

    def function(x: torch.Tensor) -> Any:
        return x * (meter.number if kind is property else meter.number())

    found = check(function, torch.ones(2), ["identity"])
    assert found.eager.unjudged is None
    judged_equal(found, "identity")
    assert STATE == {"calls": 0}


def test_what_a_function_bound_to_an_object_changes_is_put_back() -> None:
    bound = types.MethodType(lambda owner, x: x * count(), "owner")
    found = check(bound, torch.ones(2), ["identity"])
    assert found.eager.unjudged is None
    assert STATE == {"calls": 0}


class WithFeatures(torch.nn.Module):
    """Its layer and its weight have hooks, which change the state of this module."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(2, 2)
        self.features: list[torch.Tensor] = []
        self.norms: list[torch.Tensor] = []
        self.layer.register_forward_hook(lambda module, args, out: self.features.append(out))
        self.layer.weight.register_hook(lambda grad: self.norms.append(grad.norm()))

    def forward(self, x: torch.Tensor) -> Any:
        return self.layer(x) * (len(self.features) + len(self.norms))


def test_what_hooks_of_a_module_and_of_a_parameter_change_is_put_back():
    module = WithFeatures()
    found = check(module, torch.ones(2), ["aot-eager"])
    assert found.eager.unjudged is None
    assert [*found.results] == ["aot-eager", "aot-eager as called"]
    judged_equal(found, *found.results)
    assert (module.features, module.norms) == ([], [])


class Empty:
    """Gets its first attribute in a run."""


def test_an_object_without_attributes_is_copied_too():
    def first(x, box):
        box.last = x * 2
        return x + 1

    box = Empty()
    for grad in (False, True):
        assert check(first, (torch.ones(2), box), ["dynamo"], grad=grad).exit_status() == 0
    assert vars(box) == {}


# --- files ----------------------------------------------------------------------------------------


OPERATORS = """
import torch

runs = torch.rand(1).item()  # as weights that are made with the module
library = torch.library.Library("{name}", "DEF")
library.define("twice(Tensor x) -> Tensor")

@torch.library.impl(library, "twice", "CompositeExplicitAutograd")
def twice(x):
    return x * 2

@torch.library.register_fake("{name}::twice")
def _(x):
    return torch.empty_like(x)

@torch.library.custom_op("{name}::add_into", mutates_args=("total",))
def add_into(total: torch.Tensor, x: torch.Tensor) -> None:
    total.add_(x)

@add_into.register_fake
def _(total, x):
    pass

def program(total, x):
    add_into(total[1:], x[1:])
    return torch.ops.{name}.twice(total) * runs

def inputs():
    return torch.zeros(3), torch.ones(3)

def unchanged(graph_module):
    return graph_module
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / f"operators_{tmp_path.name}.py"
    path.write_text(OPERATORS.format(name=path.stem))
    return path


def test_function_pass_and_operators_may_be_in_one_file(call, file: Path) -> None:
    outcome = call("check", file, "--target", f"{file}:unchanged", "--target", "aot-eager")
    assert outcome.code == 0, outcome
    assert outcome.out.endswith(f"Nothing wrong: {file}:unchanged, aot-eager.\n")


def test_a_file_can_be_checked_twice_in_one_process(call, file: Path) -> None:
    for _ in range(2):
        outcome = call("check", "--in-process", file, "--target", "aot-eager")
        assert outcome.code == 0, outcome


def test_a_file_that_was_changed_runs_again(call, tmp_path: Path) -> None:
    file = tmp_path / "changing.py"
    text = "import torch\ndef program(x): return x + {}\ndef inputs(): return torch.ones(1)\n"
    for number in (1, 2):
        file.write_text(text.format(number))
        outcome = call("check", "--in-process", file, "--target", "aot-eager")
        assert f"eager output 0  tensor([{1.0 + number:.0f}.])" in outcome.out


def test_what_a_test_imported_is_not_run_again(call, file: Path, monkeypatch) -> None:
    monkeypatch.syspath_prepend(file.parent)
    importlib.import_module(file.stem)
    outcome = call("check", "--in-process", file, "--target", f"{file}:unchanged")
    assert outcome.code == 0, outcome
