"""A share of a campaign as one test: `aliasproof fuzz --shard I/N`, in a separate process.

Nothing here imports torch, so pytest starts as fast as before. A target that ends its process,
hangs or prints cannot harm other tests.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PER_SHARD = 200  # programs. The start of a process costs about as much as 100 of them.
DRAWN_TOGETHER = 25  # programs of one shard of a campaign; a share has whole shards
PATIENCE = 20.0  # seconds after the time limit for a campaign to write what it has
LONGEST_LINE = 200  # characters of a line in a message

# Properties of a test: programs, and compilations in which a pass changed a graph, or did not.
COUNTS = ("programs", "changed", "unchanged")
NAME, FAIL, PATCH = "name", "fail", "patch"
KNOWN = (NAME, FAIL, PATCH)  # what to do with known bugs of torch


@dataclass(frozen=True, slots=True)
class ShardPlan:
    """The settings of all tests of one pytest run.

    `programs` are per target, in `shards` tests. `timeout` is per test, `limit` per program, in
    seconds. `known` is one of `KNOWN`. `paths` are added to Python's path.
    """

    programs: int
    shards: int
    seed: int
    timeout: float
    limit: float | None
    known: str
    paths: tuple[str, ...] = ()

    @classmethod
    def shards_for(cls, programs: int, shards: int | None) -> int:
        """The number of tests per target, each of which has programs."""
        wanted = math.ceil(programs / PER_SHARD) if shards is None else shards
        return min(wanted, math.ceil(programs / DRAWN_TOGETHER))


class ShardFailed(Exception):
    """A test of a shard fails. Only the message is printed."""


@dataclass(frozen=True, slots=True)
class ShardTest:
    """One test: the share with this number, from 1, of the programs of one target."""

    plan: ShardPlan
    target: str
    number: int

    @property
    def name(self) -> str:
        """The same in all processes of a pytest run, and in every run."""
        return f"{self.target}[shard-{self.number}-of-{self.plan.shards}]"

    @property
    def folder_name(self) -> str:
        """A name for its folder."""
        target = re.sub(r"\W+", "-", self.target)
        return f"{target}-seed-{self.plan.seed}-shard-{self.number}-of-{self.plan.shards}"

    @property
    def options(self) -> list[str]:
        """The options of `aliasproof fuzz`."""
        plan = self.plan
        share = f"{self.number}/{plan.shards}"
        limit = () if plan.limit is None else ("--limit", f"{plan.limit:g}")
        return [
            *("--target", self.target, "--programs", str(plan.programs)),
            *("--seed", str(plan.seed), "--shard", share, "--workers", "1", *limit),
            *(("--past-known",) if plan.known == PATCH else ()),
        ]

    @property
    def command(self) -> list[str]:
        # The working directory is not put on the path: a package there could hide one of ours.
        return [sys.executable, "-P", "-m", "aliasproof", "fuzz", *self.options]

    def shown_command(self) -> str:
        """The command that runs this share again."""
        paths = os.pathsep.join(self.plan.paths)
        head = f"PYTHONPATH={shlex.quote(paths)} " if paths else ""
        return head + shlex.join([*self.command, "--fail-on-findings"])

    def environment(self) -> dict[str, str]:
        """The environment of the process."""
        inherited = os.environ.get("PYTHONPATH")
        paths = [*self.plan.paths, *([inherited] if inherited else [])]
        return {**os.environ, **({"PYTHONPATH": os.pathsep.join(paths)} if paths else {})}

    def run(self, folder: Path) -> ShardOutcome:
        """Run the share. `folder` is new, and gets the findings."""
        command = [*self.command, "--run", str(folder), "--json"]
        with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
            # A session of its own, so that all processes that it started can be killed with it.
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                env=self.environment(),
                start_new_session=True,
            )
            try:
                late = not _wait(process, self.plan.timeout)
            finally:  # also after Ctrl-C, leave no process behind
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            texts = []
            for file in (output, errors):
                file.seek(0)
                texts.append(file.read())
        return ShardOutcome(self, process.returncode, late, _json(texts[0]), texts[1])


def _wait(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Wait for the end. After the time limit, make the campaign write what it has."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        for _ in range(2):  # the second one also ends the confirmation of findings
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(PATIENCE / 2)
        return False
    return True


def _json(text: str) -> dict[str, Any] | None:
    try:
        campaign = json.loads(text)
    except ValueError:  # the campaign was killed early, or reported an error
        return None
    return campaign if isinstance(campaign, dict) else None


@dataclass(frozen=True, slots=True)
class ShardOutcome:
    """How the process ended, and the campaign's outcome as JSON; None if there is none."""

    test: ShardTest
    status: int
    late: bool
    campaign: dict[str, Any] | None
    errors: str

    @property
    def findings(self) -> list[dict[str, Any]]:
        """The findings that fail the test."""
        findings = [] if self.campaign is None else self.campaign["findings"]
        all_fail = self.test.plan.known == FAIL
        return [finding for finding in findings if all_fail or finding["known"] is None]

    @property
    def known_bugs(self) -> list[str]:
        """The known bugs of torch that were hit: title, number of violations, and issue."""
        bugs = [] if self.campaign is None else self.campaign["known bugs"]
        return [
            f"{bug['identifier']}: {bug['title']} ({bug['violations']} times)"
            + (f", {bug['link']}" if bug["link"] else "")
            for bug in bugs
        ]

    def count(self, name: str) -> int:
        """The sum of a count of programs or compilations over all variants of the target."""
        counts = ({} if self.campaign is None else self.campaign["programs"]).values()
        return sum(count.get(name, 0) for count in counts)

    def properties(self) -> list[tuple[str, str]]:
        """The properties of the test in JUnit's XML."""
        plan, signatures = self.test.plan, [finding["identifier"] for finding in self.findings]
        return [
            ("aliasproof_target", self.test.target),
            ("aliasproof_seed", str(plan.seed)),
            ("aliasproof_shard", f"{self.test.number}/{plan.shards}"),
            *((f"aliasproof_{name}", str(self.count(name))) for name in COUNTS),
            ("aliasproof_signatures", " ".join(signatures)),
            *(("aliasproof_known_bug", bug) for bug in self.known_bugs),
        ]

    def failure(self) -> str | None:
        """The message of a test that fails; None if it passes."""
        wrong = [*self._problems(), *map(self._finding_text, self.findings)]
        if not wrong:
            return None
        count = f"{self.count('programs')} programs, seed {self.test.plan.seed}"
        head = f"aliasproof: {self.test.target}, shard {self.test.number} of"
        wrong.append(f"To run this shard again:\n    {self.test.shown_command()}")
        return "\n\n".join((f"{head} {self.test.plan.shards} ({count})", *wrong))

    def _problems(self) -> Iterator[str]:
        """What failed besides findings: the test must not pass then."""
        if self.late:
            yield (
                f"It was ended after {self.test.plan.timeout:g} seconds"
                " (--aliasproof-timeout), before all programs had run."
            )
        last = self.errors.strip().splitlines()[-1:]
        if self.campaign is None:
            ending = f"died of signal {-self.status}" if self.status < 0 else f"exits {self.status}"
            # The last line of the output says why: bad input, or an error of aliasproof.
            yield f"The campaign {ending}: {' '.join(last) or 'it printed nothing'}"
            return
        for mistake in self.campaign["mistakes of aliasproof"]:
            yield f"An error of aliasproof, please report it: {mistake}"
        counts = self.campaign["programs"].values()
        if not self.late and all(count["programs"] == count["discarded"] for count in counts):
            yield "Nothing was tested: the target was given no program, or took none."

    def _finding_text(self, finding: dict[str, Any]) -> str:
        """A finding: what differs, the reduced program, and its script."""
        what = f"{finding['oracle']}: {finding['kind']} ({finding['place']})"
        known = f"\nknown bug: {finding['known']}" if finding["known"] else ""
        folder = Path(finding["folder"]).absolute()
        script = folder / "reproducer.py"
        programs = f"{finding['count']} program{'s' * (finding['count'] != 1)}"
        lines = [f"{what}, {finding['identifier']}, in {programs}{known}"]
        if script.is_file():
            lines += [_program(script.read_text(encoding="utf-8"))]
            lines += [f"To see it: {shlex.join([sys.executable, str(script)])}"]
        return "\n".join(lines)


def _program(script: str) -> str:
    """The function and its inputs in a reproducer, indented."""
    heads = ("def program(", "def inp")
    blocks = (text for text in script.split("\n\n\n") if text.startswith(heads))
    lines = "\n\n".join(blocks).splitlines()
    return "\n".join(_short(f"    {line}" if line else "") for line in lines)


def _short(line: str) -> str:
    return line if len(line) <= LONGEST_LINE else f"{line[:LONGEST_LINE]}…"


def shard_tests(targets: Sequence[str], plan: ShardPlan) -> Iterator[ShardTest]:
    """The tests in order: shard by shard, each on all targets."""
    for number in range(1, plan.shards + 1):
        for target in dict.fromkeys(targets):
            yield ShardTest(plan, target, number)
