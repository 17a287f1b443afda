"""Target *executorch*: supported functions are right in each variant; planted bugs are seen."""

import functools
import importlib
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from aliasproof.compilers.executorch import PLUGIN
from aliasproof.ir.values import clone_inputs
from aliasproof.judge.examination import Examination, examine
from aliasproof.judge.localization import first_wrong_pass
from aliasproof.judge.trial import Case
from aliasproof.oracles.verdict import Verdict
from aliasproof.targets.registry import target
from aliasproof.targets.target import Function, Target
from tests.targets.conftest import defined_by

pytestmark = pytest.mark.skipif(
    PLUGIN.missing() is not None, reason=f"executorch {PLUGIN.missing()}"
)


def examined(function: Function, inputs: Sequence[Tensor], *options: str) -> Examination:
    named = target(":".join(("executorch", *options)))
    return examine(Case.of_function(function, inputs), named, every_oracle=True, attribute=False)


def verdicts(found: Examination) -> dict[str, Verdict]:
    return {name: report.verdict for name, report in found.reports.items()}


def numbers(*sizes: int) -> Tensor:
    return torch.arange(float(torch.Size(sizes).numel())).reshape(sizes)


def several(x: Tensor, y: Tensor, index: Tensor) -> list[Tensor]:
    """Views, values that are read late, a list of results, index_put, minimum."""
    total = x + y
    flat = total.view(-1)
    parts = (flat * 2).split(3)
    least = torch.minimum(y.neg(), total)
    return [*parts, least, flat.neg(), (x * y).index_put((index,), y[:1])]


@pytest.mark.parametrize("option", ["", *PLUGIN.options])
def test_each_variant_computes_what_eager_does(option: str) -> None:
    inputs = [numbers(3, 4), numbers(3, 4).flip(0), torch.tensor([2])]
    found = examined(several, inputs, *filter(None, [option]))
    assert found.violations == []
    assert verdicts(found)["values"] is Verdict.HOLDS
    assert verdicts(found)["clobbers"] is Verdict.HOLDS


@pytest.mark.parametrize("called", ["kept-outputs", "feed-back"])
def test_a_second_call_of_the_loaded_program_is_right(called: str) -> None:
    def both(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        y.mul_(x)
        return x.neg(), (x + y).view(2, 2)

    found = examined(both, [numbers(4), numbers(4) + 1], called, "unplanned-outputs")
    assert found.violations == []
    assert verdicts(found)["values"] is Verdict.HOLDS
    assert verdicts(found)["inputs"] is Verdict.HOLDS


def test_the_caller_finds_what_a_program_writes() -> None:
    def write(x: Tensor, y: Tensor) -> Tensor:
        x.add_(y)
        y[1:].zero_()
        return x * y

    found = examined(write, [numbers(4), numbers(4) + 1])
    assert found.violations == []
    assert verdicts(found)["inputs"] is Verdict.HOLDS
    assert verdicts(found)["clobbers"] is Verdict.HOLDS


def test_a_buffer_keeps_its_contents_until_the_program_writes_it() -> None:
    def accumulate(x: Tensor, total: Tensor) -> Tensor:
        total.add_(x)
        return total * 2

    found = examined(accumulate, [numbers(4), numbers(4) + 7], "buffers")
    assert found.violations == []
    assert verdicts(found)["inputs"] is Verdict.HOLDS


@pytest.mark.parametrize(
    ("function", "inputs", "name"),
    [
        (torch.special.bessel_j0, [numbers(3)], "operator outside Core ATen"),
        (lambda x: x.sort()[0], [numbers(3)], "operator without a kernel"),
        (lambda x: x + 1, [numbers(3, 4).t()], "layout of an input"),
        (lambda x: x * 2, [numbers(3).to(torch.complex64)], "dtypes that the edge dialect"),
        (torch.fft.fft, [numbers(4)], "arguments that a kernel does not take"),
        (lambda x: x.clone(), [numbers(2, 2).t()], "layout of an input"),
        (lambda x: x.to(torch.complex64), [torch.ones(2).long()], "arguments that a kernel"),
    ],
    ids=["core", "kernel", "layout", "dtype", "argument", "copied layout", "converted dtype"],
)
def test_what_is_refused_is_told_from_what_fails(function, inputs, name):
    found = examined(function, inputs)
    assert found.violations == []
    assert found.documented[0].limitation.name.startswith(f"refuses '{name}")


@pytest.mark.parametrize("option", ["", *PLUGIN.options])
def test_the_recipe_compiles_as_the_target_does(option: str) -> None:
    named: Target = target(":".join(filter(None, ("executorch", option))))
    inputs = [numbers(3, 4), numbers(3, 4).flip(0), torch.tensor([2])]
    compiled = defined_by(named.recipe)["compiled"]
    outputs = compiled(several, clone_inputs(inputs))(*clone_inputs(inputs))
    torch.testing.assert_close(outputs, several(*clone_inputs(inputs)), rtol=0, atol=0)


# --- planted mistakes -----------------------------------------------------------------------------


def read_late(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    early = x.neg()
    between = early * y
    return between + y, early * between


def test_a_plan_that_shares_the_memory_of_live_tensors_is_seen(monkeypatch):
    from executorch.exir import memory_planning

    plain = memory_planning.greedy

    @functools.wraps(plain)
    def careless(*args: Any, **kwargs: Any) -> Any:
        planned = plain(*args, **kwargs)
        for result in planned.spec_dict.values():
            result.mem_offset = 0
        return planned

    monkeypatch.setattr(memory_planning, "greedy", careless)
    found = examined(read_late, [numbers(4), numbers(4) + 1])
    assert verdicts(found)["clobbers"] is Verdict.VIOLATED
    assert verdicts(found)["values"] is Verdict.VIOLATED
    # Equal values of an input can hide the bug, but the plan shows it.
    hidden = examined(read_late, [torch.zeros(4), torch.zeros(4)])
    assert verdicts(hidden)["values"] is Verdict.HOLDS
    assert verdicts(hidden)["clobbers"] is Verdict.VIOLATED
    assert "planned graph" in hidden.violations[0].place
    case = Case.of_function(read_late, [numbers(4), numbers(4) + 1])
    wrong_part = first_wrong_pass(case, target("executorch"), found.violations[0])
    assert wrong_part is not None
    assert wrong_part.name == "stage: planned graph"


def test_a_lifetime_that_ends_too_early_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    from executorch.exir import memory_planning

    plain = memory_planning.update_all_tensors_lifetime

    def shortened(*args: Any, **kwargs: Any) -> Any:
        specs = plain(*args, **kwargs)
        for spec in specs:
            start, _ = spec.lifetime
            spec.lifetime = [start, start]
        return specs

    monkeypatch.setattr(memory_planning, "update_all_tensors_lifetime", shortened)
    found = examined(read_late, [numbers(4), numbers(4) + 1])
    assert verdicts(found)["clobbers"] is Verdict.VIOLATED


def test_reinplacing_that_ignores_a_later_reader_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    from executorch.exir.passes import reinplace

    def put(x: Tensor, index: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        early = x.neg()
        return early.index_put((index,), y), early * 2

    monkeypatch.setattr(reinplace, "_is_safe_to_reinplace", lambda *_: True)
    inputs = [numbers(4), torch.tensor([1]), torch.tensor([9.0])]
    found = examined(put, inputs, "reinplaced")
    assert verdicts(found)["values"] is Verdict.VIOLATED
    assert verdicts(found)["clobbers"] is Verdict.VIOLATED
    place = next(it.place for it in found.violations if it.oracle == "clobbers")
    assert "lowered graph" in place


def test_a_write_that_is_not_copied_back_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    write_back: Any = importlib.import_module(
        "executorch.exir.passes.insert_write_back_for_buffers_pass"
    )
    monkeypatch.setattr(write_back, "_inplace_lineage", lambda *_: True)

    def accumulate(x: Tensor, total: Tensor) -> Tensor:
        total.add_(x)
        return x * 2

    found = examined(accumulate, [numbers(4), numbers(4) + 7], "buffers")
    assert verdicts(found)["inputs"] is Verdict.VIOLATED
