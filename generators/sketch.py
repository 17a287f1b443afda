"""`Sketch`: a Python program that is drawn statement by statement, on live values.

A form adds statements at a point. The sketch then runs in eager up to that point, where a probe
records the names in scope. So the next statement is drawn for the actual tensors, statements that
eager refuses are removed again, and a loop or a closure needs no rules of its own.
"""

from __future__ import annotations

import sys
import types
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch

from aliasproof.generators.scene import NoChoice, Pick
from aliasproof.ir.execution import seed_generators
from aliasproof.ir.object_graph import leaves
from aliasproof.ir.python_program import CALLS, COMPILED, PythonProgram, limit_run_time, running

INDENT = "    "
IMPORTS = ("import dataclasses", "import torch")
MOST_ELEMENTS = 64  # of a tensor that forms use
MOST_TENSORS = 24  # of a scene
VERSION_ERROR = "modified by an inplace operation"  # from autograd's message
DEEPEST = 3  # nesting of blocks
TRIES = 4  # per statement, before the program continues without it


@dataclass(slots=True)
class Block:
    """A line that ends with a colon, and the statements below it."""

    header: str
    body: list[Node] = field(default_factory=list)


Node: TypeAlias = str | Block


def render_lines(nodes: Sequence[Node], depth: int = 0) -> Iterator[str]:
    """The lines of statements; an empty block has `pass`."""
    for node in nodes:
        if isinstance(node, str):
            yield INDENT * depth + node
            continue
        yield INDENT * depth + node.header
        yield from render_lines(node.body or ["pass"], depth + 1)


class Reached(BaseException):
    """Raised at the probe to end the run. No statement of a program catches it."""


@dataclass(slots=True)
class Names:
    """The names in scope at a point: tensors by expression, and all local values by name."""

    tensors: dict[str, torch.Tensor] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)

    def situation(self, expression: str) -> str:
        """The aliasing situation of a tensor: how other names see its memory."""
        tensor = self.tensors[expression]
        storage = tensor.untyped_storage()._cdata
        others = [
            other
            for name, other in self.tensors.items()
            if other.untyped_storage()._cdata == storage and name != expression
        ]
        if isinstance(tensor, torch.nn.Parameter):
            return "parameter"
        if any(other is tensor for other in others):
            return "same object"
        kind = "leaf" if tensor.is_leaf else "recorded"
        words = ["shared"] * bool(others) + [kind] * tensor.requires_grad
        return " ".join(words) or "alone"


@contextmanager
def plain_eager_context() -> Iterator[None]:
    """Run as a user runs eager: without warnings, and with nothing compiled."""
    stance = torch.compiler.set_stance("force_eager")
    with torch.enable_grad(), warnings.catch_warnings(action="ignore"), stance, limit_run_time():
        yield


def _usable(tensor: torch.Tensor) -> bool:
    if tensor.numel() > MOST_ELEMENTS or tensor.layout is not torch.strided:
        return False
    try:
        return tensor.is_leaf or True
    except RuntimeError:  # autograd forbids a view that was written in a way it cannot record
        return False


@dataclass(frozen=True, slots=True)
class StatementForm:
    """A way to write a statement. Swarms switch forms on and off, and tables count them.

    `place` is where it is allowed: in "program", in "calls", or in "both". A form that `nests` has
    a block of its own.
    """

    name: str
    group: str
    draw: Callable[[Sketch], None]
    place: str = COMPILED
    nests: bool = False
    weight: int = 1


@dataclass(slots=True)
class Sketch:
    """A program in the making. `point` is where the next statement goes."""

    pick: Pick
    module: list[Node] = field(default_factory=list)
    program: Block = field(default_factory=lambda: Block("def program():"))
    calls: Block = field(default_factory=lambda: Block("def calls(program):"))
    names: Names = field(default_factory=Names)
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    # The function whose locals a statement at the point sees, and the nesting of blocks there.
    function: str = CALLS
    depth: int = 0
    point: list[Node] = field(init=False)
    forms: Sequence[StatementForm] = ()
    arguments: list[str] = field(default_factory=list)  # of the first call
    situations: list[str] = field(default_factory=list)  # of the tensors of the current form
    used: int = 0  # number of names used

    def __post_init__(self) -> None:
        self.point = self.calls.body

    # --- what forms use ---------------------------------------------------------------------------

    def fresh(self, stem: str = "t") -> str:
        """A name that is not used yet."""
        self.used += 1
        return f"{stem}{self.used}"

    def tensor(self, fits: Callable[[torch.Tensor], bool] = lambda tensor: True) -> str:
        """The expression of a tensor, more often a recent one. Raises `NoChoice` if none fits."""
        fitting = [name for name, tensor in self.names.tensors.items() if fits(tensor)]
        recent = fitting[-4:] if self.pick.chance(50) else fitting
        return self._chosen(self.pick.one(recent))

    def local(self) -> str:
        """Like `tensor`, but the expression is a plain name, which can be bound again."""
        return self._chosen(self.pick.one(list(filter(str.isidentifier, self.names.tensors))))

    def _chosen(self, expression: str) -> str:
        self.situations.append(self.names.situation(expression))
        return expression

    def at(self, expression: str) -> torch.Tensor:
        """The tensor that the expression has at the point."""
        return self.names.tensors[expression]

    def add(self, *nodes: Node, definition: Node | None = None) -> None:
        """Add statements at the point, and the module's function or class that they need.

        Raises `NoChoice`, and adds nothing, if eager refuses the statements.
        """
        before, module = len(self.point), list(self.module)
        if definition is not None and definition not in self.module:
            self.module.insert(0, definition)
        self.point += nodes
        try:
            self.look()
        except NoChoice:
            del self.point[before:]
            self.module[:] = module
            raise

    @contextmanager
    def inside(self, block: Block, *after: Node, function: str | None = None) -> Iterator[None]:
        """Add a block, and the statements after it; within the context, the point is in the block.

        `function` is the name of the block's function, if it is one that is called below. At the
        end, raises `NoChoice` and removes all of it if eager refuses the whole.
        """
        outer, before = (self.point, self.function, self.depth), len(self.point)
        self.point += [block, *after]
        self.point, self.depth = block.body, self.depth + 1
        self.function = function or self.function
        try:
            self.look()
            yield
            self.point, self.function, self.depth = outer
            self.look()
        except NoChoice:
            self.point, self.function, self.depth = outer
            del self.point[before:]
            self.look()
            raise

    def statements(self, most: int) -> None:
        """Add up to `most` statements by the forms that are allowed here."""
        place = CALLS if self.function == CALLS else COMPILED
        forms = [form for form in self.forms if form.place in (place, "both")]
        if self.depth >= DEEPEST:
            forms = [form for form in forms if not form.nests]
        weighted = [form for form in forms for _ in range(form.weight)]
        for _ in range(self.pick.integer(1, most)):
            for _ in range(TRIES):
                if self.choose(self.pick.one(weighted)):
                    break

    def choose(self, form: StatementForm) -> bool:
        """Let a form add its statements; False if the form finds nothing that fits."""
        around, self.situations = self.situations, []
        try:
            form.draw(self)
        except NoChoice:
            return False
        finally:
            mine, self.situations = self.situations, around
        self.counts[form.name, mine[0] if mine else "no tensor"] += 1
        return True

    # --- running ----------------------------------------------------------------------------------

    def source(self) -> str:
        """The current text."""
        parts = [[*IMPORTS]]
        parts += [list(render_lines([node])) for node in (*self.module, self.program, self.calls)]
        body = "\n\n".join("\n".join(part) for part in parts)
        return f"{body}\n    return locals()\n"

    def finished(self) -> PythonProgram:
        """The program, run to its end. Raises `NoChoice` if eager refuses it.

        If autograd refuses a backward pass, the program is kept: a compiler must refuse it, too.
        """
        program = PythonProgram(self.source())
        try:
            seed_generators()
            with plain_eager_context():
                program.run()
        except Exception as error:
            if not isinstance(error, RuntimeError) or VERSION_ERROR not in str(error):
                raise NoChoice from error
        return program

    def look(self) -> None:
        """Run up to the point, and record the names there. Raises `NoChoice` if eager refuses."""
        frames: list[types.FrameType] = []

        def probe() -> None:
            frames.append(sys._getframe(1))
            raise Reached

        self.point.append("probe()")
        text = self.source()
        self.point.pop()
        seed_generators()
        try:
            with plain_eager_context(), running(text, probe=probe) as module:
                module[CALLS](module[COMPILED])
        except Reached:
            self.names = self._names(frames[-1], frames[-1].f_globals)
        except Exception as error:
            raise NoChoice from error
        else:
            raise NoChoice  # no run reaches the point

    def _names(self, frame: types.FrameType, module: dict[str, Any]) -> Names:
        values: dict[str, Any] = {}
        data = {name: it for name, it in module.items() if name[0] != "_" and not callable(it)}
        values |= {name: it for name, it in data.items() if not isinstance(it, types.ModuleType)}
        # A nested function sees the names of the enclosing function.
        around = frame.f_back
        if (
            around is not None
            and frame.f_code.co_flags & 0x10
            and around.f_code.co_name == COMPILED
        ):
            values |= around.f_locals
        values |= frame.f_locals
        values.pop(COMPILED, None)
        tensors = {
            path: leaf
            for name, value in values.items()
            for path, leaf in leaves(value, name)
            if isinstance(leaf, torch.Tensor) and _usable(leaf)
        }
        kept = list(tensors.items())[-MOST_TENSORS:]
        return Names(dict(kept), values)


# --- form table -----------------------------------------------------------------------------------


FORMS: list[StatementForm] = []


def form(
    group: str, *, place: str = COMPILED, nests: bool = False, weight: int = 1
) -> Callable[[Callable[[Sketch], None]], Callable[[Sketch], None]]:
    """Add a form, named after the function."""

    def added(draw: Callable[[Sketch], None]) -> Callable[[Sketch], None]:
        name = draw.__name__.strip("_").replace("_", " ")
        FORMS.append(StatementForm(name, group, draw, place, nests, weight))
        return draw

    return added
