"""Constants of all calls: one tensor's question has the answer that it has among all, and follows little of a nest."""

from __future__ import annotations

import numpy as np
import pytest

import polyfuse as pf
from papers.polybench import KERNELS
from polyfuse import nn
from polyfuse.analysis.once import constant_tensors, is_constant
from polyfuse.ir import Nest, Tensor, statement
from tests.support.loop_programs import PROGRAMS, array


def of_constants(p_again: bool) -> Nest:
    """A chain of constants, p and q, and r from q and an input; p_again: a constant overwrites p where it was read."""
    texts = {
        "{ K0[i] : 0 <= i < 4 }": "p[i] = 2 * w[i]",
        "{ K1[i] : 0 <= i < 4 }": "q[i] = p[i] + w[3 - i]",
        "{ K2[i] : 0 <= i < 4 }": "r[i] = q[i] * x[i]",
        "{ K3[i] : 0 <= i < 4 }": "y[i] = r[i] + p[i]",
        "{ K4[i] : 0 <= i < 4 }": "p[i] = w[i]",
        "{ K5[i] : 0 <= i < 4 }": "z[i] = p[i]",
    }
    kept = list(texts.items()) if p_again else list(texts.items())[:4]
    weights = Tensor("w", (4,), "float64", "constant")
    tensors = [weights, array("x", 4, role="input"), array("y", 4, role="output")]
    tensors += [array(name, 4, role="temporary") for name in "pqr"]
    tensors += [array("z", 4, role="output")] if p_again else []
    statements = [statement(domain, text) for domain, text in kept]
    return Nest.of(tensors, statements, constants={"w": np.arange(4.0)}, name=f"again_{p_again}")


def network() -> Nest:
    """The gradients of a network with weights of a call, and views of constants."""
    rng = np.random.default_rng(3)
    weights = [rng.normal(size=(4, 4)).astype(np.float32) for _ in range(3)]
    x = nn.input("x", (3, 4))
    scaled = nn.exp(nn.transpose(nn.constant(weights[1]), 0, 1)) * 2.0
    return pf.vjp(pf.lower(nn.relu(nn.linear(nn.relu(nn.linear(x, weights[0])), weights[2])) @ scaled))


def test_a_constant_that_is_overwritten_where_a_call_has_read_it_is_none() -> None:
    once, again = of_constants(p_again=False), of_constants(p_again=True)
    assert [is_constant(once, once.order, name) for name in "wpqrx"] == [True, True, True, False, False]
    assert [is_constant(again, again.order, name) for name in "wpqrx"] == [True, False, False, False, False]


@pytest.mark.parametrize(
    "nest",
    [
        network(),
        of_constants(False),
        of_constants(True),
        *(make() for make in PROGRAMS),
        KERNELS["durbin"].nest,
    ],
    ids=lambda nest: nest.name,
)
def test_one_tensor_is_told_as_among_all(nest: Nest) -> None:
    every = constant_tensors(nest, nest.order)
    assert {t.name for t in nest.tensors if is_constant(nest, nest.order, t.name)} == every
    assert not is_constant(nest, nest.order, "no tensor")
