"""`Finding`: a reduced violation that a fresh process reproduced, and its JSON form."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias, get_origin, get_type_hints

import torch

from aliasproof.campaigns.failure.failure import ReducedFailure
from aliasproof.campaigns.store.plan import decoded, encoded
from aliasproof.corpus.known_bug import PythonBug
from aliasproof.ir.devices import CPU, cpu_capability
from aliasproof.ir.errors import UserError, printable_json
from aliasproof.ir.printing import inputs_source, source
from aliasproof.ir.program import Program
from aliasproof.ir.python_program import PythonProgram, words
from aliasproof.ir.serialization import from_json, to_json
from aliasproof.ir.stored_text import read_text
from aliasproof.judge.attribution import Symptom
from aliasproof.oracles.verdict import Violation
from aliasproof.reduction.reducer import StepStatistics
from aliasproof.targets.names import ATEN, PYTHON

VERSION = 2
READABLE = (1, VERSION)
# What version 1 says nothing about: cause, known bugs and `torch.compile`.
_SINCE_VERSION_2: dict[str, object] = {
    "first wrong after": "",
    "cause": "",
    "known": None,
    "latent": False,
    "user level": {},
    "exact": True,
    "graph": "",
    "steps": {},
    # Findings name it since 0.1.0; older ones of version 2 do not.
    "cpu capability": "",
}
# The keys of the fields that have others in JSON.
_KEYS = {
    "wrong_part": "first wrong after",
    "user_level": "user level",
    "torch_version": "torch",
    "capability": "cpu capability",
    "tried": "candidates tried",
}


class _OfBothLanguages:
    """What findings say of their violation, whichever language the program has."""

    __slots__ = ()

    target: str
    oracle: str
    kind: str
    place: str
    evidence: Mapping[str, object]
    known: str | None

    @property
    def silent(self) -> bool:
        """True if the target gives a wrong result without raising."""
        return self.oracle != "errors"

    @property
    def bucket(self) -> Hashable:
        """As that of a failure of ATen calls."""
        return self.known or Symptom(self.target, self.oracle, self.kind)

    @property
    def of_inductor(self) -> bool:
        """True if Inductor is at fault, which `torch.compile` runs by default."""
        return self.target.startswith("inductor")

    @property
    def violation(self) -> Violation:
        """What was found wrong."""
        return Violation(self.oracle, self.kind, self.place, self.evidence)


@dataclass(frozen=True, slots=True)
class Finding(_OfBothLanguages):
    """A bug, shown by a reduced program. `count` violations of the run have the same signature.

    `place` names the output, input or graph node that is wrong. `original` is the program as it was
    drawn from the shard with `seed`. `tried` and `accepted` count candidates of the reduction.

    `wrong_part` is the pass of the target after which it is wrong, or the part of the code
    generator, such as 'post_grad: remove_noop_ops'; empty if nothing tells. `cause` says in words
    what the target does wrong. `known` is the identifier of the known bug that it is, in
    `corpus/bugs/`. `latent` is true if values agree on these inputs, but the graph is wrong for
    others. `user_level` says for each backend of `torch.compile` whether the bug shows there:
    "shows", "does not show", or what happened instead. `exact` says whether outputs can be compared
    without tolerance. `graph` is the code of the last graph that the target made, if any.
    `capability` is that of the CPU (`devices.cpu_capability`).
    """

    identifier: str
    target: str
    oracle: str
    kind: str
    place: str
    evidence: Mapping[str, object]
    program: Program
    original: Program
    seed: int
    tried: int
    accepted: int
    count: int
    torch_version: str
    cause: str = ""
    known: str | None = None
    latent: bool = False
    user_level: Mapping[str, str] = field(default_factory=dict)
    exact: bool = True
    graph: str = ""
    wrong_part: str = ""
    steps: Mapping[str, StepStatistics] = field(default_factory=dict)
    capability: str = ""

    language, unit = ATEN, "instruction"

    @classmethod
    def of(cls, reduced: ReducedFailure, count: int = 1) -> Finding:
        """The finding for a reduced failure."""
        symptom, violation = reduced.signature.symptom, reduced.violation
        return cls(
            identifier=reduced.signature.identifier,
            target=symptom.target,
            oracle=symptom.oracle,
            kind=symptom.kind,
            place=violation.place,
            evidence=dict(violation.evidence),
            program=reduced.program,
            original=reduced.original,
            seed=reduced.seed,
            tried=reduced.tried,
            accepted=reduced.accepted,
            count=count,
            torch_version=torch.__version__,
            cause=reduced.signature.cause,
            known=reduced.signature.known,
            latent=symptom.latent,
            exact=reduced.exact,
            graph=reduced.graph,
            wrong_part=reduced.signature.wrong_part,
            steps=reduced.passes,
            capability=cpu_capability(),
        )

    @property
    def size(self) -> int:
        """The instructions of the program."""
        return len(self.program)

    @property
    def drawn_size(self) -> int:
        """The instructions of the program as it was drawn."""
        return len(self.original)

    @property
    def device(self) -> str:
        """Where the program is."""
        return self.program.device

    @property
    def source(self) -> str:
        """The program as Python, with its inputs."""
        return f"{source(self.program)}\n{inputs_source(self.program)}"

    def same_evidence(self, other: AnyFinding) -> bool:
        """Whether both come from the same failure."""
        return isinstance(other, Finding) and (self.seed, self.original, self.program) == (
            other.seed,
            other.original,
            other.program,
        )

    def to_json(self) -> dict[str, object]:
        """Everything except the reduced program, as JSON values."""
        return {
            "version": VERSION,
            "identifier": self.identifier,
            "target": self.target,
            "oracle": self.oracle,
            "kind": self.kind,
            "place": self.place,
            "silent": self.silent,
            "latent": self.latent,
            "first wrong after": self.wrong_part,
            "cause": self.cause,
            "known": self.known,
            "user level": dict(self.user_level),
            "exact": self.exact,
            "graph": self.graph,
            "evidence": dict(self.evidence),
            "instructions": len(self.program),
            "count": self.count,
            "reduction": {
                "candidates tried": self.tried,
                "accepted": self.accepted,
                "from": len(self.original),
                "steps": encoded(self.steps),
            },
            "seed": self.seed,
            "torch": self.torch_version,
            "cpu capability": self.capability,
            "device": self.device,
            "original": to_json(self.original),
        }

    @classmethod
    def from_json(cls, data: Any, program: Program, where: str) -> Finding:
        """The finding from its JSON values and its reduced program.

        `where` names the source in messages. Raises `UserError` for another version or if something
        is missing or malformed.
        """
        try:
            if data["version"] not in READABLE:
                raise UserError(
                    f"{where} has version {data['version']}, this aliasproof reads versions"
                    f" {' and '.join(map(str, READABLE))}"
                )
            # People may have edited the file, so each value is converted to its type.
            values = {**_SINCE_VERSION_2, **data, **data["reduction"]}
            return cls(
                program=program,
                **{
                    name: decoded(hint, values[_KEYS.get(name, name)])
                    for name, hint in get_type_hints(cls).items()
                    if name != "program"
                },
            )
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as reason:
            raise UserError(
                f"{where} is not a finding of aliasproof: {type(reason).__name__}: {reason}"
            ) from reason


# --- python finding -------------------------------------------------------------------------------
#
# A violation on a `PythonProgram`, and its folder: JSON for us, a script for everybody.


FILE = "finding.json"
FORMAT = 2
_PYTHON_KEYS = {"torch_version": "torch", "wrong_part": "part"}
_PATH = r"(?!__)\w+(?:\.(?!__)\w+|\[-?\d+\]|\['[\w ]*'\])*"
_PLACE = re.compile(rf"{_PATH}(?:, {_PATH})*")


@dataclass(frozen=True, slots=True)
class PythonFinding(_OfBothLanguages):
    """A reduced program that a target computes otherwise than eager does.

    `place` is the expression of the first difference. `seed` and `number` draw the program again;
    `drawn_lines` is how many lines it had. Its reduction `tried` that many candidates, and
    `compiled` those that eager accepts. `count` violations of the run led to it. `known` is the
    name of the known bug that it is, or empty. `line` is what `fuzz` calls the violation, if the
    program is a line of ATen calls, or empty. `wrong_part` of the compiler is what experiments
    name, `capability` that of the CPU (`devices.cpu_capability`).
    """

    program: PythonProgram
    target: str
    oracle: str
    kind: str
    place: str
    evidence: Mapping[str, object] = field(default_factory=dict)
    seed: int = 0
    number: int = 0
    drawn_lines: int = 0
    tried: int = 0
    compiled: int = 0
    torch_version: str = ""
    count: int = 1
    known: str = ""
    line: str = ""
    wrong_part: str = ""
    capability: str = ""

    language, unit, device, cause, graph = PYTHON, "line", CPU, "", ""
    latent = False  # an oracle on graphs alone sees what is
    user_level = MappingProxyType[str, str]({})  # its script calls `torch.compile` itself

    @property
    def size(self) -> int:
        """The lines of the program."""
        return self.program.lines

    @property
    def drawn_size(self) -> int:
        """The lines of the program as it was drawn."""
        return self.drawn_lines

    @property
    def source(self) -> str:
        """The program as Python."""
        return self.program.source.strip() + "\n"

    def same_evidence(self, other: AnyFinding) -> bool:
        """Whether both come from the same program as it was drawn."""
        return isinstance(other, PythonFinding) and self.number == other.number

    @property
    def identifier(self) -> str:
        """Equal for findings that differ in names and numbers alone; if `fuzz` has a name, that."""
        if self.line:
            return self.line
        said = "\n".join((self.target, self.oracle, self.kind, *sorted(words(self.program))))
        target = re.sub(r"[^\w.-]+", ".", self.target)
        return f"{target}-{self.oracle}-{hashlib.sha256(said.encode()).hexdigest()[:8]}"

    def is_of(self, bug: PythonBug) -> bool:
        """Whether it is this known bug."""
        cause = (self.target, self.oracle, self.symptom)
        return bug.explains(cause, self.place, self.program, self.wrong_part)

    @property
    def symptom(self) -> str:
        """The kind; with the message of eager's error, if the target does not raise it."""
        message = str(self.evidence.get("message", "")).partition("\n")[0]
        return f"{self.kind}: {message}" if self.kind.startswith("does not raise") else self.kind

    def to_json(self) -> dict[str, object]:
        """As JSON values; `of_json` reads it."""
        names = (name for name in self.__slots__ if name != "program")
        values = {_PYTHON_KEYS.get(name, name): getattr(self, name) for name in names}
        return {"format": FORMAT, "program": self.program.source, **values}

    @classmethod
    def of_json(cls, given: object) -> PythonFinding:
        """The finding. Raises `UserError` if it is none, or its program is not in the language."""
        keys = {name: _PYTHON_KEYS.get(name, name) for name in cls.__slots__ if name != "program"}
        if isinstance(given, dict):
            # Older findings do not name these, and say what the name of their folder says.
            given = {"capability": "", "count": 1, **given}
            given.pop("confirmed", None)
        if not isinstance(given, dict) or given.get("format") != FORMAT:
            raise UserError(f"a finding of a Python program has 'format' {FORMAT}")
        if given.keys() != {*keys.values(), "format", "program"}:
            needed = sorted(keys.values())
            raise UserError(f"a finding has exactly the keys {needed}, format, program")
        values: dict[str, Any] = {name: given[key] for name, key in keys.items()}
        hints = get_type_hints(cls)
        for name, key in keys.items():
            if not isinstance(values[name], get_origin(hints[name]) or hints[name]):
                raise UserError(f"'{key}' of a finding is {values[name]!r}")
        # Scripts evaluate it.
        if not _PLACE.fullmatch(values["place"]):
            raise UserError(f"'place' of a finding is no path: {values['place']!r}")
        return cls(PythonProgram(str(given["program"])), **values)

    @classmethod
    def load(cls, folder: Path) -> PythonFinding:
        """The finding in a folder. Raises `UserError` if there is none."""
        try:
            return cls.of_json(json.loads(read_text(folder / FILE, within=folder)))
        except (OSError, ValueError, RecursionError) as error:
            raise UserError(f"{folder / FILE}: {error}") from None


AnyFinding: TypeAlias = Finding | PythonFinding


def finding_to_json(finding: AnyFinding) -> dict[str, object]:
    """A finding with its reduced program, as JSON values."""
    if isinstance(finding, PythonFinding):
        return {"finding": finding.to_json()}
    return {"finding": finding.to_json(), "program": to_json(finding.program)}


def finding_from_json(data: Any, where: str) -> AnyFinding:
    """The finding that `finding_to_json` gave. Raises `UserError`, which says `where` it was."""
    given = printable_json(data["finding"])
    if "program" in data:
        return Finding.from_json(given, from_json(data["program"]), where)
    try:
        return PythonFinding.of_json(given)
    except UserError as reason:
        raise UserError(f"{where} is damaged: {reason}") from reason


def is_of_python(folder: Path) -> bool:
    """Whether a folder has a finding of a Python program, and not of a `Program`."""
    return (folder / FILE).is_file() and not (folder / "program.json").exists()
