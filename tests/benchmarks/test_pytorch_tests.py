"""PyTorch's own tests with the reference pass: what passes, refuses and fails is told apart."""

from __future__ import annotations

from pathlib import Path

import pytest

from aliasproof.programs.errors import UserError
from benchmarks.pytorch_tests import FAILED, PASSED, REFUSED, PytorchTests, measure

pytest.importorskip("expecttest", reason="PyTorch's tests need it: make install")

# As PyTorch's tests do: it imports the pass by name, and compares graphs as text.
TESTS = """
import torch
from functorch.compile import aot_function, nop
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.passes.reinplace import reinplace
from torch.testing._internal.common_utils import TestCase


class Passes(TestCase):
    def test_which_pass(self):
        self.assertIn("PASS", reinplace.__module__)

    def test_text(self):
        self.assertExpectedInline("one graph", "another graph")

    def test_value(self):
        graph = reinplace(make_fx(lambda x: (x + 1) * 2)(torch.ones(3)), torch.ones(3))
        self.assertEqual(graph(torch.ones(3)), torch.full((3,), 4.0))

    def test_refused(self):
        aot_function(lambda x: x.to_sparse().to_dense() + 1, nop)(torch.ones(3))

    def test_always_wrong(self):
        self.assertEqual(1, 2)
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "test"
    folder.mkdir()
    (folder / "test_ours.py").write_text(TESTS.replace("PASS", "reference_pass"))
    return tmp_path


def test_outcomes_of_both_are_told_apart(checkout: Path) -> None:
    (found,) = measure(checkout, ["test/test_ours.py"]).files
    ours = {name.rpartition(".")[2]: outcome.kind for name, outcome in found.ours.items()}
    theirs = {name.rpartition(".")[2]: outcome.kind for name, outcome in found.theirs.items()}
    assert ours["test_which_pass"] == PASSED != theirs["test_which_pass"]
    assert ours["test_text"] == PASSED != theirs["test_text"]
    assert ours["test_value"] == theirs["test_value"] == PASSED
    assert ours["test_always_wrong"] == theirs["test_always_wrong"] == FAILED
    assert ours["test_refused"] == REFUSED
    assert found.alone() == []
    table = PytorchTests([found]).tables()[0]
    assert all(len(row) == len(table.columns) for row in table.rows)


def test_a_test_that_only_the_reference_fails_shows(checkout: Path) -> None:
    (checkout / "test" / "test_ours.py").write_text(TESTS.replace("PASS", "torch.fx"))
    (found,) = measure(checkout, ["test/test_ours.py"]).files
    assert found.alone() == ["Passes.test_which_pass"]
    assert any(
        "alone: Passes.test_which_pass" in note for note in PytorchTests([found]).tables()[0].notes
    )


def test_a_checkout_without_the_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no test/test_fx_reinplace_pass\.py"):
        measure(tmp_path)
