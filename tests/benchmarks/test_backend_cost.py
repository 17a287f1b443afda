"""The benchmark of the backend counts bytes, and its tables have a row per figure."""

from __future__ import annotations

import torch

from benchmarks.backend_cost import BackendCost, Loop, Peak, bytes_of


def test_the_bytes_of_a_call_are_those_that_its_tensors_hold_at_once():
    def call():
        large = torch.empty(100)
        small = large[:10].neg()
        del large
        return small

    assert bytes_of(call) == (110 * 4, 10 * 4)


def test_figures_are_shown_beside_those_of_aot_eager():
    cost = BackendCost(
        [Peak("s", "aot_eager", 200, 0), Peak("s", "aliasproof", 100, 4)],
        [Loop("l", "aot_eager", 2, 1.0, 1), Loop("l", "aliasproof", 2, 0.5, 1)],
        {100: 0.5, 200: 1.0},
        {"b": 0.0},
    )
    peaks, loops, foreach, bits = (table.rows for table in cost.tables())
    assert peaks[1] == ("s: aliasproof", "100", "0.50", "4")
    assert loops[1] == ("l: aliasproof", "2", "0.500", "0.50", "1")
    assert foreach[1] == ("200", "1.000", "2.0")
    assert bits == [("b", "0.0e+00")]
