"""The costs of `check`, on inputs that are large enough to see what it keeps."""

from __future__ import annotations

from benchmarks import check_cost
from benchmarks.__main__ import BENCHMARKS


def test_a_check_takes_a_few_bytes_per_input_byte(tmp_path, monkeypatch) -> None:
    assert BENCHMARKS["check_cost"] is check_cost.measure
    monkeypatch.setattr(check_cost, "LARGE", 3072)
    # Each of its tensors would cost one byte per byte if anything kept them.
    cost = check_cost._cost(tmp_path, "40 new tensors", "functionalize")
    assert cost.memory is not None
    assert 3 < cost.memory < 12
    assert "3072 x 3072" in check_cost.CheckCosts((cost,)).tables()[0].title
