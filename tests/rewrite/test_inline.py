"""Inlining: what readers become, what it costs, that values stay bit by bit, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

import polyfuse as pf
from papers.pipelines import stages
from polyfuse.errors import IllegalRewrite
from polyfuse.rewrite import inline, why_not_inline
from tests.frontend.python.running import assert_close, by_python, by_source
from tests.support.examples import examples
from tests.support.pipelines import Pipeline, pipelines, same

# ruff: noqa: F821


@pf.nest
def squares(x: f32[N], y: f32[N - 1]):
    T = np.empty(N, np.float32)
    for i in range(N):
        T[i] = x[i] * x[i]
    for i in range(N - 1):
        y[i] = T[i + 1] - T[i]


def test_a_body_is_put_where_its_value_was_read() -> None:
    done = inline(squares, "S0")
    assert str(done) == "T, written by S0, is computed where it is read: in S1 (from 1 to 3 operations)"
    (only,) = done.nest.statements
    assert str(done.nest).count("y[i] = x[1 + i] * x[1 + i] - x[i] * x[i]") == 1
    assert len(only.reads) == 2
    arrays = {"x": np.arange(5, dtype=np.float32), "y": np.zeros(4, np.float32)}
    assert_close(pf.interpret(done.nest, arrays), by_python(squares, arrays), 0.0)
    assert_close(by_source(done.nest, arrays, {"N": 5}), by_python(squares, arrays), 0.0)


def test_harris_without_its_pointwise_stages() -> None:
    nest: pf.Nest = stages.harris
    writer = {s.write.tensor: s.name for s in nest.statements}
    for tensor, reader, operations in (
        ("Ixx", "Sxx", (8, 17)),
        ("Ixy", "Sxy", (8, 17)),
        ("trace", "corners", (6, 8)),
    ):
        done = inline(nest, writer[tensor])
        assert done.operations == {writer[reader]: operations}
        nest = done.nest
    arrays = {
        "image": np.random.default_rng(0).random((9, 8), np.float32),
        "corners": np.zeros((5, 4), np.float32),
    }
    expected = by_python(stages.harris, arrays)
    assert np.array_equal(pf.interpret(nest, arrays)["corners"], expected["corners"])


@settings(max_examples=examples(40), deadline=None)
@given(pipelines(most=4))
def test_random_pipelines_keep_every_value(pipeline: Pipeline) -> None:
    nest = pipeline.nest()
    for stage in range(1, len(pipeline.extents)):
        name = pipeline.statement(stage)
        if stage in pipeline.results:
            assert "visible to the caller" in str(why_not_inline(nest, name))
        else:
            nest = inline(nest, name).nest
    assert [s.name for s in nest.statements] == [pipeline.statement(k) for k in pipeline.results]
    assert same(nest, pipeline, pipeline.arrays())


@pf.nest
def changing(x: f32[N], y: f32[N], z: f64[N]):
    T = np.empty(N, np.float32)
    U = np.empty(N, np.float32)
    V = np.empty(N, np.float32)
    W = np.empty(N, np.float32)
    s = 0.0
    for i in range(N):
        T[i] = x[i]
    for i in range(N):
        U[i] = x[i] * i
    for i in range(N):
        V[i] = z[i] + 1.0
    for i in range(N - 1):
        x[i + 1] = 2.0
    for i in range(N):
        W[i] = y[i]
    for i in range(N):
        s += T[i]
    for i in range(N):
        y[i] = T[i] + U[i] + V[i] + s
    for i in range(N):
        y[i] = y[i] + W[i]


@pytest.mark.parametrize(
    ("statement", "why"),
    [
        ("S1", r"an operand is overwritten .* \(S1\[1\], S\d\[1\]\)"),
        ("S2", "the value of S2 depends on its index"),
        ("S3", "S3 and its readers mix float32 and float64"),
        ("S5", r"an operand is overwritten .* \(S5\[0\], S8\[0\]\)"),
        ("S6", "S6 reads s, which it writes"),
        ("S0", "S6 writes s too"),
        ("S4", "x is visible to the caller"),
    ],
)
def test_what_cannot_be_inlined(statement: str, why: str) -> None:
    refusal = why_not_inline(changing, statement)
    assert refusal is not None
    with pytest.raises(IllegalRewrite, match=why) as error:
        inline(changing, statement)
    assert error.value.refusal == refusal


def test_a_variable_that_is_assigned_again_is_refused_and_expanded_it_is_not() -> None:
    @pf.nest
    def variable(x: f32[N], y: f32[N]):
        for i in range(N):
            t = x[i] + x[i]
            y[i] = t * t

    refusal = why_not_inline(variable, "S0")
    assert refusal is not None
    assert "two instances write one element of t (S0[0], S0[1])" in str(refusal)
    done = inline(pf.rewrite.expand(variable).nest, "S0")
    arrays = {"x": np.arange(5, dtype=np.float32), "y": np.zeros(5, np.float32)}
    assert_close(pf.interpret(done.nest, arrays), by_python(variable, arrays), 0.0)


def test_inlining_a_first_value_asks_for_no_dependences_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """No statement accesses its temporary afterwards; what passes through other tensors is known."""

    @pf.nest
    def begun(x: f32[8, 8], y: f32[8]):
        z = np.empty(8, np.float32)
        for i in range(8):
            z[i] = 0.0
        for i in range(8):
            y[i] = z[i]
        for i in range(8):
            for j in range(8):
                y[i] += x[i, j]

    begun.dependences()
    with monkeypatch.context() as patch:
        patch.setattr("polyfuse.ir.nest.dependences", lambda *given: pytest.fail("asked anew"))
        made = inline(begun, "S0").nest
        found = made.dependences()
    anew = pf.Nest.of(made.tensors, made.statements, made.order).dependences()
    one, other = ({(p.kind, str(p.map)) for p in each.pairs} for each in (found, anew))
    assert one == other
