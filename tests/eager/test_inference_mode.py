"""In inference mode, `vmap` lets composite operators reach the watch whole."""

from __future__ import annotations

import torch

from aliasproof.eager.definedness import Watch


def test_what_vmap_calls_is_watched():
    with Watch(), torch.inference_mode():
        doubled = torch.vmap(lambda row: row * 2)(torch.arange(4.0))
    assert doubled.tolist() == [0, 2, 4, 6]
