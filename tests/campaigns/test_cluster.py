"""Results do not depend on where tasks run: here, on two nodes, or after one of them is lost."""

import contextlib
import os
import secrets
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from aliasproof.campaigns.run.campaign import Campaign
from aliasproof.campaigns.run.cluster_connection import MODE, connect, difference, version_reader
from aliasproof.campaigns.run.executor import LocalWorkers, MakeExecutor
from aliasproof.campaigns.run.scheduler import Scheduler
from aliasproof.campaigns.run.shard import Statistics
from aliasproof.campaigns.run.tasks import Tasks
from aliasproof.campaigns.store.plan import Plan
from aliasproof.campaigns.store.run_folder import RunFolder
from aliasproof.campaigns.store.store import Store
from aliasproof.ir.errors import UserError
from tests.subprocesses import aliasproof

# Ray reads these when it is first used in a process, which may be in any test.
os.environ |= {MODE: "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
# This test is about two nodes; other tests show that the number of workers changes nothing.
PLAN = Plan(("fx-reinplace",), seed=5, programs=75, workers=2)
HEAD, OTHER = "127.0.0.2", "127.0.0.3"


def nothing(executor: Any) -> None:
    pass


def fold(
    folder: Path,
    executor: MakeExecutor,
    first: Callable[[Any], None] = nothing,
    look: Callable[[Any], None] = nothing,
) -> tuple[list[Any], list[str], dict[str, object]]:
    """Run the plan: its stored failures, its signatures in the order in which their reductions were
    scheduled (they end in any order), and its counts.

    `first` is called before, and `look` after each step.
    """
    files, store = RunFolder.create(folder), Store.open(folder)
    notes: list[str] = []
    tasks = Tasks(store, files, executor(PLAN, files, notes.append))
    campaign = Campaign(PLAN, folder, {name: Statistics() for name in PLAN.targets})
    scheduler, signatures = Scheduler(campaign, tasks), dict[int, str]()
    try:
        first(tasks.executor)
        while scheduler.fill():
            found = scheduler.take()
            if found is not None:
                signatures[found.number] = found.finding.identifier
            look(tasks.executor)
    finally:
        tasks.executor.stop()
        print(*notes, sep="\n")
    counts = campaign.total.to_json()
    failures = store.all("SELECT task, number, failure FROM failures ORDER BY task, number")
    store.close()
    in_order = [signatures[number] for number in sorted(signatures)]
    return failures, in_order, {"programs": counts["programs"], "known": dict(campaign.known)}


def until(workers: Any, nodes: int) -> None:
    """Wait until `nodes` nodes of one CPU have joined."""
    for _ in range(6000):
        assert not [*workers.finished()]
        if sum(node.answered for node in workers._nodes) == nodes:
            return
        time.sleep(0.02)
    pytest.fail(f"{nodes} nodes do not join")


@contextlib.contextmanager
def node(address: str, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """A node of one CPU, in its own session: it ends with all its processes."""
    ray = str(Path(sysconfig.get_path("scripts")) / "ray")
    given = ("--num-cpus=1", "--disable-usage-stats", "--block", f"--node-ip-address={address}")
    process = subprocess.Popen(
        [sys.executable, ray, "start", *given, *options],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def free_port() -> int:
    with socket.create_server((HEAD, 0)) as server:
        return int(server.getsockname()[1])


def wait_for(port: int) -> None:
    for _ in range(300):
        with contextlib.suppress(OSError):
            socket.create_connection((HEAD, port), 1).close()
            return
        time.sleep(0.1)
    pytest.fail("the head of the cluster does not listen")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has all of 127.0.0.0/8")
def test_a_campaign_on_two_nodes_of_which_one_is_killed_finds_the_same_as_on_one_machine(tmp_path):
    ray = pytest.importorskip("ray")
    port = free_port()
    others: list[subprocess.Popen[bytes]] = []
    killed: list[Any] = []
    with contextlib.ExitStack() as stack:
        # The names of sockets must be short.
        temporary = stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))
        head = ("--head", f"--port={port}", f"--temp-dir={temporary}", "--include-dashboard=false")
        stack.enter_context(node(HEAD, *head))
        expected = fold(tmp_path / "local", LocalWorkers.of)
        wait_for(port)
        stack.callback(ray.shutdown)
        executor = connect(f"{HEAD}:{port}", None)

        def join_later(workers: Any) -> None:
            until(workers, 1)
            others.append(stack.enter_context(node(OTHER, f"--address={HEAD}:{port}")))
            until(workers, 2)

        def kill(workers: Any) -> None:
            if not killed and any(each.name == OTHER and each.tasks for each in workers._nodes):
                os.killpg(others[0].pid, signal.SIGKILL)
                killed.append(workers)

        assert fold(tmp_path / "cluster", executor, join_later, kill) == expected
        assert expected[1], "there is something to find"
        [workers] = killed
        assert workers._losses.total() >= 1
        older = type(workers)(PLAN, None, print, {"torch": "2.0", "aliasproof": "0"})
        with pytest.raises(UserError, match=rf"node {HEAD} has torch .*, and this machine 2\.0"):
            until(older, 1)


def test_a_node_with_other_versions_is_refused_by_name() -> None:
    here = version_reader()()
    assert difference("a", here, here) is None
    assert here["torch"].startswith("2.")
    assert "none" not in here.values()
    other = here | {"aliasproof": "with sources 0"}
    assert "node a has aliasproof with sources 0" in str(difference("a", other, here))
    assert difference("a", here | {"torch": "none"}, here) == "node a has no torch"


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("127.0.0.1:1", "nobody answers at 127.0.0.1"),
        ("ray://127.0.0.1:1", "nobody answers at 127.0.0.1"),
        ("http://a:1", "give auto, HOST:PORT or ray://HOST:PORT"),
        ("127.0.0.1:99999", "nobody answers"),
    ],
)
def test_an_address_at_which_no_cluster_is_fails_at_once(address: str, said: str) -> None:
    pytest.importorskip("ray")
    with pytest.raises(UserError, match=said):
        connect(address, None)


def test_a_cluster_without_an_authentication_token_is_refused(monkeypatch, tmp_path):
    pytest.importorskip("ray")
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        monkeypatch.setenv(MODE, "disabled")
        with pytest.raises(UserError, match="everyone who reaches the cluster could run code"):
            connect(address, None)
        # In another process, since Ray caches what it read.
        for name in [name for name in os.environ if name.startswith("RAY_")]:
            monkeypatch.delenv(name)
        done = aliasproof("fuzz", "--cluster", address, HOME=str(tmp_path))
    assert done.returncode == 2
    assert "needs the authentication token" in done.stderr
    assert "Traceback" not in done.stderr


def test_without_ray_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"pip install 'aliasproof\[cluster\]'"):
        connect("auto", None)
