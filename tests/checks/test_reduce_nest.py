"""Reducing nests without a source: what is written makes the same nest, edits are nests, and a network gets small."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from typer.testing import CliRunner

import polyfuse as pf
from polyfuse import nn
from polyfuse.checks.nest_source import nest_source, statement_source
from polyfuse.checks.reduce import Options, Outcome, outcome_of, smallest
from polyfuse.checks.reduce_nest import nest_edits, nest_of, with_statements
from polyfuse.cli.app import app
from polyfuse.ir.nest import ordered_statements
from tests.support.nests import nests

NETWORKS: dict[str, Callable[[], pf.Nest]] = {
    "layers": lambda: pf.lower(nn.Sequential(nn.Linear(9, 4), nn.ReLU(), nn.LayerNorm(4)), batch=3),
    "convolution": lambda: pf.lower(
        nn.Sequential(nn.Conv2d(2, 3, 3, padding=1, stride=2), nn.MaxPool(2)), batch=2, features=(2, 9, 9)
    ),
    "recurrent": lambda: pf.lower(nn.LSTM(4, 5), batch=2, features=(3, 4)),
    "lookup": lambda: pf.lower(nn.embedding(nn.input("x", (4, 3), "int64"), np.ones((7, 2), "float32"))),
    "reshape": lambda: pf.lower(nn.reshape(nn.input("x", (2, 4, 8)), (8, 8))),
}

every_network = pytest.mark.parametrize("name", NETWORKS)


@every_network
def test_a_written_nest_is_the_nest(name: str) -> None:
    nest = NETWORKS[name]()
    assert nest_of(nest_source(nest)) == nest
    assert outcome_of(nest_source(nest), Options()) == Outcome("agrees")


@given(nests())
def test_a_written_random_nest_is_the_nest(nest: pf.Nest) -> None:
    try:
        text = nest_source(nest)
    except pf.BadArgument:  # an access of several pieces
        return
    assert str(nest_of(text)) == str(nest_of(nest_source(nest_of(text))))
    assert [s.name for s in nest_of(text).statements] == [s.name for s in nest.statements]


def test_an_access_of_several_pieces_cannot_be_written() -> None:
    nest = pf.Nest.of(
        [pf.Tensor("x", (4,), "float32", "input"), pf.Tensor("o", (8,), "float32", "output")],
        [pf.statement("{ S[i] : 0 <= i < 8 }", "o[i] = x[i // 2]")],
    )
    (step,) = nest.statements
    assert statement_source(step) == "o[i] = x[(i)//2]"


@every_network
def test_edits_are_other_nests(name: str) -> None:
    text = nest_source(NETWORKS[name]())
    found = list(nest_edits(text))
    assert len(found) > 3
    assert text not in found
    for edited in found[:12]:
        compile(edited, "edited", "exec")


def test_what_loses_its_writers_is_an_input_and_what_loses_its_readers_an_output() -> None:
    nest = NETWORKS["layers"]()
    kept = tuple(s for s in ordered_statements(nest) if s.name in ("mac0", "bias0"))
    less = with_statements(nest, kept)
    assert less is not None
    assert {t.name: t.role for t in less.tensors} == {
        "x": "input", "w0": "constant", "b0": "constant", "y0": "inout", "z0": "output",
    }  # fmt: skip
    assert set(less.constants) == {"w0", "b0"}
    assert with_statements(nest, ()) is None


def made(text: str) -> pf.Nest | None:
    """The nest of a file; None if it makes none."""
    try:
        return nest_of(text)
    except pf.PolyfuseError:
        return None


def test_a_network_gets_small() -> None:
    def fails(text: str) -> bool:
        nest = made(text)
        return nest is not None and any(s.op == "+=" and len(s.reads) == 2 for s in nest.statements)

    small = nest_of(smallest(nest_source(NETWORKS["layers"]()), fails, smaller=nest_edits))
    (step,) = small.statements
    assert (step.op, len(step.reads)) == ("+=", 2)
    assert max(size for t in small.tensors for size in t.shape) == 1


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def faked(text: str, options: Options) -> Outcome:
        nest = made(text)
        return Outcome("wrong" if nest is not None and "relu0" in nest.order.names else "agrees")

    monkeypatch.setattr("polyfuse.checks.reduce.trial", faked)
    file, out = tmp_path / "model.py", tmp_path / "small.py"
    file.write_text(
        "from polyfuse import nn\nmodel = nn.Sequential(nn.Linear(9, 4), nn.ReLU(), nn.Linear(4, 4))\n"
    )
    done = CliRunner().invoke(app, ["reduce", str(file), "--batch", "3", "--out", str(out)])
    assert done.exit_code == 0, done.output
    (step,) = nest_of(out.read_text()).statements
    assert step.name == "relu0"
    file.write_text("from polyfuse import nn\nmodel = nn.Linear(9, 4)\n")
    assert CliRunner().invoke(app, ["reduce", f"{file}:model", "--batch", "3"]).exit_code == 1
