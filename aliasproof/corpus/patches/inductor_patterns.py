"""Patches of Inductor's patterns: each rewrite gets one more condition."""

from __future__ import annotations

import contextlib
import functools
import importlib
import math
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import torch
from torch import fx
from torch._inductor.pattern_matcher import FailedMatch, PatternMatcherPass
from torch._ops import OpOverload
from torch.utils import _pytree as pytree

from aliasproof.corpus.patching import PASSES, Function, Patch, replaces, together
from aliasproof.ir.schemas import Kind, facts

aten = torch.ops.aten


def narrows(patterns: str, *handlers: str) -> Callable[[Callable[[Any], bool]], Patch]:
    """Inductor's rewrites with these handlers need one more condition, on the match.

    `patterns` is a module of `torch._inductor.fx_passes` with lists of patterns.
    """
    return lambda condition: Patch(
        functools.partial(_patterns_narrowed, patterns, handlers, condition)
    )


def attends_if(condition: Callable[[Any], bool]) -> Patch:
    """Inductor's attention patterns, which have no handler, need one more condition."""
    return narrows("joint_graph", "")(lambda match: "query" not in match.kwargs or condition(match))


@contextlib.contextmanager
def _patterns_narrowed(
    patterns: str, handlers: tuple[str, ...], condition: Callable[[Any], bool]
) -> Iterator[None]:
    of_module: Any = importlib.import_module(f"{PASSES}.{patterns}")
    of_module.lazy_init()
    kept = [it for it in vars(of_module).values() if isinstance(it, list | PatternMatcherPass)]
    entries = {
        id(entry): entry
        for listed in pytree.tree_leaves(kept)
        if isinstance(listed, PatternMatcherPass)
        for of_target in listed.patterns.values()
        for entry in of_target
        if getattr(getattr(entry, "handler", None), "__name__", "") in handlers
    }
    with contextlib.ExitStack() as stack:
        for entry in entries.values():
            check = _both(condition, entry.extra_check)
            stack.enter_context(mock.patch.object(entry, "extra_check", check))
        yield


def _both(first: Callable[[Any], bool], second: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda match: first(match) and second(match)


@narrows("post_grad", "pointless_cumsum_replacement")
def cumsum_of_constant(match: Any) -> bool:
    """The rewrite applies only to tensors whose dtype can represent the number unchanged.

    It is `arange(1, n + 1) * number`, with the number before `full` converts it.
    """
    dtype, number = (match.kwargs[name] for name in ("dtype", "fill_value"))
    return bool(torch.tensor(number, dtype=dtype).item() == number) or dtype.is_floating_point


@narrows("post_grad", "pointless_cumsum_replacement")
def cumsum_of_number(match: Any) -> bool:
    """The rewrite reads the size of a dimension, so the tensor needs one."""
    return len(match.kwargs["shape"]) > 0


@narrows("post_grad", "pointless_cumsum_replacement")
def cumsum_of_rows(match: Any) -> bool:
    """The rewrite applies only to tensors with at most one dimension, which need no `expand`."""
    return len(match.kwargs["shape"]) < 2


@replaces("torch._inductor.pattern_matcher:_TargetArgsExpr._match")
def pattern_keywords(original: Function, pattern: Any, node: Any, context: Any) -> Any:
    """A pattern does not match a call whose `alpha` or `dtype` is not the default."""
    given = node.kwargs if isinstance(node, fx.Node) else {}
    for name, default in (("alpha", 1), ("dtype", None)):
        if name not in pattern.kwargs and given.get(name, default) != default:
            return FailedMatch("the pattern does not name {}", name)
    return original(pattern, node, context)


@narrows("joint_graph", "scatter_upon_const_tensor")
def scatter_in_float32(match: Any) -> bool:
    """The rewrite applies only to tensors that float32 can represent.

    It is `where(mask, value, background)` of two Python numbers, which is in float32, and the
    result is converted.
    """
    dtype = match.kwargs["dtype"]
    return dtype in (torch.float32, torch.float16, torch.bfloat16, torch.bool)


@narrows("joint_graph", "scatter_upon_const_tensor")
def scatter_into_number(match: Any) -> bool:
    """The rewrite applies only to tensors with dimensions. Its condition reads the size of one."""
    return len(match.kwargs["shape"]) > 0


@attends_if
def attention_filled_with_number(match: Any) -> bool:
    """Scores that are filled with another number than minus infinity are not rewritten."""
    fulls = [node for node in match.nodes if node.target is aten.full.default]
    return all(node.args[1] == -math.inf for node in fulls)


@narrows("joint_graph", "div_softmax_pattern", "mul_softmax_pattern")
def softmax_of_integers(match: Any) -> bool:
    """The rewrite, which is made for softmax, applies only to floating-point numbers."""
    operand = match.kwargs["inp"]
    # In a product, the number may be matched as this operand. Torch handles that case.
    return not isinstance(operand, fx.Node) or operand.meta["val"].is_floating_point()


_REDUCES = {aten.amax.default, aten.sum.dim_IntList, aten._softmax.default}


@attends_if
def attention_over_other_dimension(match: Any) -> bool:
    """Reductions over another dimension than the last are not rewritten."""
    for node in match.nodes:
        if node.target in _REDUCES:
            operand, given = node.args[:2]
            rank = operand.meta["val"].dim()
            if [dim % rank for dim in ([given] if isinstance(given, int) else given)] != [rank - 1]:
                return False
    return True


@narrows("joint_graph", "div_softmax_pattern", "mul_softmax_pattern")
def softmax_in_wider_dtype(match: Any) -> bool:
    """The rewrite keeps the dtype of the operands, so it applies only if the matched calls do."""
    result: torch.Tensor = match.output_node().meta["val"]
    operands = [it for it in match.kwargs.values() if isinstance(it, fx.Node)]
    dtypes = [it.meta["val"].dtype for it in operands if it.meta["val"].dim()]
    return all(dtype == result.dtype for dtype in dtypes if dtype.is_floating_point)


@attends_if
def attention_mask_of_numbers(match: Any) -> bool:
    """A mask that compares numbers with 0 is not rewritten: there may be others than 0 and 1."""
    compares = [node for node in match.nodes if node.target is aten.eq.Scalar]
    return all(node.args[0].meta["val"].dtype == torch.bool for node in compares)


@attends_if
def attention_without_cast(match: Any) -> bool:
    """Attention has the dtype of its query, so calls with another dtype are not rewritten."""
    query = match.kwargs["query"]
    result: torch.Tensor = match.output_node().meta["val"]
    return not isinstance(query, fx.Node) or query.meta["val"].dtype == result.dtype


@attends_if
def attention_mask_of_one_dimension(match: Any) -> bool:
    """Attention with a mask of fewer than two dimensions is not rewritten."""
    mask = match.kwargs.get("attn_mask")
    return not isinstance(mask, fx.Node) or mask.meta["val"].dim() >= 2


@attends_if
def attention_scaled_by_zero(match: Any) -> bool:
    """Attention that is divided by 0 is not rewritten."""
    return not any(isinstance(it, int | float) and it == 0 for it in match.kwargs.values())


@narrows("joint_graph", "div_softmax_pattern", "mul_softmax_pattern")
def softmax_over_all(match: Any) -> bool:
    """The rewrite does not apply to `[]`, which means all dimensions.

    Torch asks whether the factor is broadcast in each dimension of the list.
    """
    return bool(match.kwargs["dim"])


@narrows("joint_graph", "div_softmax_pattern", "mul_softmax_pattern")
def softmax_strides(match: Any) -> bool:
    """The rewrite applies only to results that are dense in the order of their dimensions."""
    return bool(match.output_node().meta["val"].is_contiguous())


@narrows("post_grad", "splitwithsizes_cat_replace")
def cat_of_split(match: Any) -> bool:
    """The rewrite is off. It returns its operand, and `cat` returns a new tensor."""
    return False


@narrows("post_grad", "cat_splitwithsizes_replace")
def promoting_cat(match: Any) -> bool:
    """The rewrite applies only to operands of one dtype, which `cat` does not promote."""
    return len({operand.meta["val"].dtype for operand in match.kwargs["input_"]}) == 1


@narrows("post_grad", "cat_splitwithsizes_replace")
def split_of_cat(match: Any) -> bool:
    """The rewrite applies only to operands that an op computes and the graph does not return.

    It returns the operands, and the parts of a `cat` are views of a new tensor. An operand that is
    copied back into an input may later become that input.
    """
    return all(
        isinstance(operand.target, OpOverload)
        and facts(operand.target).kind is Kind.FUNCTIONAL
        and not any(use.op == "output" or use.target is aten.copy_.default for use in operand.users)
        for operand in match.kwargs["input_"]
    )


@replaces("torch._inductor.pattern_matcher:fallback_node_due_to_unsupported_type")
def custom_operator_on_complex(original: Callable[..., bool], node: fx.Node, **kwargs: Any) -> bool:
    """A call of a custom operator is decomposed, whatever the dtypes of its operands.

    The matcher of patterns skips each node that has a complex operand, as there is no code for it.
    But the decomposition of `auto_functionalized_v2` is a pattern, too, and it must be applied.
    """
    if node.target is torch.ops.higher_order.auto_functionalized_v2:
        return False
    return original(node, **kwargs)


@narrows("freezing_patterns", "folded_op")
def folded_into_channels(match: Any) -> bool:
    """A constant is folded if it broadcasts along the channels: their dimension is the second."""
    binary = match.output_node()
    other = match.kwargs["other"]
    if not isinstance(other, fx.Node):
        return True
    result: torch.Tensor = binary.meta["val"]
    shape = other.meta["val"].shape
    channels = result.dim() - 2  # number of dimensions after the channels
    return all(size == 1 for index, size in enumerate(reversed(shape)) if index != channels)


@narrows("freezing_patterns", "folded_op")
def folded_into_transposed(match: Any) -> bool:
    """Nothing is folded into transposed convolutions.

    The first dimension of their weight is the input channels.
    """
    transposed = 6
    return not any(
        node.target is aten.convolution.default and node.args[transposed] for node in match.nodes
    )


@replaces("torch._inductor.pattern_matcher:LoweringPatternEntry.apply")
def slope_of_leaky_relu(
    original: Function, entry: Any, match: Any, graph: fx.Graph, node: fx.Node
) -> Any:
    """If the slope is NaN, the calls are not rewritten."""
    if isinstance(match.kwargs.get("negative_slope"), fx.Node):
        return None
    return original(entry, match, graph, node)


def _without_permutation(match: Any) -> bool:
    """The pattern is off.

    The whole permutation is the index, so the example that torch traces has no slice, and its
    argument for the length of the slice is not found in the match.
    """
    return all(node.target is not aten.randperm.default for node in match.nodes)


randperm_and_index = together(
    narrows("joint_graph", "")(_without_permutation), narrows("post_grad", "")(_without_permutation)
)


@narrows("joint_graph", "scatter_upon_const_tensor")
def scatter_of_no_index(match: Any) -> bool:
    """The rewrite needs an index with the dimensions of the result: an empty one has fewer."""
    dims: int = match.kwargs["selector"].meta["val"].dim()
    return dims == len(match.kwargs["shape"])
