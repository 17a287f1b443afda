"""Numerical code: grids, matrices, images, graphs, written through views."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def heat_step(u: Tensor, rate: float, steps: int = 2) -> Tensor:
    """Diffusion on a grid. All cells read the old grid, and the borders are insulated."""
    for _ in range(steps):
        inner = u[1:-1, 1:-1]
        change = u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - 4 * inner
        inner += rate * change
        u[0], u[-1] = u[1], u[-2]
        u[:, 0], u[:, -1] = u[:, 1], u[:, -2]
    return u.sum()


def lu_in_place(a: Tensor) -> tuple[Tensor, Tensor]:
    """Gaussian elimination without pivots: both factors in one matrix."""
    for k in range(a.shape[0] - 1):
        a[k + 1 :, k] /= a[k, k].clone()
        a[k + 1 :, k + 1 :] -= torch.outer(a[k + 1 :, k], a[k, k + 1 :])
    lower = a.tril(-1)
    lower.fill_diagonal_(1.0)
    return lower @ a.triu(), a.diagonal().prod()


def normalize_images(batch: Tensor, mean: list[float], std: list[float]) -> Tensor:
    """Channel by channel, through a view of other order, and then padded."""
    channels = batch.permute(1, 0, 2, 3)
    for channel, center, spread in zip(channels, mean, std, strict=True):
        channel.sub_(center).div_(spread)
    return F.pad(batch, (1, 0, 0, 1), value=-1.0)


def clip_boxes(boxes: Tensor, height: float, width: float, least: float) -> tuple[Tensor, Tensor]:
    """Corners of boxes are cut to the image, through strided views and in place."""
    boxes[:, 0::2].clamp_(0, width)
    boxes[:, 1::2].clamp_(0, height)
    left, top, right, bottom = boxes.unbind(dim=1)
    kept = (right - left >= least) & (bottom - top >= least)
    centers = torch.stack([(left + right) / 2, (top + bottom) / 2], dim=1)
    boxes[:, 2:] -= boxes[:, :2].clone()
    return centers, kept


def clip_boxes_inputs() -> tuple[Tensor, float, float, float]:
    boxes = torch.tensor([[-1.0, 2.0, 5.0, 9.0], [3.0, 3.0, 3.2, 4.0], [1.0, -2.0, 20.0, 3.0]])
    return boxes, 6.0, 8.0, 0.5


def message_passing(nodes: Tensor, edges: Tensor, weights: Tensor) -> Tensor:
    """A layer of a graph network: messages are added up at their destinations."""
    source, destination = edges
    degree = torch.zeros(nodes.shape[0]).scatter_add_(0, destination, torch.ones(edges.shape[1]))
    messages = nodes[source] * weights.unsqueeze(1)
    messages /= degree[destination].sqrt().unsqueeze(1)
    gathered = torch.zeros_like(nodes).index_add_(0, destination, messages)
    nodes += gathered.relu_()
    return degree


def message_passing_inputs() -> tuple[Tensor, Tensor, Tensor]:
    edges = torch.tensor([[0, 1, 2, 2, 3], [1, 2, 0, 3, 2]])
    return torch.randn(4, 3), edges, torch.rand(5)


def block_matrix(blocks: list[Tensor], coupling: Tensor) -> Tensor:
    """Blocks on the diagonal, couplings beside it, and then symmetric."""
    size = sum(block.shape[0] for block in blocks)
    out = torch.zeros(size, size)
    at = 0
    for block in blocks:
        end = at + block.shape[0]
        out[at:end, at:end] = block
        at = end
    out.diagonal(1).add_(coupling)
    upper = out.triu(1)
    out.tril_()
    out += upper.t()
    return out + out.t()


def moving_average(signal: Tensor, width: int, out: Tensor) -> Tensor:
    """Windows of a signal as a strided view, into a tensor that is given."""
    windows = signal.unfold(0, width, 1)
    torch.mean(windows, dim=1, out=out)
    signal[width // 2 : width // 2 + out.shape[0]] -= out
    return windows.amax(dim=1)


def fold_patches(images: Tensor, weight: Tensor) -> Tensor:
    """A convolution by patches: unfold, multiply, fold."""
    patches = F.unfold(images, kernel_size=2, stride=2)
    patches = torch.tanh(weight @ patches)
    patches[:, 0] = 0
    return F.fold(patches, output_size=images.shape[-2:], kernel_size=2, stride=2)


def rasterize(canvas: Tensor, depth: Tensor, points: Tensor, colors: Tensor) -> Tensor:
    """Draw points with a depth test, one after another, at indices that are data."""
    for point, color in zip(points, colors, strict=True):
        row, column = point[0].long(), point[1].long()
        nearer = point[2] < depth[row, column]
        canvas[row, column] = torch.where(nearer, color, canvas[row, column])
        depth[row, column] = torch.minimum(depth[row, column], point[2])
    return canvas.sum(dim=-1)


def rasterize_inputs() -> tuple[Tensor, ...]:
    points = torch.tensor([[0.0, 1.0, 5.0], [2.0, 2.0, 1.0], [0.0, 1.0, 3.0]])
    return torch.zeros(3, 3, 2), torch.full((3, 3), 9.0), points, torch.rand(3, 2)


INPUTS = {
    "heat_step": lambda: (torch.rand(5, 5), 0.1),
    "lu_in_place": lambda: torch.rand(3, 3) + 3 * torch.eye(3),
    "normalize_images": lambda: (torch.rand(2, 3, 3, 3), [0.5, 0.4, 0.3], [0.2, 0.3, 0.25]),
    "clip_boxes": clip_boxes_inputs,
    "message_passing": message_passing_inputs,
    "block_matrix": lambda: ([torch.randn(2, 2), torch.randn(3, 3)], torch.randn(4)),
    "moving_average": lambda: (torch.randn(8), 3, torch.zeros(6)),
    "fold_patches": lambda: (torch.randn(2, 1, 4, 4), torch.randn(4, 4)),
    "rasterize": rasterize_inputs,
}
