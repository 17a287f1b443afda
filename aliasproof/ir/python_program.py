"""`PythonProgram`: a program as people write it, with functions, modules, gradients and state.

A `Program` is a straight line of ATen calls. Many bugs of compilers need more: a closure that is
written, a Parameter, a gradient between two writes, a second call. The source is ordinary Python:
people read it, and a reproducer runs it. It defines `program`, which is compiled, and
`calls(program)`, which makes the inputs, calls `program`, and returns `locals()`: everything that a
caller can reach afterwards.

The text is data. A program can use only the syntax and the names below, which reach no file, no
process and no other module. So a stored program can be run.
"""

from __future__ import annotations

import ast
import functools
import itertools
import linecache
import re
import signal
import sys
import threading
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import torch

from aliasproof.ir import custom_operators
from aliasproof.ir.custom_operators import NAMESPACE
from aliasproof.ir.errors import Rejected, UserError
from aliasproof.ir.object_graph import parts_of
from aliasproof.ir.program import Program

# --- python names ---------------------------------------------------------------------------------
#
# The names that a `PythonProgram` may use: no other name of Python or torch can be reached.


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


BUILTINS = _words("""
    abs all any bool classmethod dict divmod enumerate filter float int isinstance len list locals
    map max min next pow print property range reversed round sorted staticmethod str sum super
    tuple type zip
""")
IMPORTED = _words("collections copy dataclasses functools math torch")
# The errors that a program can raise and catch. None is a base class of an error that ends a run.
ERRORS = _words("IndexError KeyError RuntimeError StopIteration ValueError ZeroDivisionError")
# The special methods that its classes can have. Each runs only where code of the program uses it.
METHODS = _words("__call__ __getitem__ __iadd__ __init__ __setitem__")

# Names of torch that are not ATen operators, and do what no operator does.
_OF_TORCH = _words("""
    Adagrad Adam AdamW BatchNorm1d Dropout Embedding FloatTensor Function H LayerNorm Linear
    Module ModuleDict ModuleList Parameter ParameterDict ParameterList RMSprop ReLU SGD
    Sequential Size T Tensor __init__ _base _dynamo _foreach_add_ _foreach_copy_ _foreach_mul_
    _foreach_zero_ _higher_order_ops aliasproof apply as_tensor asarray associative_scan
    autocast autograd backward bfloat16 bool buffers checkpoint clip_grad_norm_ clip_grad_value_
    compiler complex64 cond data data_ptr dataclass default_factory detach_ disable double dtype
    element_size enable_grad eval field float float16 float32 float64 forward func function
    functional functional_call grad grad_and_value grad_fn gradcheck graph graph_break half
    higher_order imag inference_mode init int int32 int64 is_contiguous is_grad_enabled
    is_inference is_leaf is_set_to item jacrev jvp load_state_dict mH mT manual_seed map
    mark_dirty mark_non_differentiable maybe_mark_dynamic momentum named_buffers
    named_parameters nbytes ndim needs_input_grad nested_compile_region new new_tensor nn
    no_grad num_batches_tracked numel numpy once_differentiable ops optim param_groups
    parameters real register_buffer register_forward_hook register_forward_pre_hook
    register_full_backward_hook register_hook register_parameter
    register_post_accumulate_grad_hook relu_ remove requires_grad requires_grad_ retain_grad
    retains_grad running_mean running_var save_for_backward saved_tensors saved_tensors_hooks
    scan set_grad_enabled set_materialize_grads setter setup_context shape size state_dict step
    storage_offset stride strides swap_tensors to tolist train training type type_as
    untyped_storage utils vjp vmap while_loop zero_grad
""")
# Further names that people write: what they reach is made of ordinary operators.
_ORDINARY = _words("""
    OrderedDict broadcast_shapes byte can_cast cdouble ceil cfloat char deepcopy defaultdict deque
    device dim_order e factorial fft get_default_dtype inf is_cpu is_cuda is_nested is_quantized
    is_sparse is_tensor isqrt itemsize layout linalg long nan ndimension nelement partial
    pca_lowrank pi promote_types reduce rnn short special svd_lowrank tau unique unravel_index
""")
_OF_CONTAINERS = _words("""
    append clear copy count extend get index insert items keys pop popitem remove replace reverse
    setdefault update values
""")
# The attributes that classes of a program have.
OWN_ATTRIBUTES = _words("""
    bias buffer cache count first history inner last memory other scale second shared state tied
    total view_of weight
""")


BEYOND_OPERATORS = _OF_TORCH


@functools.cache
def attributes() -> frozenset[str]:
    """The attributes that a program may name."""
    # Layers, optimizers, functions of the modules that people import, dtypes, memory formats.
    nn, classes = torch.nn, (torch.nn.Module, torch.optim.Optimizer)
    functions = types.FunctionType | types.BuiltinFunctionType
    modules = (nn, nn.functional, nn.init, nn.utils, nn.utils.rnn, torch.optim, torch.func)
    imported = {
        name
        for module in (*modules, torch.linalg, torch.fft, torch.special)
        for name, it in vars(module).items()
        if not name.startswith("_")
        and (
            (isinstance(it, type) and issubclass(it, classes))
            or (isinstance(it, functions) and (it.__module__ or "torch").startswith("torch"))
        )
    }
    constants = torch.dtype | torch.memory_format
    imported |= {name for name, it in vars(torch).items() if isinstance(it, constants)}
    of_torch = _operators() | imported | _OF_TORCH | _ORDINARY
    return of_torch | _OF_CONTAINERS | OWN_ATTRIBUTES | {*custom_operators.names()}


@functools.cache
def _operators() -> frozenset[str]:
    """The names of ATen operators that take or make tensors, except those that open files."""
    schemas = [it for it in torch._C._jit_get_all_schemas() if it.name.startswith("aten::")]
    names = {
        schema.name.partition("::")[2]
        for schema in schemas
        if any("Tensor" in str(one.type) for one in (*schema.arguments, *schema.returns))
        and not any("file" in one.name for one in schema.arguments)
    }
    return frozenset(name for name in names if not name.startswith("_"))


# --- python program -------------------------------------------------------------------------------


COMPILED, CALLS = "program", "calls"  # the functions that each program has
MODULE_PREFIX = "aliasproof_python_program_"
_NUMBERS = itertools.count()
SECONDS = 5.0  # of the processor: a run in eager takes some milliseconds

_STATEMENTS = (
    ast.Module, ast.FunctionDef, ast.ClassDef, ast.Return, ast.Assign, ast.AugAssign, ast.AnnAssign,
    ast.For, ast.While, ast.If, ast.With, ast.withitem, ast.Expr, ast.Pass, ast.Break, ast.Continue,
    ast.Nonlocal, ast.Global, ast.Delete, ast.Import, ast.alias, ast.Assert, ast.Try,
    ast.ExceptHandler, ast.Raise,
)  # fmt: skip
_EXPRESSIONS = (
    ast.BoolOp, ast.BinOp, ast.UnaryOp, ast.Lambda, ast.IfExp, ast.Dict, ast.List, ast.Tuple,
    ast.ListComp, ast.DictComp, ast.GeneratorExp, ast.comprehension, ast.Yield, ast.Compare,
    ast.Call, ast.Constant, ast.Attribute, ast.Subscript, ast.Starred, ast.Name, ast.Slice,
    ast.NamedExpr, ast.JoinedStr, ast.FormattedValue, ast.arguments, ast.arg, ast.keyword,
    ast.expr_context, ast.boolop, ast.operator, ast.unaryop, ast.cmpop,
)  # fmt: skip
_ALLOWED = (*_STATEMENTS, *_EXPRESSIONS)


@dataclass(frozen=True, slots=True)
class PythonProgram:
    """Source text that is valid in this language. See the module.

    Raises:
        UserError: The text is not Python, or uses something that the language does not have.

    """

    source: str

    def __post_init__(self) -> None:
        _validate(self.source)

    @property
    def lines(self) -> int:
        """The number of lines with statements."""
        return sum(bool(line.strip()) for line in self.source.splitlines())

    def run(
        self, transform: Callable[[Any], Any] = lambda program: program, then: object = None
    ) -> dict[str, object]:
        """Call it in a fresh module; returns what the caller can reach afterwards, by name.

        As `Runnable.run`, but `then` is not called: the program runs its backward passes itself.
        """
        with running(self.source) as names:
            return reachable(names, names[CALLS](transform(names[COMPILED])))

    def widened(self) -> PythonProgram:
        """Itself: most of its tensors are made without a dtype. See `Runnable.widened`."""
        return self


AnyProgram: TypeAlias = Program | PythonProgram
P = TypeVar("P", bound=AnyProgram)


@contextmanager
def running(source: str, **further: object) -> Iterator[dict[str, Any]]:
    """The names that a text defines, made anew: nothing of an earlier run is left.

    `further` are names that the text can use as well.
    """
    module = types.ModuleType(f"{MODULE_PREFIX}{next(_NUMBERS)}")
    module.__dict__.update(further)
    sys.modules[module.__name__] = module  # dataclasses look it up
    file = f"<{module.__name__}>"
    linecache.cache[file] = (len(source), None, source.splitlines(True), file)
    try:
        exec(compile(source, file, "exec"), module.__dict__)  # noqa: S102 - see the module
        yield module.__dict__
    finally:
        del sys.modules[module.__name__], linecache.cache[file]


@contextmanager
def limit_run_time(seconds: float = SECONDS) -> Iterator[None]:
    """Raise `Rejected` in a run in eager that takes longer: a loop may append to its own list.

    The seconds are processor time. The wall-clock limits of a worker and a test use the other
    timer. Only the main thread of a process is limited.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, frame: object) -> None:
        raise Rejected(f"a run in eager takes more than {seconds:g} s")

    before = signal.signal(signal.SIGPROF, end)
    # Repeated, since an exception in the callback of a weak reference is lost.
    signal.setitimer(signal.ITIMER_PROF, seconds, 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def reachable(names: dict[str, Any], local: dict[str, Any]) -> dict[str, object]:
    """The values that a caller reaches: locals of `calls`, data among the globals, the classes."""
    globals_ = {name: value for name, value in names.items() if not _is_code(value)}
    state = {
        f"{name}.{attribute}": value
        for name, kind in names.items()
        if isinstance(kind, type) and kind.__module__.startswith(MODULE_PREFIX)
        for attribute, value in vars(kind).items()
        if attribute in OWN_ATTRIBUTES and not _is_code(value)
    }
    left = {name: value for name, value in local.items() if name != COMPILED}
    return {**left, **{name: globals_[name] for name in globals_ if name[0] != "_"}, **state}


def _is_code(value: object) -> bool:
    code = callable(value) and parts_of(value) is None  # a module has state
    return code or isinstance(value, (types.ModuleType, property, staticmethod))


# --- the language ---------------------------------------------------------------------------------


def _validate(source: str) -> None:
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError) as error:
        raise UserError(f"a Python program is no Python: {error}") from None
    bound = _bound(tree)
    for node in ast.walk(tree):
        line = f"line {getattr(node, 'lineno', '?')} of a Python program"
        if not isinstance(node, _ALLOWED):
            raise UserError(f"{line}: {type(node).__name__} is not in the language")
        if isinstance(node, ast.Attribute) and node.attr not in attributes():
            raise UserError(f"{line}: no attribute '{node.attr}' in the language")
        if isinstance(node, ast.Name) and node.id not in bound:
            raise UserError(f"{line}: no name '{node.id}' in the language")
        names = node.names if isinstance(node, ast.Import) else ()
        if any(it.name not in IMPORTED or it.asname for it in names):
            raise UserError(f"{line}: only {sorted(IMPORTED)} can be imported")
        if isinstance(node, ast.Try):
            # It must not catch the error which ends a run that takes too long.
            kinds = [ast.unparse(it.type) if it.type else "everything" for it in node.handlers]
            if not {*kinds} <= ERRORS or any(it.name for it in node.handlers):
                raise UserError(f"{line}: only {sorted(ERRORS)} can be caught, without a name")
            jumps = (ast.Return, ast.Break, ast.Continue)
            if any(isinstance(it, jumps) for last in node.finalbody for it in ast.walk(last)):
                raise UserError(f"{line}: 'finally' cannot return, break or continue")
    defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    assigned = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    for name in (COMPILED, CALLS):
        if name not in defined | assigned:
            raise UserError(f"a Python program defines '{name}'")


def _bound(tree: ast.Module) -> set[str]:
    """All names that the program binds anywhere, and the predefined names."""
    bound: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            bound.add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            bound.add(node.name)
        elif isinstance(node, ast.arg):
            bound.add(node.arg)
    wrong = {name for name in bound if name.startswith("__")} - METHODS
    wrong |= bound & ERRORS
    if wrong:
        raise UserError(f"a Python program cannot bind '{min(wrong)}'")
    return bound | BUILTINS | IMPORTED | ERRORS


# --- python words ---------------------------------------------------------------------------------
#
# The words of a `PythonProgram`: its operators and syntax, without its names and numbers.


WRITE = "write"  # any call that writes a tensor, or may, or an assignment to a part of it
WRITES_CLASS = "writes_class"  # an attribute of a class is assigned in `program`
WRITES_ATTRIBUTE = "writes_attribute"  # an attribute of anything is assigned
CONTROL_FLOW = frozenset(["cond", "map", "scan", "while_loop"])
# A word that stands for any of several words.
_ANY_OF = {
    "control_flow": CONTROL_FLOW,
    "generator": {"GeneratorExp", "Yield"},
    "grad_mode": {"enable_grad", "no_grad", "set_grad_enabled"},
    "membership": {"In", "NotIn"},
}
# Words of almost every program, which show nothing about a cause.
_COMMON = frozenset(
    ["torch", "ones", "arange", "tensor", "zeros", "reshape", "locals", "program", "calls"]
)
# The kinds of syntax on which a cause may depend: all statements, and these expressions.
_KINDS = (ast.stmt, ast.In, ast.NotIn, ast.Is, ast.IsNot, ast.GeneratorExp, ast.Yield)
# Operators that are not just another way to write or to view.
_SPECIAL = frozenset(["as_strided", "detach", "expand", "requires_grad_", "resize_", "set_", "t_"])
_SPECIAL_KINDS = frozenset(["Delete", "For", "GeneratorExp", "In", "Is", "IsNot", "Raise", "Try"])
_SPECIAL_KINDS |= frozenset(["While"])
# Packages, common queries of tensors, and the ways to make a leaf or an object.
_PLAIN = frozenset(["Module", "Parameter", "__init__", "forward", "super"])
_PLAIN |= frozenset(["autograd", "func", "functional", "nn", "ops", "utils", "register_buffer"])
_PLAIN |= frozenset(["register_parameter", "requires_grad_", "shape", "sum"])


_DRAWS = re.compile(r"rand|dropout|bernoulli|normal_$|uniform_$|multinomial|exponential_$")


def draws(program: PythonProgram) -> bool:
    """True if it calls something that draws random numbers, by its name."""
    return any(_DRAWS.search(word) for word in words(program))


def words(program: PythonProgram) -> frozenset[str]:
    """Names of operators, attributes and builtins, and kinds of syntax."""
    nodes = list(ast.walk(ast.parse(program.source)))
    kinds = {type(node).__name__ for node in nodes if isinstance(node, _KINDS)}
    attributes = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    return frozenset(kinds | attributes | (names & BUILTINS)) - _COMMON


def traits(program: PythonProgram) -> frozenset[str]:
    """Its words, and those of `WRITE` and the other words above that apply to it."""
    tree, plain = ast.parse(program.source), words(program)
    classes = {it.name for it in tree.body if isinstance(it, ast.ClassDef)}
    written = [  # the attributes that `program` assigns
        node
        for made in tree.body
        if getattr(made, "name", "") == COMPILED
        for node in ast.walk(made)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
    ]
    holds = {
        WRITE: _writes(tree),
        WRITES_CLASS: any(getattr(node.value, "id", "") in classes for node in written),
        WRITES_ATTRIBUTE: bool(written),
        **{word: not plain.isdisjoint(several) for word, several in _ANY_OF.items()},
    }
    return plain | {word for word, it_holds in holds.items() if it_holds}


def mechanisms(program: PythonProgram) -> frozenset[str]:
    """The words for operations that no ordinary operator can replace.

    A reduced program fails only with all of its parts. So if it has a mechanism that a known bug
    does not need, it fails for another cause.
    """
    special = _SPECIAL | _SPECIAL_KINDS | BUILTINS | BEYOND_OPERATORS
    return frozenset(words(program) & special) - _PLAIN


def _writes(tree: ast.Module) -> bool:
    for node in ast.walk(tree):
        name = node.attr if isinstance(node, ast.Attribute) else ""
        if name == NAMESPACE:  # an operator of ours
            return True
        if name != "requires_grad_" and re.fullmatch(r"[a-z]\w*[a-z\d]_", name):
            return True
        if isinstance(node, ast.AugAssign) or (
            isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store)
        ):
            return True
        if isinstance(node, ast.keyword) and node.arg == "out":
            return True
    return False
