"""Products in blocks: any sizes, layouts, element types and epilogues compute what the oracle does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import polyfuse as pf
from papers.polybench import KERNELS
from polyfuse import nn
from polyfuse.ir import Nest, Tensor, statement
from polyfuse.machine import KiB, Machine, MiB, cpu
from polyfuse.nn.lower import lower_values
from polyfuse.strategy import plan_for
from polyfuse.strategy.transforms.band_verbs import common_loops
from tests.support.emitted import in_one_line
from tests.support.examples import examples

SMALL = cpu("small caches", 1, 32, (4 * KiB, 16 * KiB, 64 * KiB), 3.0e9)
"""Caches so small that products of some dozens are blocked and packed."""

AFTER: Mapping[str, tuple[str, ...]] = {
    "none": (),
    "bias": ("out[i, j] = y[i, j] + b[j]",),
    "bias, relu": ("z[i, j] = y[i, j] + b[j]", "out[i, j] = max(z[i, j], 0.0)"),
    "residual, scale": ("z[i, j] = 2.0 * y[i, j]", "out[i, j] = z[i, j] + r[i, j]"),
}


def product(
    sides: tuple[int, int, int],
    left: str = "ik",
    right: str = "kj",
    dtype: str = "float32",
    after: str = "none",
    fixed: str = "",
) -> Nest:
    """y = a b with the operands' axes in any order, some constants, and statements that read the sums."""
    extent = dict(zip("ijk", sides, strict=True))
    shape = {axes: tuple(extent[d] for d in axes) for axes in (left, right)}
    box = " and ".join(f"0 <= {d} < {extent[d]}" for d in "ij")
    last = "y" if after == "none" else "out"
    tensors = [
        Tensor("a", shape[left], dtype, "constant" if "a" in fixed else "input"),
        Tensor("w", shape[right], dtype, "constant" if "w" in fixed else "input"),
        Tensor("b", (extent["j"],), dtype, "input"),
        Tensor("r", (extent["i"], extent["j"]), dtype, "input"),
        *(
            Tensor(name, sides[:2], dtype, "output" if name == last else "temporary")
            for name in ("y", "z", "out")
        ),
    ]
    a, w = f"a[{', '.join(left)}]", f"w[{', '.join(right)}]"
    statements = [
        statement(f"{{ zero[i, j] : {box} }}", "y[i, j] = 0.0"),
        statement(f"{{ mac[i, j, k] : {box} and 0 <= k < {extent['k']} }}", f"y[i, j] += {a} * {w}"),
        *(statement(f"{{ e{n}[i, j] : {box} }}", text) for n, text in enumerate(AFTER[after])),
    ]
    used = {name for s in statements for name in s.tensors}
    rng = np.random.default_rng(3)
    constants = {t.name: rng.integers(-3, 4, t.shape).astype(dtype) for t in tensors if t.name in fixed}
    return Nest.of([t for t in tensors if t.name in used], statements, constants=constants)


def agrees(nest: Nest, machine: Machine, force: Mapping[str, bool] | None = None) -> pf.Executable:
    """The compiled nest, once it gave what the oracle gives: exactly, on integers small enough for any order."""
    rng = np.random.default_rng(1)
    inputs = {t.name: rng.integers(-3, 4, t.shape).astype(t.dtype) for t in nest.inputs}
    net = pf.compile(nest, target="cpu", machine=machine, force=force)
    ((name, wanted),) = pf.interpret(nest, inputs).items()
    found = net(**inputs)
    np.testing.assert_array_equal(inputs[name] if found is None else found, wanted)
    return net


@settings(max_examples=examples(16), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    sides=st.tuples(st.integers(1, 40), st.integers(1, 70), st.integers(1, 150)),
    left=st.sampled_from(["ik", "ki"]),
    right=st.sampled_from(["kj", "jk"]),
    dtype=st.sampled_from(["float32", "float64"]),
    after=st.sampled_from(sorted(AFTER)),
)
def test_any_product_equals_the_oracle(
    sides: tuple[int, int, int], left: str, right: str, dtype: str, after: str
) -> None:
    agrees(product(sides, left, right, dtype, after), SMALL)


LEFT = ("c * a[i, k]", "max(a[i, k], 0.0)", "u[i] * a[i, k] + v[k]", "a[k, i] * c", "a[i, k]")
RIGHT = ("w[k, j]", "w[k, j] - c", "abs(w[j, k])", "v[k] * w[k, j]", "a[j, k]")


@settings(max_examples=examples(16), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    sides=st.tuples(st.integers(1, 40), st.integers(1, 70), st.integers(1, 70)),
    left=st.sampled_from(LEFT),
    right=st.sampled_from(RIGHT),
    triangle=st.booleans(),
)
def test_factors_that_are_computed_equal_the_oracle(
    sides: tuple[int, int, int], left: str, right: str, triangle: bool
) -> None:
    agrees(computed(sides, left, right, triangle), SMALL)


def computed(sides: tuple[int, int, int], left: str, right: str, triangle: bool = False) -> Nest:
    """y += left * right, of scalars, vectors and matrices that are large enough; perhaps a triangle of y alone."""
    box = f"0 <= i < {sides[0]} and 0 <= j < {sides[1]}" + (" and j <= i" if triangle else "")
    shapes = {"c": (), "u": (70,), "v": (70,), "a": (70, 70), "w": (70, 70)}
    statements = [
        statement(f"{{ scale[i, j] : {box} }}", "y[i, j] = y[i, j] * 2.0"),
        statement(f"{{ mac[i, j, k] : {box} and 0 <= k < {sides[2]} }}", f"y[i, j] += ({left}) * ({right})"),
    ]
    used = {name for s in statements for name in s.tensors}
    inputs = [Tensor(t, shape, "float64", "input") for t, shape in shapes.items() if t in used]
    return Nest.of([*inputs, Tensor("y", sides[:2], "float64", "inout")], statements)


def test_a_factor_is_computed_while_it_is_packed() -> None:
    net = agrees(computed((40, 64, 64), "c * a[i, k]", "w[k, j] - c"), SMALL)
    assert "tile_mac(" in net.source
    assert "c * a[i, k] is computed while it is packed" in net.explain()
    assert "w[k, j] - c is computed while it is packed" in net.explain()


@pytest.mark.parametrize("right", ["kj", "jk"])
@pytest.mark.parametrize("left", ["ik", "ki"])
def test_blocks_panels_and_the_sums_rounding(left: str, right: str) -> None:
    nest = product((48, 96, 200), left, right, "float32", "bias, relu")
    rng = np.random.default_rng(2)
    inputs = {t.name: rng.standard_normal(t.shape).astype(t.dtype) for t in nest.inputs}
    net = pf.compile(nest, target="cpu", machine=SMALL)
    assert ("tile_dot(" if (left, right) == ("ik", "jk") else "tile_mac(") in net.source
    steps = [step for step in net.schedule.steps if step.verb in ("split", "promote")]
    assert any(step.verb == "split" and step.args[:2] == ("mac", "k") for step in steps)
    exact = pf.interpret(nest, inputs)["out"]
    a, w = (
        np.abs(inputs[n] if axes in ("ik", "kj") else inputs[n].T) for n, axes in (("a", left), ("w", right))
    )
    bound = 200 * np.finfo("float32").eps * (a @ w + np.abs(inputs["b"]))  # Higham (2002), section 3.1
    assert (np.abs(net(**inputs) - exact) <= bound).all()


@settings(max_examples=examples(15), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    sides=st.tuples(st.integers(2, 40), st.integers(16, 90), st.integers(1, 150)),
    left=st.sampled_from(["ik", "ki"]),
    right=st.sampled_from(["kj", "jk"]),
    fixed=st.sampled_from(["a", "w", "aw"]),
    after=st.sampled_from(["none", "bias, relu"]),
)
def test_any_product_with_constants_equals_the_oracle(
    sides: tuple[int, int, int], left: str, right: str, fixed: str, after: str
) -> None:
    agrees(product(sides, left, right, "float32", after, fixed), SMALL)


@pytest.mark.parametrize(("left", "right", "fixed"), [("ik", "jk", "w"), ("ki", "kj", "a")])
def test_constants_are_packed_whole_in_kernels_that_run_once(left: str, right: str, fixed: str) -> None:
    net = agrees(product((48, 96, 200), left, right, "float32", "bias", fixed), SMALL)
    (copy,) = (launch for launch in net.kernels if launch.once)
    assert copy.statements == (f"pack_{fixed}",)
    assert f"{fixed} is packed once for all calls" in net.explain()
    assert ("pack", (fixed, "mac")) in [(step.verb, step.args) for step in net.schedule.steps]


def test_first_values_and_epilogue_run_in_the_first_and_last_block() -> None:
    net = agrees(product((16, 64, 400), after="bias, relu"), SMALL)
    lines = [line.strip() for line in in_one_line(net.source).splitlines()]
    first, tile = (
        lines.index("if k == 0:"),
        next(n for n, line in enumerate(lines) if line.startswith("tile_mac(")),
    )
    last = next(n for n, line in enumerate(lines) if line.startswith("short_row(") and "address(out," in line)
    assert first < tile < last
    assert any(line.startswith("if k == ") for line in lines[tile:last])


def test_a_batch_of_products() -> None:
    box = "0 <= n < 5 and 0 <= i < 24 and 0 <= j < 40"
    tensors = [
        Tensor("a", (5, 24, 30), "float64", "input"),
        Tensor("w", (5, 30, 40), "float64", "input"),
        Tensor("y", (5, 24, 40), "float64", "output"),
    ]
    statements = [
        statement(f"{{ zero[n, i, j] : {box} }}", "y[n, i, j] = 0.0"),
        statement(f"{{ mac[n, i, j, k] : {box} and 0 <= k < 30 }}", "y[n, i, j] += a[n, i, k] * w[n, k, j]"),
    ]
    net = agrees(Nest.of(tensors, statements), SMALL)
    assert "tile_mac(" in net.source


@pytest.mark.parametrize("units", [1, 2, 3, 8])
@pytest.mark.parametrize("order", ["bik,jk->bij", "bik,bjk->bij", "abik,ajk->abij"])
def test_what_batches_have_in_common_is_packed_once(units: int, order: str) -> None:
    """for b: { pack w; for i: … }  ->  pack w; for b: for i: …; not where each batch has a w of its own."""
    sizes = {"a": 2, "b": 5, "i": 14, "k": 15, "j": 40}  # too few steps for dot products, which pack nothing
    nest = pf.einsum(order, {d: size for d, size in sizes.items() if d in order}, dtype="float32")
    net = agrees(nest, replace(SMALL, units=units, region_seconds=0.0))
    copies = [s.name for s in net.schedule.nest.statements if s.name.startswith(("load", "pack"))]
    around = {loop.name for copy in copies for loop in net.schedule.loops(copy)}
    again = [loop.name for loop in net.schedule.loops("mac") if loop.name not in around]
    assert copies
    assert any(name.startswith("b") for name in again) == ("bjk" not in order)


@pytest.mark.parametrize("order", ["bik,jk->bij", "bik,bjk->bij"])
def test_batches_of_dot_products(order: str) -> None:
    sizes = {"b": 2, "i": 3, "k": 130, "j": 40}
    net = agrees(pf.einsum(order, sizes, dtype="float32"), replace(SMALL, units=2, region_seconds=0.0))
    assert "tile_dot(" in net.source


def test_cores_share_rows_or_columns() -> None:
    two = cpu("two cores", 2, 32, (4 * KiB, 16 * KiB, 64 * KiB), 3.0e9)
    for sides in ((256, 512, 256), (8, 2048, 512)):
        net = agrees(product(sides), two)
        assert "share_from(0, 2, members, member)" in net.source


def test_cores_share_what_a_region_costs_less_than() -> None:
    """1M multiply-adds are 9 µs of a core that begins two vectors' a cycle, and 18 of one that begins one."""
    for name, shared in (("zen5", None), ("zen4", "cores")):
        plan = plan_for(product((16, 256, 256), fixed="w"), Machine.preset(name))
        assert plan.schedule.loops("mac")[0].bind == shared


def test_cores_share_the_larger_operand_rather_than_read_it_twice() -> None:
    two = cpu("two cores", 2, 64, (32 * KiB, 1024 * KiB, 32 * 1024 * KiB), 3.0e9)
    for sides, shared in (((64, 1024, 1024), "j"), ((1024, 64, 1024), "i")):
        loop = plan_for(product(sides, fixed="w"), two).schedule.loops("mac")[0]
        assert (loop.name, loop.bind) == (shared, "cores")


def test_cores_put_what_all_of_them_read_into_panels_together() -> None:
    """Where columns in whole panels leave one core more: 480 and 420 of 900. The copy has a kernel of its own."""
    plan = plan_for(product((800, 900, 1000)), Machine.preset("zen5"))
    assert [group.statements for group in plan.groups] == [("pack_w",), ("zero", "mac")]
    assert [plan.schedule.loops(name)[0].bind for name in ("pack_w", "mac")] == ["cores", "cores"]
    assert plan.schedule.loops("mac")[0].name == "i"
    assert any("w is packed by 2 cores before" in note for note in plan.groups[1].notes)
    even = plan_for(product((800, 1024, 1000)), Machine.preset("zen5"))
    assert "pack_w" not in str(even), "512 columns each are whole panels"


@pytest.mark.parametrize(
    ("right", "after", "dtype"),
    [("kj", "none", "float32"), ("jk", "bias, relu", "float32"), ("kj", "residual, scale", "float64")],
)
def test_panels_that_cores_make_together_equal_the_oracle(right: str, after: str, dtype: str) -> None:
    """Whatever it costs, on small products; also with more cores than tiles."""
    for units, sides in ((2, (40, 40, 50)), (3, (70, 50, 33)), (8, (29, 70, 40))):
        nest = product(sides, right=right, after=after, dtype=dtype)
        net = agrees(nest, replace(SMALL, units=units, region_seconds=0.0), {"packed together": True})
        assert "cores" in [loop.bind for loop in net.schedule.loops("pack_w")]


def test_a_factor_of_an_earlier_kernel_is_packed_by_all_cores() -> None:
    x, w, v = (nn.input(name, shape) for name, shape in (("x", (40, 50)), ("w", (50, 60)), ("v", (60, 36))))
    net = agrees(
        nn.lower(x @ (w @ v)), replace(SMALL, units=2, region_seconds=0.0), {"packed together": True}
    )
    assert sum(s.name.startswith("pack") for s in net.schedule.nest.statements) == 2


def test_products_that_run_in_blocks_apart_are_not_put_together() -> None:
    """Together they would be tiles of the loops that they share, at half the speed."""
    x, w = (nn.input(name, (4096, 4096)) for name in "xw")
    found = pf.rewrite.bilinear(nn.lower(x @ w), "mac0", pf.bilinear.strassen, apart=True)
    assert isinstance(found.nest, Nest)
    plan = plan_for(found.nest, replace(Machine.preset("xeon"), units=2))
    products = [[name for name in group.statements if "product" in name] for group in plan.groups]
    assert [each for each in products if each] == [[f"mac0_product{n}"] for n in range(7)]


def test_sums_of_a_fast_product_are_packed_and_added_up_in_its_tiles() -> None:
    """Also those that write the result before the product does in whose kernel they are."""
    x, w = (nn.input(name, (2048, 2048)) for name in "xw")
    large = pf.rewrite.bilinear(
        nn.lower(x @ w), "mac0", pf.bilinear.strassen, apart=True, inline=("right",)
    ).nest
    plan = plan_for(large, replace(Machine.preset("xeon"), units=1))
    assert any({"mac0_Y3_0", "mac0_product1", "mac0_Y3_1"} <= set(group.statements) for group in plan.groups)
    assert not [note for note in plan.notes if "not in blocks" in note]
    small = pf.rewrite.bilinear(
        product((96, 128, 192)), "mac", pf.bilinear.strassen, apart=True, inline=("right",)
    )
    agrees(small.nest, SMALL)


def test_cores_share_no_columns_of_a_product_whose_left_factor_its_kernel_computes() -> None:
    """One core's columns would need rows of the factor that another core computes."""
    fast = pf.bilinear.strassen
    found = pf.rewrite.bilinear(product((1024, 1024, 1024)), "mac", fast, apart=True, inline=("right",))
    plan = plan_for(found.nest, replace(Machine.preset("xeon"), units=2))
    together = [g.statements for g in plan.groups if {"mac_L1", "mac_product1"} <= set(g.statements)]
    assert together, "the left sums of a product are computed in its kernel"
    assert not [note for note in plan.notes if "not in blocks" in note]
    assert plan.schedule.loops("mac_product1")[0].bind == "cores"


def test_the_decision_is_explained() -> None:
    plan = plan_for(product((512, 1024, 1024)), Machine.preset("zen5"))
    text = str(plan)
    assert "sums: " in text
    assert "vector registers" in text
    assert "of L1's 48 KiB" in text


@pytest.mark.parametrize(("first", "in_tiles"), [("i", True), ("floor(i / 2)", False)])
def test_steps_that_begin_with_the_row_run_in_tiles_if_each_row_has_one_less(
    first: str, in_tiles: bool
) -> None:
    box = "0 <= i < 40 and 0 <= j < 64"
    tensors = [Tensor("a", (40, 40), "float32", "input"), Tensor("w", (40, 64), "float32", "input")]
    tensors.append(Tensor("y", (40, 64), "float32", "output"))
    statements = [
        statement(f"{{ zero[i, j] : {box} }}", "y[i, j] = 0.0"),
        statement(f"{{ mac[i, j, k] : {box} and {first} <= k < 40 }}", "y[i, j] += a[i, k] * w[k, j]"),
    ]
    net = agrees(Nest.of(tensors, statements), SMALL)
    assert ("tile_mac(" in net.source) == in_tiles


def test_the_trace_makes_the_same_blocks() -> None:
    schedule = plan_for(product((48, 96, 200), after="bias"), SMALL).schedule
    assert "microkernel" in [step.verb for step in schedule.steps]
    space = {"pf": pf, "nest": schedule.source}
    exec(schedule.trace(), space)
    assert str(space["s"]) == str(schedule)


@pytest.mark.parametrize("text", ["C[i, j] += A[k, i] * A[k, j]", "C[i, j] += A[i, k] * A[j, k]"])
@pytest.mark.parametrize("rows", [120, 129])
def test_a_tensor_with_itself(text: str, rows: int) -> None:
    """Both operands are one tensor, so that its packed panels are read along rows and along columns."""
    shape = (200, rows) if "[k, i]" in text else (rows, 200)
    nest = (
        pf.NestBuilder("own")
        .tensor("A", shape)
        .tensor("C", (rows, rows), role="output")
        .statement("zero", f"{{ [i, j] : 0 <= i, j < {rows} }}", "C[i, j]", "0.0")
        .statement(
            "mac", f"{{ [i, j, k] : 0 <= i, j < {rows} and 0 <= k < 200 }}", *text.split(" += "), op="+="
        )
        .nest()
    )
    A = np.random.default_rng(2).standard_normal(shape)
    net = pf.compile(nest, target="cpu", machine="zen5")
    assert "tile_mac" in net.source or "[k, i]" not in text
    expected = A.T @ A if "[k, i]" in text else A @ A.T
    np.testing.assert_allclose(net(A), expected, rtol=1e-12, atol=1e-12)


def test_a_weight_that_is_an_input_is_read_as_it_lies() -> None:
    """As torch has it, (outputs, inputs); what follows gets rows of whole vectors, not the four columns of a tile."""
    x, w, b = nn.input("x", (7, 261)), nn.input("w", (50, 261)), nn.input("b", (50,))
    nest = pf.lower(nn.relu(x @ nn.transpose(w) + b))
    net = pf.compile(nest, target="cpu", machine=cpu("avx2", 1, 32, (32 * KiB, 512 * KiB, 16 * MiB), 3.5e9))
    assert "tile_dot(" in net.source
    assert "load_transposed(" not in net.source
    rng = np.random.default_rng(5)
    arrays = {t.name: rng.integers(-4, 5, t.shape).astype(np.float32) for t in nest.inputs}
    expected = np.maximum(arrays["x"] @ arrays["w"].T + arrays["b"], 0)
    np.testing.assert_array_equal(net(**arrays), expected)


def update_of_filters() -> Nest:
    """The gradient of filters, added to their momentum, whose lines have the window's places innermost."""
    box = "0 <= n < 3 and 0 <= p < 3 and 0 <= c < 32 and 0 <= f < 40"
    steps = "0 <= i < 4 and 0 <= k < 3 and 0 <= l < 3"
    tensors = [
        Tensor("g", (4, 40, 3, 3), "float32", "input"),
        Tensor("x", (4, 32, 5, 5), "float32", "input"),
        Tensor("m", (40, 32, 3, 3), "float32", "input"),
        Tensor("s", (3, 3, 32, 40), "float32", "temporary"),
        Tensor("out", (40, 32, 3, 3), "float32", "output"),
    ]
    statements = [
        statement(f"{{ zero[f, c, n, p] : {box} }}", "s[n, p, c, f] = 0.0"),
        statement(
            f"{{ mac[f, c, n, p, i, k, l] : {box} and {steps} }}",
            "s[n, p, c, f] += g[i, f, k, l] * x[i, c, k + n, l + p]",
        ),
        statement(f"{{ add[f, c, n, p] : {box} }}", "out[f, c, n, p] = 2.0 * m[f, c, n, p] + s[n, p, c, f]"),
    ]
    return Nest.of(tensors, statements)


@pytest.mark.parametrize(
    ("machine", "inside"),
    [
        (cpu("small caches", 1, 32, (16 * KiB, 32 * KiB, 64 * KiB), 3.0e9), True),
        (replace(cpu("two cores", 2, 32, (16 * KiB, 32 * KiB, 64 * KiB), 3.0e9), region_seconds=0.0), True),
        (cpu("large caches", 1, 32, (32 * KiB, MiB, 8 * MiB), 3.0e9), False),
    ],
)
def test_a_tile_has_all_places_of_a_line_that_caches_do_not_hold(machine: Machine, inside: bool) -> None:
    """for n: for p: { tile; m[f, c, n, p] }   ->   { for n: for p: tile; m[f, c, n, p] }"""
    schedule = agrees(update_of_filters(), machine).schedule
    common = [loop.name for loop in common_loops(schedule, ("mac", "add"))]
    assert "c" in common
    assert ("n" in common, "p" in common) == (not inside, not inside)


def test_layers_of_one_value_are_one_product_whichever_way_their_weights_lie() -> None:
    """q, k and v of attention: y[m, i, j, k] += x[i, j, l] * w[m, k, l], where m moves weights and sums alone."""
    rng = np.random.default_rng(0)
    x = nn.input("x", (2, 16, 64))
    weights = [rng.standard_normal((128, 64), dtype="float32") / 8 for _ in range(3)]
    q, k, v = (nn.matmul(x, nn.transpose(nn.constant(w))) for w in weights)
    nest = lower_values([nn.matmul(nn.matmul(q, nn.transpose(k)), v)], "layers", [x])
    net = pf.compile(nest, machine=Machine.preset("zen5"), force={"batch isomorphic": True})
    assert "tile_mac" in net.source
    assert "row_mac(" not in net.source
    one = rng.standard_normal((2, 16, 64), dtype="float32")
    left, right, last = (one @ w.T for w in weights)
    np.testing.assert_allclose(net(one), left @ right.swapaxes(1, 2) @ last, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", ["covariance", "correlation"])
def test_pieces_of_a_triangles_rows_leave_its_tiles_whole(name: str) -> None:
    """On two cores a piece's panels begin at its rows: in pieces that are no whole tiles of columns there was none."""
    kernel = KERNELS[name]
    two = replace(pf.Machine.preset("zen5"), units=2)
    source = pf.compile(kernel.nest, target="cpu", machine=two, sizes=kernel.large).source
    assert "tile_mac" in source
    assert "no microkernel: a condition" not in source
