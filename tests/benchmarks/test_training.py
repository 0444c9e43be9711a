"""The training benchmark: networks as polyfuse reads them, and what a line says. Nothing is compiled."""

from __future__ import annotations

import numpy as np
import pytest

import polyfuse as pf
from benchmarks.training.__main__ import line, summary
from benchmarks.training.by_polyfuse import forward_nest
from benchmarks.training.networks import NETWORKS, dlrm, ensemble, mlp, nerf


def test_a_network_is_written_once_for_all_sides() -> None:
    network = mlp(2, 3, 4)
    found = pf.interpret(forward_nest(network), {"x0": network.inputs[0]})["out"]
    x = network.inputs[0]
    for n in range(2):
        x = np.maximum(x @ network.weights[f"l{n}.weight"] + network.weights[f"l{n}.bias"], 0)
    np.testing.assert_allclose(found, x, rtol=1e-5)


@pytest.mark.parametrize("network", [dlrm(2, 5, 4, 3), ensemble(2, 1, 4, 3), nerf(2, 3, 8, 2)])
def test_outputs_have_the_shape_of_the_target(network: object) -> None:
    nest = forward_nest(network)  # type: ignore[arg-type]
    assert nest.outputs[0].shape == network.target.shape  # type: ignore[attr-defined]


def test_rows_say_what_was_measured() -> None:
    row = {
        "network": "DLRM",
        "threads": 1,
        "median_us": {"polyfuse": 250.0, "torch eager": 1000.0},
        "ratio": 4.0,
        "compile_ratio": 3.9,
        "right": True,
    }
    missing = {"network": "NeRF", "threads": 1, "why": "more than 300 s"}
    assert "4.00 x (polyfuse 0.250, torch eager 1.000 ms), compile 3.9 x, right" in line(row)
    assert line(missing).endswith("more than 300 s")
    assert summary([row, missing]) == "1 of 2 right; geometric mean 4.00, worst 4.00; 1 of 1 at least 1"
    assert {"DLRM", "NeRF", "char-RNN 2 x 512", "8 x 1024, batch 256"} <= NETWORKS.keys()
