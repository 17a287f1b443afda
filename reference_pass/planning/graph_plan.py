"""The plan of a graph: in which memory each result is.

Marks come early, and the plan comes late. On the functional graph, each call is *marked* with the
operand whose memory its result may take over (`marks`). It stays functional until the end, so no
pass in between needs to know about memory. Then

1. concatenations become stores into one buffer (`join_buffers`);
2. reinplacing writes results over operands that are dead, or into the buffer (`offers`);
3. results that would still allocate take over a storage that nothing reads any more (`reuse`).

Steps 1 and 3 use the timeline of the reinplaced graph. So the graph is reinplaced three times:
plain, with buffers, and with the storages to take over. Safety is decided in one place, by the
conditions of reinplacing. The plan only says which candidates come first, so a wrong estimate costs
bytes but never changes a result. Among the graphs whose peak is not higher, the one with the lowest
peak is taken.

Time is linear in the number of calls: up to seven walks, and one scan per join and per storage.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from torch import fx

from aliasproof.reference_pass.calls.fake_tensors import fake_mode, on_fakes
from aliasproof.reference_pass.calls.graphs import copied
from aliasproof.reference_pass.calls.nested import tensors_in
from aliasproof.reference_pass.calls.refresh import refresh_metadata
from aliasproof.reference_pass.calls.regions import known
from aliasproof.reference_pass.calls.storages import storage_of
from aliasproof.reference_pass.candidates import Candidate, How
from aliasproof.reference_pass.conditions import Condition
from aliasproof.reference_pass.planning.join_buffers import join_in_buffers
from aliasproof.reference_pass.planning.marks import refuse_unmet
from aliasproof.reference_pass.planning.offers import Mark, Offers, all_candidates
from aliasproof.reference_pass.planning.reuse import Place, storages_to_reuse
from aliasproof.reference_pass.planning.timeline import Timeline, lifetimes, peaks
from aliasproof.reference_pass.planning.unread import forget_unread
from aliasproof.reference_pass.reinplace import decisions, put_in_place
from aliasproof.reference_pass.semantics import Semantics

# --- costs ----------------------------------------------------------------------------------------
# Conditions of reinplacing, like those in `conditions`: they fail if a result in the memory of an
# operand costs more bytes than it saves. No result is wrong without them.


def larger_output_storage(candidate: Candidate) -> str | None:
    """No output has a storage of more bytes than in eager.

    In place, a result is in the storage of its operand:

        h = x + 1                                h is 4 MB
        return h[:1] * 2                         a row of 4 kB

    Written into the row of `h`, the result would save 4 kB in the call, and cost 4 MB for as long
    as the caller, or autograd, keeps it. No result would be wrong, so this is not one of
    `all_conditions`.
    """
    live = candidate.liveness
    for slot in candidate.slots:
        ours, eager = (tensor.untyped_storage().nbytes() for tensor in (slot.written, slot.value))
        # A symbolic size is allowed if it is known to be small enough.
        if storage_of(slot.written) == storage_of(slot.value) or known(ours <= eager):
            continue
        # A scatter copies the whole storage of its base.
        values = () if slot.result is None else live.with_views(slot.result, copies=True)
        shown = [tensor for value in values for tensor in tensors_in(value.meta["val"])]
        if any(map(live.returned_in, (slot.value, *shown))):
            return (
                f"the result is returned, and would keep the storage of {slot.destination}"
                f" alive: {ours} bytes in place of {eager}"
            )
    return None


def larger_storage_longer(candidate: Candidate) -> str | None:
    """No storage lives longer for a result that needs fewer bytes.

        p, q = cat([x, y]).split(n)              4 MB, which nothing else reads
        r = p.exp()                              2 MB, needed until the end

    In place of `p`, the result saves 2 MB at its call, and costs 2 MB from then on. Whether that
    pays off depends on where the peak is, so this is only for a graph whose peak would rise.
    """
    live = candidate.liveness
    for slot in candidate.slots:
        ours, own = (tensor.untyped_storage().nbytes() for tensor in (slot.written, slot.value))
        memory = live.memory(slot.written)
        if memory.is_input or slot.result is None or known(ours <= own):
            continue
        needed = max((read.at for reads in memory.values.values() for read in reads), default=-1)
        if live.last_read(slot.result) > needed:
            return f"{slot.result} would keep the storage of {slot.destination}: {ours} bytes"
    return None


# --- graph plan -----------------------------------------------------------------------------------


MOST_TRIES = 3  # to find the parts that can be in a buffer; each is a walk over the graph


def put_in_place_within_peak(
    graph_module: fx.GraphModule, semantics: Semantics, conditions: Sequence[Condition]
) -> None:
    """Turn functional ops into in-place ones (`put_in_place`) without raising the peak of bytes."""
    functional, (peak, _) = copied(graph_module), peaks(graph_module.graph)
    put_in_place(graph_module, semantics, conditions, all_candidates)
    if peaks(graph_module.graph)[0] > peak:
        put_in_place(functional, semantics, (*conditions, larger_storage_longer), all_candidates)
        graph_module.graph = functional.graph
        graph_module.meta["reinplace"] = decisions(functional)


def plan_storages(
    graph_module: fx.GraphModule,
    semantics: Semantics,
    conditions: Sequence[Condition],
    marks: Mapping[str, Mark],
) -> None:
    """Put the results of a functional graph into the memory of others, where that is safe.

    Requires true metadata. `marks` are obeyed. Raises `Refused` for a mark that no condition
    allows, and if the graph writes anything except its inputs at its end.
    """
    plain = copied(graph_module)
    put_in_place(plain, semantics, conditions, all_candidates)
    with on_fakes(fake_mode(graph_module)):
        forget_unread(graph_module.graph, semantics)
    planner = _Planner(graph_module, semantics, conditions, marks)
    timeline = Timeline.of(plain.graph, graph_module.graph)
    graphs = planner.planned(timeline)
    if peaks(graphs[0].graph) > peaks(graph_module.graph):
        # A small result in a large operand may keep more than it saves.
        graphs += replace(planner, keeps=False).planned(timeline)
    if not marks:  # a graph without the marks would not do what they request
        graphs += (plain,)
        if peaks(plain.graph) > peaks(graph_module.graph):
            graphs += (copied(graph_module),)
            put_in_place_within_peak(graphs[-1], semantics, conditions)
    # The peaks of live bytes, and the number of allocations.
    costs = [
        (*peaks(made.graph), sum(life.nbytes > 0 for life in lifetimes(made.graph).values()))
        for made in graphs
    ]
    own, dropped, _ = costs[-1]
    allowed = [at for at, cost in enumerate(costs) if cost[0] <= own and cost[1] <= dropped]
    best = graphs[min(allowed, key=costs.__getitem__)]
    graph_module.graph = best.graph
    graph_module.meta["reinplace"] = decisions(best)


@dataclass(frozen=True, slots=True)
class _Planner:
    functional: fx.GraphModule
    semantics: Semantics
    conditions: Sequence[Condition]
    marks: Mapping[str, Mark]
    keeps: bool = True

    def planned(self, timeline: Timeline) -> tuple[fx.GraphModule, ...]:
        """The graph with storages that are taken over, and without."""
        joined, stored, planned = self.with_buffers(timeline)
        return self.reinplaced(joined, stored, storages_to_reuse(planned.graph)), planned

    def with_buffers(
        self, timeline: Timeline
    ) -> tuple[fx.GraphModule, dict[str, str], fx.GraphModule]:
        """The graph with buffers for its joins, the parts that they store, and it reinplaced."""
        without: set[str] = set()
        tries = 0
        while True:
            tries += 1
            joined = copied(self.functional)
            with on_fakes(fake_mode(joined)):
                stored = join_in_buffers(
                    joined.graph, self.semantics, timeline, without, self.marks
                )
            # A view of a concatenation is now a view of its buffer.
            refresh_metadata(joined, (), self.semantics)
            planned = self.reinplaced(joined, stored, {})
            decided = decisions(planned)
            elsewhere = {each.node for each in decided if each.how in (How.OUT, How.TAKEN)}
            if elsewhere >= stored.keys() or tries == MOST_TRIES:
                return joined, stored, planned
            # A root that no condition allows in the buffer is not tried again: its part is copied.
            without |= stored.keys() - elsewhere

    def reinplaced(
        self, functional: fx.GraphModule, stored: Mapping[str, str], reuse: Mapping[str, Place]
    ) -> fx.GraphModule:
        """A copy of a graph, reinplaced with the candidates of planning."""
        made = copied(functional)
        nodes = {node.name: node for node in made.graph.nodes}
        offers = Offers(
            {nodes[root]: nodes[part] for root, part in stored.items()},
            {nodes[name]: (nodes[holder], at) for name, (holder, at) in reuse.items()},
            {nodes[name]: mark for name, mark in self.marks.items()},
            self.keeps,
        )
        put_in_place(made, self.semantics, self.conditions, offers)
        refuse_unmet(self.marks, decisions(made))
        return made
