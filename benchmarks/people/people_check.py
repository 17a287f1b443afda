"""What `check` answers about a function: as it is, under right passes, and under wrong ones."""

from __future__ import annotations

import itertools
import logging
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from aliasproof.checks.check import Prepared, check, check_target, default_targets, prepare
from aliasproof.judge.trial import quiet_torch
from aliasproof.oracles.check_result import TargetResult
from aliasproof.targets.user_targets import of_value
from benchmarks.people import plain_run
from benchmarks.people.people_functions import names, path_of, world
from benchmarks.people.plain_run import GivenGraph, compiled_run, differences, eager_run
from benchmarks.people.planted_kinds import KINDS
from benchmarks.people.planted_passes import RIGHT_PASSES, PlantedPass, sites


@dataclass(frozen=True, slots=True)
class GivenAnswer:
    """The answer about a function and a target, with a line for each reason."""

    function: str
    target: str
    verdict: str
    lines: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class PlantedAnswer:
    """A wrong pass that changes the result of a plain run, and the answer to it.

    `changes` is the first place that differs from eager in the plain run. `here` says whether the
    pass also changes what the graph computes that `check` gives to it; that graph may be another.
    """

    function: str
    kind: str
    site: int
    changes: str
    here: bool
    verdict: str
    flagged: bool
    named: bool
    lines: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class PlantedAnswers:
    """All wrong passes of a function. `unusable` says why there are none; empty if there may be."""

    function: str
    answers: Sequence[PlantedAnswer] = ()
    unusable: str = ""


def begin() -> None:
    """Make this process one that runs the functions, where nobody reads warnings."""
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    torch.set_num_threads(1)
    quiet_torch()
    names()


# --- right functions and right passes -------------------------------------------------------------


def as_it_is(name: str) -> list[GivenAnswer]:
    """The answers about a function through the default targets, of which inductor is one."""
    return given_answers(name, default_targets())


def in_graphs(name: str) -> list[GivenAnswer]:
    """The answers through the default targets that generate no code."""
    return given_answers(name, [target for target in default_targets() if target != "inductor"])


def under_right_passes(name: str) -> list[GivenAnswer]:
    """The answers about a function under passes that change no result."""
    return given_answers(name, RIGHT_PASSES)


def given_answers(name: str, targets: Sequence[Any]) -> list[GivenAnswer]:
    """The answers of `check` about these targets."""
    torch._dynamo.reset()
    fresh = world(name)
    found = check(fresh.function, fresh.inputs, targets, file=path_of(name))
    if found.eager.unjudged is not None:
        return [GivenAnswer(name, "eager", "unjudged", [found.eager.unjudged])]
    return [
        GivenAnswer(name, target, _verdict(result), list(_lines(result)))
        for target, result in found.results.items()
    ]


def _verdict(result: TargetResult) -> str:
    return "WRONG" if result.violated else str(result.verdict.value)


def _lines(result: TargetResult) -> list[str]:
    lines = [f"{one.oracle}: {one.describe()}" for one in result.violations]
    if lines:
        return [*lines, f"first wrong after: {result.blamed}"]
    if result.judged:
        return []
    return [f"{name}: {report.reason}" for name, report in result.reports.items() if report.reason]


# --- wrong passes ---------------------------------------------------------------------------------


# Few functions have a graph in which these change something.
RARE_KINDS = ("dropped_operator", "merged_random_calls", "reordered_random_calls")


@dataclass(slots=True)
class GraphNote:
    """A right pass that notes the graph that it gets, and the arguments of its first call."""

    given: GivenGraph | None = None
    __name__: str = field(default="graph_note", init=False)

    def __call__(self, module: fx.GraphModule) -> fx.GraphModule:
        self.given = GivenGraph(plain_run.copied(module))
        *_, last = placeholders = module.graph.find_nodes(op="placeholder")
        with module.graph.inserting_after(last):
            module.graph.call_function(self._note, tuple(placeholders))
        return module

    def _note(self, *args: object) -> None:
        assert self.given is not None
        plain = (torch.Tensor, torch.nn.Parameter)
        if not self.given.inputs and all(type(arg) in plain for arg in args):
            self.given.inputs = plain_run.copies(args)


def under_wrong_passes(
    name: str, kinds: Sequence[str] = tuple(KINDS), most: int = len(KINDS)
) -> PlantedAnswers:
    """Plant a mistake of each kind, where it changes the result of a plain run, and check that.

    So for the first `most` kinds that change it.
    """
    expected, graphs = eager_run(name), list[GivenGraph]()
    if different := differences(expected, compiled_run(name, None, graphs)):
        return PlantedAnswers(name, unusable=f"torch.compile differs from eager in {different[0]}")
    fresh = world(name)
    with torch.random.fork_rng():
        prepared = prepare(fresh.function, fresh.inputs, file=path_of(name))
        if prepared.eager.unjudged is not None:
            return PlantedAnswers(name, unusable=prepared.eager.unjudged)
        note = GraphNote()
        check_target(prepared, of_value(note))
        found = (_planted(name, kind, expected, graphs, note.given, prepared) for kind in kinds)
        changing = (answer for answer in found if answer is not None)
        return PlantedAnswers(name, list(itertools.islice(changing, most)))


def under_one_wrong_pass(name: str) -> PlantedAnswers:
    """The answer to one mistake; functions that follow each other begin with other kinds."""
    usual = [kind for kind in KINDS if kind not in RARE_KINDS]
    first = names().index(name) % len(usual)
    return under_wrong_passes(name, (*RARE_KINDS, *usual[first:], *usual[:first]), most=1)


def _planted(
    name: str,
    kind: str,
    expected: plain_run.Left,
    graphs: Sequence[GivenGraph],
    here: GivenGraph | None,
    prepared: Prepared,
) -> PlantedAnswer | None:
    """The answer to a kind of mistake; None if it changes the result at no site."""
    for changed_here, planted in _sites(kind, graphs, here):
        places = differences(expected, compiled_run(name, planted))
        if not places:
            continue
        torch._dynamo.reset()
        result = check_target(prepared, of_value(planted))
        named = f"`{planted.__name__}`" in result.blamed
        return PlantedAnswer(
            name,
            kind,
            planted.site,
            places[0],
            changed_here,
            _verdict(result),
            result.violated,
            named,
            _lines(result),
        )
    return None


def _sites(
    kind: str, graphs: Sequence[GivenGraph], here: GivenGraph | None
) -> list[tuple[bool, PlantedPass]]:
    """A pass whose mistake changes a graph of the plain run; one that changes `here` too, first."""
    most = max((sites(kind, given.graph.graph) for given in graphs), default=0)
    elsewhere: list[tuple[bool, PlantedPass]] = []
    for site in range(min(most, plain_run.MOST_SITES)):
        planted = PlantedPass(kind, site)
        if not any(plain_run.changes(planted, given) for given in graphs):
            continue
        if here is not None and here.inputs and plain_run.changes(planted, here):
            return [(True, planted), *elsewhere[:1]]
        elsewhere.append((False, planted))
    return elsewhere[:1]


PASSES: dict[str, Callable[[str], Any]] = {
    "as it is": as_it_is,
    "as it is, in graphs": in_graphs,
    "right passes": under_right_passes,
    "wrong passes": under_wrong_passes,
    "a wrong pass": under_one_wrong_pass,
}


def answer(name: str, what: str) -> Any:
    """One of the above, in a process of a pool."""
    return PASSES[what](name)
