"""The benchmark of memory planning, at tiny sizes."""

import pytest

from aliasproof.ir.errors import UserError
from benchmarks import planning

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def measured() -> planning.Planning:
    return planning.measure(("swap",))


def test_a_swap_needs_one_copy(measured):
    (plan,) = measured.graphs
    assert plan.footprints["plan_memory"].peak == 64 * 64 * 4
    assert plan.footprints["plan_memory"].calls == 1


def test_each_graph_has_a_row(measured):
    (table,) = measured.tables()
    assert table.rows == [measured.graphs[0].row()]


def test_an_unknown_graph_is_named():
    with pytest.raises(UserError, match="unknown graph 'nothing'"):
        planning.measure(("nothing",))
