"""The papers' training halves, where quick runs do not tell: fast products backward, kernels apart, and verdicts."""

from __future__ import annotations

import numpy as np

import polyfuse as pf
from papers.ansel_2021_fused_strassen import training as strassen
from papers.flux_558_conv_bias import gradients
from papers.flux_558_conv_bias.layers import Layer
from papers.mxnet_13890_bulking import steps
from papers.places import place


def test_products_of_the_backward_pass_by_strassen_have_the_same_gradients() -> None:
    nest = strassen.gradients(1, 4, 6)
    fast = nest
    for product in ("mac0", "mac0_to_w0"):
        fast = pf.rewrite.bilinear(fast, product, pf.bilinear.strassen).nest
    x, seed = np.random.default_rng(0).normal(size=(2, 4, 6)).astype(np.float32)
    found = pf.interpret(fast, {"x": x, "out_bar": seed, **nest.constants})
    expected = strassen.by_numpy(nest, 1, x, seed)
    for tensor, exact in zip(nest.results, expected, strict=True):
        np.testing.assert_allclose(found[tensor.name], exact, rtol=1e-4, atol=1e-5)


def test_a_cell_of_both_passes_has_right_gradients_in_each_variant() -> None:
    rows = strassen.measured(place("cpu"), 1, 5, 19, 2, ("fused", "strassen"))
    assert [(row["variant"], row["fast_products"]) for row in rows] == [("fused", 0), ("strassen", 2)]
    assert all(row["best_us"] > 0 for row in rows)


def test_gradients_of_a_pooled_layer_are_those_of_the_nest() -> None:
    layer = Layer(2, 4, 3, pooled=True)
    nest = pf.vjp(layer.nest(2), ("w0", "b0"))
    rng = np.random.default_rng(1)
    shapes = (2, *layer.image), layer.output(2)
    x, seed = (rng.normal(size=shape).astype(np.float32) for shape in shapes)
    found = pf.interpret(nest, {"x": x, "out_bar": seed, **nest.constants})
    for own, exact in zip(found.values(), layer.gradients(x, seed), strict=True):
        np.testing.assert_allclose(own, exact, rtol=1e-4, atol=1e-4)


def test_a_kernel_apart_changes_arrays_in_place() -> None:
    step = steps.Trained(4, (), 2).step()
    update = next(s.name for s in step.nest.statements if s.name.startswith("update"))
    piece = steps.part(step.nest, (update,))
    assert [t.role for t in piece.tensors if t.name == piece.statement(update).write.tensor] == ["inout"]
    assert {t.role for t in piece.tensors} == {"input", "inout"}


def test_verdicts_follow_the_figures() -> None:
    row = {"form": "gradients", "one_kernel": True, "bias_share": 0.1, "bias_over_one_pass": 1.2}
    verdicts = [claim.verdict for claim in gradients.claims([row])]
    assert verdicts == ["holds", "holds", "holds"]
    apart = {**row, "one_kernel": False, "bias_share": 0.5}
    verdicts = [claim.verdict for claim in gradients.claims([row, apart])]
    assert verdicts == ["holds in part", "holds in part", "holds"]
    rows = [
        {"network": "n", "batch": 1, "mode": mode, "images_a_second": images}
        for mode, images in (("per kernel", 100), ("bulked", 120), ("bulked and fused", 105))
    ]
    assert [claim.verdict for claim in steps.claims(rows)] == ["holds", "does not hold"]
