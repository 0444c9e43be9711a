"""What `check_copies` refuses: statements beside a source's that are not copies, each into a buffer of its own."""

from __future__ import annotations

from dataclasses import replace

import islpy as isl
import pytest
import sympy

import polyfuse as pf
from polyfuse.analysis.copies import check_copies, holds_rounded, rounds
from polyfuse.errors import ValidationFailure
from polyfuse.ir import DType, Nest, Statement, Tensor, statement
from polyfuse.ir.precision import Math
from polyfuse.ir.scalar import Tf32

TENSORS = [Tensor("x", (8,), "float32", "input"), Tensor("y", (8,), "float32", "output")]
TWICE = statement("{ twice[i] : 0 <= i < 8 }", "y[i] = 2 * x[i]")
COPIED = statement("{ twice[i] : 0 <= i < 8 }", "y[i] = 2 * b[i]")
COPY = statement("{ copy[i] : 0 <= i < 8 }", "b[i] = x[i]")


def written(name: str, text: str) -> Statement:
    """A statement over eight elements; `b[i] = tf32 x[i]` rounds what it reads."""
    made = statement(f"{{ {name}[i] : 0 <= i < 8 }}", text.replace("tf32 ", ""))
    return replace(made, body=Tf32(made.body)) if "tf32 " in text else made


def every_tensor() -> list[Tensor]:
    """The source's tensors, and two buffers."""
    return [*TENSORS, *(Tensor(name, (8,), "float32", "inout") for name in "bc")]


def buffered(*texts: str) -> list[Statement]:
    """Statements over eight elements: "copy: b[i] = x[i]"."""
    return [written(*text.split(": ", 1)) for text in texts]


def checked(statements: list[Statement], source: Nest | None = None) -> None:
    used = {tensor for s in statements for tensor in s.tensors} | {"x", "y"}
    nest = Nest.of([tensor for tensor in every_tensor() if tensor.name in used], statements)
    check_copies(source or Nest.of(TENSORS, [TWICE]), nest, pf.Schedule(nest).tree)


def test_a_copy_is_allowed() -> None:
    checked([COPY, COPIED])


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ([COPY, statement("{ again[i] : 0 <= i < 8 }", "b[i] = x[i]")], "two statements write one buffer"),
        ([COPY, statement("{ other[i] : 0 <= i < 8 }", "y[i] = x[i]")], "two statements write one buffer"),
        ([statement("{ copy[i] : 0 <= i < 8 }", "b[i] = x[i] + i")], "copy is not a copy of values"),
    ],
)
def test_other_statements_are_refused(more: list[Statement], why: str) -> None:
    with pytest.raises(ValidationFailure, match=why):
        checked([*more, COPIED])


def test_another_original_order_is_refused() -> None:
    first = statement("{ first[i] : 0 <= i < 8 }", "y[i] = 0.0")
    with pytest.raises(ValidationFailure, match="original order is another one"):
        checked([COPY, COPIED, first], Nest.of(TENSORS, [first, TWICE]))


@pytest.mark.parametrize(
    ("given", "held", "text", "format"),
    [
        ("float32", "float32", "tf32 x[i]", "tf32"),
        ("float32", "float32", "x[i]", None),
        ("float32", "float16", "x[i]", "f16"),
        ("float32", "bfloat16", "x[i]", "bf16"),
        ("float16", "float16", "x[i]", None),
        ("float16", "float16", "2 * x[i]", "f16"),
        ("float16", "bfloat16", "x[i]", "bf16"),
        ("float64", "float32", "x[i]", None),
        ("float32", "float64", "x[i]", None),
    ],
)
def test_the_format_to_which_a_copy_rounds(given: DType, held: DType, text: str, format: Math | None) -> None:
    copy = written("copy", f"b[i] = {text}")
    nest = Nest.of([Tensor("x", (8,), given, "input"), Tensor("b", (8,), held, "output")], [copy])
    assert rounds(nest, copy) == format
    assert not holds_rounded(nest, "b", "tf32")  # a result, to which others may write


@pytest.mark.parametrize(
    ("texts", "holds"),
    [
        (["tf32 x[i]"], True),
        (["0.0", "tf32 x[i]"], True),
        (["x[i]"], False),
        (["1.0"], False),
        (["tf32 x[i]", "2 * x[i]"], False),
        ([], False),
    ],
)
def test_a_buffer_holds_rounded_numbers_if_all_its_writers_round(texts: list[str], holds: bool) -> None:
    writers = [written(f"copy{n}", f"b[i] = {text}") for n, text in enumerate(texts)]
    last = statement("{ last[i] : 0 <= i < 8 }", "y[i] = b[i]" if texts else "y[i] = x[i]")
    tensors = [*TENSORS, Tensor("b", (8,), "float32", "temporary")]
    nest = Nest.of(tensors, [*writers, last])
    assert holds_rounded(nest, "b", "tf32") is holds
    assert not holds_rounded(nest, "b", "bf16")
    assert not holds_rounded(nest, "x", "tf32")


def test_halves_hold_numbers_of_their_own_format() -> None:
    made = statement("{ made[i] : 0 <= i < 8 }", "y[i] = x[i]")
    nest = Nest.of([Tensor("x", (8,), "float16", "input"), Tensor("y", (8,), "float64", "output")], [made])
    assert holds_rounded(nest, "x", "f16")
    assert not holds_rounded(nest, "x", "bf16")
    assert holds_rounded(nest, "y", "f64")


def test_a_circle_of_copies_holds_nothing_that_is_rounded() -> None:
    """b is first written with rounded numbers, and then with what c holds, which is what b held."""
    tensors = [*TENSORS, *(Tensor(name, (8,), "float32", "temporary") for name in "bc")]
    texts = ("b[i] = tf32 x[i]", "c[i] = b[i]", "b[i] = c[i]", "y[i] = b[i]")
    every = [written(f"S{n}", text) for n, text in enumerate(texts)]
    assert not holds_rounded(Nest.of(tensors, every), "b", "tf32")
    assert holds_rounded(Nest.of(tensors, [*every[:2], every[3]]), "c", "tf32")


@pytest.mark.parametrize(
    ("statements", "why"),
    [
        (["copy: b[i] += x[i]", "twice: y[i] = 2 * b[i]"], "copy is not a copy of values"),
        (["zero: b[i] = 0.0", "twice: y[i] = 2 * b[i]"], "zero computes another part of twice"),
        (["zero: b[i] = 0.0", "copy: c[i] = x[i]", "twice: y[i] = 2 * b[i]"], "zero computes another part"),
        (["copy: b[i] = x[i]", "zero: b[i] = 0.0", "twice: y[i] = 2 * b[i]"], "two statements write"),
        (["zero: b[i] += 0.0", "copy: b[i] = x[i]", "twice: y[i] = 2 * b[i]"], "two statements write"),
        (["b: b[i] = c[i]", "c: c[i] = b[i]", "twice: y[i] = 2 * b[i]"], "twice touches b"),
        (["twice: y[i] += 2 * x[i]"], "twice is not the source's statement"),
        (["twice: y[i] = x[i]"], "twice computes another part of twice"),
        (["twice: y[i] = 3 * x[i]"], "twice computes another part of twice"),
        (["twice: y[i] = 2 * x[i] * x[7 - i]"], "twice computes another part of twice"),
    ],
)
def test_what_computes_something_else_is_refused(statements: list[str], why: str) -> None:
    with pytest.raises(ValidationFailure, match=why):
        checked(buffered(*statements))


def test_a_body_of_more_parts_is_refused() -> None:
    """2 x and 2 x x are products of two and of three factors."""
    two, read = TWICE.body.args
    more = replace(TWICE, body=sympy.Mul(two, read, read, evaluate=False))
    source = Nest.of(TENSORS, [TWICE])
    with pytest.raises(ValidationFailure, match="twice computes another part of twice"):
        check_copies(source, replace(source, statements=(more,)), pf.Schedule(source).tree)


def test_copies_of_copies_are_gone_through_and_clears_before_them_left_out() -> None:
    checked(buffered("zero: b[i] = 0.0", "first: c[i] = x[i]", "copy: b[i] = c[i]", "twice: y[i] = 2 * b[i]"))


def test_a_clear_in_the_loop_of_its_copy_is_a_second_writer() -> None:
    """for i: { b[i] = 0; b[i] = x[i] }: only what lies wholly behind a clear fills what it cleared."""
    nest = Nest.of(
        every_tensor(), buffered("zero: b[i] = 0.0", "copy: b[i] = x[i]", "twice: y[i] = 2 * b[i]")
    )
    fused = replace(nest, order=pf.Schedule(nest).fuse("zero", "copy", at="i").tree)
    with pytest.raises(ValidationFailure, match="two statements write one buffer"):
        check_copies(Nest.of(TENSORS, [TWICE]), fused, pf.Schedule(nest).tree)


def test_a_read_of_fewer_elements_is_refused() -> None:
    """y[i] = 2 x[i] for i < 8, whose read is known for i < 4 alone."""
    (read,) = TWICE.reads
    half = replace(read, map=read.map.intersect_domain(isl.Set("{ twice[i] : i < 4 }")))
    nest = Nest.of(TENSORS, [TWICE])
    changed = replace(nest, statements=(replace(TWICE, reads=(half,)),))
    with pytest.raises(ValidationFailure, match="twice touches"):
        check_copies(nest, changed, pf.Schedule(nest).tree)


def test_a_sum_of_rounded_numbers_is_not_one_of_them() -> None:
    tensors = [*TENSORS, Tensor("b", (8,), "float32", "temporary")]
    texts = "zero: b[i] = 0.0", "copy: b[i] += tf32 x[i]", "last: y[i] = b[i]"
    writers = buffered(*texts)
    assert not holds_rounded(Nest.of(tensors, writers), "b", "tf32")


PADDED = (
    "{ clear[k] : 0 <= k < 10 }: b[k] = 0.0",
    "{ load[k] : 0 <= k < 8 }: b[k] = x[k]",
    "{ mac[k] : 0 <= k < 10 }: y[0] += w[k] * b[k]",
    "{ last[i] : 0 <= i < 1 }: o[i] = y[0]",
)


def padded(*texts: str) -> Nest:
    """Ten products, with buffers for eight numbers x and two zeros."""
    shapes = {"x": "input", "w": "input", "v": "input", "y": "inout", "b": "inout", "o": "output"}
    made = [statement(*text.split("}: ", 1)) for text in (t.replace("}: ", "}}: ", 1) for t in texts)]
    used = {tensor for s in made for tensor in s.tensors}
    return Nest.of([Tensor(n, (12,), "float32", role) for n, role in shapes.items() if n in used], made)  # type: ignore[arg-type]


SOURCE = ("{ mac[k] : 0 <= k < 8 }: y[0] += w[k] * x[k]", PADDED[3])


@pytest.mark.parametrize("factor", ["w[k]", "2"])
def test_products_with_zeros_are_allowed(factor: str) -> None:
    """Also what reads the sum, which has come from more instances."""
    source, nest = (padded(*(text.replace("w[k]", factor) for text in texts)) for texts in (SOURCE, PADDED))
    check_copies(source, nest, pf.Schedule(nest).tree)


@pytest.mark.parametrize(
    ("source", "mac"),
    [
        ("y[0] += x[k] * w[k]", "{ mac[k] : 0 <= k < 11 }: y[0] += b[k] * w[k]"),
        ("y[k] = x[k] * w[k]", "{ mac[k] : 0 <= k < 10 }: y[k] = b[k] * w[k]"),
        ("y[0] += x[k] + w[k]", "{ mac[k] : 0 <= k < 10 }: y[0] += b[k] + w[k]"),
    ],
)
def test_other_instances_than_products_with_zeros_are_refused(source: str, mac: str) -> None:
    nest = padded(*PADDED[:2], mac, PADDED[3])
    with pytest.raises(ValidationFailure, match="they are no products with zero"):
        check_copies(padded(f"{{ mac[k] : 0 <= k < 8 }}: {source}", PADDED[3]), nest, pf.Schedule(nest).tree)


def test_products_with_what_a_copy_fills_are_refused_though_it_was_cleared() -> None:
    nest = padded(*PADDED)
    with pytest.raises(ValidationFailure, match="they are no products with zero"):
        check_copies(padded(SOURCE[0].replace("8", "6"), SOURCE[1]), nest, pf.Schedule(nest).tree)


def test_instances_that_touch_nothing_are_refused() -> None:
    """One access of a product is known for the source's instances alone."""
    source, nest = padded(*SOURCE), padded(*PADDED)
    mac = nest.statement("mac")
    other, buffer = mac.reads
    few = replace(other, map=other.map.intersect_domain(isl.Set("{ mac[k] : k < 8 }")))
    changed = replace(mac, reads=(few, buffer))
    unknown = replace(nest, statements=tuple(changed if s is mac else s for s in nest.statements))
    with pytest.raises(ValidationFailure, match="they touch nothing"):
        check_copies(source, unknown, pf.Schedule(nest).tree)
