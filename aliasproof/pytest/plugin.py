"""The pytest plugin: `pytest --aliasproof-target T --aliasproof-programs N` (docs/pytest.md).

pytest loads it in every project where aliasproof is installed. So it imports neither torch nor any
other package of aliasproof, and without its option it collects nothing.
"""

from __future__ import annotations

import math
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from aliasproof.pytest.shards import (
    COUNTS,
    KNOWN,
    NAME,
    ShardFailed,
    ShardPlan,
    ShardTest,
    shard_tests,
)

# Options with a value, which an ini file can set, too: name, default, metavar, help.
_OPTIONS = (
    ("programs", "200", "N", "Programs per target."),
    ("shards", "", "N", "Tests per target. Default: one per 200 programs."),
    ("seed", "0", "N", "The same seed draws the same programs."),
    ("timeout", "600", "SECONDS", "Time limit of a test."),
    ("limit", "", "SECONDS", "A program that takes longer hangs. Default: 120."),
    ("known", NAME, "|".join(KNOWN), "Known bugs of torch: name them, fail, or patch torch first."),
    ("run", "", "DIR", "Keep the runs in this folder. Default: pytest's temporary folder."),
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options, on the command line and in ini files."""
    group = parser.getgroup("aliasproof", "aliasproof: compilers against random programs")
    group.addoption(
        "--aliasproof-target",
        action="append",
        metavar="TARGET",
        help="Test this target with random programs: a name ('aliasproof targets'), or your own"
        " pass or torch.compile backend as PACKAGE.MODULE:FUNCTION or FILE.py:FUNCTION. Repeat it"
        " for more.",
    )
    for name, default, metavar, text in _OPTIONS:
        group.addoption(f"--aliasproof-{name}", metavar=metavar, help=text)
        parser.addini(f"aliasproof_{name}", f"As --aliasproof-{name}.", default=default)


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker, and refuse unknown targets and invalid numbers before anything runs."""
    config.addinivalue_line(
        "markers", "aliasproof: a shard of random programs (--aliasproof-target)"
    )
    if targets := config.getoption("--aliasproof-target"):
        _plan(config)
        from aliasproof.ir.errors import UserError
        from aliasproof.targets.names import refuse_unknown

        try:
            for target in targets:
                refuse_unknown(target)
        except UserError as error:
            raise pytest.UsageError(f"--aliasproof-target: {error}") from error


def _option(config: pytest.Config, name: str) -> str:
    option = config.getoption(f"--aliasproof-{name}")
    return str(config.getini(f"aliasproof_{name}") if option is None else option)


def _whole(config: pytest.Config, name: str, least: int) -> int:
    text = _option(config, name)
    if not re.fullmatch(r"\d{1,18}", text) or int(text) < least:
        raise pytest.UsageError(
            f"--aliasproof-{name} {text}: give a whole number, at least {least}"
        )
    return int(text)


def _seconds(config: pytest.Config, name: str) -> float:
    text = _option(config, name)
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not (math.isfinite(number) and number > 0):
        raise pytest.UsageError(f"--aliasproof-{name} {text}: give a number of seconds above 0")
    return number


def _plan(config: pytest.Config) -> ShardPlan:
    programs, known = _whole(config, "programs", 1), _option(config, "known")
    shards = _whole(config, "shards", 1) if _option(config, "shards") else None
    if known not in KNOWN:
        raise pytest.UsageError(f"--aliasproof-known {known}: give one of {', '.join(KNOWN)}")
    return ShardPlan(
        programs,
        ShardPlan.shards_for(programs, shards),
        _whole(config, "seed", 0),
        _seconds(config, "timeout"),
        _seconds(config, "limit") if _option(config, "limit") else None,
        known,
        tuple(map(str, config.getini("pythonpath"))),  # the target may need it
    )


@pytest.hookimpl(tryfirst=True)  # before the selection by -m and -k
def pytest_collection_modifyitems(
    session: pytest.Session, config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Add one test per shard. Shards belong to no file, so no collector finds them."""
    targets = config.getoption("--aliasproof-target")
    if targets:
        parent = Shards.from_parent(session, name="aliasproof", nodeid="aliasproof")
        parent.tests = list(shard_tests(targets, _plan(config)))
        items.extend(parent.collect())


class Shards(pytest.Collector):
    """The parent of the tests; their identifiers start with its name."""

    tests: list[ShardTest]

    def collect(self) -> Iterator[pytest.Item]:
        for test in self.tests:
            item = ShardItem.from_parent(self, name=test.name)
            item.test = test
            item.add_marker("aliasproof")
            if self.config.pluginmanager.hasplugin("timeout"):
                # A shard has its own time limit, at which it keeps what was found.
                item.add_marker(pytest.mark.timeout(0))
            yield item


class ShardItem(pytest.Item):
    """The test of one shard."""

    test: ShardTest

    def runtest(self) -> None:
        """Run the shard in a separate process."""
        folder, keep = self._folder()
        outcome = self.test.run(folder)
        self.user_properties.extend(outcome.properties())
        failure = outcome.failure()
        if failure is not None:
            raise ShardFailed(failure)
        if not keep:  # a store without findings
            shutil.rmtree(folder, ignore_errors=True)

    def _folder(self) -> tuple[Path, bool]:
        """A new folder for the run, and whether to keep it.

        Never the folder of an earlier run: the target may have been fixed since.
        """
        given, name = _option(self.config, "run"), self.test.folder_name
        if not given:
            made: Path = self.config._tmp_path_factory.mktemp(name)  # type: ignore[attr-defined]
            return made, False
        runs = self.config.invocation_params.dir / given
        runs.mkdir(parents=True, exist_ok=True)
        for number in range(1, 1_000_000):
            folder = runs / (name if number == 1 else f"{name}-{number}")
            try:
                folder.mkdir()
            except FileExistsError:
                continue
            return folder, True
        raise ShardFailed(f"{runs} has a million runs of this shard; name another folder")

    def repr_failure(  # type: ignore[override]
        self, excinfo: pytest.ExceptionInfo[BaseException], style: str | None = None
    ) -> object:
        """Only the message: the frames are those of this plugin."""
        if isinstance(excinfo.value, ShardFailed):
            return str(excinfo.value)
        return super().repr_failure(excinfo)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """The location of the test, for the report."""
        return self.config.rootpath / "aliasproof", None, self.name


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print how much each target was tested, and known bugs of torch, which do not fail tests."""
    totals: dict[str, Counter[str]] = {}
    bugs: dict[str, None] = {}
    for outcome in ("passed", "failed"):
        for report in terminalreporter.getreports(outcome):
            properties = report.user_properties
            hit = [str(value) for name, value in properties if name == "aliasproof_known_bug"]
            bugs.update(dict.fromkeys(hit))
            of_shard = dict(properties)
            if "aliasproof_target" in of_shard:
                total = totals.setdefault(of_shard["aliasproof_target"], Counter())
                total.update({name: int(of_shard[f"aliasproof_{name}"]) for name in COUNTS})
    if totals:
        terminalreporter.section("aliasproof")
        for target, total in totals.items():
            compiled = total["changed"] + total["unchanged"]
            changed = f"; it changed a graph in {total['changed']} of {compiled} compilations"
            line = f"{target}: {total['programs']} programs{changed if compiled else ''}"
            terminalreporter.line(line)
    if bugs:
        terminalreporter.section("aliasproof: known bugs of torch, which fail no test")
        for bug in bugs:
            terminalreporter.line(bug)
