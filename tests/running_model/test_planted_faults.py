"""Faults of the catalogue, planted into a pass, are found while a model trains, and reduced."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import torch

from tests.running_model.models import MODELS


@pytest.mark.timeout(900)  # minutes, on a machine that others use
@pytest.mark.parametrize(
    ("model", "fault", "oracle"),
    [
        ("Llama, training", "reinplaces_what_is_read_later", "values"),
        ("ResNet, training", "one_input_is_written_back", "inputs"),
    ],
    ids=["Llama", "ResNet"],
)
def test_a_fault_is_found_in_the_first_call_and_reduced(
    checking, planted, model: str, fault: str, oracle: str
) -> None:
    target = planted(fault)
    torch.manual_seed(0)
    with checking(target) as check:
        MODELS[model](torch.compile)
    found, folder = check.differences[0], check.folders[0]
    assert (found.graph.number, found.call.number, found.violation.oracle) == (0, 1, oracle)
    command = ["minimize", str(folder), "--target", target, "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "aliasproof", *command], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    sizes = json.loads(done.stdout)["instructions"]
    assert sizes["before"] > 30
    assert sizes["after"] <= 8
