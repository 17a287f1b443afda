"""`plain_call`: a call of an operator that Inductor decomposes or lowers, and nothing else.

Operators of the table use their own drawers. For all others, arguments are drawn by schema until
eager accepts them. Another call may precede or follow, for rules of fusion that match both. The
result depends only on the operator, the kind and the number.
"""

from __future__ import annotations

import functools
import random
import re
from collections import Counter

import torch
from torch._inductor import decomposition, lowering
from torch._ops import OpOverload

from aliasproof.generators.coverage import why_not_applicable
from aliasproof.generators.draft import Draft, Drawer
from aliasproof.generators.features import Features
from aliasproof.generators.index_arguments import positions
from aliasproof.generators.number_arguments import dimension
from aliasproof.generators.ops import OPERATORS
from aliasproof.generators.rules.pattern_walk import literal
from aliasproof.generators.rules.plain_matches import (
    OTHER_DTYPE,
    OTHER_DTYPES,
    USUAL,
    WORDS,
    draw_shape,
    drop_unread_inputs,
    has_kind,
    inputs_of,
)
from aliasproof.generators.scenario_steps import Steps
from aliasproof.generators.scene import NoChoice, Pick, Scene
from aliasproof.generators.strategies import draw_call
from aliasproof.generators.tensor_arguments import mask
from aliasproof.ir.program import Argument, Input, Program, Ref, Storage, names_in
from aliasproof.ir.schemas import Kind, facts, is_composite, resolve

# --- schema drawer --------------------------------------------------------------------------------
#
# A call of any operator, drawn from its schema only, for operators that the table does not have.
#
# The name or the type of an argument decides what is drawn; eager decides what is accepted.


MOST_IN_LIST = 3
_EVERYTHING = Features()
# Arguments that must fit the first tensor. All others are drawn at random.
_FITTING: dict[tuple[str, str], Drawer] = {
    ("dim", "int"): dimension,
    ("index", "Tensor"): positions,
    ("mask", "Tensor"): mask,
    ("condition", "Tensor"): mask,
}


def call_by_schema(pick: Pick, scene: Scene, op: OpOverload, first: str | None = None) -> list[str]:
    """Call the operator on values of the scene, and return the names of its results.

    `first` is its first tensor; None to draw it. Raises `NoChoice` if eager refuses the call.
    """
    draft = Draft(pick, scene, _EVERYTHING)
    args: list[Argument] = []
    kwargs: dict[str, Argument] = {}
    given = len(op._schema.arguments) if pick.chance(50) else 0
    for index, parameter in enumerate(op._schema.arguments):
        if parameter.has_default_value() and (index >= given or parameter.name in _NEVER_GIVEN):
            # Later arguments are passed by name.
            given = 0 if not parameter.kwarg_only else given
            continue
        if first is not None and _takes_tensor(parameter) and not draft.drawn:
            drawn: Argument = Ref(first)
            if _is_list(parameter):
                drawn = (drawn, *_tensors(draft, pick.integer(0, 1)))
        else:
            drawn = _argument(draft, parameter)
        draft.drawn[parameter.name] = drawn
        if parameter.kwarg_only:
            kwargs[parameter.name] = drawn
        else:
            args.append(drawn)
    return list(scene.call(str(op), *args, named=True, **kwargs))


# A program has one device, and no layouts or generators.
_NEVER_GIVEN = ("device", "layout", "pin_memory", "memory_format", "generator", "requires_grad")


def _argument(draft: Draft, parameter: torch.Argument) -> Argument:
    kind = str(parameter.real_type)
    plain = kind.removeprefix("Optional[").removesuffix("]") if "Optional" in kind else kind
    fitting = _FITTING.get((parameter.name, plain))
    of_dim = parameter.name != "index" or isinstance(draft.drawn.get("dim"), int)
    if fitting is not None and of_dim and any(names_in(tuple(draft.drawn.values()))):
        return fitting(draft)
    if not _takes_tensor(parameter):
        return _plain(draft, parameter, plain)
    if kind.startswith("Optional[") and draft.pick.chance(50):
        return None
    if _is_list(parameter):
        return _tensors(draft, draft.pick.integer(1, MOST_IN_LIST))
    return _tensors(draft, 1)[0]


def _plain(draft: Draft, parameter: torch.Argument, kind: str) -> Argument:
    """An argument that is no tensor."""
    pick = draft.pick
    tensors = [draft.scene.values[name] for name in names_in(tuple(draft.drawn.values()))]
    if kind == "str":
        return pick.one(_WORDS.get(parameter.name, _ANY_WORD))
    if kind == "List[bool]":
        return tuple(not pick.chance(20) for _ in range(3))
    if kind == "List[number]":
        return tuple(pick.integer(1, 3) for _ in range(pick.integer(1, 2)))
    if kind in ("List[int]", "List[SymInt]") and parameter.name in _OF_IMAGES:
        dims = max(tensors[0].dim() - 2, 1) if tensors else 2
        return (pick.one(_OF_IMAGES[parameter.name]),) * pick.one((dims, 2, 2 * dims))
    return literal(pick, parameter, tensors)


# Facts that are not in the schema: the strings that an argument accepts, and arguments with one
# number per dimension of an image.
_ANY_WORD = ("none", "mean", "sum", "amax", "constant", "reflect")
_WORDS = {
    "approximate": ("none", "tanh"),
    "rounding_mode": ("floor", "trunc"),
    "reduce": ("sum", "prod", "mean", "amax", "amin"),
    "indexing": ("ij", "xy"),
    "norm": ("backward", "forward", "ortho"),
    "UPLO": ("L", "U"),
    "ord": ("fro",),
    "equation": ("ij,jk->ik", "ij->ji", "ii->i", "i,j->ij", "ij,ij->"),
    "mode": ("constant", "reflect", "replicate", "circular"),
    "padding": ("valid", "same"),
}
_OF_IMAGES = {
    "output_size": (2, 1, 3, 4),
    "kernel_size": (2, 1, 3),
    "input_size": (3, 2, 4),
    "stride": (1, 2),
    "padding": (0, 1),
    "dilation": (1, 2),
    "output_padding": (0,),
}


def _takes_tensor(parameter: torch.Argument) -> bool:
    return "Tensor" in str(parameter.real_type)


def _is_list(parameter: torch.Argument) -> bool:
    return "List[" in str(parameter.real_type)


def _tensors(draft: Draft, count: int) -> tuple[Argument, ...]:
    """Values of the scene, mostly with the sizes and dtype of the first one drawn."""
    scene, pick = draft.scene, draft.pick
    before = next(names_in(tuple(draft.drawn.values())), None)
    names = scene.newest_first()
    if before is not None and pick.chance(50):
        own = scene.values[before]
        names = scene.newest_first(lambda t: t.dtype == own.dtype and t.shape == own.shape)
    elif before is not None and pick.chance(50):
        names = scene.newest_first(lambda t: t.dtype == scene.values[before].dtype)
    first = pick.one(names)
    alike = scene.newest_first(
        lambda t: t.dtype == scene.values[first].dtype and t.shape == scene.values[first].shape
    )
    others = [pick.one(alike) for _ in range(count - 1)]
    return tuple(Ref(name) for name in (first, *others))[:count]


# --- operator calls -------------------------------------------------------------------------------


CALLS = 4  # programs of each kind: the call by itself, and with other calls
MOST_DRAWS = 300
DTYPES = (torch.float32, torch.float32, torch.float32, torch.int64, torch.bool, torch.complex64)
RANKS = (2, 2, 2, 1, 3, 4, 5)
LONG_SIZES = (7, 8, 15, 16, 17, 31, 33)  # around the lengths of vector registers
_LINES = {operator.name: operator for operator in OPERATORS}


@functools.cache
def operators() -> tuple[str, ...]:
    """The overloads that have a decomposition or a lowering and that a program may call."""
    return tuple(name for name in tabled() if out_of_reach(name) is None)


@functools.cache
def tabled() -> tuple[str, ...]:
    """The overloads of ATen that the dispatcher has and Inductor decomposes or lowers."""
    tables = (decomposition.select_decomp_table(), lowering.lowerings)
    known = frozenset(torch._C._dispatch_get_all_op_names())
    overloads = {
        str(op)
        for table in tables
        for op in table
        if isinstance(op, OpOverload) and op.namespace == "aten" and op.name() in known
    }
    return tuple(sorted(overloads))


@functools.cache
def out_of_reach(name: str) -> str | None:
    """Why programs cannot have such a call, or none that can be judged; None if they can."""
    op = resolve(name)
    reason = why_not_applicable(op)
    if reason is not None:
        return reason
    if is_composite(op) and torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), "CPU"):
        # `native_channel_shuffle` returns a new tensor, but a view under a dispatch mode.
        return "a dispatch mode, as eager runs here, calls its parts, and not its kernel"
    returns = [str(result.type) for result in op._schema.returns]
    kinds = [str(argument.type) for argument in op._schema.arguments]
    if facts(op).kind is Kind.OUT:
        return "an out= form: functionalization calls the functional form"
    if not returns or any("Tensor" not in kind for kind in returns):
        return "gives no tensor"
    if not any("Tensor" in kind for kind in kinds):
        return "takes no tensor"
    if "generator" in op._overloadname or any(kind.startswith("__torch__") for kind in kinds):
        return "takes what a program does not name"
    plain = op.overloadpacket.__name__
    if name in _LINES:
        return None
    return next((why for words, why in _LEFT_OUT.items() if re.search(words, plain)), None)


_OF_MATRICES = (
    "^linalg_(?!cross|matmul|multi_dot|norm|vecdot|vector_norm|vander)|cholesky|triangular_solve"
    "|^(det|geqrf|inverse|logdet|lu_.*|matrix_exp|nuclear_norm|orgqr|ormqr|pinverse|qr|slogdet|svd)$"
)
# Patterns of names of operators whose schema does not say enough about their arguments.
_LEFT_OUT = {
    "^_": "a part of other operators: its kernel does not check what it is given",
    "_backward$": "autograd calls it, on what the forward call kept: in variant 'grad'",
    "sparse|^smm$|^sspaddmm$|nested|to_mkldnn": "is for tensors that are not strided",
    "^quantized_|^fbgemm_|mkldnn": "takes packed weights",
    "^native_batch_norm$": "its kernel ends the process where arguments do not fit",
    _OF_MATRICES: "its result is not unique, or hangs on rounding where a matrix is singular",
    "quantile$": "checks tensor data, but not under a dispatch mode, as eager runs here",
    "^lift$": "marks constants of a trace, which compilers may copy",
    "^choose_qparams_optimized$": "reads tensor data where no dispatch mode sees it",
    "^histogramdd$": "may take minutes, as it fills a histogram of as many dimensions as columns",
    "^(gru|lstm|rnn_tanh|rnn_relu)$": "takes a list of weights whose sizes depend on one another",
}


@functools.cache
def plain_call(name: str, kind: str, number: int) -> Program | str:
    """The program of this number, or the reason why there is none."""
    reason = out_of_reach(name)
    if reason is not None:
        return reason
    usual = None if (kind, number) == (USUAL, 0) else plain_call(name, USUAL, 0)
    first = plain_call(name, kind, 0) if number else usual
    if isinstance(usual, str) or isinstance(first, str):  # the search was long and failed
        return usual if isinstance(usual, str) else str(first)
    pick = Pick(random.Random(f"{name} {kind} {number}").randint)
    refused: Counter[str] = Counter()
    for _ in range(MOST_DRAWS):
        try:
            program = _drawn(name, pick, kind, number)
        except NoChoice as error:
            refused[(str(error.__cause__ or error) or "nothing fits").partition("\n")[0]] += 1
            continue
        if has_kind(program, kind, usual):
            return program
        refused[f"no operand is {WORDS[kind]}"] += 1
    return f"eager accepts no draw: {refused.most_common(1)[0][0]}"


def _drawn(name: str, pick: Pick, kind: str, number: int) -> Program:
    """Draw a candidate program. Raises `NoChoice` if eager refuses it."""
    scene = Scene(*_pool(pick, kind, _rank(name)), seed=0)
    operand = Steps(pick, scene).fresh(pick.one(scene.newest_first())) if number % 2 else None
    before = len(scene.instructions)
    # An internal operator does not check its arguments, so only its own drawers are safe.
    if name in _LINES and (name.startswith("aten._") or pick.chance(70)):
        draw_call(pick, scene, _EVERYTHING, _LINES[name])
    else:
        call_by_schema(pick, scene, resolve(name), operand)
    results = [result for call in scene.instructions[before:] for result in call.results]
    if operand is not None and operand not in scene.instructions[-1].refs:
        raise NoChoice("the call does not take what another one computes")
    outputs = list(scene.instructions[-1].results)
    if number >= CALLS // 2 and outputs:
        last = pick.one(outputs)
        if pick.chance(40):
            outputs += [Steps(pick, scene).fresh(last)]
        else:
            other = resolve(pick.one(operators()))
            outputs += call_by_schema(pick, scene, other, last)
    if not all(scene.values[result].layout == torch.strided for result in results):
        raise NoChoice("gives a tensor that is not strided")
    program = drop_unread_inputs(scene.program(outputs))
    # Eager must accept it again: with fewer inputs, the values of inputs change.
    scene = Scene(program.storages, program.inputs, program.seed)
    for call in program.instructions:
        scene.call(call.op, *call.args, named=True, **dict(call.kwargs))
    return program


def _rank(name: str) -> tuple[int, ...]:
    """Ranks of operands. Names with `2d` take images, which also have batches and channels."""
    for dims in (1, 2, 3):
        if f"{dims}d" in name:
            return (dims + 2, dims + 2, dims + 1)
    return RANKS


def _pool(
    pick: Pick, kind: str, ranks: tuple[int, ...]
) -> tuple[tuple[Storage, ...], tuple[Input, ...]]:
    """Tensors for a call to choose from: most have one shape and dtype."""
    dtype = pick.one(OTHER_DTYPES if kind == OTHER_DTYPE else DTYPES)
    alike = draw_shape(pick, kind, ranks, LONG_SIZES)
    shapes = [(), alike[:1], alike[-1:], (*alike[:-1], 1)[: len(alike)], alike[1:], alike[::-1]]
    dtypes = [dtype] * 6 + [torch.int64, torch.int64, torch.bool] + [dtype] * 3
    return inputs_of([*shapes, alike[:1], alike, alike, alike, alike, alike], dtypes)
