"""A campaign that is killed again and again finds exactly what an undisturbed one finds.

`make survival` runs this with more kills and all faults: `KILLS=20 FAULTS=segfault,hang,...`.
"""

import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.subprocesses import gone, started

KILLS = int(os.environ.get("KILLS", "1"))  # of the driver, and of its workers
PROGRAMS = os.environ.get("PROGRAMS", "16")  # of a seed with one program that kills its process
# Fields that differ between two equal runs. Dynamo has caches, so a candidate of a Python program
# may fail only in one process.
TIMES = (
    *("seconds", "seconds of processor time", "seconds by target"),
    *("worker deaths", "folder", "tried", "compiled"),
)
FAULTS = os.environ.get("FAULTS", "segfault,garbage,files")
# Fields that show a fault. Output and open files are no fault of the results.
KINDS = {"segfault": "dies of signal 11", "hang": "hangs", "memory": "runs out of memory"}
COMMAND = (
    *("fuzz", "--target", "faulty_pass.py:cleanup", "--run", "run"),
    *("--seed", "8", "--programs", PROGRAMS),
)
# Faults show quickly, and none exhausts the memory of the machine.
LIMITS = ("--limit", "20", "--memory", "1", "--workers", "2")

pytestmark = pytest.mark.timeout(int(os.environ.get("LIMIT", "600")))


class Campaigns:
    """Starts campaigns in a folder."""

    def __init__(self, folder: Path, command: Sequence[str] = (*COMMAND, *LIMITS)) -> None:
        self.folder, self.command = folder, command
        folder.mkdir()
        shutil.copy(Path(__file__).with_name("faulty_pass.py"), folder)

    def start(self, *more: str) -> subprocess.Popen[str]:
        command = ("-P", "-m", "aliasproof", *self.command, *more)
        return started(*command, cwd=self.folder, OMP_NUM_THREADS="1", FAULTS=FAULTS)

    def finish(self) -> dict[str, Any]:
        """Run to the end and return the outcome, without fields that differ between equal runs."""
        process = self.start()
        _, err = process.communicate()
        assert process.returncode == 0, err
        assert "Traceback" not in err
        assert "resource_tracker" not in err
        return outcome(self.folder / "run")


def outcome(run: Path) -> dict[str, Any]:
    """The outcome of a run, without fields that differ between equal runs."""
    found = json.loads((run / "run.json").read_text())
    several = [*found["findings"], *found.get("latent", ()), *found.get("suspicions", ())]
    for entry in (found, *several):
        for name in TIMES:
            entry.pop(name, None)
        for step in entry.get("reduction", {}).get("steps", {}).values():
            step.pop("seconds")
    found["files"] = {
        str(path.relative_to(run)): path.read_text()
        for path in run.glob("findings/*/*")
        if path.name in ("program.json", "reproducer.py")
    }
    # Reproducers and evidence name the file of the pass, which is in the folder of the campaign.
    anywhere = json.dumps(found).replace(json.dumps(str(run.parent))[1:-1], "")
    return dict(json.loads(anywhere))


def descendants(pid: int) -> dict[int, int]:
    """The processes that a process started, directly or not, with their parents."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if fields[0] != "Z":
            parents[int(stat.parent.name)] = int(fields[1])
    found: dict[int, int] = {}
    while more := {p: q for p, q in parents.items() if (q == pid or q in found) and p not in found}:
        found |= more
    return found


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    found = Campaigns(tmp_path_factory.mktemp("undisturbed") / "campaign").finish()
    kinds = json.dumps(found)
    shown = [fault for fault, kind in KINDS.items() if fault in FAULTS and kind in kinds]
    assert "segfault" in shown or "segfault" not in FAULTS
    assert int(PROGRAMS) < 200 or shown == [fault for fault in KINDS if fault in FAULTS]
    return found


@pytest.fixture
def campaigns(tmp_path: Path) -> Iterator[Campaigns]:
    made = Campaigns(tmp_path / "campaign")
    yield made
    if (made.folder / "run").is_mount():
        subprocess.run(["umount", "-l", made.folder / "run"], check=True)


def wait(campaigns: Campaigns, process: subprocess.Popen[str], seconds: float) -> bool:
    """Wait until the campaign started, and then `seconds` more. False if it has ended."""
    log = campaigns.folder / "run" / "events.jsonl"
    before = log.read_text().count("started") if log.exists() else 0
    while process.poll() is None and (
        not log.exists() or log.read_text().count('"started"') <= before
    ):
        time.sleep(0.05)
    return wait_a_moment(process, seconds)


def wait_a_moment(process: subprocess.Popen[str], seconds: float) -> bool:
    """Wait that long. False if the campaign has ended."""
    ends = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < ends:
        time.sleep(0.05)
    return process.poll() is None


def kill_drivers(campaigns: Campaigns, chance: random.Random) -> None:
    for _ in range(KILLS):
        process = campaigns.start()
        if not wait(campaigns, process, chance.uniform(0, 15)):
            process.communicate()  # which closes its pipes
            break
        others = list(descendants(process.pid))
        os.kill(process.pid, signal.SIGKILL)
        _, err = process.communicate()
        assert "resource_tracker" not in err, "a semaphore outlives the campaign"
        assert gone(others), "a process outlives the campaign"


def kill_workers(campaigns: Campaigns, chance: random.Random) -> None:
    process = campaigns.start()
    for _ in range(KILLS):
        if not wait_a_moment(process, chance.uniform(2, 8)):
            break
        children = descendants(process.pid)
        # Workers are forked from a server, which is a child of the driver.
        workers = [pid for pid, parent in children.items() if parent in children]
        if workers:
            os.kill(chance.choice(workers), signal.SIGKILL)
    _, err = process.communicate()
    assert process.returncode == 0, err
    assert "Traceback" not in err


def end_by_signals(campaigns: Campaigns, chance: random.Random) -> None:
    """Ctrl-C and SIGTERM, to all processes, up to three times, also in the first second."""
    for number in (signal.SIGINT, signal.SIGTERM) * max(KILLS // 2, 1):
        process = campaigns.start()
        wait_a_moment(process, chance.choice([2.0, 6.0, 12.0]))
        for _ in range(chance.choice([1, 3])):
            if process.poll() is None:
                os.killpg(process.pid, number)
                time.sleep(0.2)
        _, err = process.communicate(timeout=120)
        assert "Traceback" not in err
        assert "resource_tracker" not in err
        # The third signal kills the process at once.
        assert process.returncode in (0, 130, -number), err


def fill_disk(campaigns: Campaigns, chance: random.Random) -> None:
    """A disk that fills up three times, each time a little later."""
    run = campaigns.folder / "run"
    run.mkdir()
    for size in ("120k", "remount,size=200k", "remount,size=260k"):
        mount_memory(run, size)
        process = campaigns.start()
        _, err = process.communicate()
        if process.returncode == 0 and size != "120k":
            break
        assert process.returncode == 2, err
        assert "resource_tracker" not in err
        assert err.splitlines()[-1].startswith("aliasproof: the disk is full"), err
        with sqlite3.connect(run / "store.sqlite") as store:  # all that was stored is readable
            assert store.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    mount_memory(run, "remount,size=1g")


def mount_memory(folder: Path, options: str) -> None:
    """Mount a file system in memory, or change its size."""
    options = options if "size=" in options else f"size={options}"
    mount = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")


def one_after_the_other(campaigns: Campaigns, chance: random.Random) -> None:
    for disturb in (fill_disk, kill_drivers, kill_workers):
        disturb(campaigns, chance)


@pytest.mark.parametrize(
    "disturb",
    # Each takes as long as an undisturbed campaign, which is long.
    [one_after_the_other]
    if KILLS == 1
    else [kill_drivers, kill_workers, end_by_signals, fill_disk],
    ids=lambda each: each.__name__,
)
def test_the_outcome_is_that_of_an_undisturbed_campaign(disturb, campaigns, undisturbed):
    seed = int(os.environ.get("SEED", "0"))
    disturb(campaigns, random.Random(seed))
    assert campaigns.finish() == undisturbed


# No finding of this seed depends on earlier programs of the process, as weak references do.
HUNT = ("hunt", "--target", "aot-eager", "--seed", "2", "--programs", "16", "--run", "run")


@pytest.fixture(scope="module")
def undisturbed_hunt(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return Campaigns(tmp_path_factory.mktemp("undisturbed") / "hunt", HUNT).finish()


@pytest.mark.parametrize(
    "disturb",
    [one_after_the_other] if KILLS == 1 else [kill_drivers, kill_workers, fill_disk],
    ids=lambda each: each.__name__,
)
def test_the_outcome_of_a_hunt_is_that_of_an_undisturbed_one(disturb, undisturbed_hunt, tmp_path):
    hunts = Campaigns(tmp_path / "disturbed", HUNT)
    try:
        disturb(hunts, random.Random(int(os.environ.get("SEED", "0"))))
        assert hunts.finish() == undisturbed_hunt
    finally:
        if (hunts.folder / "run").is_mount():
            subprocess.run(["umount", "-l", hunts.folder / "run"], check=True)
