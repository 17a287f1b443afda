"""Rules of the compiler and situations around them: which pairs drawn programs meet.

The rules are the patterns of Inductor, and the operators that it decomposes or lowers.

A pair is *met* if a drawn program has the match and, as measured in a run, the situation. It is
*not possible* if the calls that the rule matches leave no room for it: a match of one call has no
inner value, and eager refuses a matrix product of tensors without dimensions. Else it is *not
met*. Rules that no program can meet are counted by their reason.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aliasproof.generators.rules import operator_calls, plain_matches
from aliasproof.generators.rules.derived import (
    OF_OPERATORS,
    derive,
    drawn_rules,
    holds,
    match_of,
)
from aliasproof.generators.rules.in_place_forms import in_place_forms
from aliasproof.generators.rules.plain_matches import USUAL, rules
from aliasproof.generators.rules.situations import BY_NAME, NAMES
from aliasproof.generators.scene import Counts, NoChoice, Pick
from benchmarks.tables import Table

TRIES = 6  # programs per pair
MET = ""  # the reason of a pair that is met
NOT_MEASURED = "drawn, but not there"
# These say that the rule's check refuses what was drawn; another draw might do. Where eager
# refuses all draws, or the calls leave no room, the pair is not possible.
_REFUSED = ("accepts none of", NOT_MEASURED)


@dataclass(frozen=True, slots=True)
class PairFigures:
    """By situation and reason, the rules; and by reason, the rules that are not drawn from."""

    rules: int
    pairs: Mapping[str, Mapping[str, int]]
    left_out: Mapping[str, int]

    def tables(self) -> list[Table]:
        """The figures for people."""
        rows, notes = [], []
        for situation, reasons in self.pairs.items():
            refused = sum(times for reason, times in reasons.items() if _is_refused(reason))
            met = reasons.get(MET, 0)
            impossible = sum(reasons.values()) - met - refused
            rows.append((situation, str(met), str(refused), str(impossible)))
            others = Counter({why: times for why, times in reasons.items() if why != MET})
            notes += [f"{situation}: {why} ({times})" for why, times in others.most_common(3)]
        columns = ("situation", "met", "not met", "not possible")
        title = f"pairs of {self.rules} rules and {len(self.pairs)} situations"
        left_out = [(why, str(times)) for why, times in self.left_out.items()]
        return [
            Table(title, columns, rows, notes),
            Table("rules that no program is drawn from", ("reason", "rules"), left_out),
        ]


def _is_refused(reason: str) -> bool:
    return reason != MET and any(words in reason for words in _REFUSED)


def measure(only: Sequence[str] = (), situations: Sequence[str] = NAMES) -> PairFigures:
    """Draw programs for each pair of patterns; `only` are parts of the names of rules.

    A part that begins like an operator, as `aten.`, asks for the operators with such a name.
    """
    parts = [part for part in only if part.startswith(OF_OPERATORS)]
    known = operator_calls.tabled() if parts else (*rules(), *in_place_forms())
    chosen = [name for name in known if not only or any(part in name for part in only)]
    within = {name for names in drawn_rules() for name in names}
    left_out: Counter[str] = Counter()
    pairs: dict[str, Counter[str]] = {situation: Counter() for situation in situations}
    met = 0
    for rule in chosen:
        plain = match_of(rule, USUAL, 0) if rule in within else _out_of_reach(rule)
        if not isinstance(plain, str):
            met += 1
            for situation in situations:
                pairs[situation][pair(rule, situation)] += 1
        else:
            left_out[plain] += 1
    return PairFigures(met, pairs, dict(left_out.most_common()))


def _out_of_reach(rule: str) -> str | None:
    if rule in rules():
        return plain_matches.out_of_reach(rule)
    return operator_calls.out_of_reach(rule)


def pair(rule: str, situation: str) -> str:
    """`MET`, or the reason why no program of some has the pair."""
    reason = NOT_MEASURED
    for seed in range(TRIES):
        pick = Pick(random.Random(f"{rule} {situation} {seed}").randint)
        try:
            derived = derive(pick, rule, BY_NAME[situation], Counts())
        except NoChoice as error:
            reason = str(error.__cause__ or error).partition("\n")[0]
            continue
        if holds(derived, situation):
            return MET
        reason = NOT_MEASURED
    return reason
