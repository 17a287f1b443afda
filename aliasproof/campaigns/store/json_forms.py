"""The JSON forms of what the store keeps: shards, statistics, failures, findings.

Nothing is pickled, so reading a store executes nothing. Each `..._from_json` raises `LookupError`,
`TypeError` or `ValueError` for values of another form; the store names itself in the message.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any, TypeVar

from aliasproof.campaigns.failure.failure import Failure
from aliasproof.campaigns.run.plan import PROGRAM_LIMIT, Plan
from aliasproof.campaigns.run.shard import Shard, ShardResult
from aliasproof.campaigns.run.statistics import COUNTS, Statistics
from aliasproof.campaigns.run.suspicions import Suspicions
from aliasproof.campaigns.store.finding import Finding
from aliasproof.generators.scene import Counts
from aliasproof.oracles.verdict import Violation
from aliasproof.programs.devices import is_device_name
from aliasproof.programs.errors import printable_json
from aliasproof.programs.serialization import from_json, to_json
from aliasproof.trials.attribution import Symptom
from aliasproof.trials.groups import CompanyFailure
from aliasproof.trials.trial import Spent

Number = TypeVar("Number", int, float)

# --- plans and shards -----------------------------------------------------------------------------


def plan_to_json(plan: Plan) -> dict[str, object]:
    """A plan as JSON values."""
    values = asdict(plan)
    return values | {"targets": list(plan.targets), "share": list(plan.share)}


def plan_from_json(data: Any) -> Plan:
    """The plan that `plan_to_json` gave."""
    index, number = map(int, data["share"])
    plan = Plan(
        targets=tuple(map(str, data["targets"])),
        seed=int(data["seed"]),
        programs=_above_0(int, data["programs"]),
        seconds=_above_0(float, data["seconds"]),
        workers=int(data["workers"]),
        past_known=bool(data["past_known"]),
        device=str(data["device"]),
        group=_above_0(int, data["group"]),
        share=(index, number),
        finish=bool(data["finish"]),
        limit=_above_0(float, data["limit"]) or PROGRAM_LIMIT,
        memory=_above_0(float, data["memory"]),
    )
    if not (plan.targets and 1 <= index <= number and plan.seed >= 0 and plan.workers > 0):
        raise ValueError("a number of the plan is out of range")
    if not is_device_name(plan.device):
        raise ValueError("the device of the plan is none")
    return plan


def _above_0(kind: Callable[[Any], Number], value: Any) -> Number | None:
    """A finite number above 0, or None."""
    if value is None:
        return None
    number = kind(value)
    if not 0 < number < 2**62:
        raise ValueError(f"{value} is out of range")
    return number


def shard_to_json(shard: Shard) -> dict[str, object]:
    """A shard as JSON values. Equal shards have equal ones, in the same order."""
    company = [shard.company.start, shard.company.stop]
    values = asdict(shard) | {"skip": sorted(shard.skip), "company": company}
    if not shard.mended:  # runs of before know nothing of it, and go on
        del values["mended"]
    return values


# --- failures -------------------------------------------------------------------------------------


def failure_to_json(failure: Failure) -> dict[str, object]:
    """A failure as JSON values."""
    violation = failure.violation
    return {
        "symptom": _symptom_to_json(failure.symptom),
        "program": to_json(failure.program),
        "seed": failure.seed,
        "known": failure.known,
        "suspected": failure.suspected,
        "company": failure.company,
        "violation": None if violation is None else asdict(violation),
    }


def failure_from_json(data: Any) -> Failure:
    """The failure that `failure_to_json` gave."""
    violation = data["violation"]
    return Failure(
        _symptom(data["symptom"]),
        from_json(data["program"]),
        int(data["seed"]),
        data["known"],
        data["suspected"],
        bool(data["company"]),
        None if violation is None else Violation(**violation),
    )


def finding_to_json(finding: Finding) -> dict[str, object]:
    """A finding with its reduced program, as JSON values."""
    return {"finding": finding.to_json(), "program": to_json(finding.program)}


def finding_from_json(data: Any, where: str) -> Finding:
    """The finding that `finding_to_json` gave. Raises `UserError`, which says `where` it was."""
    return Finding.from_json(printable_json(data["finding"]), from_json(data["program"]), where)


def _symptom_to_json(symptom: Symptom) -> list[str]:
    return [symptom.target, symptom.oracle, symptom.kind]


def _symptom(data: Any) -> Symptom:
    target, oracle, kind = map(str, data)
    return Symptom(target, oracle, kind)


# --- results of shards ----------------------------------------------------------------------------


def result_to_json(result: ShardResult) -> dict[str, object]:
    """The result of a shard except its failures, which have rows of their own."""
    return {
        "statistics": _statistics_to_json(result.statistics),
        "suspicions": [
            [_symptom_to_json(symptom), count, to_json(program)]
            for symptom, (count, program) in result.suspicions.found.items()
        ],
        "searching": result.searching,
        "recognizing": result.recognizing,
    }


def result_from_json(data: Any, shard: Shard, failures: Sequence[Failure]) -> ShardResult:
    """The result that `result_to_json` gave, with its failures, those of companies included."""
    suspicions = Suspicions()
    for symptom, count, program in data["suspicions"]:
        suspicions.add(_symptom(symptom), from_json(program), int(count))
    return ShardResult(
        shard,
        _statistics(data["statistics"]),
        [failure for failure in failures if not failure.company],
        [CompanyFailure(it.symptom, it.program) for it in failures if it.company],
        suspicions,
        float(data["searching"]),
        float(data["recognizing"]),
    )


def _statistics_to_json(statistics: Statistics) -> dict[str, object]:
    drawn = statistics.instructions
    return {
        **{name: getattr(statistics, name) for name in COUNTS},
        "instructions": {
            "kept": drawn.kept,
            "raised": drawn.raised,
            "undefined": drawn.undefined,
            "too_large": drawn.too_large,
            "reasons": [[op, reason, times] for (op, reason), times in drawn.reasons.items()],
            "scenarios": dict(drawn.scenarios),
        },
        "spent": asdict(statistics.spent),
    }


def _statistics(data: Any) -> Statistics:
    drawn = dict(data["instructions"])
    reasons = Counter({(str(op), str(why)): int(times) for op, why, times in drawn.pop("reasons")})
    scenarios = Counter({str(name): int(n) for name, n in drawn.pop("scenarios").items()})
    return Statistics(
        **{name: int(data[name]) for name in COUNTS},
        instructions=Counts(**drawn, reasons=reasons, scenarios=scenarios),
        spent=Spent(**data["spent"]),
    )
