"""`ClusterWorkers`: runs tasks on the nodes of a Ray cluster.

There is one actor per node (per GPU of it, for CUDA) around the same pool as on one machine. The
driver hands each actor two tasks per worker, and asks it for more results as soon as it has some.
If a node is lost, its tasks run again on others. A node that joins later is used. Only the driver
accesses the store.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from aliasproof.campaigns.run.cluster_connection import Versions, difference, version_reader
from aliasproof.campaigns.run.executor import LocalWorkers, Result, WaitingTasks, Work
from aliasproof.campaigns.store.plan import Plan
from aliasproof.campaigns.store.run_folder import RunFolder
from aliasproof.ir.errors import UserError
from aliasproof.processes.isolation import CPU

POLL = 0.02  # seconds between two polls of the pool
# Seconds that an exchange waits for results. A new task waits as long; workers have one in reserve.
WAIT = 0.25


class ClusterNode:
    """An actor. It writes to a temporary folder of its node; only the driver writes the store.

    Its methods run in the main thread of its process, one at a time.
    """

    def __init__(self, plan: Plan) -> None:
        # Workers are forked, and would first import the main module: Ray's takes a second.
        vars(sys.modules["__main__"]).pop("__file__", None)
        self._folder = Path(tempfile.mkdtemp(prefix="aliasproof-"))
        self._workers = LocalWorkers.of(plan, RunFolder(self._folder))

    def exchange(self, tasks: Sequence[tuple[int, Work]]) -> list[tuple[int, Result]]:
        """Start tasks. Returns the results that exist, or that come within `WAIT` seconds.

        A result has the number of its task.
        """
        for number, work in tasks:
            self._workers.start(number, work)
        end = time.monotonic() + WAIT
        while not (results := [*self._workers.finished()]) and time.monotonic() < end:
            self._workers.wait(POLL)
        return results

    def stop(self) -> None:
        """End the workers, and remove what they wrote."""
        self._workers.stop()
        shutil.rmtree(self._folder, ignore_errors=True)


LOOK = 2.0  # seconds between two searches for nodes that joined
PATIENCE = 60.0  # seconds to wait for a first node
TRIES = 3  # how often the actor of a node may be lost before the node is given up
STOP = 5.0  # seconds that actors have to end their workers
LONGEST = 200  # characters of an error of Ray in a message of ours


@dataclass(slots=True, eq=False)
class _Node:
    """The actor of a node. `reply` is its next answer, `tasks` what it has not answered yet."""

    id: str
    name: str
    workers: int
    actor: Any
    reply: Any
    tasks: dict[int, Work] = field(default_factory=dict)
    answered: bool = False


@dataclass(frozen=True, slots=True)
class _Joining:
    """A node that was asked for its versions."""

    name: str
    cpus: int
    gpus: int
    versions: Any


@dataclass(slots=True)
class ClusterWorkers:
    """An executor. At most `most` workers run on a node; None for one per CPU that Ray has there.

    `note` is called with each node that joins or is lost.
    """

    plan: Plan
    most: int | None
    note: Callable[[str], None]
    here: Versions = field(default_factory=version_reader())
    _nodes: list[_Node] = field(default_factory=list)
    _joining: dict[str, _Joining] = field(default_factory=dict)
    _refused: dict[str, str] = field(default_factory=dict)
    _losses: Counter[str] = field(default_factory=Counter)
    _waiting: WaitingTasks = field(default_factory=WaitingTasks)
    _looked: float = 0.0
    _with_nodes: float = field(default_factory=time.monotonic)

    @property
    def workers(self) -> int:
        return sum(node.workers for node in self._nodes if node.answered) or 1

    def start(self, number: int, work: Work) -> None:
        self._waiting.put(number, work)

    def finished(self) -> Iterator[tuple[int, Result]]:
        """The results that the nodes have sent. Raises `UserError` if there is no node."""
        if time.monotonic() - self._looked > LOOK:
            self._look_for_nodes()
        self._take_in()
        for node in [*self._nodes]:
            yield from self._exchange(node)
        self._require_nodes()

    def wait(self, seconds: float) -> None:
        time.sleep(seconds)

    def stop(self) -> None:
        ends = [node.actor.stop.remote() for node in self._nodes]
        if ends:
            ray.wait(ends, num_returns=len(ends), timeout=STOP)
        for node in self._nodes:
            ray.kill(node.actor)
        self._nodes.clear()

    # --- nodes ---

    def _look_for_nodes(self) -> None:
        """Ask nodes that joined for their versions."""
        self._looked = time.monotonic()
        used = {node.id for node in self._nodes} | self._joining.keys() | self._refused.keys()
        for ray_node in ray.nodes():
            name, resources = ray_node["NodeID"], ray_node["Resources"]
            cpus, gpus = (int(resources.get(kind, 0)) for kind in ("CPU", "GPU"))
            # A head node often offers no CPU.
            if not ray_node["Alive"] or name in used or not cpus or not (gpus or self._on_cpu):
                continue
            ask = ray.remote(version_reader()).options(num_cpus=0, scheduling_strategy=_on(name))
            self._joining[name] = _Joining(ray_node["NodeManagerAddress"], cpus, gpus, ask.remote())

    @property
    def _on_cpu(self) -> bool:
        return self.plan.device == CPU

    def _take_in(self) -> None:
        """Start the actors of nodes that have the same versions."""
        for key, node in [*self._joining.items()]:
            if not ray.wait([node.versions], timeout=0)[0]:
                continue
            del self._joining[key]
            try:
                wrong = difference(node.name, ray.get(node.versions), self.here)
            except RayError as error:  # a lost node looks alive for some seconds
                self._count_loss(key, f"node {node.name} does not answer: {_error_line(error)}")
                continue
            if wrong is None:
                self._start_actors(key, node)
            else:
                self._refused[key] = wrong
                self.note(f"not used: {wrong}")

    def _count_loss(self, key: str, reason: str) -> None:
        self._losses[key] += 1
        if self._losses[key] == TRIES:
            self._refused[key] = reason

    def _start_actors(self, key: str, node: _Joining) -> None:
        # Ray gives each actor its own GPUs, and hides the others from it.
        number = 1 if self._on_cpu else node.gpus
        most = node.cpus if self.most is None else min(self.most, node.cpus)
        workers = max(most // number, 1)
        for _ in range(number):
            actor = (
                ray.remote(ClusterNode)
                .options(
                    num_cpus=workers, num_gpus=int(not self._on_cpu), scheduling_strategy=_on(key)
                )
                .remote(replace(self.plan, workers=workers))
            )
            # It answers once it has started. Until then, it gets no task.
            reply = actor.exchange.remote([])
            self._nodes.append(_Node(key, node.name, workers, actor, reply))

    def _lose(self, node: _Node, error: RayError) -> None:
        """Let others run the tasks of a node that does not answer."""
        self._nodes.remove(node)
        ray.kill(node.actor)  # if it is still alive, it would keep the CPUs
        for number, work in node.tasks.items():
            self._waiting.put(number, work)
        again = f" (tasks to run again: {len(node.tasks)})"
        reason = f"node {node.name} is lost: {_error_line(error)}"
        self._count_loss(node.id, reason)
        if isinstance(error, UserError):  # the next actor would raise the same
            self._refused[node.id] = reason
        self.note(reason + again)

    def _require_nodes(self) -> None:
        """Raises `UserError` if no node is left, and none joins."""
        if self._nodes or self._joining:
            self._with_nodes = time.monotonic()
        reasons = "; ".join(self._refused.values())
        if self._refused and not (self._nodes or self._joining or self._losses.total()):
            raise UserError(f"the cluster has no node to use: {reasons}")
        if time.monotonic() - self._with_nodes > PATIENCE:
            why = f": {reasons}" if reasons else ""
            raise UserError(
                f"the cluster has no node to use{why}; what was found is stored, and 'aliasproof"
                " fuzz --run DIR' goes on"
            )

    # --- tasks ---

    def _exchange(self, node: _Node) -> list[tuple[int, Result]]:
        """Take what a node has sent, and give it new tasks."""
        if not ray.wait([node.reply], timeout=0)[0]:
            return []
        try:
            results: list[tuple[int, Result]] = ray.get(node.reply)
        except RayError as error:
            self._lose(node, error)
            return []
        if not node.answered:
            node.answered = True
            self.note(f"node {node.name} joined (workers: {node.workers})")
        for number, _ in results:
            del node.tasks[number]
        free = 2 * node.workers - len(node.tasks)  # per worker, one runs and one waits
        new = [self._waiting.pop() for _ in range(min(free, len(self._waiting)))]
        node.tasks.update(new)
        node.reply = node.actor.exchange.remote(new)
        return results


def _on(node: str) -> Any:
    return NodeAffinitySchedulingStrategy(node, soft=False)


def _error_line(error: RayError) -> str:
    """An error of Ray in one line. If a task raised, the last line of the error says what."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = lines[-1 if isinstance(error, RayTaskError) else 0] if lines else ""
    return said[:LONGEST] or type(error).__name__
