"""The reproducer: a short script that runs a program in eager and compiled, and compares.

It needs only torch. For the reference pass, it also imports that pass.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch

from aliasproof.ir.custom_operators import NAMESPACE, definition
from aliasproof.ir.devices import CPU, cpu_capability, full_name, on_device
from aliasproof.ir.execution import keep_random_state, run, seed_generators
from aliasproof.ir.ordinary_syntax import ordinary_inputs, ordinary_source, with_short_names
from aliasproof.ir.program import Instruction, Program
from aliasproof.ir.schemas import facts, resolve
from aliasproof.ir.values import input_tensors
from aliasproof.judge.localization import FUNCTIONALIZATION
from aliasproof.oracles.judge import ORACLES
from aliasproof.oracles.values import OTHER_ZERO
from aliasproof.oracles.verdict import Violation
from aliasproof.processes.outcome import DEATHS, OUT_OF_MEMORY
from aliasproof.targets import (
    control_flow,
    dynamo,
    gradients,
    identity,
    inductor_fx,
    inductor_reinplace,
    second_calls,
    variants,
)
from aliasproof.targets.target import Target, Variant, wrap_recipe
from aliasproof.targets.tracing import PLAIN, Tracing

LONGEST_CALLS = 72  # characters of the calls that a headline quotes
LONGEST_MESSAGE = 90  # characters of a message that a headline quotes
MOST_CALLS = 3  # that a headline quotes or names

# The names of the targets for users.
_NAMES = {
    "functionalize": "torch.func.functionalize",
    "fx-reinplace": "torch.fx.passes.reinplace",
    "aot": "AOTAutograd",
    "aot-epilogue": "AOTAutograd",
    "inductor": "torch.compile",
    "inductor-fx": "Inductor without code generation",
    "inductor-reinplace": "Inductor's reinplacing",
    "reference": "reference_pass",
    "reference-copy": "reference_pass",
    "reference-planned": "reference_pass",
}

# By the start of a kind: what the compiled function does.
_EFFECTS = (
    ("wrong value", "returns wrong values"),
    ("wrong number of outputs", "returns another number of outputs"),
    ("input ends wrong", "leaves wrong values in an input"),
    ("bytes outside the inputs change", "changes bytes of a storage outside its inputs"),
    ("storage has another size", "leaves an input with a storage of another size"),
    ("new alias between input and input", "leaves two inputs that share memory"),
    ("new alias between output and output", "returns two outputs that share memory"),
    ("new alias between", "returns an output that shares memory with an input"),
    ("lost alias between input and input", "leaves two inputs that no longer share memory"),
    ("lost alias between output and output", "returns two outputs that no longer share memory"),
    ("lost alias between", "returns an output that no longer shares memory with an input"),
    ("output overlaps itself", "returns an output that overlaps itself"),
    ("output became an input", "returns an input in place of a new tensor"),
    ("output is no longer the input itself", "returns another tensor in place of an input"),
    ("two outputs became one object", "returns one object for two outputs"),
    ("two outputs are no longer one object", "returns two objects for one output"),
    ("wrong storage offset", "returns an output with a wrong storage offset"),
    ("wrong stride", "returns an output with wrong strides"),
    ("wrong ", "returns an output with a wrong {rest}"),
    ("input ends with another ", "leaves an input with another {rest}"),
    ("writes ", "{kind}"),
    ("depends on memory", "returns what {kind}"),
    ("dies", "{kind}"),
    ("hangs", "hangs"),
    (OUT_OF_MEMORY, OUT_OF_MEMORY),
)


def headline(compiler: str, violation: Violation, program: Program, wrong_part: str = "") -> str:
    """What the compiler does after which write, and by which pass, if one is at fault.

    Nothing is cut, and no number is left out.
    """
    by = f" ({pass_in_words(wrong_part)})" if tells_more(wrong_part) else ""
    said = _message(violation)
    return f"{name_of(compiler)} {effect(violation)}{said} {_after(program)}{by}"


def tells_more(wrong_part: str) -> bool:
    """Whether the pass at fault adds something to the name of the compiler."""
    return wrong_part not in ("", FUNCTIONALIZATION) and not wrong_part.startswith("stage: ")


def in_code(name: str) -> str:
    """A name as Markdown: names that can be imported are code."""
    return f"`{name}`" if name.startswith("torch.") else name


def first_line(violation: Violation) -> str:
    """The first line of the message of an error; empty if it has none."""
    lines = str(violation.evidence.get("message", "")).strip().splitlines()
    return lines[0] if lines else ""


def _message(violation: Violation) -> str:
    """The message of an error, if it is short."""
    raises = violation.oracle == "errors" and violation.kind.startswith("raises ")
    line = first_line(violation) if raises else ""
    return f" '{line}'" if 0 < len(line) <= LONGEST_MESSAGE else ""


def pass_in_words(wrong_part: str) -> str:
    """A pass or part at fault in a maintainer's words: 'Inductor's pass remove_noop_ops'."""
    part, _, name = wrong_part.partition(": ")
    if part in ("pre_grad", "joint_graph", "post_grad", "partitioner"):
        return f"Inductor's {part} pass {name}" if part != "partitioner" else f"partitioner: {name}"
    if part in ("AOTAutograd", "Dynamo"):
        return f"{part}'s {name}"
    return f"Inductor's {wrong_part}"


def name_of(compiler: str) -> str:
    """The name of a target or backend for people; variants of a target follow in parentheses."""
    target, _, variants = compiler.partition(":")
    if target not in _NAMES:
        return compiler
    return _NAMES[target] + (f" ({variants.replace(':', ', ')})" if variants else "")


def effect(violation: Violation) -> str:
    """What the compiled function does differently, as a verb phrase."""
    kind = violation.kind
    if violation.oracle == "errors" and not kind.startswith(DEATHS):
        error = str(violation.evidence.get("type", "an error"))
        return f"does not raise {error}" if kind.startswith("does not") else f"raises {error}"
    if kind == "input ends with another shape":
        # Two layouts, `[sizes, strides]`, with the same sizes.
        sizes = [str(violation.evidence.get(who)).split("]")[0] for who in ("eager", "target")]
        if sizes[0] == sizes[1]:
            return "leaves an input with other strides"
    if kind == OTHER_ZERO:
        of_input = violation.place.startswith("input")
        return f"leaves a {kind} in an input" if of_input else f"returns a {kind}"
    for start, phrase in _EFFECTS:
        if kind.startswith(start):
            return phrase.format(kind=kind, rest=kind.removeprefix(start))
    return f"does not do what eager does ({kind})"


def _after(program: Program) -> str:
    """The calls of the program in ordinary syntax, or its writes, or the names of its operators.

    No call can be left out of a reduced program; arithmetic without a call is not informative. If
    there are too many writes, those that give a tensor another storage or layout are named, and the
    last ones.
    """
    lines = [line.strip() for line in ordinary_source(program, near=True).splitlines()[1:]]
    writers = [_name(call) for call in program.instructions if call.mutates()]
    write = "|".join((r"\w_\(", "out=", *(rf"\b{re.escape(name)}\(" for name in writers)))
    writes = [line for line in lines if re.search(write, line)]
    when = "after" if writers else "for"
    calls = [line for line in lines if re.search(r"[(\[]", line)] if writes else []
    only = lines if len(lines) == 1 and len(program.outputs) < 2 else []
    for statements in (calls, writes, only):
        quoted = list(dict.fromkeys(_with_definitions(statements, lines)))
        text = _listed(quoted)
        if 0 < len(quoted) <= MOST_CALLS and len(text) <= LONGEST_CALLS and "aten." not in text:
            return f"{when} {text}"
    used = list(dict.fromkeys(map(_name, _writers_with_operands(program) or program.instructions)))
    telling = sorted(used, key=lambda name: (name in writers, name.startswith(("set_", "resize_"))))
    named = [name for name in used if name in telling[-MOST_CALLS:]]
    return f"{when} {_listed(named) or 'a function without calls'}"


def _name(call: Instruction) -> str:
    return call.op.split(".")[-2]


_ASSIGNED = re.compile(r"^(?:return |([\w, ()]+) = )")


def _with_definitions(calls: Sequence[str], lines: Sequence[str]) -> Iterator[str]:
    """These statements, and those that define the temporaries in them, without unused names."""
    kept, used = set(calls), set[str]()
    for line in reversed(lines):
        made = _ASSIGNED.match(line)
        names = set(re.findall(r"\w+", made[1] or "")) if made else set()
        if line in kept or names & used:
            kept.add(line)
            used.update(re.findall(r"\w+", _ASSIGNED.sub("", line)))
    for line in lines:
        made = _ASSIGNED.match(line)
        named = made and used.intersection(re.findall(r"\w+", made[1] or ""))
        if line in kept:
            yield line if named else _ASSIGNED.sub("", line)


def _writers_with_operands(program: Program) -> list[Instruction]:
    """The instructions that write, and the instructions whose results they use."""
    used: set[str] = set()
    chosen = []
    for call in reversed(program.instructions):
        if call.mutates() or used.intersection(call.results):
            used.update(call.refs)
            chosen.append(call)
    return chosen[::-1]


def _listed(texts: list[str]) -> str:
    *first, last = texts or [""]
    return f"{', '.join(first)} and {last}" if first else last


# --- reproducer -----------------------------------------------------------------------------------


COMPILED = "compiled(program, inputs())"  # how a script calls a recipe
MOST_ELEMENTS = 64  # of a tensor that is printed whole
LONGEST_LINE = 100  # characters of a line that is joined from several


@dataclass(frozen=True, slots=True)
class Compiler:
    """The compiler that a reproducer runs.

    `name` is for people. `recipe` are lines that define what `call` uses. `call` is an expression
    for the compiled program. `near` allows syntax that only nearly means the program; see
    `ordinary_source`. `control` has recipe and call with eager instead of the compiler.
    `recipe_for` is the target that the recipe belongs to.
    """

    name: str
    recipe: str
    call: str
    control: tuple[str, str]
    near: bool = False
    recipe_for: Callable[[str, Program], str] | None = None

    @classmethod
    def of_target(cls, target: Target) -> Compiler:
        """The target's recipe. It compiles exactly what the campaign ran."""
        chosen, tracing = _variants(target.name)
        by_dynamo = "torch.compile(" in target.recipe and target.name != dynamo.TARGET.name
        plain = dynamo.recipe(tracing) if by_dynamo else identity.RECIPE
        control = (wrap_recipe(plain, chosen), COMPILED)
        return cls(target.name, target.recipe, COMPILED, control, recipe_for=target.recipe_for)

    @classmethod
    def of_backend(cls, backend: str, target: str, *, near: bool) -> Compiler:
        """`torch.compile` with that backend, called as the variants of the target require."""
        chosen, tracing = _variants(target)
        options = inductor_fx.options(tracing) if backend == "inductor" else ""
        calls = [
            f'torch.compile(program, backend="{name}"{tracing.dynamic}{more}'
            for name, more in ((backend, f"{options})"), ("eager", ")"))
        ]
        name = f"torch.compile(backend='{backend}')"
        if any(variant.recipe is not None for variant in chosen):
            plain = [f"def compiled(program, inputs):\n    return {call}" for call in calls]
            recipe, control = (wrap_recipe(text, chosen) for text in plain)
            return cls(name, recipe, COMPILED, (control, COMPILED), near)
        # As short as a user would write it.
        return cls(name, "", calls[0], ("", calls[1]), near)

    @property
    def in_eager(self) -> Compiler:
        """The control: the same with eager instead of the compiler, so it shows nothing."""
        recipe, call = self.control
        return replace(self, recipe=recipe, call=call, recipe_for=None)


def _variants(target: str) -> tuple[list[Variant], Tracing]:
    """The variants in a target's name that change what is called, and how they trace."""
    chosen = [variants.by_name(name) for name in target.split(":")[1:]]
    known = [variant for variant in chosen if variant is not None]
    tracing = functools.reduce(Tracing.__or__, (choice.tracing for choice in known), PLAIN)
    return [variant for variant in known if variant.recipe is not None], tracing


def render(
    program: Program, target: Target, violation: Violation, *, exact: bool, literal: bool = False
) -> str:
    """The script for a violation of a target; see `Reproducer`."""
    return Reproducer(program, Compiler.of_target(target), violation, exact, literal).script


@dataclass(frozen=True, slots=True)
class Reproducer:
    """A script for a violation, and its control.

    `exact` says whether outputs are compared without tolerance. With `literal`, the script does
    exactly what the campaign did: it calls the ops themselves, in one thread, and records no
    gradients. To Dynamo, a method can differ from its op.
    """

    program: Program
    compiler: Compiler
    violation: Violation
    exact: bool
    literal: bool = False

    @property
    def script(self) -> str:
        """The script.

        If the compiler dies or hangs, the script runs itself in a child process and reports how the
        child ends. If it runs out of memory, the script may allocate 4 GiB.
        """
        program = with_short_names(self.program)
        compiler, violation = self.compiler, self.violation
        compiler = replace(compiler, call=_for_program(compiler.call, program))
        written = ordinary_source(program, near=compiler.near, literal=self.literal)
        # One block of imports at the top, as in any script, although a recipe has its own.
        recipe = compiler.recipe
        if compiler.recipe_for is not None:
            recipe = compiler.recipe_for(recipe, program)
        imports, recipe = _split(_for_program(recipe, program))
        title = headline(compiler.name, violation, program)
        exhausts = violation.kind == OUT_OF_MEMORY
        dies = violation.kind.startswith(DEATHS) and not exhausts
        standard = ["contextlib", "subprocess", "sys"] if dies else ["resource"] if exhausts else []
        device = program.device
        where = f" on {'a CPU with ' + cpu_capability() if device == CPU else full_name(device)}"
        exits = (
            "Exits 1 while the bug is there, 0 when it is gone."
            f" Seen with torch {torch.__version__}{where}."
        )
        quoted = title.replace("\\", "\\\\").replace('"', "'")
        # The script prints the first line of its docstring at the end.
        head = [f'"""{quoted}.\n\n{exits}\n"""', "\n".join(_imports(standard, imports))]
        head += ["aten = torch.ops.aten"] if "aten." in written + recipe else []
        head += [_THREADS] if self.literal else []
        compiles = "torch.compile(" in recipe + compiler.call and "fallback_random" not in recipe
        head += [dynamo.DRAWING_AS_EAGER.strip()] if compiles and _draws(program) else []
        head += [_LIMIT] if exhausts else []
        head += [_SHORT] if int(str(violation.evidence.get("elements", 0))) > MOST_ELEMENTS else []
        if dies:
            rest = [_for_device(_CHILD.replace("CALL", compiler.call), program)]
        else:
            rest = self._comparison(program, compiler)
        if self.literal:
            rest = [re.sub(r"^def run\(", f"{WITHOUT_GRADIENTS}\ndef run(", part) for part in rest]
        # A variant of a target may change the function and its inputs first.
        if "def conditions(" in recipe:
            rest.insert(0, "program, inputs = conditions(program, inputs)")
        given = ordinary_inputs(program, near=compiler.near)
        body = (*_operators(program), written, given, recipe, *rest)
        return "\n\n\n".join(("\n\n".join(head), *(part.strip() for part in body if part))) + "\n"

    def _comparison(self, program: Program, compiler: Compiler) -> list[str]:
        """The functions and statements that run both and compare them."""
        violation = self.violation
        if violation.oracle == "errors":
            # A compiler may raise when it compiles rather than when it runs.
            call = f"lambda *args: {compiler.call}(*args)"
            run_error = _for_device(_RUN_ERROR.strip(), program)
            return [_with_seed(program, run_error), _main(call, _OTHER_ERROR)]
        check = CHECKS[violation.oracle].of_kind(violation.kind)
        tensors = [
            f"{'outputs' if kind == 'output' else 'args'}[{index}]"
            for kind, index in re.findall(r"(input|output) (\d+)", violation.place)
        ]
        what, facts = (at_fault(text, tensors) for text in (check.what, check.facts))
        lines = ["def run(function):", f'"""Run it, and give {what}."""']
        lines += self._run_lines(program, compiler, facts)
        helpers = [check.helper] if check.helper else []
        function = _with_seed(program, "\n    ".join(lines))
        if not check.wrong:
            return [*helpers, function, _main(compiler.call, "actual != expected")]
        # The dtypes of the inputs and the results.
        on_cpu = on_device(program, CPU)
        inputs = input_tensors(on_cpu)
        with keep_random_state():
            seed_generators()
            dtypes = {tensor.dtype for tensor in (*inputs, *run(on_cpu, inputs))}
        tolerance = "rtol=0, atol=0"
        if not self.exact:
            # The tolerance of `torch.testing.assert_close` for the coarsest of the dtypes.
            pairs = [torch.testing._comparison.default_tolerances(dtype) for dtype in dtypes]
            rtol, atol = (max(values) for values in zip(*pairs, strict=True))
            tolerance = f"rtol={rtol}, atol={atol}"
        wrong = check.wrong.replace("TOLERANCE", tolerance)
        if any(dtype.is_floating_point and dtype.itemsize == 1 for dtype in dtypes):
            # `isclose` has no kernel for float8.
            wrong = re.sub(r"(actual|expected)", r"\1.to(torch.complex128)", wrong)
        return [*helpers, function, _main(compiler.call, wrong + _ELEMENTS.rstrip(), "wrong.any()")]

    def _run_lines(self, program: Program, compiler: Compiler, facts: str) -> list[str]:
        """The body of `run`, which returns the facts."""
        # The printed program returns one tensor, a tuple of several, or nothing. A literal one
        # returns one tensor in a tuple. With gradients and for two calls, it is a list.
        as_list = "def conditions(" in compiler.recipe and "part_twice" not in compiler.recipe
        one = len(program.outputs) == 1 and not as_list and not self.literal
        if re.fullmatch(r"outputs\[\d+\]", facts):
            return [f"return function(*inputs()){'' if one else facts.removeprefix('outputs')}"]
        lines = ["args = inputs()"]
        sets = any(call.op.startswith("aten.set_.") for call in program.instructions)
        evidence, place = self.violation.evidence, self.violation.place
        if "seen through" in evidence or ("storage" in place and sets):
            # The function may give an input another layout or storage, so compare an alias.
            facts = facts.replace("args[", "passed[")
            lines.append("passed = [arg.detach() for arg in args]")
        call = "[function(*args)]" if one else "function(*args)"
        lines.append(f"outputs = {call}" if "outputs" in facts else "function(*args)")
        return [*lines, f"return {facts}"]

    @property
    def control(self) -> str:
        """The script with eager instead of the compiler."""
        return replace(self, compiler=self.compiler.in_eager).script


def _for_program(recipe: str, program: Program) -> str:
    """The recipe, reduced to what this program needs."""
    here = input_tensors(on_device(program, CPU))  # the program's device may not exist here
    if not any(call.op.startswith("aten._foreach_") for call in program.instructions):
        recipe = inductor_reinplace.without_foreach(recipe)
    recipe = inductor_fx.without_lowered(recipe, program)
    if not _draws(program):
        recipe = inductor_fx.without_random(recipe)
    recipe, here = gradients.for_program(recipe, program, here)
    return control_flow.with_program(second_calls.shortened(recipe, here), program)


def _operators(program: Program) -> list[str]:
    """The definitions of the custom operators that a program calls."""
    ops = (call.op for call in program.instructions)
    names = dict.fromkeys(op.split(".")[1] for op in ops if op.startswith(f"{NAMESPACE}."))
    return [definition(name) for name in names]


def _imports(standard: list[str], others: list[str]) -> list[str]:
    """Import lines: the standard library's, then torch's."""
    first = sorted(
        {
            *(f"import {module}" for module in standard),
            *(line for line in others if "torch" not in line and "reference_pass" not in line),
        }
    )
    blank = [""] if first else []
    return [*first, *blank, "import torch", *(line for line in others if line not in first)]


def _split(recipe: str) -> tuple[list[str], str]:
    """The import lines of a recipe, and the rest."""
    lines = recipe.strip().splitlines()
    imports = [line for line in lines if line.startswith(("import ", "from "))]
    rest = "\n".join(line for line in lines if line not in imports).strip()
    # A call with one argument per line takes three lines instead, if they fit.
    return imports, re.sub(r"(?<=\()\n( +)([^()]*),\n *(?=\))", _on_one_line, rest)


def _on_one_line(arguments: re.Match[str]) -> str:
    joined = re.sub(r",\n +", ", ", arguments[2])
    fits = len(arguments[1] + joined) <= LONGEST_LINE
    return f"\n{arguments[1]}{joined}\n{arguments[1][4:]}" if fits else arguments[0]


# --- the comparison -------------------------------------------------------------------------------


# Programs are small and need far less; the limit keeps a script from exhausting the machine.
_LIMIT = "limit = 4 * 2**30  # bytes\nresource.setrlimit(resource.RLIMIT_DATA, (limit, limit))"
_SHORT = "torch.set_printoptions(threshold=1, edgeitems=1)"
_THREADS = "torch.set_num_threads(1)"  # as workers of a campaign do
WITHOUT_GRADIENTS = "@torch.no_grad()"
# What each oracle compares: see `StandaloneCheck`.
CHECKS = {oracle.name: oracle.check for oracle in ORACLES if oracle.check is not None}

_MAIN = """
expected = run(program)
actual = run(CALL)
print(f"expected: {expected}\\nactual:   {actual}")
WRONG
print(f"BUG: {__doc__.splitlines()[0]}" if ANY else "gone: both do the same")
raise SystemExit(int(ANY))
"""
_ELEMENTS = """
for i in wrong.nonzero().tolist()[:1]:
    print(f"differs:  {wrong.sum()} of {wrong.numel()}, first {i}: {actual[*i]} for {expected[*i]}")
"""
_RUN_ERROR = '''
def run(function):
    """The error that is raised, if there is one."""
    try:
        function(*inputs())
        torch.cuda.synchronize()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "no error"
'''
_OTHER_ERROR = '(expected == "no error") != (actual == "no error")'


def _main(call: str, wrong: str, some: str = "wrong") -> str:
    lines = _MAIN.replace("CALL", call).replace("WRONG", f"wrong = {wrong}")
    return lines.replace("ANY", some)


def at_fault(text: str, tensors: Sequence[str]) -> str:
    """The text with the expressions of the tensors at fault in place of FIRST and SECOND."""
    for mark, tensor in zip(("FIRST", "SECOND"), tensors, strict=False):
        text = text.replace(mark, tensor)
    return text


def _draws(program: Program) -> bool:
    return any(facts(resolve(call.op)).random for call in program.instructions)


def _with_seed(program: Program, function: str) -> str:
    """The function with a fixed seed, if the program draws random numbers."""
    if not _draws(program):
        return function
    # Inserted after `def` and the docstring.
    first, second, *rest = function.splitlines()
    return "\n".join((first, second, "    torch.manual_seed(0)", *rest))


def _for_device(text: str, program: Program) -> str:
    """The text for the device of a program: only CUDA reports errors after the call."""
    if program.device != CPU:
        return text
    return re.sub(r"\n *torch\.cuda\.synchronize\(\)", "", text)


_CHILD = """
if "child" in sys.argv:
    with contextlib.suppress(Exception):  # to raise is to end in another way
        CALL(*inputs())
        torch.cuda.synchronize()
    sys.exit(86)  # a status that shows that the child got here
print("expected:", program(*inputs()), flush=True)
try:
    code = subprocess.run([sys.executable, __file__, "child"], timeout=60).returncode
    ending = f"dies of signal {-code}" if code < 0 else f"dies with exit status {code}"
    ending = "ends" if code == 86 else ending
except subprocess.TimeoutExpired:
    ending = "hangs"
print("actual:  ", ending)
print("gone: both end" if ending == "ends" else f"BUG: {__doc__.splitlines()[0]}")
sys.exit(0 if ending == "ends" else 1)
"""
