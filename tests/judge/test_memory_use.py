"""Memory accesses of generated code: two bugs of Inductor that corrupt the heap, and right code.

The reports are of torch 2.13 to 2.14: pytorch/pytorch#196681 and #198332.
"""

import ctypes

import pytest
import torch
import torch.nn.functional as F

from aliasproof.eager.definedness import Undefined
from aliasproof.ir.devices import cpu_capability
from aliasproof.judge.examination import examine
from aliasproof.judge.trial import Case
from aliasproof.oracles.contract import Contract
from aliasproof.oracles.verdict import Verdict
from aliasproof.targets.registry import target
from aliasproof.targets.target import Build, Target


def tail_of_tiled_reduction(x: torch.Tensor) -> torch.Tensor:
    v = (x * 0.5) * (torch.erf(x * 0.7071067811865476) + 1)
    rows = F.pad(v.permute(3, 2, 1, 0), (0, 0, 0, 58), value=0.5)
    return torch.matmul(F.pad(v, (0, 0, 0, 0, 0, 58), value=0.5), rows)


def fill_of_transposed(x: torch.Tensor) -> torch.Tensor:
    y = x.index_fill(1, torch.tensor([0]), 0.5)
    return (y * y.flip(2)).sum(-1)


@pytest.mark.vectors
@pytest.mark.skipif(cpu_capability() == "DEFAULT", reason="a store of a vector writes too far")
@pytest.mark.parametrize(
    ("function", "name", "size"),
    [
        (tail_of_tiled_reduction, "inductor", (1, 66, 66, 8)),
        (fill_of_transposed, "inductor:symbolic", (64, 5, 5)),
    ],
)
def test_a_write_behind_a_buffer_is_found_with_its_kernel(function, name, size) -> None:
    torch.manual_seed(0)
    x = torch.randn(size)
    x = x.permute(0, 3, 1, 2) if len(size) == 4 else x.mT
    found = examine(Case.of_function(function, [x]), target(name), without_graphs="not asked")
    assert found.at_fault is not None
    assert found.at_fault.name == name
    assert found.main is not None
    assert (found.main.oracle, found.main.kind) == ("bounds", "writes behind the end of a buffer")
    assert str(found.main.evidence["written by"]).startswith("cpp_fused_")
    assert "XXXX" in str(found.main.evidence["picture"])


def test_right_code_holds_and_its_buffers_are_guarded() -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = torch.mm(x, x).softmax(0)
        return y, torch.cat([y.sum(1), x[0]])

    case = Case.of_function(function, [torch.randn(67, 67)])
    found = examine(case, target("inductor"), without_graphs="not asked")
    assert found.violations == []
    assert found.reports["bounds"].verdict is Verdict.HOLDS
    assert found.reports["uninitialised"].verdict is Verdict.HOLDS
    assert found.trial is not None
    assert found.trial.target.memory is not None


def test_nothing_is_said_of_a_target_that_generates_no_code() -> None:
    case = Case.of_function(lambda x: x + 1, [torch.ones(3)])
    found = examine(case, target("identity"))
    assert {"bounds", "uninitialised"}.isdisjoint(found.reports)


def write_behind(x: torch.Tensor) -> torch.Tensor:
    ctypes.memset(x.untyped_storage().data_ptr() + x.untyped_storage().nbytes(), 0, 4)
    return x + 1


def test_a_write_behind_an_input_is_found() -> None:
    planted = Target("planted", "", Contract(), lambda *_: Build(write_behind, []), "")
    found = examine(Case.of_function(lambda x: x + 1, [torch.ones(3)]), planted)
    assert found.main is not None
    assert (found.main.oracle, found.main.place) == ("bounds", "input 0")
    assert found.main.kind == "writes behind the end of an input"


def test_a_call_that_writes_behind_an_input_in_eager_is_undefined() -> None:
    with pytest.raises(Undefined, match="eager writes behind the end of a buffer: input 0"):
        Case.of_function(write_behind, [torch.ones(3)]).run_eager()


def test_an_input_that_is_made_longer_is_not_guarded() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x.resize_(100).fill_(2) + 1

    case = Case.of_function(function, [torch.ones(3)])
    assert examine(case, target("identity")).violations == []
    run = case.run_eager().observation
    assert run.error is None
    assert run.inputs[0].shape == (100,)
