"""The first run of a compiled graph detects a wrong fake kernel, and corrects the graph."""

import logging

import pytest
import torch

from aliasproof.reference_pass.backend import aliasproof
from aliasproof.reference_pass.backend.observed_run import difference
from aliasproof.reference_pass.eager import fake_corrections, real_runs
from tests.reference_pass.scene import assert_alike

aten = torch.ops.aten

LIBRARY = torch.library.Library("observed", "FRAGMENT")
LIBRARY.define("turned(Tensor x) -> Tensor")
LIBRARY.impl("turned", lambda x: (x * 2).t().contiguous().t(), "CPU")
LIBRARY.define("same(Tensor x) -> Tensor")
LIBRARY.impl("same", lambda x: x * 2 if x.dim() > 2 else x.view_as(x), "CPU")


@torch.library.register_fake("observed::turned")
def _turned(x):
    return torch.empty(x.shape, dtype=x.dtype)  # the strides are wrong


@torch.library.register_fake("observed::same")
def _same(x):
    return torch.empty(x.shape, dtype=x.dtype)


@pytest.fixture(autouse=True)
def _nothing_is_noted(monkeypatch):
    monkeypatch.setattr(real_runs, "_NOTED", {})


def shows_memory(x, y):
    z = torch.ops.observed.turned(x)
    z.as_strided((3,), (1,)).mul_(10)  # depends on the strides of z
    y.add_(z)
    return z + 1, z.reshape(-1).add_(1), torch.rand(2)


def assert_as_eager(compiled, function, rows=3):
    assert_alike(compiled, function, torch.arange(rows * 4.0).view(rows, 4), torch.zeros(rows, 4))


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_wrong_fake_kernel_is_observed_in_the_first_call(dynamic, caplog):
    compiled = torch.compile(shows_memory, backend=aliasproof, dynamic=dynamic)
    with caplog.at_level(logging.INFO, logger="aliasproof"):
        for rows in (3, 3, 5, 5):
            assert_as_eager(compiled, shows_memory, rows)
    assert "turned.default returns strides (1, 3), and (4, 1) on fakes" in caplog.text


def test_what_is_observed_is_compiled_for():
    compiled = torch.compile(shows_memory, backend=aliasproof)
    compiled(torch.ones(3, 4), torch.zeros(3, 4))
    assert torch.ops.observed.turned.default in real_runs._NOTED
    torch._dynamo.reset()
    again = torch.compile(shows_memory, backend=aliasproof)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("aliasproof.reference_pass.backend.observed_run.note", None)
        assert_as_eager(again, shows_memory)  # all corrections are known now


def test_what_no_graph_can_be_made_for_runs_as_it_was_given(caplog):
    def writes(x, y):
        z = torch.ops.observed.same(x)  # in eager a view of x, against its schema
        z.add_(1)
        return x * y, z

    compiled = torch.compile(writes, backend=aliasproof)
    with caplog.at_level(logging.INFO, logger="aliasproof"):
        assert_as_eager(compiled, writes)
        assert_as_eager(compiled, writes)
    assert "not compiled" in caplog.text


def normalised(x, y):
    x = torch.nn.functional.log_softmax(x.t(), 0)
    return x.flip(0).t().view(torch.int32) + 1, aten.copysign.Tensor(x, y.t()).t().reshape(-1)


def test_without_the_table_of_corrections_all_is_right(monkeypatch):
    """The table saves a compilation; it need not be complete."""
    monkeypatch.setattr(fake_corrections, "CORRECTIONS", {})
    fake_corrections.correction_of.cache_clear()
    compiled = torch.compile(normalised, backend=aliasproof)
    assert_as_eager(compiled, normalised, 1)
    fake_corrections.correction_of.cache_clear()


@pytest.mark.parametrize(
    ("real", "reason"),
    [
        (torch.zeros(2, 3), None),
        (torch.zeros(3, 2), "sizes (3, 2), and (2, 3) on fakes"),
        (torch.zeros(3, 2).t(), "strides (1, 2), and (3, 1) on fakes"),
        (torch.zeros(2, 3, dtype=torch.int64), "dtype torch.int64, and torch.float32 on fakes"),
        (
            torch.zeros(2, 3, dtype=torch.complex64).conj().imag,
            "strides (6, 2), and (3, 1) on fakes",
        ),
        (
            torch._neg_view(torch.zeros(2, 3)),
            "lazy bits (False, True), and (False, False) on fakes",
        ),
        ([torch.zeros(2, 3)] * 2, "2 values for 1"),
    ],
)
def test_what_differs_between_metadata_and_a_result(real, reason):
    assert difference(torch.zeros(2, 3), real, []) == reason


def test_a_result_that_shares_with_another_operand_differs():
    noted, real = [torch.zeros(6), torch.zeros(6)], [torch.zeros(6), torch.zeros(6)]
    operands = list(zip(noted, real, strict=True))
    assert difference(noted[1][2:], real[1][2:], operands) is None
    assert difference(noted[1][2:], real[1][:4], operands) == "place (1, 0), and (1, 8) on fakes"
    assert difference(noted[1][2:], real[0][2:], operands) == "place (0, 8), and (1, 8) on fakes"
    assert (
        difference(noted[1][2:], torch.zeros(4), operands) == "place (-1, 0), and (1, 8) on fakes"
    )
