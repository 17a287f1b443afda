"""The benchmark of sites says which sites and lines of the compiler programs reach."""

from __future__ import annotations

from benchmarks.site_coverage import MODULES, measure
from benchmarks.tables import as_json, plain


def test_programs_reach_sites_and_lines_and_the_same_ones_again() -> None:
    figures = measure(6, 1, "inductor-fx")
    assert (figures.programs, figures.lost) == (6, 0)
    assert set(figures.modules) == set(MODULES)
    for reached in figures.modules.values():
        assert 0 <= reached.lines_run < reached.lines
        assert 0 <= reached.branches_run < reached.branches
    # Each program is functionalized and put in place; no pattern of products matches.
    assert figures.modules["torch._inductor.fx_passes.reinplace"].lines_run > 50
    assert all(0 <= fired <= number for number, fired in figures.kinds.values())
    assert figures.kinds["wrapper"][1] > 0
    assert figures.kinds["lowering"][1] == 0
    assert all("sites" in plain(table) or table.rows for table in figures.tables())
    assert as_json(measure(6, 1, "inductor-fx")) == as_json(figures)
