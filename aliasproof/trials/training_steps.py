"""Steps of a compilation for training: a joint graph, which is split into two.

A wrapper around a compiled training function knows how many values the forward graph saves for the
backward graph. So an earlier graph cannot run in the place of a compiled one, as in inference. The
function is compiled again instead, with the earlier graph in the place of the one that torch made.
Later passes do not run: a joint graph is split by the plain partitioner, and the two graphs run in
eager.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from unittest import mock

from torch import fx

from aliasproof.targets.graph_snapshots import copied
from aliasproof.trials.graph_versions import Version, placeholders

# What a step replaces.
JOINT, SPLIT, FORWARD, BACKWARD = "joint", "split", "forward", "backward"
REPLAYED = (JOINT, SPLIT, FORWARD, BACKWARD)


def replaced_by(versions: Sequence[Version], halves: Sequence[list[str]]) -> Iterator[str | None]:
    """What each version replaces, None for a graph before AOTAutograd.

    `halves` are the placeholders of the forward and of the backward graph.
    """
    for version in versions:
        if version.part in ("Dynamo", "pre_grad"):
            yield None
        else:
            names = placeholders(version.graph.graph)
            yield next(
                (
                    half
                    for half, its_names in zip((FORWARD, BACKWARD), halves, strict=False)
                    if its_names == names
                ),
                JOINT,
            )


@contextlib.contextmanager
def replaying(graphs: Mapping[str, fx.GraphModule]) -> Iterator[None]:
    """Compilations take these graphs, and run eagerly what follows from them."""
    # Imported here: it takes a second, and attribution is rare.
    from torch._functorch._aot_autograd import graph_compile  # noqa: PLC0415
    from torch._functorch.partitioners import default_partition  # noqa: PLC0415

    right = graph_compile.aot_stage2_autograd

    def stage(state: Any, capture: Any, partition: Callable[..., Any], *_: Any) -> Any:
        def split(graph: fx.GraphModule, inputs: Any, **options: Any) -> Any:
            if JOINT not in graphs:
                return partition(graph, inputs, **options)
            # Partitioners change the graph that they get.
            joint = copied(graphs[JOINT].graph, graphs[JOINT])
            joint.graph.eliminate_dead_code()  # they take no asserts, and a first graph has some
            return default_partition(joint, inputs, **options)

        return right(
            state, capture, split, _eager(graphs.get(FORWARD)), _eager(graphs.get(BACKWARD))
        )

    with mock.patch.object(graph_compile, "aot_stage2_autograd", stage):
        yield


def _eager(given: fx.GraphModule | None) -> Callable[..., Any]:
    """A compiler that runs a graph as it is, or the given one in its place."""

    def compiled(graph: fx.GraphModule, _: object) -> Callable[[list[Any]], Any]:
        module = graph if given is None else given

        def run(args: list[Any]) -> Any:
            return module.forward(*args)

        run._boxed_call = True  # type: ignore[attr-defined]
        return run

    return compiled
