"""The lists that commands print: contracts, known bugs, ops, sites, forms, draws, kill matrix."""

from __future__ import annotations

import textwrap
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from aliasproof.reports.console import (
    counted,
    new_table,
    print_heading,
    print_lines,
    print_table,
    table_of,
)

if TYPE_CHECKING:  # they import torch
    from aliasproof.corpus.known_bug import KnownBug, PythonBug
    from aliasproof.oracles.contract import Contract

EVERYTHING = ("promises", "everything that eager does", "")
CLAUSE_WIDTH = 16  # columns: the longest is "does not promise"


def print_contract(console: Console, target: Mapping[str, Any]) -> None:
    """Print a target and its contract, both as JSON values."""
    _print_line(console, target["name"], f": {target['summary']}")
    table = new_table(header=False)
    table.add_column("", width=CLAUSE_WIDTH, style="dim")
    table.add_column("", overflow="fold")
    if target["unavailable"] is not None:
        table.add_row("not here", target["unavailable"])
    for clause, text, reason in _clauses(target) or [EVERYTHING]:
        table.add_row(clause, Text.assemble(text, (f": {reason}" if reason else "", "dim")))
    # Explains why a campaign can report a finding of another target than the tested one.
    if (after := target["builds on"]) is not None:
        attribution = f"{after}: a violation that {after} shows too is attributed to {after}"
        table.add_row("builds on", attribution)
    if target["page"]:
        table.add_row("described in", target["page"])
    print_table(console, table)
    console.print()


def print_summaries(
    console: Console,
    targets: Sequence[Mapping[str, Any]],
    variants: Sequence[Mapping[str, Any]],
    own: Sequence[Mapping[str, Any]],
) -> None:
    """Print one line per target, variant and installed target, all as JSON values."""
    for target in targets:
        absent = "" if target["unavailable"] is None else f" (not here: {target['unavailable']})"
        _print_line(console, target["name"], f": {target['summary']}", absent)
    for target in own:
        what = target["summary"] if target["broken"] is None else f"broken: {target['broken']}"
        _print_line(console, target["name"], f" (entry point {target['code']}): {what}")
    print_lines(console, "\nVariants, which may be joined (aot-eager:grad:second-call):")
    for variant in variants:
        _print_line(console, f"TARGET:{variant['name']}", f": {variant['summary']}")
    print_lines(
        console,
        "\n'aliasproof targets NAME' shows what a target promises, with or without variants."
        " 'aliasproof targets --json' lists the targets that take a variant.",
    )


def _print_line(console: Console, name: str, what: str, note: str = "") -> None:
    print_lines(console, Text.assemble((name, "bold"), what, (note, "dim")))


def _clauses(contract: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """The clauses of a contract: the kind of clause, its subject, and the reason."""
    rows = [
        ("requires", precondition["name"], precondition["reason"])
        for precondition in contract["preconditions"]
    ]
    for waiver in contract["waived"]:
        condition, scope = waiver["unless"], waiver["only"]
        exception = "" if condition is None else f" (it does if {condition})"
        exception += "" if scope is None else f" (only if {scope})"
        rows.append(("does not promise", f"'{waiver['meaning']}'{exception}", waiver["reason"]))
    rows += [
        ("may refuse", f"{refusal['name']}, with /{refusal['message']}/", refusal["reason"])
        for refusal in contract["refusals"]
    ]
    return rows + [
        ("disputed", dispute["name"], dispute["reason"]) for dispute in contract["disputes"]
    ]


def _sentence(condition: Callable[..., bool] | None) -> str | None:
    """The condition of a waiver in words."""
    if condition is None:
        return None
    # The docstring of a condition begins with a sentence that says when the condition holds.
    sentence = (condition.__doc__ or "a condition holds").strip().splitlines()[0].rstrip(".")
    return sentence[:1].lower() + sentence[1:]


def contract_json(contract: Contract) -> dict[str, object]:
    return {
        "waived": [
            {
                "promise": waiver.promise.name.lower(),
                "meaning": waiver.promise.value,
                "reason": waiver.reason,
                "unless": _sentence(waiver.unless),
                "only": _sentence(waiver.only),
            }
            for waiver in contract.waivers
        ],
        "preconditions": _values(contract.preconditions, "name", "reason"),
        "refusals": _values(contract.refusals, "name", "message", "reason"),
        "disputes": _values(contract.disputes, "name", "reason"),
    }


def _values(clauses: Iterable[object], *names: str) -> list[dict[str, object]]:
    return [{name: getattr(clause, name) for name in names} for clause in clauses]


# --- known bugs -----------------------------------------------------------------------------------


def print_bugs(console: Console, bugs: Collection[KnownBug | PythonBug]) -> None:
    """Print one line per bug."""
    for bug in bugs:
        line = Text.assemble((bug.identifier, "bold"), f": {bug.title}", (f"  {bug.link}", "dim"))
        line.rstrip()
        print_lines(console, line)
    print_lines(
        console,
        f"{counted(len(bugs), 'known bug')} (corpus/bugs/). A finding that vanishes while a bug is"
        " patched in process is that bug. 'aliasproof known NAME' prints its file.",
    )


# --- op table -------------------------------------------------------------------------------------
#
# The table of ops: which are drawn; which views and writes of ATen are not, and why.


NAMES = ("op", "kind", "status", "writes", "detail")
STATUSES = ("drawn", "reachable", "not applicable", "undrawn")
LEGEND = (
    "detail: the group of a drawn op, which is a swarm switch; the op through which a"
    " reachable one is reached; or the reason. Kind and writes come from the schema."
)


def print_ops(console: Console, ops: Sequence[Mapping[str, Any]], total: int) -> None:
    """Print one row per op, and the counts; `ops` are JSON values of some of the `total` ops."""
    rows = [
        (*(op[name] for name in NAMES[:3]), ", ".join(op["writes"]), op["detail"]) for op in ops
    ]
    if _fits(console, NAMES, rows):
        _print_table(console, NAMES, rows)
    else:  # a narrow terminal would cut the names
        for op, kind, status, writes, detail in rows:
            what = f"{kind}, writes {writes or 'nothing'}, {status}"
            print_lines(console, f"{op}: {what}{detail and ': '}{detail}")
    console.print()
    # How many ops of each kind have each status.
    counts = Counter((op["kind"], op["status"]) for op in ops)
    names = ("kind", *STATUSES)
    counted = [
        (kind, *(str(counts[kind, status]) for status in STATUSES))
        for kind in dict.fromkeys(op["kind"] for op in ops)
    ]
    if _fits(console, names, counted):
        _print_table(console, names, counted)
    else:
        for kind, *numbers in counted:
            pairs = zip(numbers, STATUSES, strict=True)
            print_lines(console, f"{kind}: {', '.join(' '.join(pair) for pair in pairs)}")
    console.print()
    print_lines(console, f"{len(rows)} of {total} ops. {LEGEND}")


def _fits(console: Console, names: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    columns = zip(names, *rows, strict=True)
    return sum(max(map(len, column)) + 2 for column in columns) <= console.width


def _print_table(console: Console, names: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    print_table(console, table_of(names, rows, texts=len(names)))


# --- sites table ----------------------------------------------------------------------------------
#
# The sites of the compiler: how often programs fired each, and why others never fired.


GAP = "no reason: a gap"
SHOWN = 8  # names of sites that never fired for one reason


def print_sites(console: Console, figures: Mapping[str, Any], *, every: bool = False) -> None:
    """Print the sites; `figures` are JSON values. With `every`, lists of names are not cut."""
    sites: Sequence[Mapping[str, Any]] = figures["sites"]
    _print_summary(console, sites)
    for kind in dict.fromkeys(site["kind"] for site in sites):
        of_kind = [site for site in sites if site["kind"] == kind]
        print_heading(console, kind)
        for site in sorted(of_kind, key=lambda site: -site["fired"]):
            if site["fired"]:
                _print_wrapped(console, f"{site['fired']:5} {_short(site)} {site['location']}")
        _print_never(console, of_kind, every=every)
    if figures["unlisted"]:
        print_heading(console, "fired, and in no list: torch has made them since it was read")
        for name, count in figures["unlisted"].items():
            print_lines(console, f"{count} {name}")
    console.print()
    fired = sum(site["fired"] > 0 for site in sites)
    print_lines(
        console,
        f"{fired} of {len(sites)} sites fired: {figures['programs']} programs of seed"
        f" {figures['seed']} on target {figures['target']}, {figures['discarded']} discarded,"
        f" {figures['lost']} ended their process",
        "bold",
    )


def _print_summary(console: Console, sites: Sequence[Mapping[str, Any]]) -> None:
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for site in sites:
        never = "gap" if site["reason"] is None else "reason"
        counts[site["kind"]]["fired" if site["fired"] else never] += 1
    rows = (
        (kind, str(states.total()), *(str(states[it]) for it in ("fired", "reason", "gap")))
        for kind, states in counts.items()
    )
    columns = ("kind", "sites", "fired", "never, with a reason", "never: gaps")
    print_table(console, table_of(columns, rows))


def _print_never(console: Console, sites: Sequence[Mapping[str, Any]], *, every: bool) -> None:
    by_reason: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for site in sites:
        if not site["fired"]:
            by_reason[site["reason"] or GAP].append(site)
    for reason, silent in sorted(by_reason.items(), key=lambda item: item[0] == GAP):
        shown = silent if every else silent[:SHOWN]
        names = ", ".join(map(_short, shown))
        more = f", and {len(silent) - len(shown)} more" if len(shown) < len(silent) else ""
        _print_wrapped(console, f"{len(silent)} never, {reason}: {names}{more}")


def _short(site: Mapping[str, Any]) -> str:
    """The name without its kind, and how often the site's check refused."""
    refused = f" (refused {site['refused']})" if site["refused"] else ""
    return str(site["name"]).removeprefix(f"{site['kind']}/") + refused


def _print_wrapped(console: Console, text: str) -> None:
    print_lines(
        console,
        textwrap.fill(text, console.width - 1, subsequent_indent="      ", break_long_words=False),
    )


# --- forms table ----------------------------------------------------------------------------------
#
# How often Python programs use each form of statement, by aliasing scenario.


def forms_json(
    counts: Mapping[tuple[str, str], int], groups: Mapping[str, str], programs: int
) -> dict[str, object]:
    """As JSON values: forms by group, each with its counts by aliasing scenario."""
    by_form: dict[str, dict[str, int]] = {name: {} for name in groups}
    for (name, situation), count in sorted(counts.items()):
        by_form[name][situation] = count
    forms = [
        {"group": groups[name], "form": name, "situations": situations}
        for name, situations in by_form.items()
    ]
    return {"programs": programs, "forms": forms}


def print_forms(
    console: Console,
    counts: Mapping[tuple[str, str], int],
    groups: Mapping[str, str],
    programs: int,
) -> None:
    """Print one row per form and one column per aliasing scenario."""
    totals: Counter[str] = Counter()
    for (_, situation), count in counts.items():
        totals[situation] += count
    situations = [name for name, _ in totals.most_common()]
    print_heading(console, f"{programs} Python programs: forms of statements by aliasing situation")
    rows = (
        (group, form, *_row([counts.get((form, it), 0) for it in situations]))
        for form, group in groups.items()
    )
    print_table(console, table_of(("group", "form", *situations, "all"), rows, texts=2))


def print_cuts(console: Console, cuts: Mapping[str, int]) -> None:
    """Print how many programs are defined, and how Dynamo splits those that were compiled."""
    print_heading(console, "what eager defines, and how Dynamo cuts it")
    rows = ((name, str(count)) for name, count in cuts.items())
    print_table(console, table_of(("programs, frames, graphs", "count"), rows))


def _row(counts: Sequence[int]) -> list[str]:
    """The counts and their sum, with a mark if it was never drawn."""
    return [*(str(count) if count else "-" for count in counts), str(sum(counts) or "NEVER")]


# --- drawn table ----------------------------------------------------------------------------------
#
# The draws of a campaign, as tables: groups of ops, inputs, programs, scenarios, dropped calls.
#
# A share below 1 % is marked as rare, and what could be drawn but was not is marked as never drawn.


RARE = 0.01
SHOWN_OPS = 3  # the most frequent ops of a group, and the rarest
SHOWN_REASONS = 12


def print_drawn(console: Console, drawn: Mapping[str, Any]) -> None:
    """Print what was drawn; `drawn` are JSON values."""
    counts, programs = drawn["instructions"], drawn["programs"]
    print_lines(
        console,
        f"{programs} programs of {counts['kept'] / programs:.1f} instructions and"
        f" {drawn['inputs'] / programs:.1f} inputs",
        "bold",
    )
    _print_groups(console, drawn)
    _print_shares(console, "scenarios played, by program", drawn["scenarios"], programs)
    for name in ("dtypes", "layouts", "ranks", "sizes"):
        _print_shares(console, f"{name} of inputs", drawn[name], drawn["inputs"])
    _print_shares(console, "programs with", drawn["contents"], programs)
    _print_dropped(console, drawn)


def _print_groups(console: Console, drawn: Mapping[str, Any]) -> None:
    print_heading(console, "instructions by group")
    kept = drawn["instructions"]["kept"]
    rows = (
        (
            name,
            str(len(group["ops"])),
            _percent(group["instructions"], kept),
            _percent(group["dropped"], group["instructions"] + group["dropped"]),
            _mark(group["instructions"], kept),
        )
        for name, group in drawn["groups"].items()
    )
    print_table(console, table_of(("group", "ops", "instructions", "dropped", ""), rows))
    console.print()
    for name, group in drawn["groups"].items():
        _print_ops(console, name, group["ops"])


def _print_ops(console: Console, group: str, ops: Mapping[str, int]) -> None:
    """The most frequent ops of a group, the rarest, and those that were never drawn."""
    ordered = sorted(ops.items(), key=lambda item: -item[1])
    drawn = [f"{_short_op(op)} {count}" for op, count in ordered if count]
    parts = [f"most {', '.join(drawn[:SHOWN_OPS])}" if drawn else "most none"]
    if rest := drawn[SHOWN_OPS:][-SHOWN_OPS:]:
        parts.append(f"least {', '.join(rest)}")
    if never := [_short_op(op) for op, count in ordered if not count]:
        parts.append(f"NEVER {', '.join(never)}")
    _print_item(console, f"{group}: {'; '.join(parts)}")


def _short_op(op: str) -> str:
    return op.removeprefix("aten.").removesuffix(".default")


def _print_shares(console: Console, title: str, counts: Mapping[str, int], whole: int) -> None:
    print_heading(console, title)
    rows = ((name, _percent(it, whole), _mark(it, whole)) for name, it in counts.items())
    print_table(console, table_of(("", "share", ""), rows, header=False))


def _print_dropped(console: Console, drawn: Mapping[str, Any]) -> None:
    print_heading(console, "discarded and dropped")
    counts, programs = drawn["instructions"], drawn["programs"]
    ended = drawn["discarded"]
    print_lines(
        console,
        f"programs discarded: {_percent(sum(ended.values()), programs)}"
        f" (undefined {_percent(ended['undefined'], programs)},"
        f" raise {_percent(ended['raises'], programs)})",
    )
    parts = ", ".join(
        f"{name} {_percent(counts[name], counts['drawn'])}"
        for name in ("raised", "undefined", "too large")
    )
    dropped = counts["drawn"] - counts["kept"]
    print_lines(console, f"instructions dropped: {_percent(dropped, counts['drawn'])} ({parts})")
    for reason in drawn["reasons"][:SHOWN_REASONS]:
        share = _percent(reason["instructions"], counts["drawn"])
        _print_item(console, f"{share} {_short_op(reason['op'])}: {reason['reason']}")


def _print_item(console: Console, text: str) -> None:
    print_lines(console, textwrap.fill(text, console.width - 1, subsequent_indent="  "))


def _percent(count: int, whole: int) -> str:
    return f"{100 * count / whole:.1f} %" if whole else "-"


def _mark(count: int, whole: int) -> str:
    if not count:
        return "NEVER"
    return "rare" if count < RARE * whole else ""


# --- kill matrix table ----------------------------------------------------------------------------
#
# The kill matrix of planted faults: a table, and the faults that only one oracle kills.


MATRIX_WIDTH = 170  # columns in a file: the longest name of a fault and all oracles


def print_kill(console: Console, row: Any) -> None:
    """Print the result for one fault, while others still run."""
    result = "survives" if row.killed is None else f"killed by program {row.killed}"
    console.print(f"{row.fault}: {result}")


def print_kill_matrix(console: Console, matrix: Any, waived: Collection[str]) -> None:
    """Print a row per fault and a column per oracle, then the totals.

    `matrix` is a `Matrix` of `faults`, which reports may not import. `waived` are the oracles for
    promises that some targets do not make.
    """
    if not console.is_terminal:
        console.width = max(console.width, MATRIX_WIDTH)
    rows = (
        (
            row.fault,
            "survives" if row.killed is None else str(row.killed),
            *(str(row.first.get(oracle, "")) for oracle in matrix.oracles),
        )
        for row in matrix.rows
    )
    print_table(console, table_of(("fault", "killed", *matrix.oracles), rows, fold=True))
    console.print()
    for line in _summary(matrix, waived):
        print_lines(console, line)


def _summary(matrix: Any, waived: Collection[str]) -> list[str]:
    programs, rows = matrix.programs, matrix.rows
    killed = f"{len(programs)} of {len(rows)} faults killed."
    if programs:
        killed += (
            f" Programs until the first kill: median {matrix.median:g}, maximum {max(programs)}."
        )
    lines = [
        f"A number is the first program on which the oracle kills the fault (seed {matrix.seed}).",
        killed,
    ]
    for oracle in matrix.oracles:
        alone = matrix.only_killer_of(oracle)
        lines.append(f"killed by {oracle} alone: {_fault_list(alone)}")
        # Targets that waive a promise run without its oracle: which faults survive then?
        more = [] if oracle in waived else matrix.only_killer_of(oracle, without=waived)
        more = [name for name in more if name not in alone]
        if more:
            lines.append(f"  and if {', '.join(waived)} is waived: {_fault_list(more)}")
    return lines


def _fault_list(faults: Sequence[str]) -> str:
    return f"{len(faults)}: {', '.join(faults)}" if faults else "none"
