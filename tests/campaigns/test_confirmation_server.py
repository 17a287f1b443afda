"""Scripts run in fresh processes that have only torch, and end as they would by themselves."""

import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from aliasproof.campaigns.publish.confirmation_server import COMPILERS, STOPPED, ConfirmationServer
from tests.subprocesses import gone

SCRIPTS = {
    "modules": """
        import sys
        import torch
        print(sum(name.startswith("aliasproof") for name in sys.modules), torch.ones(1).item())
        torch.planted = True
    """,
    "leaks nothing": "import torch\nprint(hasattr(torch, 'planted'))",
    "exits": "import sys\nprint(__name__, sys.argv, end='')\nsys.exit(3)",
    "raises": "1 / 0",
    "dies": "import os\nos.kill(os.getpid(), 11)",
    "hangs": "while True: pass",
}


@pytest.fixture(scope="module")
def server() -> Iterator[ConfirmationServer]:
    started = ConfirmationServer()
    yield started
    started.stop()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made: Path = tmp_path_factory.mktemp("scripts")
    for name, text in SCRIPTS.items():
        lines = [line.strip() for line in text.strip().splitlines()]
        (made / f"{name}.py").write_text("\n".join(lines) + "\n")
    return made


@pytest.mark.parametrize(
    ("name", "status", "stdout", "stderr"),
    [
        ("modules", 0, "0 1.0\n", ""),
        ("leaks nothing", 0, "False\n", ""),
        ("exits", 3, "__main__ ['exits.py']", ""),
        ("raises", 1, "", "ZeroDivisionError: division by zero\n"),
        ("dies", -11, "", ""),
    ],
)
def test_a_script_runs_as_by_itself(name, status, stdout, stderr, server, folder):
    ran = server.run(folder / f"{name}.py")
    assert (ran.status, ran.stdout) == (status, stdout)
    assert ran.stderr.endswith(stderr)
    assert (ran.stderr == "") == (stderr == "")


def test_a_script_that_hangs_is_ended_and_holds_up_no_other(server, folder):
    with ThreadPoolExecutor(2) as executor:
        hangs = executor.submit(server.run, folder / "hangs.py", 5.0)
        assert server.run(folder / "exits.py").status == 3
        assert not hangs.done()
        assert hangs.result().status is None


def test_a_stopped_server_ends_at_once_and_starts_no_more(folder: Path) -> None:
    # The server is still importing, and each script would take the whole time limit.
    server = ConfirmationServer(COMPILERS)
    with ThreadPoolExecutor(1) as executor:
        hangs = executor.submit(lambda: [server.run(folder / "hangs.py") for _ in range(3)])
        while server._process is None:
            time.sleep(0.01)
        process, started = server._process, time.monotonic()
        server.stop()
        server.stop()
        assert hangs.result() == [STOPPED] * 3
        assert time.monotonic() - started < 3
    assert process.poll() is not None


@pytest.mark.parametrize("killed", ["script", "answering process", "server"])
def test_what_is_killed_from_outside_runs_again(killed: str, tmp_path: Path) -> None:
    script, tried = tmp_path / "script.py", tmp_path / "tried"
    script.write_text(
        "import os, pathlib, time\n"
        "if not pathlib.Path('tried').exists():\n"
        "    pathlib.Path('partial').write_text(f'{os.getpid()} {os.getppid()}')\n"
        "    os.rename('partial', 'tried')\n"
        "    time.sleep(60)\n"
        "print('again')\n"
    )
    server = ConfirmationServer(())
    with ThreadPoolExecutor(1) as executor:
        running = executor.submit(server.run, script)
        pid, parent = map(int, wait_for(tried).split())
        assert server._process is not None
        victims = {"script": pid, "answering process": parent, "server": server._process.pid}
        os.kill(victims[killed], signal.SIGKILL)
        assert running.result(20)[:2] == (0, "again\n")
    server.stop()
    assert gone([pid])


@pytest.mark.parametrize("stopped", [False, True])
def test_no_process_of_a_script_is_left_behind(stopped: bool, tmp_path: Path) -> None:
    script, started = tmp_path / "script.py", tmp_path / "started"
    script.write_text(
        "import os, subprocess, time\n"
        "child = subprocess.Popen(['sleep', '60'])\n"
        "open('partial', 'w').write(str(child.pid))\n"
        "os.rename('partial', 'started')\n" + "time.sleep(60)\n" * stopped
    )
    server = ConfirmationServer(())
    with ThreadPoolExecutor(1) as executor:
        running = executor.submit(server.run, script)
        child = int(wait_for(started))
        if stopped:
            server.stop()
        assert running.result(20).status == (None if stopped else 0)
    assert gone([child])
    server.stop()


def wait_for(file: Path) -> str:
    end = time.monotonic() + 20
    while not file.exists() and time.monotonic() < end:
        time.sleep(0.01)
    return file.read_text()
