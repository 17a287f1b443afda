"""`Finding`: a reduced violation, of a program of ATen calls or of Python; and its JSON form."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeAlias, get_type_hints

import torch

from aliasproof.campaigns.failure.codec import decoded, encoded
from aliasproof.ir.devices import CPU, cpu_capability
from aliasproof.ir.errors import UserError, printable_json
from aliasproof.ir.printing import inputs_source, source
from aliasproof.ir.program import Program
from aliasproof.ir.python_program import AnyProgram, P, PythonProgram, words
from aliasproof.ir.serialization import from_json, to_json
from aliasproof.judge.attribution import Symptom
from aliasproof.oracles.judge import ON_GRAPHS
from aliasproof.oracles.verdict import Violation
from aliasproof.reduction.reducer import StepStatistics
from aliasproof.targets.names import ATEN, PYTHON

VERSION = 4
# The fields whose keys in JSON have other names.
_KEYS = {
    "wrong_part": "first wrong after",
    "user_level": "user level",
    "torch_version": "torch",
    "capability": "cpu capability",
    "tried": "candidates tried",
}
# A location in a Python program: the script of its finding evaluates this expression.
_PATH = r"(?!__)\w+(?:\.(?!__)\w+|\[-?\d+\]|\['[\w ]*'\])*"
_PLACE = re.compile(rf"{_PATH}(?:, {_PATH})*")


def written_in(program: AnyProgram) -> str:
    return ATEN if isinstance(program, Program) else PYTHON


def sized(program: AnyProgram) -> tuple[int, str]:
    """The size of a program, and what is counted."""
    if isinstance(program, Program):
        return len(program), "instruction"
    return program.lines, "line"


@dataclass(frozen=True, slots=True)
class Finding(Generic[P]):
    """A bug, shown by a reduced program. `count` violations of the run have the same signature.

    `place` names the output, input or graph node that is wrong; for a Python program, it is the
    expression of the first difference. `original` is the program as it was drawn from the shard
    with `seed`. `tried` and `accepted` count candidates of the reduction.

    `wrong_part` is the pass of the target after which the program is wrong, or the part of the
    compiler, such as 'post_grad: remove_noop_ops'; empty if it was not found. `cause` says in words
    what the target does wrong. `known` is the identifier of the known bug that the finding is, in
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
    program: P
    original: P
    seed: int = 0
    tried: int = 0
    accepted: int = 0
    count: int = 1
    torch_version: str = ""
    cause: str = ""
    known: str | None = None
    latent: bool = False
    user_level: Mapping[str, str] = field(default_factory=dict)
    exact: bool = True
    graph: str = ""
    wrong_part: str = ""
    steps: Mapping[str, StepStatistics] = field(default_factory=dict)
    capability: str = ""

    @classmethod
    def of(
        cls, program: P, target: str, violation: Violation, identifier: str = "", **more: Any
    ) -> Finding[P]:
        """The finding that a violation makes in this torch; `more` are further fields.

        Without an identifier, the program must be a Python program, and its words make one.
        """
        return cls(
            identifier or _of_words(program, target, violation),
            target,
            violation.oracle,
            violation.kind,
            violation.place,
            dict(violation.evidence),
            program,
            more.pop("original", program),
            torch_version=str(torch.__version__),
            capability=cpu_capability(),
            **more,
        )

    @property
    def language(self) -> str:
        return written_in(self.program)

    @property
    def size(self) -> int:
        """The size of the program, in the unit of `sized`."""
        return sized(self.program)[0]

    @property
    def drawn_size(self) -> int:
        """The size of the program as it was drawn."""
        return sized(self.original)[0]

    @property
    def unit(self) -> str:
        """What a size counts."""
        return sized(self.program)[1]

    @property
    def device(self) -> str:
        return self.program.device if isinstance(self.program, Program) else CPU

    @property
    def source(self) -> str:
        """The program as Python, with its inputs."""
        if isinstance(self.program, Program):
            return f"{source(self.program)}\n{inputs_source(self.program)}"
        return self.program.source.strip() + "\n"

    @property
    def silent(self) -> bool:
        """True if the target gives a wrong result without raising."""
        return self.oracle != "errors"

    @property
    def on_graphs(self) -> bool:
        """True if only an oracle on graphs reports it, and the results are right."""
        return self.oracle in ON_GRAPHS

    @property
    def symptom(self) -> Symptom:
        return Symptom(self.target, self.oracle, self.kind)

    @property
    def bucket(self) -> Hashable:
        """As `Failure.bucket`."""
        return self.known or (self.language, self.symptom)

    @property
    def of_inductor(self) -> bool:
        """True if Inductor is at fault, which `torch.compile` runs by default."""
        return self.target.startswith("inductor")

    @property
    def violation(self) -> Violation:
        return Violation(self.oracle, self.kind, self.place, self.evidence)

    def same_evidence(self, other: AnyFinding) -> bool:
        """Whether both come from the same failure."""
        ours = self.seed, self.original, self.program
        return ours == (other.seed, other.original, other.program)

    def to_json(self) -> dict[str, object]:
        """As JSON values, without a reduced program of ATen calls, which has its own file."""
        return {
            "version": VERSION,
            **({} if isinstance(self.program, Program) else {"program": self.program.source}),
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
            f"{self.unit}s": self.size,
            "count": self.count,
            "reduction": {
                "candidates tried": self.tried,
                "accepted": self.accepted,
                "from": self.drawn_size,
                "steps": encoded(self.steps),
            },
            "seed": self.seed,
            "torch": self.torch_version,
            "cpu capability": self.capability,
            "device": self.device,
            "original": encoded(self.original),
        }

    @classmethod
    def from_json(cls, data: Any, program: Program | None, where: str) -> AnyFinding:
        """The finding from its JSON values, and its reduced program if that is of ATen calls.

        `where` names the source in messages. Raises `UserError` for another version or if something
        is missing or malformed.
        """
        try:
            if data["version"] != VERSION:
                raise UserError(
                    f"{where} has version {data['version']}, and this aliasproof reads {VERSION}"
                )
            reduced: Any = program
            if program is None:
                reduced = PythonProgram(str(data["program"]))
            # People may have edited the file, so each value is converted to its type.
            values = {**data, **data["reduction"]}
            hints = {**get_type_hints(cls), "original": type(reduced)}
            del hints["program"]
            made = {
                name: decoded(hint, values[_KEYS.get(name, name)]) for name, hint in hints.items()
            }
            finding: AnyFinding = cls(program=reduced, **made)  # type: ignore[assignment]
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as reason:
            raise UserError(
                f"{where} is not a finding of aliasproof: {type(reason).__name__}: {reason}"
            ) from reason
        if program is None and not _PLACE.fullmatch(finding.place):
            raise UserError(f"{where}: 'place' of a finding is no path: {finding.place!r}")
        return finding


AnyFinding: TypeAlias = Finding[Program] | Finding[PythonProgram]


def _of_words(program: AnyProgram, target: str, violation: Violation) -> str:
    """An identifier that is equal for Python findings that differ only in names and numbers."""
    assert isinstance(program, PythonProgram)
    said = "\n".join((target, violation.oracle, violation.kind, *sorted(words(program))))
    digest = hashlib.sha256(said.encode()).hexdigest()[:8]
    folder = re.sub(r"[^\w.-]+", ".", target)
    return f"{folder}-{violation.oracle}-{digest}"


def finding_to_json(finding: AnyFinding) -> dict[str, object]:
    program = finding.program
    own = {"program": to_json(program)} if isinstance(program, Program) else {}
    return {"finding": finding.to_json(), **own}


def finding_from_json(data: Any, where: str) -> AnyFinding:
    """The finding that `finding_to_json` wrote. Raises `UserError`, which names `where`."""
    program = from_json(data["program"]) if "program" in data else None
    try:
        return Finding.from_json(printable_json(data["finding"]), program, "it")
    except UserError as reason:
        raise UserError(f"{where} is damaged: a finding in {reason}") from reason


def is_of_python(folder: Path) -> bool:
    """Whether a folder has a finding of a Python program, rather than of a `Program`."""
    return (folder / "finding.json").is_file() and not (folder / "program.json").exists()
