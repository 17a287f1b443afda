"""NNSmith (https://github.com/ise-uiuc/nnsmith) beside aliasproof: programs per second and causes.

`python -m benchmarks nnsmith --checkout PATH --python PYTHON` runs, for each backend of
`torch.compile`, first NNSmith and then a campaign of aliasproof, each for the same time on the same
core, with one thread. Nothing of NNSmith is imported: its fuzzing command runs in a process. Its
Python must have torch, and

    pip install hydra-core hydra-colorlog multipledispatch appdirs numpy "z3-solver<5"

(with z3 5, its operator `Reshape` fails in its own checks before the first program). Its first
start tries each of its operators and keeps the result in its cache, for a minute or two; that is
done before the clock starts.

How to read a row:

- *programs/s* are those that ran, per second of wall time, and *per CPU s* per second of processor
  time, which other load on the machine does not change. Of NNSmith, the processor time of a run of
  one second is subtracted: imports, mostly, and a second of work in its favour. NNSmith draws
  models of at most five operators without mutations, aliasproof programs that write in place.
- *searching* counts the processor time that a campaign draws and compares. The rest of it
  recognises, reduces and confirms what was found, which NNSmith leaves to people.
- *causes* are, of NNSmith, the reports that it writes to disk with different symptoms (kind, stage,
  and last line of the log without numbers); of aliasproof, known bugs and signatures of findings.
"""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from aliasproof.programs.errors import UserError
from benchmarks.tables import Table

# A backend of `torch.compile`, and the target that compiles by it.
TARGETS = {"aot_eager": "aot-eager", "inductor": "inductor"}
MOST_NODES = 5
GRACE = 300.0  # seconds that a command may take beyond its time: imports, what is under way
INSTALL = (
    "its Python (--python) must have torch, and: pip install hydra-core hydra-colorlog"
    ' multipledispatch appdirs numpy "z3-solver<5"'
)


@dataclass(frozen=True, slots=True)
class Searched:
    """What one of the two did in `seconds` of wall time, which took `cpu` of processor time.

    `searching` are the seconds of processor time without reduction, where these are known apart.
    `causes` names what was found.
    """

    programs: int
    seconds: float
    cpu: float
    causes: tuple[str, ...]
    searching: float | None = None

    def row(self, name: str) -> tuple[str, ...]:
        """The figures of a table."""
        rates = (self.programs / self.seconds, self.per_cpu_second)
        return (name, str(self.programs), *(f"{x:.2f}" for x in rates), str(len(self.causes)))

    @property
    def per_cpu_second(self) -> float:
        """Programs per second of processor time."""
        return self.programs / self.cpu if self.cpu else 0.0


@dataclass(frozen=True, slots=True)
class BesideNNSmith:
    """Both, by backend; and what of NNSmith was run."""

    versions: Mapping[str, str]
    seconds: int
    theirs: Mapping[str, Searched]
    ours: Mapping[str, Searched]

    def tables(self) -> list[Table]:
        """Both beside each other."""
        rows, notes = [], []
        versions = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        notes.append(f"Each {self.seconds} s on one core, in turn; {versions}.")
        for backend, theirs in self.theirs.items():
            ours = self.ours[backend]
            rows += [theirs.row(f"{backend}: NNSmith"), ours.row(f"{backend}: aliasproof")]
            times = f"{ours.per_cpu_second / theirs.per_cpu_second:.1f} times"
            if ours.searching:
                alone = ours.programs / ours.searching
                rows.append((f"{backend}: searching", str(ours.programs), "", f"{alone:.2f}", ""))
                times += f", {alone / theirs.per_cpu_second:.1f} times while searching"
            notes.append(f"{backend}, aliasproof to NNSmith, per CPU second: {times}.")
        notes += [
            f"{name} under {backend}: {cause}"
            for name, found in (("NNSmith", self.theirs), ("aliasproof", self.ours))
            for backend, searched in found.items()
            for cause in searched.causes
        ]
        columns = ("backend", "programs", "programs/s", "per CPU s", "causes")
        return [Table("nnsmith: programs per second and causes", columns, rows, notes)]


def measure(
    checkout: Path, python: Path, seconds: int = 120, backends: Sequence[str] = tuple(TARGETS)
) -> BesideNNSmith:
    """Run both for each backend. Raises `UserError` if NNSmith does not start."""
    if not (checkout / "nnsmith" / "cli" / "fuzz.py").is_file():
        raise UserError(
            f"--checkout {checkout} has no nnsmith/cli/fuzz.py; give a clone of"
            " https://github.com/ise-uiuc/nnsmith"
        )
    theirs, ours = {}, {}
    with tempfile.TemporaryDirectory(prefix="aliasproof-") as folder:
        for backend in backends:
            command = partial(_nnsmith, checkout, python, backend)
            start = command(1, Path(folder) / f"{backend}-cache")  # may fill the cache
            start = command(1, Path(folder) / f"{backend}-start")
            found = command(seconds, Path(folder) / backend)
            cpu = max(found.cpu - start.cpu, 0.001)
            theirs[backend] = replace(found, cpu=cpu)
            ours[backend] = _aliasproof(TARGETS[backend], seconds, Path(folder) / f"{backend}-ours")
    return BesideNNSmith(_versions(checkout, python), seconds, theirs, ours)


# --- NNSmith --------------------------------------------------------------------------------------


def _nnsmith(checkout: Path, python: Path, backend: str, seconds: int, folder: Path) -> Searched:
    command = [
        *(str(python), "-m", "nnsmith.cli.fuzz", "model.type=torch", f"fuzz.time={seconds}s"),
        f"backend.type=pt2 backend@{backend}",
        f"mgen.max_nodes={MOST_NODES}",
        *(f"fuzz.root={folder / 'reports'}", f"hydra.run.dir={folder / 'logs'}", "fuzz.seed=1"),
    ]
    done, cpu = _on_one_core(command, seconds, {"PYTHONPATH": str(checkout.resolve())})
    log = folder / "logs" / "fuzz.log"
    text = log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""
    # One such line per program, also if the process dies before its end.
    programs = len(re.findall(r"\[fuzz\]\[INFO\] - Timing:", text))
    if programs == 0:
        last = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()[-1]
        raise UserError(
            f"NNSmith runs no program (exit status {done.returncode}): {last}; {INSTALL}"
        )
    return Searched(programs, seconds, cpu, tuple(_symptoms(folder / "reports")))


def _symptoms(reports: Path) -> list[str]:
    """What NNSmith reported, one text per symptom."""
    found: dict[str, None] = {}
    for report in sorted(reports.glob("bug-*")):
        # 'bug-Symptom.EXCEPTION-Stage.COMPILATION-0'
        kind = re.sub(r"^bug-|-\d+$|Symptom\.|Stage\.", "", report.name).lower()
        text = (report / "err.log").read_text(encoding="utf-8", errors="replace")
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        # The last line of a traceback that names an exception; below it may be advice of Dynamo.
        errors = [line for line in lines if re.match(r"[\w.]+(Error|Exception|Failed)\b.*: ", line)]
        message = (errors or lines or [""])[-1]
        found[f"{kind}: {re.sub(r'[0-9.e+-]*[0-9]', '#', message)[:120]}"] = None
    return list(found)


# --- aliasproof -----------------------------------------------------------------------------------


def _aliasproof(target: str, seconds: int, folder: Path) -> Searched:
    command = [
        *(sys.executable, "-m", "aliasproof", "fuzz", "--target", target, "--workers", "1"),
        *("--seconds", str(seconds), "--run", str(folder), "--json"),
    ]
    root = str(Path(__file__).resolve().parents[1])
    done, _ = _on_one_core(command, seconds, {"PYTHONPATH": root})
    if done.returncode != 0:
        raise UserError(f"{' '.join(command)} fails: {done.stderr.strip()}")
    outcome: Any = json.loads(done.stdout)
    programs = sum(counts["programs"] for counts in outcome["programs"].values())
    known = {bug["identifier"] for bug in outcome["known bugs"]}
    new = {each["identifier"] for each in outcome["findings"] if each["known"] is None}
    spent = outcome["seconds of processor time"]
    causes = (*sorted(known), *sorted(new))
    cpu = sum(spent.values())
    return Searched(programs, outcome["seconds"], cpu, causes, spent["searching"])


# --- both -----------------------------------------------------------------------------------------


def _on_one_core(
    command: Sequence[str], seconds: int, environment: Mapping[str, str]
) -> tuple[subprocess.CompletedProcess[str], float]:
    """Run a command, with all that it starts, on the first core that this process may use.

    The second result are its seconds of processor time.
    """
    threads = {"OMP_NUM_THREADS": "1", "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})  # a process inherits it
    before = _cpu_of_children()
    try:
        done = subprocess.run(
            command,
            env=os.environ | threads | dict(environment),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds + GRACE,
            check=False,
        )
        return done, _cpu_of_children() - before
    except OSError as error:
        raise UserError(f"{command[0]} cannot be run: {error.strerror}") from error
    except subprocess.TimeoutExpired as error:
        raise UserError(f"{command[0]} does not end within {GRACE:.0f} s of its time") from error
    finally:
        os.sched_setaffinity(0, cores)


def _cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _versions(checkout: Path, python: Path) -> dict[str, str]:
    """The commit of NNSmith, and the versions of what it runs with."""
    commands = {
        "NNSmith": ["git", "-C", str(checkout), "describe", "--always", "--dirty"],
        "its torch": [str(python), "-c", "import torch; print(torch.__version__)"],
        "its z3": [str(python), "-c", "import z3; print(z3.get_version_string())"],
    }
    return {
        name: subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
        or "unknown"
        for name, command in commands.items()
    }
