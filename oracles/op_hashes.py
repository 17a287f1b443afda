"""`OpHashes`: the value hashes of the results of a functional op.

There are four sorts of ops:

- A move (`clone`, `cat`, `flip`, a view copy) passes on the hashes that it reads.
- Pointwise op: the hash of an element depends on the op, its plain arguments (those that are not
  tensors), and the elements that it reads at its position.
- Matrix product: the hash depends on the elements of one row and one column (see `product`).
- Any other op is *opaque*, since only its schema is known: the hash depends on the op, its plain
  arguments, all elements that the op reads, and the position of the element.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, TypeGuard

import numpy as np
import numpy.typing as npt
import torch
from torch._ops import HigherOrderOperator, OpOverload
from torch.utils import _pytree as pytree

from aliasproof.eager.definedness import eager_steps
from aliasproof.eager.op_properties import KernelTrait, traits_of
from aliasproof.eager.rounding import is_inexact, readable, rounding_name, rounds_alike
from aliasproof.eager.uninitialised import ALLOCATES
from aliasproof.ir.custom_operators import NAMESPACE, READS_AGAIN
from aliasproof.ir.eager_call import tensors_in
from aliasproof.ir.errors import Rejected
from aliasproof.ir.regions import Region, overlap
from aliasproof.ir.schemas import facts, is_composite
from aliasproof.ir.values import entries_of
from aliasproof.oracles.forms import COMMUTATIVE, SCATTERS, view_of_copy
from aliasproof.oracles.value_hashes import (
    OPERANDS,
    Array,
    HashedMemory,
    conjugated,
    digest,
    digests,
    element,
    element_hashes,
    hash_of,
    mix_hashes,
    negative,
    of_constant,
    sequence,
    spread,
)

# --- calls ---------------------------------------------------------------------------------------
#
# Calls of operators in uninterpreted execution: their steps, the data they read, constants.


aten = torch.ops.aten

# These ops read only the metadata of their tensors. The values that they return are constants.
_METADATA_READ = {
    "zeros_like",
    "ones_like",
    "full_like",
    "new_zeros",
    "new_ones",
    "new_full",
    "zero",
    "zeros",
    "ones",
    "full",
    "_foreach_zero",
}
# These also read only the metadata of `self`, but the values that they return are random.
_STORES_RANDOM = {
    "uniform",
    "normal",
    "random",
    "exponential",
    "geometric",
    "cauchy",
    "log_normal",
    "rand_like",
    "randn_like",
    "randint_like",
}
_SCALES_ADDEND = {"addmm", "addmv", "addbmm", "baddbmm", "addr"}
TORCH = {"aten", "prims"}
# Arguments of torch's ops that do not change the values computed; the result shows the `dtype`.
_NO_MATTER = {
    "memory_format",
    "layout",
    "pin_memory",
    "device",
    "non_blocking",
    "generator",
    "dtype",
}


_STEPS: dict[Any, Callable[..., Any]] = {
    aten.resize.default: lambda tensor, *args, **kwargs: tensor.clone().resize_(*args, **kwargs),
    aten.resize_as.default: lambda tensor, *args, **kwargs: tensor.clone().resize_as_(
        *args, **kwargs
    ),
}


def steps(op: OpOverload | HigherOrderOperator) -> Callable[..., Any] | None:
    """A function that calls the ops that an op consists of; None if it consists of no others.

    Higher-order ops have one, and so do composite ops. A dispatch mode meets composite ops only in
    inference mode.

    Raises:
        Rejected: A higher-order op has no kernel in Python.

    """
    if op in _STEPS:
        return _STEPS[op]
    if isinstance(op, HigherOrderOperator):
        kernel = eager_steps(op)
        if kernel is None:
            raise Rejected(f"what {op} does cannot be followed")
        return kernel
    # An op with a kernel of its own is not decomposed in eager either.
    return op.decompose if is_composite(op) and not _has_kernel(op) else None


@functools.cache
def _has_kernel(op: OpOverload) -> bool:
    return torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), "CPU")


def arguments_by_name(
    op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """All arguments by name, defaults included."""
    arguments = op._schema.arguments
    defaults = {argument.name: argument.default_value for argument in arguments}
    # Positional arguments are in the order of the schema.
    return defaults | dict(zip(defaults, args, strict=False)) | dict(kwargs)


def is_out(op: OpOverload, index: int) -> bool:
    """Whether the argument of that index is an `out=` argument."""
    return index in facts(op).writes and bool(op._schema.arguments[index].is_out)


def item(given: dict[str, Any], index: int, count: int) -> dict[str, Any]:
    """The arguments for item `index` of a call on lists with `count` items."""
    # All lists of that length have one item per result; other arguments apply to all items.
    lists = {
        name: value
        for name, value in given.items()
        if isinstance(value, (list, tuple)) and len(value) == count
    }
    return given | {name: value[index] for name, value in lists.items()}


def takes_lists(given: dict[str, Any]) -> bool:
    """Whether an argument is a list that contains tensors."""
    return any(
        isinstance(value, (list, tuple)) and any(True for _ in tensors_in(value))
        for value in given.values()
    )


def commutes(op: OpOverload, given: dict[str, Any]) -> bool:
    """Whether the order of the operands does not matter. With a factor (`alpha`), it does."""
    named = op.namespace == "aten" and op.overloadpacket.__name__ in COMMUTATIVE
    return named and given.get("alpha", 1) == 1


def stores(op: OpOverload) -> bool:
    """Whether the op clones its base and then stores into a part of the clone."""
    return op in SCATTERS or op is aten.copy.default


@functools.cache
def torch_name(op: OpOverload) -> str:
    """The name of an op of torch without the suffix of its form; '' for other ops.

    An op of another library may have the name of an op of torch by chance.
    """
    return _base_name(op) if op.namespace in TORCH else ""


@functools.cache
def plain_name(op: OpOverload) -> str:
    """One name for an op, its in-place and `out=` forms, and its overloads."""
    return f"{op.namespace}::{_base_name(op)}"


def _base_name(op: OpOverload) -> str:
    name: str = op.overloadpacket.__name__
    return name.removesuffix("_").removesuffix("_functional")


def is_constant(op: OpOverload, given: dict[str, Any]) -> bool:
    """Whether the values that an op returns depend on no input."""
    # Two draws with equal arguments give different values.
    if facts(op).random:
        return False
    not_read = unread(op, given)
    # Tensors that are not read give only sizes and dtype, which the result shows.
    read = [value for name, value in given.items() if name not in not_read]
    return torch_name(op) in _METADATA_READ or not any(True for _ in tensors_in(read))


def matters(op: OpOverload, name: str, value: Any) -> bool:
    """Whether this argument, which is no tensor, can change the values that are computed."""
    return not isinstance(value, torch.Generator) and (
        op.namespace not in TORCH or name not in _NO_MATTER
    )


def unread(op: OpOverload, given: Mapping[str, Any]) -> set[str]:
    """The arguments whose metadata an op uses and whose contents it does not use."""
    name, names = torch_name(op), set()
    # By their documentation, `beta=0` ignores the addend, also a NaN in it.
    if given.get("beta") == 0 and name in _SCALES_ADDEND:
        names.add("self")
    if name in _STORES_RANDOM or (name == "bernoulli" and "p" in given):
        names.add("self")
    # torch overwrites `out=` arguments. An op of another library may read them.
    if op.namespace in TORCH or torch.Tag.out in op.tags:
        arguments = enumerate(op._schema.arguments)
        names.update(argument.name for index, argument in arguments if is_out(op, index))
    return names


def as_index(op: OpOverload, given: dict[str, Any]) -> tuple[OpOverload, dict[str, Any]]:
    """An `index_select` as a call of `index`; any other call unchanged.

    A compiler may decompose one to the other, and eager may call both.
    """
    if op is not aten.index_select.default:
        return op, given
    before = given["dim"] % max(given["self"].dim(), 1)
    indices = [*[None] * before, given["index"]]
    return aten.index.Tensor, {"self": given["self"], "indices": indices}


# --- moves ----------------------------------------------------------------------------------------
#
# `MOVES`: ops that pass on the value hashes that they read, in their order.


# The arguments of a call by name, and its result.
MoveRule: TypeAlias = Callable[[HashedMemory, Mapping[str, Any], torch.Tensor], Array]


def in_order(memory: HashedMemory, given: Mapping[str, Any], result: torch.Tensor) -> Array:
    """All elements in row-major order, in the sizes of the result."""
    moved = memory.read_as(given["self"] if "self" in given else given["a"], result.dtype)
    if moved.shape[:-1] == tuple(result.shape):
        return moved
    return moved.reshape(*result.shape, result.element_size())


def _fill_rule(memory: HashedMemory, given: Mapping[str, Any], result: torch.Tensor) -> Array:
    """One value for all elements: a tensor or a Python number."""
    value = given["value"]
    if isinstance(value, torch.Tensor):
        return memory.broadcast(value, result)
    return memory.constant(result)


def _negative(memory: HashedMemory, given: Mapping[str, Any], result: torch.Tensor) -> Array:
    return negative(memory.read(given["self"]), result.dtype)


def _conjugate(memory: HashedMemory, given: Mapping[str, Any], result: torch.Tensor) -> Array:
    shown = memory.read(given["self"])
    return conjugated(shown, result.dtype) if result.is_complex() else shown


MOVES: dict[str, MoveRule] = {
    **dict.fromkeys(("clone", "_to_copy", "lift_fresh_copy", "_reshape_copy"), in_order),
    **dict.fromkeys(("contiguous", "positive", "resolve_conj", "resolve_neg"), in_order),
    **dict.fromkeys(("_unsafe_view", "convert_element_type", "copy_strided"), in_order),
    **dict.fromkeys(("reshape", "collapse"), in_order),  # of prims
    "fill": _fill_rule,
    "neg": _negative,
    "conj_physical": _conjugate,
    "_conj_physical": _conjugate,
}


# --- products -------------------------------------------------------------------------------------
#
# Matrix products in uninterpreted execution: an element depends on one row and one column.
#
# Composite operators choose a product: `matmul` and `einsum` by sizes and strides, `linear` also by
# whether there is a bias. All products count as one operator, so the choice makes no difference.


PRODUCTS = {aten.mm.default, aten.bmm.default, aten.mv.default, aten.dot.default}
# Products with an addend. Arguments: the addend, then the two factors.
WITH_ADDEND: dict[OpOverload, OpOverload] = {
    aten.addmm.default: aten.mm.default,
    aten.baddbmm.default: aten.bmm.default,
    aten.addmv.default: aten.mv.default,
}


def product(memory: HashedMemory, left: torch.Tensor, right: torch.Tensor) -> Array:
    """The hash of each element of a product of matrices, batches of matrices or vectors."""
    rows, columns = memory.elements(left), memory.elements(right)
    # A vector has only the dim that is summed over.
    if right.dim() > 1:
        columns = np.swapaxes(columns, -1, -2)
    start = hash_of("product", left.shape[-1], left.dtype, right.dtype)
    ours, theirs = digests(rows), digests(columns)
    # A sum, since the two factors of a term commute.
    both = ours + theirs if right.dim() == 1 else ours[..., :, None] + theirs[..., None, :]
    return mix_hashes(np.asarray(start + both))


# --- selections -----------------------------------------------------------------------------------
#
# `hashes_of_selection`: ops that return elements of their operands, constants, or sums of elements.
#
# The op itself shows which elements it selects: it runs on positions in place of values. If it adds
# elements, it runs on their hashes. Indices must be constants; otherwise the selection depends on
# tensor data.
#
# Such a sum skips constant zeros. So *values* has to compare the sign of a zero that is added to
# another zero.


# These only move elements, and move all elements of their operands.
REORDERED = ("cat", "stack", "flip", "roll", "repeat")
# The operands whose elements are selected. All other tensors are indices.
SELECTED_FROM: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("cat", "stack"), ("tensors",)),
    **dict.fromkeys(("flip", "roll", "repeat", "tril", "triu", "constant_pad_nd"), ("self",)),
    **dict.fromkeys(("index", "_unsafe_index", "gather", "take"), ("self",)),
    **dict.fromkeys(("pixel_shuffle", "pixel_unshuffle", "channel_shuffle"), ("self",)),
    **dict.fromkeys((f"reflection_pad{dims}d" for dims in (1, 2, 3)), ("self",)),
    **dict.fromkeys((f"replication_pad{dims}d" for dims in (1, 2, 3)), ("self",)),
    **dict.fromkeys(("im2col", "col2im"), ("self",)),
    **dict.fromkeys(("select_backward", "slice_backward", "diagonal_backward"), ("grad_output",)),
    "unfold_backward": ("grad_in",),
    "embedding": ("weight",),
    "embedding_dense_backward": ("grad_output",),
    "value_selecting_reduction_backward": ("grad",),
    **dict.fromkeys(("index_put", "_unsafe_index_put"), ("self", "values")),
    **dict.fromkeys(("index_add", "index_copy", "put"), ("self", "source")),
    **dict.fromkeys(("scatter", "scatter_add"), ("self", "src")),
}
# With other arguments, these ops scale elements, or combine them otherwise than by a sum.
_PLAIN: dict[str, tuple[object, ...]] = {
    "alpha": (1,),
    "reduce": (None,),
    "scale_grad_by_freq": (False,),
}
_PART = 16  # bits of a hash; float64 adds such numbers exactly

Numbers: TypeAlias = npt.NDArray[np.float64]


def hashes_of_selection(
    memory: HashedMemory, op: OpOverload, given: Mapping[str, Any], result: torch.Tensor
) -> Array | None:
    """The hashes of the result; None if the call is no selection."""
    names = SELECTED_FROM.get(torch_name(op))
    if names is None or any(
        given.get(name, plain[0]) not in plain for name, plain in _PLAIN.items()
    ):
        return None
    others = [value for name, value in given.items() if name not in names]
    if not all(map(memory.is_constant, tensors_in(others))):
        return None
    operands = list(tensors_in([given[name] for name in names if name in given]))
    read = [memory.read_as(operand, result.dtype) for operand in operands]
    elements = np.concatenate([hashes.reshape(-1, result.element_size()) for hashes in read])
    run = _on_numbers(op, given, names)
    return _selected(memory, elements, run, result)


def _selected(
    memory: HashedMemory, elements: Array, run: Callable[[Numbers], Numbers], result: torch.Tensor
) -> Array:
    # With zeros as elements, the result has only the constants that the op inserts.
    constants = run(np.zeros(len(elements)))

    def share(numbers: Numbers) -> Numbers:
        with np.errstate(invalid="ignore"):  # a constant may be infinite
            return np.nan_to_num(run(numbers) - constants)

    counted = np.ones(len(elements))
    times = share(counted)
    if adds := bool((times > 1).any()):
        zero = of_constant(torch.zeros(1, dtype=result.dtype))
        counted = (elements != zero).any(axis=-1).astype(np.float64)
        times = share(counted)
    made = memory.constant(result).copy()
    at = share(counted * np.arange(len(elements))).astype(np.int64)
    made[times == 1] = elements[at[times == 1]]
    if adds:
        each = mix_hashes(element_hashes(elements)) * counted.astype(np.uint64)
        totals = mix_hashes(_sums(each, share) + hash_of("sum", result.dtype))
        made[times > 1] = spread(totals, result.element_size())[times > 1]
        if memory.symbols is not None:
            memory.symbols.note(element_hashes(made[times > 1]), lambda index: "sum of elements")
    return made


def _sums(hashes: Array, share: Callable[[Numbers], Numbers]) -> Array:
    """The sums of the hashes that the op adds, modulo 2^64."""
    total: Any = np.uint64(0)
    for start in range(0, 64, _PART):
        part = (hashes >> np.uint64(start)) & np.uint64((1 << _PART) - 1)
        total = total + (share(part.astype(np.float64)).astype(np.uint64) << np.uint64(start))
    return np.asarray(total)


def _on_numbers(
    op: OpOverload, given: Mapping[str, Any], names: Sequence[str]
) -> Callable[[Numbers], Numbers]:
    """The op as a function of numbers that replace, in order, the elements of its operands."""

    def run(numbers: Numbers) -> Numbers:
        rest = torch.from_numpy(numbers)

        def replaced(tensor: torch.Tensor) -> torch.Tensor:
            nonlocal rest
            mine, rest = rest[: tensor.numel()], rest[tensor.numel() :]
            return mine.view(tensor.shape).to(tensor.device)

        operands = {name: given[name] for name in names if name in given}
        numbered = pytree.tree_map_only(torch.Tensor, replaced, operands)
        made: Numbers = op(**{**given, **numbered}).cpu().numpy()
        return made

    return run


# --- operand sharing ------------------------------------------------------------------------------
#
# The bytes that operands of an opaque call share, if one of the operands is written.
#
# The result of such a call may depend on them: it may read one operand after it wrote another. So
# the sharing is part of the call's value hash.


def shared_with_written(op: OpOverload, given: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """The sharing of bytes between operands, encoded as a plain argument of the call.

    It is empty if no operand shares a byte with a written one, and it does not depend on addresses.
    torch's operators have rules of their own. Our custom operators read all operands before they
    write, except a few; so with one written argument, sharing changes nothing.
    """
    if op.namespace in TORCH or not facts(op).writes:
        return []
    written = [op._schema.arguments[index] for index in facts(op).writes]
    in_lists = any("List" in str(argument.type) for argument in written)
    reads_first = len(written) == 1 and not in_lists and str(op) not in READS_AGAIN
    if op.namespace == NAMESPACE and reads_first:
        return []
    names = {argument.name for argument in written}
    operands = [
        (name in names, tensor) for name, value in given.items() for tensor in tensors_in(value)
    ]
    sharing = [
        index
        for index, (is_written, tensor) in enumerate(operands)
        if any(
            (is_written or other_is_written) and _share(tensor, other)
            for place, (other_is_written, other) in enumerate(operands)
            if place != index
        )
    ]
    if not sharing:
        return []
    bytes_shared = _hash_of_bytes([operands[index][1] for index in sharing])
    return [("shares", (sharing, bytes_shared))]


def _share(one: torch.Tensor, other: torch.Tensor) -> bool:
    storages = {one.untyped_storage()._cdata, other.untyped_storage()._cdata}
    return len(storages) == 1 and overlap(Region.of(one), Region.of(other))


def _hash_of_bytes(tensors: list[torch.Tensor]) -> int:
    """A hash of the bytes of the tensors, numbered in the order in which they appear first."""
    addresses: list[npt.NDArray[np.int64]] = []
    starts: dict[int, int] = {}
    for tensor in tensors:
        storage = tensor.untyped_storage()
        # Storages get consecutive ranges of addresses.
        start = starts.setdefault(storage._cdata, sum(part.size for part in addresses) << 40)
        every = np.arange(start, start + storage.nbytes(), dtype=np.int64)
        offset = int(tensor.storage_offset())
        shown = entries_of(every, tensor.shape, tensor.stride(), offset, tensor.element_size())
        addresses.append(shown.ravel())
    _, first, inverse = np.unique(np.concatenate(addresses), return_index=True, return_inverse=True)
    in_order = np.argsort(np.argsort(first))
    return digest(in_order[inverse].astype(np.uint64))


# --- dtype laws -----------------------------------------------------------------------------------
#
# Results that do not depend on the contents of the operand: `ceil` of integers, a pad of size 0.
#
# A compiler may drop such an op. Laws of floating-point numbers do not belong here: `x * 0` is not
# 0 if `x` is infinite.


# These return a whole number unchanged, and integers and bools are whole and finite.
_ROUND = {"ceil", "floor", "round", "trunc", "fix", "nan_to_num"}
_ASK_FOR_SPECIAL_VALUES = {"isposinf", "isneginf", "isinf", "isnan"}


def _is_whole(value: Any) -> TypeGuard[torch.Tensor]:
    """True for a tensor of integers or bools."""
    is_tensor = isinstance(value, torch.Tensor)
    return is_tensor and not is_inexact(value)


# --- op hashes ------------------------------------------------------------------------------------


class OpHashes:
    """Computes the hashes of results. Counts the random draws of the run, which all differ.

    `computing` counts the calls of ops that compute, by `call_name`.
    """

    def __init__(self, memory: HashedMemory) -> None:
        self.memory = memory
        self.computing: Counter[str] = Counter()
        self._draws = 0

    def hashes_of_results(
        self, op: OpOverload, given: dict[str, Any], result: Any
    ) -> list[Array | None]:
        """The hashes of each tensor that a functional op returned; None for unwritten memory.

        `given` are the arguments by name.
        """
        # The real result gives sizes and dtypes. Its data are used only if they are constants.
        results = list(tensors_in(result))
        if torch_name(op) in ALLOCATES:
            return [None] * len(results)
        # Before all other rules: a constant has the hashes of its bytes.
        if self._folds(op, given, results) or is_constant(op, given):
            return [self.memory.constant(tensor) for tensor in results]
        moved = self._hashes_of_move(op, given, results)
        if moved is not None:
            return moved
        if op in PRODUCTS:
            return [self._product(op, given, results[0])]
        if op is aten.native_dropout.default and (given["p"] == 0 or given["train"] is False):
            return self._dropout_without_drops(given, *results)
        if op in WITH_ADDEND and given.get("alpha", 1) == given.get("beta", 1) == 1:
            return [self._with_addend(op, given, results[0])]
        if len(results) == 1 and (by_law := self._by_law(op, given, results[0])) is not None:
            return [by_law]
        op, given = as_index(op, given)
        if torch_name(op) != "_foreach_copy":
            self.computing[call_name(op, given)] += 1
        if torch_name(op).startswith("_foreach_"):
            per_item = self._per_item(op, given, result)
            if per_item is not None:
                return per_item
        is_pointwise = facts(op).pointwise and len(results) == 1
        if is_pointwise and not facts(op).random and not takes_lists(given):
            return [self._pointwise(op, given, results[0])]
        made = self._all_opaque(op, given, results)
        # In evaluation, a batch norm returns its running statistics unchanged.
        if op is aten._native_batch_norm_legit_functional.default and not given["training"]:
            made[3:] = [self.memory.read(given[name]) for name in ("running_mean", "running_var")]
        return made

    def _folds(
        self, op: OpOverload, given: Mapping[str, Any], results: Sequence[torch.Tensor]
    ) -> bool:
        """Whether an op computes constants from constants; a compiler may do this at compile time.

        Only if all kernels give the same bits.
        """
        # `as_strided_copy` reads bytes that its operand does not cover.
        if torch_name(op).startswith("as_strided"):
            return False
        not_read = unread(op, given)
        read = list(tensors_in([value for name, value in given.items() if name not in not_read]))
        if not read or facts(op).random or not all(map(self.memory.is_constant, read)):
            return False
        if not rounds_alike(op, [*read, *results]):
            return False
        zeros_differ = KernelTrait.ANY_ZERO in traits_of(rounding_name(op))
        return all(_has_one_form(tensor, zeros_differ=zeros_differ) for tensor in results)

    def _hashes_of_move(
        self, op: OpOverload, given: Mapping[str, Any], results: Sequence[torch.Tensor]
    ) -> list[Array | None] | None:
        """The hashes that a move passes on; None if the op computes something."""
        # By name without the suffix of a form: `neg_` moves what `neg` moves.
        rule = MOVES.get(torch_name(op))
        if rule is not None:
            return [rule(self.memory, given, results[0])]
        if stores(op):
            return [self.memory.read(given["self"])]
        view = view_of_copy(op)
        if view is aten.view.default:  # `view_copy` also accepts sizes that no view can have
            return [in_order(self.memory, given, results[0])]
        if view is not None:
            # The view of the operand shows exactly the contents of the copy.
            return [self.memory.read(tensor) for tensor in tensors_in(view(**given))]
        selection = hashes_of_selection(self.memory, op, given, results[0]) if results else None
        if selection is None:
            return None
        # An index selects the elements; the other run may take this index from an input.
        self.computing[call_name(op, given)] += torch_name(op) not in REORDERED
        return [selection]

    def _product(self, op: OpOverload, given: dict[str, Any], result: torch.Tensor) -> Array:
        self.computing["matrix product"] += 1
        left, right = tensors_in(list(given.values()))
        elements = product(self.memory, left, right)
        made = spread(elements, result.element_size())
        if self.memory.symbols is not None:
            name = functools.partial(element, f"{_label(op, [])} 0", tuple(result.shape))
            self.memory.symbols.note(element_hashes(made), name)
        return made

    def _with_addend(
        self, op: OpOverload, given: Mapping[str, Any], result: torch.Tensor
    ) -> Array | None:
        addend, *factors = tensors_in(list(given.values()))
        # The product as a separate tensor, then `add`: `linear` may call either form.
        alone = WITH_ADDEND[op](*factors)
        self.memory.make(alone, self._hashes_of(WITH_ADDEND[op], factors, alone))
        return self._hashes_of(aten.add.Tensor, (alone, addend), result)

    def _hashes_of(self, op: OpOverload, args: Sequence[Any], result: torch.Tensor) -> Array | None:
        """The hashes of the one result of a call with these positional arguments."""
        (hashes,) = self.hashes_of_results(op, arguments_by_name(op, args, {}), result)
        return hashes

    def _dropout_without_drops(
        self, given: Mapping[str, Any], result: torch.Tensor, mask: torch.Tensor
    ) -> list[Array | None]:
        """`native_dropout` that drops nothing: a copy and ones, or what its kernel calls."""
        operand = given["input"]
        if given["train"] is False:
            return [self.memory.read(operand), self.memory.constant(mask)]
        # Even with a probability of zero, a mask is drawn.
        drawn = self._hashes_of(aten.bernoulli.p, (mask, 1.0), mask)
        self.memory.make(mask, drawn)
        masked = operand * mask
        self.memory.make(masked, self._hashes_of(aten.mul.Tensor, (operand, mask), masked))
        return [self._hashes_of(aten.mul.Tensor, (masked, 1.0), result), drawn]

    def _per_item(
        self, op: OpOverload, given: dict[str, Any], result: Any
    ) -> list[Array | None] | None:
        """An op on lists is one op per item."""
        if torch_name(op) == "_foreach_copy":
            pairs = zip(given["self"], given["src"], strict=True)
            return [self.memory.broadcast(source, target) for target, source in pairs]
        if not isinstance(result, (list, tuple)):
            return None
        items = [item(given, index, len(result)) for index in range(len(result))]
        return [self._of_item(op, own, tensor) for own, tensor in zip(items, result, strict=True)]

    def _of_item(self, op: OpOverload, given: dict[str, Any], result: torch.Tensor) -> Array:
        if self._folds(op, given, [result]):
            return self.memory.constant(result)
        by_law = self._by_law(op, given, result)
        return self.opaque(self.opaque_key(op, given), 0, result) if by_law is None else by_law

    def _by_law(
        self, op: OpOverload, given: Mapping[str, Any], result: torch.Tensor
    ) -> Array | None:
        """The hashes of a result that needs no computation because of its dtype, or None."""
        name, operand = torch_name(op).removeprefix("_foreach_"), given.get("self")
        if name == "constant_pad_nd" and not any(given["pad"]):
            return self.memory.read(given["self"])
        if not _is_whole(operand):
            return None
        if name in _ROUND and not given.get("decimals") and operand.dtype == result.dtype:
            return self.memory.read(operand)
        # `mul` of lists calls its factor `scalar` or `scalars`.
        factors = [given[it] for it in ("other", "scalar", "scalars") if it in given]
        by_zero = not any(isinstance(factor, torch.Tensor) for factor in factors) and factors == [0]
        constant = name in _ASK_FOR_SPECIAL_VALUES or (name == "mul" and by_zero)
        return self.memory.constant(result) if constant and _is_whole(result) else None

    def _pointwise(self, op: OpOverload, given: dict[str, Any], result: torch.Tensor) -> Array:
        # Sizes are not part of the hash: an element depends only on the elements at its position.
        names, operands, plain = [], [], []
        for name, value in given.items():
            if isinstance(value, torch.Tensor):
                names.append(name)
                operands.append(value)
            elif matters(op, name, value):
                plain.append((name, value))
        # With equal weights for all operands, the sum does not depend on their order.
        distinct = 0 if commutes(op, given) else 1
        dtypes = tuple(operand.dtype for operand in operands)
        total: Any = _start(plain_name(op), repr(plain), tuple(names), dtypes, result.dtype)
        read = [self.memory.elements(operand) for operand in operands]
        for position, elements in enumerate(read):
            total = total + elements * OPERANDS[position * distinct]
        sizes = tuple(result.shape)
        made = spread(mix_hashes(np.broadcast_to(total, sizes)), result.element_size())
        if self.memory.symbols is not None:
            label = _label(op, plain)
            operands_read = [np.broadcast_to(elements, sizes) for elements in read]
            self.memory.symbols.note(element_hashes(made), lambda index: label, operands_read)
        return made

    def _all_opaque(
        self, op: OpOverload, given: dict[str, Any], results: Sequence[torch.Tensor]
    ) -> list[Array | None]:
        key = self.opaque_key(op, given)
        # A kernel adds in int64. When the result is cut to the narrow dtype does not matter.
        is_sum = torch_name(op) in _SUMS and results[0].dtype not in (torch.bool, torch.int64)
        operands = tensors_in(list(given.values()))
        if is_sum and not any(map(is_inexact, (results[0], *operands))):
            # On `meta`: only its sizes and dtype are used.
            wide = torch.empty(results[0].shape, dtype=torch.int64, device="meta")
            made = self.opaque(key, 0, wide)
            return [self.memory.converted(made, torch.int64, results[0].dtype)]
        return [self.opaque(key, index, tensor) for index, tensor in enumerate(results)]

    def opaque_key(self, op: OpOverload, given: dict[str, Any]) -> tuple[np.uint64, str]:
        """A hash of an op, its plain arguments and all that it reads; and a label for this hash."""
        not_read = unread(op, given)
        plain: list[tuple[str, Any]] = shared_with_written(op, given)
        read: list[tuple[str, Any]] = []
        for argument, value in given.items():
            if any(True for _ in tensors_in(value)):
                read += [(argument, self._contents(value))] if argument not in not_read else []
            elif matters(op, argument, value):
                plain.append((argument, value))
        if facts(op).random:
            self._draws += 1
            # Two runs that draw in the same order have equal hashes, as with one seed.
            plain.append(("draw", (self._draws, self.memory.seed)))
        # Labels take time to build, and are used only if symbols are kept.
        label = "" if self.memory.symbols is None else _label(op, plain)
        return hash_of(plain_name(op), plain, read), label

    def _contents(self, value: Any) -> Any:
        """An argument, with the digest of its elements in place of each tensor.

        Lists may have None beside tensors, so a tensor keeps its position in its list.
        """
        if isinstance(value, torch.Tensor):
            return str(value.dtype), digest(self.memory.elements(value))
        if isinstance(value, (list, tuple)):
            return [self._contents(member) for member in value]
        return value

    def opaque(self, key: tuple[np.uint64, str], index: int, result: torch.Tensor) -> Array:
        """The hashes of result number `index` of an op with this key."""
        start, label = key
        sizes = tuple(result.shape)
        # The sizes are part of the hash: they decide which elements an op combines.
        first = start + hash_of("result", index, sizes, result.dtype)
        made = spread(sequence(first, result.numel()).reshape(sizes), result.element_size())
        if self.memory.symbols is not None:
            name = functools.partial(element, f"{label} {index}", sizes)
            self.memory.symbols.note(element_hashes(made), name)
        return made


def call_name(op: OpOverload, given: Mapping[str, Any]) -> str:
    """The name that all forms of an op share, with the plain arguments: 'add[other=1]'."""
    plain = [
        (argument, value)
        for argument, value in given.items()
        if not any(True for _ in tensors_in(value)) and matters(op, argument, value)
    ]
    return _label(op, plain)


# On integers, these give the same in a narrow dtype as in int64 cut to the narrow dtype.
_SUMS = {"sum", "prod", "cumsum", "cumprod"}


def _has_one_form(tensor: torch.Tensor, *, zeros_differ: bool) -> bool:
    """Whether all kernels give the same bits.

    NaN has several forms. Zero may have either sign if `zeros_differ`, and in complex numbers.
    """
    if not is_inexact(tensor):
        return True
    tensor = readable(tensor)
    parts = (tensor.real, tensor.imag) if tensor.is_complex() else (tensor,)
    has_zero = any(bool((part == 0).any()) for part in parts)
    zeros_differ = zeros_differ or tensor.is_complex()
    return bool(tensor.isfinite().all()) and not (zeros_differ and has_zero)


@functools.lru_cache(maxsize=1 << 14)
def _start(*parts: object) -> np.uint64:
    return hash_of(*parts)


def _label(op: OpOverload, plain: Sequence[tuple[str, Any]]) -> str:
    """An op with its plain arguments, for people: 'add[other=1]'."""
    shown = ", ".join(
        f"{name}={value}"
        for name, value in plain
        if value is not None and (name, value) != ("alpha", 1)
    )
    name: str = op.overloadpacket.__name__.removesuffix("_")
    return f"{name}[{shown}]" if shown else name
