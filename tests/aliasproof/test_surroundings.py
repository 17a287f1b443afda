"""State that is restored between runs, also in modules of the user and in installed packages."""

import functools
import importlib
import sys
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
