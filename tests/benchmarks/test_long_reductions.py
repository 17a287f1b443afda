"""The benchmark of reductions: a planted fault ends at few instructions after few questions."""

from __future__ import annotations

from benchmarks import long_reductions


def test_a_fault_in_a_long_program_ends_short() -> None:
    figures = long_reductions.measure(("epilogue is dead code",), (0,))
    (found,) = figures.reductions
    assert found.before >= long_reductions.SHORTEST
    assert found.after <= long_reductions.FEW
    assert found.until_few is not None
    assert found.until_few <= found.tried <= 150
    (table,) = figures.tables()
    assert table.rows[0][:2] == ("epilogue is dead code", "0")
