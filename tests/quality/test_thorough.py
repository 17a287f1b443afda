"""The meaning of `tests/thorough.txt`, and that each of its lines still names a test."""

import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([], []),
        (["tests/a"], ["tests/a/test_b.py::test_c", "tests/a/test_b.py::test_d[x-1]"]),
        (["tests/a/test_b.py"], ["tests/a/test_b.py::test_c", "tests/a/test_b.py::test_d[x-1]"]),
        (["tests/a/test_b.py::test_d"], ["tests/a/test_b.py::test_d[x-1]"]),
        (["tests/a/test_b.py::test_d[*-1]"], ["tests/a/test_b.py::test_d[x-1]"]),
        (["tests/a/test_b.py::test_d[*-2]"], []),
        (["tests/a", "!tests/a/test_b.py::test_d[x*"], ["tests/a/test_b.py::test_c"]),
        (
            ["!tests/a/test_b.py::test_d", "tests/a/test_b.py::test_d"],
            ["tests/a/test_b.py::test_d[x-1]"],
        ),
    ],
)
def test_the_last_line_that_fits_decides(thorough, lines, expected):
    names = ["tests/a/test_b.py::test_c", "tests/a/test_b.py::test_d[x-1]", "tests/ab.py::test_e"]
    assert [name for name in names if thorough(lines, name)] == expected


def test_of_many_cases_three_are_left(pytestconfig: pytest.Config) -> None:
    conftest: Any = pytestconfig.pluginmanager.get_plugin(str(ROOT / "tests" / "conftest.py"))
    names = ["a", *(f"b[{number}]" for number in range(9)), "c[0]", "c[1]"]
    further = conftest.further_cases(names)
    assert [name for name in names if name not in further] == [
        "a",
        "b[0]",
        "b[4]",
        "b[8]",
        *names[-2:],
    ]


def test_each_line_decides_about_a_test(unused_lines, request):
    """For files that were not collected, or in part, only the names can be checked."""
    given = [argument.split("::") for argument in request.config.args]
    collected = {item.path for item in request.session.items}
    collected -= {
        (request.config.invocation_params.dir / it[0]).resolve() for it in given if it[1:]
    }
    wrong = []
    for line in unused_lines:
        file, _, test = line.removeprefix("!").partition("::")
        path, name = ROOT / file, re.split(r"[\[*]", test)[0]
        is_there = path.exists() and (not name or f"def {name}" in path.read_text(encoding="utf-8"))
        if path in collected or not is_there:
            wrong.append(line)
    assert not wrong, "remove or correct in tests/thorough.txt:\n" + "\n".join(wrong)
