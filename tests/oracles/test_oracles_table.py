"""The table of oracles: its order, what each oracle needs, and the documentation of it."""

import ast
import re
from pathlib import Path

from aliasproof.oracles.check_result import NOT_RESULTS
from aliasproof.oracles.judge import ON_GRAPHS, ON_RESULTS, ORACLES
from aliasproof.oracles.oracle import Needs

DOCS = Path(__file__).parents[2] / "docs" / "oracles.md"


def test_names_are_unique_and_results_come_before_graphs() -> None:
    names = [oracle.name for oracle in ORACLES]
    assert len(set(names)) == len(names)
    assert (*ON_RESULTS, *ON_GRAPHS) == tuple(names)


def test_a_check_knows_the_oracles_on_graphs_without_torch() -> None:
    assert ("errors", *ON_GRAPHS) == NOT_RESULTS


def test_errors_are_asked_first() -> None:
    """If a run raises, the other oracles may have nothing to compare."""
    assert ON_RESULTS[0] == "errors"


def test_an_oracle_on_results_has_a_check_for_reproducers() -> None:
    """A script without this project cannot show a difference that only graphs show.

    The script of a Python program prints all its results, so *structure* needs no check.
    """
    for oracle in ORACLES:
        has_check = oracle.needs is Needs.RESULTS and oracle.name != "structure"
        assert (oracle.check is not None) == has_check, oracle.name


def test_a_check_is_made_of_expressions() -> None:
    for oracle in ORACLES:
        if oracle.check is not None:
            ast.parse(oracle.check.helper)
            ast.parse(oracle.check.facts, mode="eval")
            for check in (oracle.check, *dict(oracle.check.by_kind).values()):
                ast.parse(check.wrong.replace("TOLERANCE", "rtol=0") or "None", mode="eval")


def test_the_documentation_lists_the_table() -> None:
    rows = re.findall(r"^\| \**(\w+)\** \| ([^|]+) \|", DOCS.read_text(), re.MULTILINE)
    assert rows[0] == ("oracle", "the promise")
    assert rows[1:] == [(oracle.name, oracle.promise) for oracle in ORACLES]
