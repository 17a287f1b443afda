"""Variants with control flow: a part of the program runs inside a control flow operator.

The part is the branch that is taken, for a true predicate in `cond`, a false one in `cond-else`.
The predicate is computed from an input, so a compiler does not know it. `while-loop` and `scan` run
the part twice. Each variant writes a function as text, to compile and to print into reproducers.

Torch 2.13 accepts the following, without gradients. Branches of `cond` may write their operands
(docstring of `torch.cond`). The body of `while_loop` may write tensors that it closes over, but no
carried ones (docstring of `torch.while_loop`); Dynamo takes no two that share a storage
(`has_aliasing` in torch/_dynamo/output_graph.py). The function of `scan` writes nothing (docstring
of `scan`). No result may share a storage with an operand or another result. If nothing is written,
no two operands may share one (`_check_alias_and_mutation` in torch/_higher_order_ops/utils.py).
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from aliasproof.ir.errors import Rejected
from aliasproof.ir.execution import ProgramFunction, execute, run
from aliasproof.ir.printing import statement
from aliasproof.ir.program import Instruction, Program, rename_instruction
from aliasproof.ir.regions import Region, overlaps_itself
from aliasproof.ir.schemas import Kind, facts, resolve
from aliasproof.ir.values import input_tensors
from aliasproof.targets.target import Build, Conditions, Function, MakeInputs, PlainBuild

# --- program parts --------------------------------------------------------------------------------
#
# Selects the instructions that a control flow operator can run.
#
# A *part* is a run of consecutive instructions. Its operands are the earlier values that it reads;
# its results are the values that later instructions read. Whether an operator of torch accepts a
# part depends on which values share a storage, so the program is run once to see that.


@dataclass(frozen=True, slots=True)
class Part:
    """The instructions from `start` to `stop`, with the names that they read and define."""

    start: int
    stop: int
    operands: tuple[str, ...]
    results: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RunValues:
    """The values of a run by name, and their storages.

    The tensors are kept alive, so that no storage number is used twice.
    """

    values: Mapping[str, torch.Tensor]
    storages: Mapping[str, int]

    @classmethod
    def of(cls, program: Program) -> RunValues:
        """Run the program on its own inputs. Raises `Rejected` where eager raises."""
        names = [view.name for view in program.inputs]
        values = dict(zip(names, input_tensors(program), strict=True))
        storages = {name: _storage(value) for name, value in values.items()}
        try:
            # The generator is restored: the compared run must draw these random numbers.
            with torch.random.fork_rng(devices=[]):
                for instruction in program.instructions:
                    execute(instruction, values)
                    storages |= {name: _storage(values[name]) for name in instruction.results}
        except Exception as error:  # what eager raises is not compared, so any error will do
            raise Rejected(f"eager raises {type(error).__name__}: {error}") from error
        return cls(values, storages)

    def overlapping(self, name: str) -> bool:
        """Whether two elements of a value share a location."""
        return overlaps_itself(Region.of(self.values[name]))

    def dense(self, name: str) -> bool:
        """Whether the strides of a value follow from its sizes and their order.

        "It seems one of cond's output stride is not a simple accumulative multiplication of sizes"
        (torch/_higher_order_ops/cond.py). Without elements, fake tensors have other strides.
        """
        value, expected = self.values[name], 1
        for stride, size in sorted(zip(value.stride(), value.shape, strict=True)):
            if stride != expected:
                return False
            expected *= size
        return value.numel() > 0

    def contiguous(self, name: str) -> bool:
        """Whether the strides of a value are those of a new tensor of its sizes."""
        value = self.values[name]
        return value.numel() > 0 and value.stride() == value.new_empty(value.shape).stride()

    def has_scattered_out(self, call: Instruction) -> bool:
        """Whether an `out=` tensor is not contiguous.

        Dynamo breaks the graph there, and the part of an operator must be in one graph ("Attempted
        to call op with non-contiguous `out=` tensor" in torch/_dynamo/variables/torch.py).
        """
        if facts(resolve(call.op)).kind is not Kind.OUT:
            return False
        return not all(self.values[name].is_contiguous() for name in call.written)


def _storage(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def chosen_part(program: Program, seen: RunValues, form: Form) -> Part:
    """The largest part that the operator takes, preferring one that writes, then the first.

    With three instructions or more, the last one stays outside, so that it can read what the part
    wrote. Leading views stay outside too, unless the operator carries results. Raises `Rejected` if
    there is no such part.
    """
    kinds = [facts(resolve(instruction.op)).kind for instruction in program.instructions]
    views = next((index for index, kind in enumerate(kinds) if kind is not Kind.VIEW), 0)
    first, count = 0 if form.carried else views, len(program)
    stop = count - 1 if count - first >= 3 else count
    bounds = sorted(
        itertools.combinations(range(first, stop + 1), 2),
        key=lambda pair: (pair[0] - pair[1], pair[0]),
    )
    parts = (part_between(program, *pair) for pair in bounds)
    met = [part for part in parts if _takes(form, part, program, seen)]
    if not met:
        raise Rejected("no part of the program is permitted inside of the operator")
    return next((part for part in met if written_operands(part, program, seen)), met[0])


def part_between(program: Program, start: int, stop: int) -> Part:
    """The part with these bounds."""
    inside = program.instructions[start:stop]
    made = {name for call in inside for name in call.results}
    used = dict.fromkeys(name for call in inside for name in call.refs if name not in made)
    later = {name for instruction in program.instructions[stop:] for name in instruction.refs}
    later |= {*program.outputs}
    results = [name for call in inside for name in call.results if name in later]
    return Part(start, stop, tuple(used), tuple(results))


def _takes(form: Form, part: Part, program: Program, seen: RunValues) -> bool:
    """Whether the operator takes the part.

    Results must be dense, and share a storage neither with an operand nor with each other. If the
    part writes no operand, no two operands share a storage.
    """
    inside = program.instructions[part.start : part.stop]
    operands = [seen.storages[name] for name in part.operands]
    written = bool(written_operands(part, program, seen))
    draws = any(facts(resolve(call.op)).random for call in inside)
    results = [seen.storages[name] for name in part.results]
    return (
        bool(operands)
        and len({*results}) == len(results)
        and not {*results} & {*operands}
        and not any(map(changes_metadata, inside))
        and not any(seen.has_scattered_out(call) for call in inside)
        and ((written and not form.carried) or len({*operands}) == len(operands))
        and (not form.pure or (bool(results) and not written and not draws))
        and all(map(seen.contiguous if form.carried else seen.dense, part.results))
    )


def changes_metadata(instruction: Instruction) -> bool:
    """Whether the call changes sizes, strides, the storage or the history of an argument."""
    op = resolve(instruction.op)
    changing = ("set_", "resize_", "resize_as_", "detach_", "requires_grad_")
    return torch.Tag.inplace_view in op.tags or op.overloadpacket.__name__ in changing


def written_operands(part: Part, program: Program, seen: RunValues) -> list[str]:
    """The operands whose storage the part writes."""
    inside = program.instructions[part.start : part.stop]
    written = {seen.storages[name] for call in inside for name in call.written}
    return [name for name in part.operands if seen.storages[name] in written]


def repeated(program: Program, part: Part) -> Program:
    """The program that runs the part twice. Later instructions use the second results."""
    inside = program.instructions[part.start : part.stop]
    made = [name for call in inside for name in call.results]
    first = {name: f"{name}_first" for name in made}
    instructions = (
        *program.instructions[: part.start],
        *(rename_instruction(call, first) for call in inside),
        *program.instructions[part.start :],
    )
    return replace(program, instructions=instructions)


# --- programs as source ---------------------------------------------------------------------------


OPAQUE = "an operator runs a part of the program, and value hashes are of plain programs"
# These dtypes have no comparison on the CPU.
_NOT_COMPARED = (
    torch.float8_e4m3fn,
    torch.float8_e5m2,
    torch.float8_e4m3fnuz,
    torch.float8_e5m2fnuz,
)


@dataclass(frozen=True, slots=True)
class Split:
    """A program, the part that the operator runs, and the values of a run of the program."""

    program: Program
    part: Part
    seen: RunValues

    @classmethod
    def of(cls, program: Program, form: Form) -> Split:
        """With canonical names, so that other names are free. Raises `Rejected` without a part."""
        program = program.renamed()
        seen = RunValues.of(program)
        return cls(program, chosen_part(program, seen, form), seen)

    @property
    def deciding(self) -> str:
        """The input that the predicate is computed from."""
        for view in self.program.inputs:
            if view.dtype not in _NOT_COMPARED:
                return view.name
        raise Rejected("no input can be compared with itself")

    @property
    def outside(self) -> tuple[list[str], list[str]]:
        """The lines before and after the part."""
        lines = list(map(statement, self.program.instructions))
        return lines[: self.part.start], lines[self.part.stop :]

    @property
    def inside(self) -> list[str]:
        """The lines of the part."""
        return list(map(statement, self.program.instructions[self.part.start : self.part.stop]))

    def starts(self) -> Iterator[str]:
        """For each result, an expression for a zero tensor of its shape and dtype."""
        for name in self.part.results:
            value = self.seen.values[name]
            yield f"{self.deciding}.new_zeros({tuple(value.shape)}, dtype={value.dtype})"


def _tuple(names: Sequence[str]) -> str:
    return f"({', '.join(names)}{',' if len(names) == 1 else ''})"


def _indented(lines: Sequence[str]) -> list[str]:
    return [f"    {line}" if line else line for line in lines]


def _function(name: str, split: Split, middle: Sequence[str]) -> str:
    before, after = split.outside
    inputs = ", ".join(view.name for view in split.program.inputs)
    outputs = split.program.outputs
    returned = outputs[0] if len(outputs) == 1 else _tuple(outputs)
    body = [*before, *middle, *after, f"return {returned}"]
    return "\n".join((f"def {name}({inputs}):", *_indented(body))) + "\n"


def _with_cond(split: Split, *, taken: bool) -> str:
    """The branch that is not taken clears one written operand and its own results."""
    x, part = split.deciding, split.part
    results = part.results or ("nothing",)
    operands, returned = ", ".join(part.operands), _tuple(results)
    # An operator must return something.
    filler = [] if part.results else [f"nothing = {x}.new_ones(())"]
    written = written_operands(part, split.program, split.seen)
    cleared = [name for name in written if not split.seen.overlapping(name)][:1]
    wrong = [name for name in part.results if not split.seen.overlapping(name)]
    predicate = ("&", "any") if not taken else ("|", "all")
    branches = ("part", "otherwise") if taken else ("otherwise", "part")
    middle = [
        f"chosen = (({x} == {x}) {predicate[0]} ({x} != {x})).{predicate[1]}()",
        "",
        f"def part({operands}):",
        *_indented([*split.inside, *filler, f"return {returned}"]),
        "",
        f"def otherwise({operands}):",
        *_indented([f"{name}.zero_()" for name in cleared]),
        *_indented([f"{returned} = part({operands})", *(f"{name}.zero_()" for name in wrong)]),
        *_indented([f"return {returned}"]),
        "",
        f"{returned} = torch.cond(chosen, {', '.join(branches)}, {_tuple(part.operands)})",
    ]
    return _function("with_cond" if taken else "with_cond_else", split, middle)


def _with_while_loop(split: Split) -> str:
    """The part closes over its operands, so that it may write them. Its results are carried."""
    x, results = split.deciding, split.part.results
    carried = ", ".join(("trip", *results))
    starts = ", ".join(("torch.zeros_like(trips)", *split.starts()))
    middle = [
        f"trips = (({x} == {x}) | ({x} != {x})).all() * 2",
        "",
        f"def unfinished({carried}):",
        "    return trip < trips",
        "",
        f"def part({carried}):",
        *_indented([*split.inside, f"return {_tuple(('trip + 1', *results))}"]),
        "",
        f"{_tuple(('trip', *results))} = torch.while_loop(unfinished, part, ({starts},))",
    ]
    return _function("with_while_loop", split, middle)


def _with_scan(split: Split) -> str:
    """Later instructions read the values that the second step carries."""
    x, returned = split.deciding, _tuple(split.part.results)
    starts = ", ".join(split.starts())
    middle = [
        "def part(carried, step):",
        *_indented([*split.inside, f"return {returned}, step + 1"]),
        "",
        f"{returned}, steps = scan(part, ({starts},), {x}.new_zeros(2, dtype=torch.int64))",
    ]
    return _function("with_scan", split, middle)


# --- the variants ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Form:
    """A control flow operator, and how a program is written with it.

    `source` gives the text of the function `name`. With `twice`, eager runs the part twice, too.
    `carried` names in messages the values that keep their sizes from step to step. If there are
    some, no two operands share a storage, and results have the strides of contiguous tensors, so
    that each step gets the layout that the part returns. With `pure`, the part writes no operand,
    draws no random numbers and has a result; eager compiles the operator by Dynamo.
    """

    name: str
    summary: str
    source: Callable[[Split], str]
    imports: str = ""
    twice: bool = False
    carried: str = ""
    pure: bool = False

    def build(self, plain: PlainBuild, function: Function, inputs: Sequence[torch.Tensor]) -> Build:
        """Compile the program with the operator."""
        written = self.source(Split.of(program_of(function), self))
        # The function has a code object that no other program has.
        namespace: dict[str, Any] = {"torch": torch, "aten": torch.ops.aten}
        exec(f"{self.imports}\n{written}", namespace)  # noqa: S102 - a text that this module wrote
        compiled = plain(namespace[self.name], inputs)
        return Build(compiled.function, compiled.stages, OPAQUE)

    @property
    def conditions(self) -> Conditions | None:
        """How eager runs the program; None if it runs it unchanged."""
        return _part_twice if self.twice else None

    def recipe(self, plain: str) -> str:
        """The source of `build`. `with_program` adds the functions to the script."""
        once = plain.strip().replace("def compiled(", "def compiled_once(")
        twice = "def conditions(program, inputs):\n    return part_twice, inputs\n\n\n"
        return f"""
{self.imports}
{once}


{twice if self.twice else ""}def compiled(program, inputs):
    return torch.no_grad()(compiled_once({self.name}, inputs))
"""


def program_of(function: Function) -> Program:
    """The program that a function runs. Raises `Rejected` for other functions."""
    if isinstance(function, ProgramFunction | PartTwice):
        return function.program
    raise Rejected("the variant is for programs; a function can call the operator itself")


class PartTwice:
    """A program whose part that `while-loop` takes runs twice."""

    def __init__(self, program: Program) -> None:
        self.program = program

    def __call__(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return run(self.unrolled, tensors)

    @functools.cached_property
    def unrolled(self) -> Program:
        """The program in which the part is repeated."""
        split = Split.of(self.program, FORMS["while-loop"])
        return repeated(split.program, split.part)


def _part_twice(
    function: Function, inputs: MakeInputs, second_inputs: MakeInputs | None
) -> tuple[Function, MakeInputs]:
    if not isinstance(function, ProgramFunction):
        return function, inputs  # `build` refuses it
    twice = PartTwice(function.program)

    def made() -> Sequence[torch.Tensor]:
        # Computed before the observed run. It raises `Rejected` if there is no part.
        assert twice.unrolled is not None
        return inputs()

    return twice, made


def without_dynamo(function: Function, inputs: Sequence[torch.Tensor]) -> Build:
    """Run control flow operators without Dynamo, by which eager would compile them."""

    def run_eagerly(*tensors: torch.Tensor) -> object:
        with torch.compiler.set_stance("force_eager"):
            return function(*tensors)

    return Build(run_eagerly, [])


def with_program(recipe: str, program: Program) -> str:
    """Append to a variant's recipe the functions for this program; other recipes are unchanged."""
    for form in FORMS.values():
        if f"compiled_once({form.name}, inputs)" in recipe:
            split = Split.of(program, form)
            texts = [recipe, form.source(split)]
            if form.twice:
                # Eager runs this function; it is not compiled.
                loop = ["for _ in range(2):", *_indented(split.inside)]
                texts.append(_function("part_twice", split, loop))
            return "\n\n\n".join(text.strip() for text in texts)
    return recipe


FORMS = {
    "cond": Form(
        "with_cond",
        "a part of the program is the branch that `torch.cond` takes if its predicate is true",
        functools.partial(_with_cond, taken=True),
    ),
    "cond-else": Form(
        "with_cond_else",
        "a part of the program is the branch that `torch.cond` takes if its predicate is false",
        functools.partial(_with_cond, taken=False),
    ),
    "while-loop": Form(
        "with_while_loop",
        "a part of the program is the body of a `torch.while_loop` of two trips, in eager too",
        _with_while_loop,
        twice=True,
        carried="the loop carries",
    ),
    "scan": Form(
        "with_scan",
        "a part of the program that writes no operand is what `scan` calls in each of two steps",
        _with_scan,
        imports="from torch._higher_order_ops.scan import scan",
        carried="it carries",
        pure=True,
    ),
}
