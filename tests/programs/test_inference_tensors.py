"""Tensors that were made in inference mode: composite operators on them reach the watch whole."""

from __future__ import annotations

import torch

from aliasproof.programs.definedness import Watch


def test_what_is_done_to_them_is_watched():
    with torch.inference_mode():
        made = torch.arange(4)
    with Watch([made]):
        parts = made.reshape(2, 2).to(torch.float64)
        assert parts.flatten().tolist() == [0, 1, 2, 3]
