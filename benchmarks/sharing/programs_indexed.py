"""Programs with masked and indexed writes."""

from __future__ import annotations

import torch
from torch import Tensor

from benchmarks.sharing.shared_arguments import (
    bools,
    floats,
    group,
    ints,
    layouts,
    permutation,
    program,
    separate,
)


@program(layouts(floats(4, 3), bools(4, 3)), "x")
def masked_fill_and_softmax(x: Tensor, mask: Tensor) -> Tensor:
    x.masked_fill_(mask, float("-inf"))
    return x.softmax(-1).nan_to_num()


@program(layouts(floats(6), bools(6), kinds="whole offset strided"), "x")
def mask_assign_scalar(x: Tensor, mask: Tensor) -> Tensor:
    x[mask] = 0.25
    return x.exp()


@program(layouts(floats(6), kinds="whole offset strided"), "x")
def mask_from_itself(x: Tensor) -> Tensor:
    x[x < 0] *= -2
    return x.sqrt()


@program(layouts(floats(5, 3), floats(5, 3), bools(5)), "xx")
def where_rows_replaced(x: Tensor, y: Tensor, rows: Tensor) -> Tensor:
    x.copy_(torch.where(rows[:, None], y, x))
    return x * y


@program(layouts(floats(6, 2), ints(3, high=6), floats(3, 2)), "xnx")
def index_put_accumulate(x: Tensor, index: Tensor, values: Tensor) -> Tensor:
    x.index_put_((index,), values, accumulate=True)
    return x.tanh()


@program(layouts(floats(6, 2), permutation(6), floats(6, 2)), "xnx")
def index_put_permutation(x: Tensor, order: Tensor, values: Tensor) -> Tensor:
    before = x[0].clone()
    x[order] = values
    return x + before


@program(group(floats(6, 2), permutation(6), kinds="separate overlap disjoint apart"), "xx")
def gather_then_put_other(x: Tensor, y: Tensor, order: Tensor) -> Tensor:
    rows = y[order]
    x[order[:2]] = rows[:2] * 2
    return x + y


@program(layouts(floats(4, 5), ints(4, 1, high=5)), "x")
def scatter_scalar_one_hot(x: Tensor, index: Tensor) -> Tensor:
    x.scatter_(1, index, 1.0)
    return x.log_softmax(1)


@program(layouts(floats(4, 5), ints(4, 2, high=5), floats(4, 2)), "xnx")
def scatter_add_counts(x: Tensor, index: Tensor, src: Tensor) -> Tensor:
    x.scatter_add_(1, index, src)
    return x / x.abs().sum()


@program(separate(floats(4, 5), ints(4, 5, high=4), floats(4, 5)), "xnx")
def scatter_reduce_amax(x: Tensor, index: Tensor, src: Tensor) -> Tensor:
    x.scatter_reduce_(0, index, src, reduce="amax")
    return x


@program(layouts(floats(5, 3), permutation(2), floats(2, 3)), "xnx")
def index_copy_rows(x: Tensor, index: Tensor, rows: Tensor) -> Tensor:
    x.index_copy_(0, index, rows)
    return x.sum(1)


@program(layouts(floats(5, 3), ints(4, high=5), floats(4, 3)), "xnx")
def index_add_repeated(x: Tensor, index: Tensor, rows: Tensor) -> Tensor:
    x.index_add_(0, index, rows, alpha=0.5)
    return x.relu()


@program(layouts(floats(5, 3), permutation(3)), "x")
def index_fill_columns(x: Tensor, index: Tensor) -> Tensor:
    x.index_fill_(1, index[:2], -1.0)
    return x @ x.t()


@program(layouts(floats(4, 4), bools(4, 4), floats(16)), "xnx")
def masked_scatter_values(x: Tensor, mask: Tensor, values: Tensor) -> Tensor:
    x.masked_scatter_(mask, values)
    return x.cos()


@program(group(floats(5, 3), ints(4, high=5), kinds="separate shifted disjoint apart"), "xx")
def message_passing_step(nodes: Tensor, out: Tensor, target: Tensor) -> Tensor:
    messages = nodes[torch.arange(4)] * 0.5
    out.index_add_(0, target, messages)
    return out + nodes


@program(layouts(floats(3, 4, 2), ints(3, high=4)), "x")
def put_last_token(x: Tensor, lengths: Tensor) -> Tensor:
    batch = torch.arange(3)
    x[batch, lengths] = 0
    return x[batch, lengths - 1]


@program(layouts(floats(8), ints(3, high=8), floats(3), kinds="whole offset strided"), "xnx")
def put_flat_positions(x: Tensor, index: Tensor, values: Tensor) -> Tensor:
    x.put_(index, values, accumulate=True)
    return x.take(index)


@program(layouts(floats(4, 6)), "x")
def top_k_filter_logits(logits: Tensor) -> Tensor:
    kth = logits.topk(2, dim=-1).values[:, -1:]
    logits[logits < kth] = -1e9
    return logits.softmax(-1)


@program(layouts(floats(3, 6)), "n")
def nucleus_filter_logits(logits: Tensor) -> Tensor:
    ordered, index = logits.sort(dim=-1, descending=True)
    remove = ordered.softmax(-1).cumsum(-1) > 0.8
    remove[..., 1:] = remove[..., :-1].clone()
    remove[..., 0] = False
    logits.masked_fill_(remove.scatter(1, index, remove), float("-inf"))
    return logits.softmax(-1)


@program(separate(ints(3, 6, high=9), bools(3, 6)), "")
def mask_language_tokens(tokens: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    labels = tokens.clone()
    labels[~mask] = -100
    tokens[mask] = 8
    return tokens, labels


@program(separate(ints(2, 5, high=9), 0), "")
def shift_tokens_right(tokens: Tensor, start: int) -> Tensor:
    shifted = tokens.new_zeros(tokens.shape)
    shifted[:, 1:] = tokens[:, :-1].clone()
    shifted[:, 0] = start
    shifted.masked_fill_(shifted == 3, 7)
    return shifted


@program(group(ints(6), kinds="separate overlap same disjoint"), "")
def integer_windows_written(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    x[::2] += 1
    y.bitwise_xor_(3)
    return x + y, x == y


@program(group(bools(6), kinds="separate overlap same disjoint"), "")
def bool_masks_combined(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    x.logical_not_()
    y[1:4] |= x[0]
    return x & y, x.sum()


@program(layouts(floats(4, 4), ints(4, 4)), "x")
def integer_counter_and_floats(x: Tensor, count: Tensor) -> tuple[Tensor, Tensor]:
    count += 1
    x.div_(count.float())
    count[x > 0] = 0
    return x, count.float().mean()


@program(layouts(floats(4, 3), kinds="whole offset strided"), "x")
def clamp_then_mask_gradient(x: Tensor) -> Tensor:
    x.clamp_(-0.5, 0.5)
    x[:, 0].masked_fill_(x[:, 0] > 0.2, 0)
    return x * x


@program(layouts(floats(5), permutation(5), kinds="whole offset strided"), "x")
def permute_in_place_by_index(x: Tensor, order: Tensor) -> Tensor:
    x[:] = x[order]
    return x[order]


@program(separate(floats(4, 3), ints(4, high=3)), "x")
def cross_entropy_backward_by_hand(logits: Tensor, target: Tensor) -> Tensor:
    grad = logits.detach().softmax(1)
    grad[torch.arange(4), target] -= 1
    grad /= 4
    return grad * logits


@program(separate(floats(3, 3, 2), bools(3, 3)), "x")
def mask_pairs_with_diagonal(x: Tensor, mask: Tensor) -> Tensor:
    mask.fill_diagonal_(True)
    x[mask] = 0
    return x.sum((0, 1))
