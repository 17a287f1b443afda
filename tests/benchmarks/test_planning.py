"""The benchmark of memory planning, at tiny sizes."""

import pytest

from aliasproof.ir.errors import UserError
from benchmarks import planning

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def measured() -> planning.Planning:
    return planning.measure((planning.CHAIN, "swap"), sizes=(12, 24))


def test_a_swap_needs_one_copy(measured):
    (plan,) = measured.graphs
    assert plan.footprints["plan_memory"].peak == 64 * 64 * 4
    assert plan.footprints["plan_memory"].calls == 1


def test_each_part_has_a_table(measured):
    titles = [table.title for table in measured.tables()]
    assert titles == [
        "planning: bytes at the peak / allocations",
        "planning: seconds to plan a chain",
    ]
    assert [timing.nodes for timing in measured.timings[:2]] == [12, 24]


def test_an_unknown_part_is_named():
    with pytest.raises(UserError, match="unknown part 'nothing'"):
        planning.measure(("nothing",))
