"""The benchmark of groups counts what groups miss."""

from __future__ import annotations

from benchmarks import glued


def test_groups_and_single_programs_are_compared_on_equal_shards() -> None:
    figures = glued.measure(("identity", "functionalize"), (1, 4), shards=1, programs=8)
    assert [account.size for account in figures.accounts] == [1, 4, 1, 4]
    assert {account.programs for account in figures.accounts} == {8}
    assert all(account.missed == account.further == 0 for account in figures.accounts)
    assert figures.accounts[2].failures == figures.accounts[3].failures
    [table] = figures.tables()
    assert [row[4] for row in table.rows][::2] == ["1.0", "1.0"]
