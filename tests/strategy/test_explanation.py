"""The explanation as values: filtered, folded, written; and why two statements are not fused."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest

import polyfuse as pf
from polyfuse import nn
from polyfuse.errors import BadArgument
from polyfuse.strategy import Reason
from polyfuse.strategy.explanation import Explanation


def layers(count: int, width: int) -> pf.Nest:
    """Equal layers of 64 rows."""
    each = [layer for _ in range(count) for layer in (nn.Linear(width, width), nn.ReLU())]
    return pf.lower(nn.Sequential(*each), batch=64)


def on_gpu(nest: pf.Nest) -> pf.Executable:
    return pf.compile(nest, target="cuda", machine="h200", device="none")


@pytest.fixture(scope="module")
def net() -> pf.Executable:
    return on_gpu(layers(2, 384))


def scaled(x, y):  # type: ignore[no-untyped-def]
    t = 0.0
    for i in range(8):
        t += x[i]
    for i in range(8):
        y[i] = x[i] * t


total = pf.nest(scaled, types={"x": "f32[8]", "y": "f32[8]"})


def test_it_is_the_text_and_has_the_decisions(net: pf.Executable) -> None:
    told = net.explain()
    assert str(told) == told.splitlines()[0] + told[told.index("\n") :]
    assert [kernel.statements for kernel in told.kernels] == [launch.statements for launch in net.kernels]
    assert told.remarks == net.compiled.plan.log  # type: ignore[union-attr]
    assert all(f"- {decision}" in told for decision in net.compiled.plan.decisions)  # type: ignore[union-attr]


def test_filtered_by_statements_it_has_prices_and_the_two_instances(net: pf.Executable) -> None:
    found = net.explain("relu0", "mac1")
    assert {"relu0", "mac1"} <= set.intersection(*(set(remark.statements) for remark in found.remarks))
    assert "may be fused at i, which does not pay" in found
    assert "    not taken: 20.5 µs with it, 16.3 µs without; the model expects it to cost no less\n" in found
    assert "the flow dependence relu0[0, 1] -> mac1[0, 0, 1]" in found


def test_filtered_by_reason_decision_and_price(net: pf.Executable) -> None:
    dearer = net.explain(reason="dearer")
    assert dearer.remarks
    assert {remark.reason for remark in dearer.remarks} == {Reason.DEARER}
    assert net.explain(reason=Reason.DEARER) == dearer
    assert not any(remark.taken for remark in net.explain(taken=False).remarks)
    costly = net.explain(least=4e-6)
    assert 0 < len(costly.remarks) < len(net.explain().remarks)
    assert all(abs(so - other) >= 4e-6 for so, other in (r.seconds for r in costly.remarks if r.seconds))
    assert net.explain(reason="budget") == f"no decision of {len(net.explain().remarks)} fits"


def test_unknown_names_are_refused_with_those_that_there_are(net: pf.Executable) -> None:
    with pytest.raises(BadArgument, match="explain: no statement 'relu9'; there are zero0, "):
        net.explain("relu9")
    with pytest.raises(BadArgument, match="explain: no reason 'costly'; there are 'cheaper', 'dearer', "):
        net.explain(reason="costly")


def test_refused_fusions_have_their_instances() -> None:
    found = pf.compile(total, target="cpu", machine="zen5").explain(reason="illegal")
    (remark,) = found.remarks
    assert remark.violation is not None
    assert str(remark.violation.source) == "S1[1]"
    assert "S1[1] -> S2[0]" in found


def test_at_twelve_layers_the_summary_fits_one_screen() -> None:
    told = on_gpu(layers(12, 384)).explain()
    lines = repr(told).splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 160
    assert sum(line.endswith("  × 11") for line in lines) >= 2
    assert len(told.splitlines()) > 48


def test_as_json_and_html(net: pf.Executable) -> None:
    told = net.explain()
    data = json.loads(told.to_json())
    assert data["text"] == told
    assert data["kernels"][0]["statements"] == list(net.kernels[0].statements)
    refused = next(each for each in data["remarks"] if each["violation"] is not None)
    assert refused["violation"]["source"]["statement"] == "relu0"
    assert Explanation.of_data(data).remarks == told.remarks
    assert "relu0[0, 1] -&gt; mac1[0, 0, 1]" in told.to_html()
    assert told.to_html() == told._repr_html_()


def test_it_is_pickled_and_kept_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYFUSE_CACHE", str(tmp_path))
    told = on_gpu(layers(2, 384)).explain()
    again = on_gpu(layers(2, 384))
    assert "loaded from" in again.report().cache
    for copy in (again.explain(), pickle.loads(pickle.dumps(told))):
        assert (copy, copy.remarks, copy.kernels) == (told, told.remarks, told.kernels)


def test_decisions_by_kernel(net: pf.Executable) -> None:
    found = net.explain().by_kernel()
    assert sum(map(len, found.values())) == len(net.explain().remarks)
    assert set(found) == {"", *(launch.name for launch in net.kernels)}


def test_why_not_fused_prices_the_best_legal_form(net: pf.Executable) -> None:
    answer = on_gpu(layers(2, 384)).why_not_fused("mac0", "mac1")
    assert (answer.fused, answer.at) == (False, "i")
    assert answer.seconds is not None
    assert answer.seconds[0] > answer.seconds[1]
    assert answer.schedule is not None
    assert answer.violation is None
    assert str(answer).startswith("mac0 and mac1 may be fused at i: 20.5 µs a call is expected then, and ")
    same = net.why_not_fused("mac0", "bias0")
    assert same.fused
    assert "the schedule of this form" in answer._repr_html_()
    assert str(same) == "mac0 and bias0 are fused at j: they share the loops down to it."


def test_why_not_fused_names_the_dependence_where_there_is_no_form() -> None:
    answer = pf.compile(total, target="cpu", machine="zen5").why_not_fused("S2", "S1")
    assert answer.at is None
    assert answer.violation is not None
    assert str(answer.violation.source) == "S1[1]"
    assert str(answer.violation.sink) == "S2[0]"
    assert str(answer).startswith("S1 and S2 must not be fused: fuse('S1', 'S2', at='i'")
    assert "flow: S1[1] -&gt; S2[0]" in answer._repr_html_()


def test_why_not_fused_refuses_names_that_mean_nothing(net: pf.Executable) -> None:
    with pytest.raises(BadArgument, match="why_not_fused: no statement 'mac7'; there are zero0, mac0"):
        net.why_not_fused("mac0", "mac7")
    with pytest.raises(BadArgument, match="expected two statements, given 'mac0' twice"):
        net.why_not_fused("mac0", "mac0")
