"""The catalogue: each fault has a summary and a source, and is planted only while it builds."""

import contextlib
import re

import pytest
import torch

from aliasproof.faults.catalogue import FAULTS, MODULES, fault_named
from aliasproof.ir.errors import UserError
from aliasproof.reference_pass.reinplace import decisions
from aliasproof.reference_pass.views import INVERSES
from aliasproof.targets.reference import REFERENCE

SOURCE = re.compile(
    r"pytorch/(pytorch|functorch)#\d+"
    r"|\bof (reference_pass|torch/_inductor)/"
    r"|\b(condition|rule|step) "
)


def test_there_are_forty_faults() -> None:
    assert len(FAULTS) >= 40
    assert sum(len(module.FAULTS) for module in MODULES) == len(FAULTS)  # no name twice


def test_a_fault_says_what_is_wrong_and_where_it_is_from(subtests) -> None:
    for name, fault in FAULTS.items():
        with subtests.test(name):
            assert fault.summary.endswith((".", ":")) or "`" in fault.summary
            assert len(fault.summary) > 30
            assert SOURCE.search(fault.source) or fault.source.startswith("torch/_inductor/")


def test_a_fault_is_found_by_its_name() -> None:
    assert fault_named("without-same-stride") is FAULTS["without same stride"]
    with pytest.raises(UserError, match="did you mean 'epilogue is swapped'"):
        fault_named("epilogue is swaped")


def program(x, y):
    x[:2].add_(1)
    y.copy_(x[1:3])
    return x * 2, y.view(torch.int32), x.expand(2, 4)


def outcome() -> tuple[str, str]:
    build = REFERENCE.build(program, [torch.arange(4.0), torch.zeros(2)])
    return str(build.stages[0].graph.code), str(decisions(build.stages[-1].graph))


def test_the_passes_are_right_again_after_a_fault() -> None:
    before, inverses = outcome(), dict(INVERSES)
    for fault in FAULTS.values():
        with contextlib.suppress(Exception):  # wrong passes may raise
            fault.make(program, [torch.arange(4.0), torch.zeros(2)])
    assert outcome() == before
    assert inverses == INVERSES
