"""Profiles of Hypothesis, which tests are thorough, and programs and compilers for all tests.

The default profile of Hypothesis depends on where it runs, so profiles are chosen by name: `dev` on
a developer's machine, `ci` if the variable CI is set, `nightly` for `make nightly`; the variable
HYPOTHESIS_PROFILE names another.
"""

import atexit
import gc
import os
import re
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, settings

from aliasproof.ir.devices import without_cuda
from aliasproof.ir.execution import ProgramFunction
from aliasproof.ir.program import Program
from aliasproof.oracles.contract import Contract
from aliasproof.targets.target import Build, Function, Target
from tests.short_programs import program_of, view

# Drawing runs programs on tensors, which takes long on a busy machine.
UNTIMED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

settings.register_profile("dev", UNTIMED, max_examples=100)
settings.register_profile(
    "ci", UNTIMED, max_examples=100, derandomize=True, database=None, print_blob=True
)
settings.register_profile("nightly", UNTIMED, max_examples=5_000, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "dev"))


# The processes of a session share cached results, and share nothing with other sessions.
if "PYTEST_XDIST_WORKER" not in os.environ:
    os.environ["ALIASPROOF_CACHE"] = tempfile.mkdtemp(prefix="aliasproof-")
    atexit.register(shutil.rmtree, os.environ["ALIASPROOF_CACHE"], ignore_errors=True)

# Hundreds of tests start processes, and each would compile our sources, which takes a second.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# A shell without job control makes its background jobs ignore Ctrl-C, which some tests send.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# --- which tests are thorough ---------------------------------------------------------------------

THOROUGH = Path(__file__).with_name("thorough.txt")
CASES = 3  # of a parametrized test that `make test` runs, unless files or tests are named
UNUSED = pytest.StashKey[list[str]]()


def deciding_lines(lines: Sequence[str], tests: Iterable[str]) -> dict[str, str]:
    """For each test, the last line that fits it: its name, its folder or file, or its cases."""
    patterns = {
        line: re.escape(line.removeprefix("!")).replace(r"\*", ".*") + r"((/|::|\[).*)?"
        for line in reversed(lines)
    }
    decided = {}
    for name in tests:
        for line, pattern in patterns.items():
            if re.fullmatch(pattern, name):
                decided[name] = line
                break
    return decided


def further_cases(names: Iterable[str]) -> set[str]:
    """All cases except the first, the last and some between, of each test with many cases."""
    names_of: dict[str, list[str]] = {}
    for name in names:
        names_of.setdefault(name.partition("[")[0], []).append(name)
    further: set[str] = set()
    for cases in names_of.values():
        if len(cases) > CASES:
            spread = {number * (len(cases) - 1) // (CASES - 1) for number in range(CASES)}
            further.update(case for number, case in enumerate(cases) if number not in spread)
    return further


def is_thorough(line: str | None) -> bool:
    return line is not None and not line.startswith("!")


@pytest.hookimpl(tryfirst=True)  # before tests are deselected
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    lines = [line for line in THOROUGH.read_text().splitlines() if line and line[0] != "#"]
    decided = deciding_lines(lines, [item.nodeid for item in items])
    further: set[str] = set()
    if not config.option.keyword and len({item.path for item in items}) > 100:
        further = further_cases(item.nodeid for item in items if item.nodeid not in decided)
    for item in items:
        if is_thorough(decided.get(item.nodeid)) or item.nodeid in further:
            item.add_marker("thorough")
    config.stash[UNUSED] = [line for line in lines if line not in decided.values()]


def pytest_collection_finish() -> None:
    gc.freeze()  # the objects of imports and collection stay, so the collector need not visit them


@pytest.fixture
def unused_lines(pytestconfig: pytest.Config) -> list[str]:
    """The lines of `thorough.txt` that fit none of the collected tests."""
    return pytestconfig.stash[UNUSED]


@pytest.fixture
def thorough() -> Callable[[Sequence[str], str], bool]:
    """`thorough(lines, name)`: whether these lines make the test of this name a thorough one."""
    return lambda lines, name: is_thorough(deciding_lines(lines, [name]).get(name))


# --- tests that cannot run here -------------------------------------------------------------------


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test that cannot run on this machine; the reason says what is missing."""
    missing = without_cuda() if item.get_closest_marker("cuda") else None
    if missing is not None:
        pytest.skip(missing)
    callspec = getattr(item, "callspec", None)
    for value in () if callspec is None else callspec.params.values():
        reason = value.unavailable() if isinstance(value, Target) else None
        if reason is not None:
            pytest.skip(f"{value.name} {reason}")


# --- programs as text, and compilers with a planted bug -------------------------------------------


@pytest.fixture(scope="session")
def program() -> Callable[..., Program]:
    """`program(body, (4,), (2, 3))`: a program with this body and dense inputs x0, x1, ...

    The body is what `source` prints. The shapes are those of the inputs, which are float32.
    """

    def written(body: str, *shapes: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Program:
        return program_of(body, *(view(*sizes, dtype=dtype) for sizes in shapes))

    return written


@pytest.fixture(scope="session")
def compiler() -> Callable[..., Target]:
    """`compiler(rewrite)`: a target that runs `rewrite(program)` instead of the program."""

    def planted(
        rewrite: Callable[[Program], Program],
        name: str = "planted",
        after: Target | None = None,
        contract: Contract | None = None,
    ) -> Target:
        def build(function: Function, inputs: Sequence[torch.Tensor]) -> Build:
            assert isinstance(function, ProgramFunction)
            return Build(ProgramFunction(rewrite(function.program)), [])

        return Target(
            name,
            "a compiler with a planted bug",
            contract or Contract(),
            build,
            recipe="",
            after=after,
        )

    return planted
