"""`aliasproof stats`: what campaigns draw, as tables and as JSON, and how it is counted."""

import contextlib

import pytest
import torch

import aliasproof.campaigns.run.drawn_programs
from aliasproof.campaigns.run import drawn_programs
from aliasproof.campaigns.run.drawn_programs import (
    BROUGHT_ALONG,
    DrawnPrograms,
    DrawnPython,
    layouts,
)
from aliasproof.generators.features import DTYPES, Features, swarm
from aliasproof.generators.ops import OPERATORS
from aliasproof.ir.program import Input, Instruction, Program, Ref, Storage
from aliasproof.processes.outcome import Death, Returned
from aliasproof.processes.pool import RemoteCall


def test_stats(call):
    outcome = call("stats", "--programs", "10")
    assert outcome.code == 0
    for heading in ("instructions by group", "dtypes of inputs", "scenarios played", "discarded"):
        assert heading in outcome.out
    assert all(line == line.rstrip() for line in outcome.out.splitlines())


def test_stats_as_json(call):
    found = call("stats", "--programs", "10", "--seed", "4", "--json").json()
    assert found["programs"] == 10
    counts = found["instructions"]
    assert counts["drawn"] >= counts["kept"] > 0
    assert found == call("stats", "--programs", "10", "--seed", "4", "--json").json()
    assert found != call("stats", "--programs", "10", "--seed", "5", "--json").json()


def test_a_blind_spot_is_marked(call, monkeypatch: pytest.MonkeyPatch) -> None:
    def without_sharing(seed: int) -> Features:
        return Features(groups=swarm(seed).groups, scenarios=("swap",), large=False)

    monkeypatch.setattr(aliasproof.campaigns.run.drawn_programs, "swarm", without_sharing)
    lines = call("stats", "--programs", "60").out.splitlines()
    (shared,) = (line for line in lines if line.startswith("shared inputs"))
    assert shared.split()[-3:] == ["0.0", "%", "NEVER"]
    (swaps,) = (line for line in lines if line.startswith("swap"))
    assert "NEVER" not in swaps


@pytest.mark.filterwarnings("ignore")  # of torch, about odd programs
def test_stats_of_how_dynamo_cuts_python_programs(call):
    found = call("stats", "--python", "--programs", "6", "--frames", "3", "--json").json()
    cuts = found["cuts"]
    assert cuts["defined in eager"] + cuts.get("undefined in eager", 0) == 6
    kinds = ("no graph breaks", "graphs break", "no graph", "raises")
    assert sum(cuts.get(kind, 0) for kind in kinds) == cuts["compiled"] <= 3


def test_a_program_that_ends_its_process_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    class Dying:
        pending = True

        def __init__(self, *_: object, **__: object) -> None:
            self.calls: list[RemoteCall] = []

        at_work = contextlib.nullcontext

        def submit(self, call: RemoteCall) -> None:
            self.calls.append(call)

        def take(self) -> tuple[object, object]:
            call = self.calls.pop(0)
            numbers = call.arguments[1]
            assert isinstance(numbers, range)
            self.pending = bool(self.calls) or len(numbers) > 1
            if 3 in numbers:  # this program dies
                return call.key, Death("dies of signal 11", "the program")
            return call.key, Returned(DrawnPython(programs=len(numbers)))

    monkeypatch.setattr(drawn_programs, "Pool", Dying)
    monkeypatch.setattr(drawn_programs, "start_server", lambda names: None)
    drawn = DrawnPython()
    assert sorted(drawn.draw(0, 5, 0)) == [0, 1, 2, 3, 4]
    assert (drawn.programs, drawn.cuts) == (5, {drawn_programs.DIES: 1})


# --- counts ---------------------------------------------------------------------------------------


LONG = Storage(torch.float32, 200)
CONTIGUOUS = Input("x", 0, torch.float32, (2, 3), (3, 1))


def view(sizes: tuple[int, ...], strides: tuple[int, ...], offset: int = 0) -> Input:
    return Input("x", 0, torch.float32, sizes, strides, offset)


@pytest.mark.parametrize(
    ("shown", "names"),
    [
        (CONTIGUOUS, {"contiguous"}),
        (view((1, 3), (7, 1)), set()),
        (view((3, 2), (1, 3)), {"another order of dimensions"}),
        (view((2, 3, 2, 2), (12, 1, 6, 3)), {"another order of dimensions", "channels last"}),
        (view((2, 3), (6, 2)), {"gaps"}),
        (view((2, 3), (0, 1)), {"expanded"}),
        (view((2, 3), (1, 1)), {"overlapping"}),
        (view((2, 3), (3, 1), 16), {"offset"}),
        (
            view((2, 3), (4, 1), 1),
            {"gaps", "offset", "offset, and gaps or another order", "start not aligned"},
        ),
    ],
)
def test_layouts(shown: Input, names: set[str]) -> None:
    program = Program((LONG,), (shown,), (), ())
    assert set(layouts(program, shown)) == names | {"unused end of the storage"}
    whole = Program((Storage(torch.float32, 6),), (CONTIGUOUS,), (), ())
    assert set(layouts(whole, CONTIGUOUS)) == {"contiguous"}


def test_what_is_not_drawn_has_the_count_0() -> None:
    drawn = DrawnPrograms()
    overlapping = Instruction("aten.add_.Tensor", (Ref("x"), Ref("x")))
    drawn.add(Program((LONG,), (view((2, 3), (1, 1)),), (overlapping,), ("x",)))
    drawn.add(Program((LONG,), (CONTIGUOUS,), (Instruction("aten.eq.Scalar", (Ref("x"), 1)),), ()))
    found = drawn.to_json()
    assert found["discarded"] == {"undefined": 1, "raises": 0}
    assert found["dtypes"] == {str(each).removeprefix("torch."): 0 for each in DTYPES} | {
        "float32": 2
    }
    groups = found["groups"]
    assert isinstance(groups, dict)
    assert groups["in-place"]["instructions"] == 1
    assert groups["in-place"]["ops"]["aten.mul_.Tensor"] == 0
    assert groups[BROUGHT_ALONG]["ops"] == {"aten.eq.Scalar": 1}
    named = [op for name, group in groups.items() if name != BROUGHT_ALONG for op in group["ops"]]
    assert sorted(named) == sorted(operator.name for operator in OPERATORS)


def test_the_programs_of_a_seed_are_counted_alike_each_time() -> None:
    one, other = DrawnPrograms(), DrawnPrograms()
    programs = list(one.draw(3, 30))
    assert len(programs) == one.programs == 30
    assert list(other.draw(3, 30)) == programs
    assert one.to_json() == other.to_json()
    assert one.instructions.kept == sum(map(len, programs)) == one.ops.total()
    assert sum(one.dtypes.values()) == sum(one.ranks.values()) == sum(one.sizes.values())
