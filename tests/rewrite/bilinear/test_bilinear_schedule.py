"""Fast products in networks: kernels across layers that the scheduler finds, and what they compute."""

from __future__ import annotations

import numpy as np
import pytest

import polyfuse as pf
from polyfuse import nn
from polyfuse.bilinear import Algorithm
from polyfuse.strategy import plan_for


def network(layers: int, width: int, batch: int) -> pf.Nest:
    """Linear + ReLU, so many times."""
    rng = np.random.default_rng(0)
    every: list[nn.Module] = []
    for _ in range(layers):
        linear = nn.Linear(width, width)
        linear.weight[...] = rng.integers(-2, 3, linear.weight.shape)
        linear.bias[...] = rng.integers(-2, 3, linear.bias.shape)
        every += [linear, nn.ReLU()]
    return pf.lower(nn.Sequential(*every), batch=batch)


def fast(nest: pf.Nest, x: Algorithm) -> pf.Nest:
    """The network with the algorithm in each layer."""
    for name in [s.name for s in nest.statements if s.name.startswith("mac")]:
        nest = pf.rewrite.bilinear(nest, name, x).nest
    return nest


@pytest.mark.parametrize(("layers", "width"), [(1, 512), (2, 512), (4, 512)])
def test_a_network_of_l_layers_has_2_l_and_1_kernels(layers: int, width: int) -> None:
    """Prefix; then for each layer a product, and suffix + bias + activation + the next prefix."""
    plan = plan_for(fast(network(layers, width, width), pf.bilinear.strassen), pf.Machine.preset("zen5"))
    kernels = [g.statements for g, once in zip(plan.groups, plan.once, strict=True) if not once]
    assert len(kernels) == 2 * layers + 1
    assert kernels[0] == tuple(f"mac0_L{t}" for t in range(7))
    for layer in range(layers):
        product, around = kernels[1 + 2 * layer], kernels[2 + 2 * layer]
        assert product == (f"mac{layer}_zero", f"mac{layer}_product")
        expected = {f"{stem}{layer}_{block}" for stem in ("bias", "relu") for block in range(4)}
        expected |= {f"mac{layer}_Y{block}" for block in range(4)}
        expected |= {f"mac{layer + 1}_L{t}" for t in range(7)} if layer + 1 < layers else set()
        assert set(around) == expected
    weights = [g.statements for g, once in zip(plan.groups, plan.once, strict=True) if once]
    sums = [names for names in weights if not names[0].startswith("pack_")]
    assert sums == [tuple(f"mac{layer}_R{t}" for t in range(7)) for layer in range(layers)]
    assert {names for names in weights if names not in sums} <= {(f"pack_mac{n}_R",) for n in range(layers)}
    assert any("bias0 runs in pieces: bias0_0, bias0_1, bias0_2, bias0_3" in note for note in plan.notes)


@pytest.mark.parametrize("name", ["strassen", "winograd"])
@pytest.mark.parametrize(("width", "batch"), [(16, 16), (17, 15)])
def test_the_network_computes_the_same(name: str, width: int, batch: int) -> None:
    nest = network(2, width, batch)
    net = pf.compile(fast(nest, pf.bilinear.named(name)), target="cpu")
    x = np.random.default_rng(1).integers(-2, 3, (batch, width)).astype(np.float32)
    assert np.array_equal(net(x), pf.interpret(nest, [x])["out"]), "integers below 2**24 are exact in float32"


@pytest.mark.parametrize(
    "form", [{}, {"edges": "peel"}, {"apart": True}, {"apart": True, "inline": ("left", "right")}]
)
def test_every_form_runs_as_machine_code(form: dict[str, object]) -> None:
    nest = pf.einsum("ik,kj->ij", {"i": 50, "k": 33, "j": 65}, dtype="float64")
    net = pf.compile(pf.rewrite.bilinear(nest, "mac", pf.bilinear.strassen, **form).nest, target="cpu")  # type: ignore[arg-type]
    rng = np.random.default_rng(0)
    a, b = rng.integers(-9, 9, (50, 33)).astype(float), rng.integers(-9, 9, (33, 65)).astype(float)
    assert np.array_equal(net(a, b), a @ b)


def test_a_gpu_runs_them_too() -> None:
    nest = network(2, 16, 16)
    net = pf.compile(fast(nest, pf.bilinear.strassen), machine="h200", device="lockstep")
    x = np.random.default_rng(1).integers(-2, 3, (16, 16)).astype(np.float32)
    assert np.array_equal(net(x), pf.interpret(nest, [x])["out"])
