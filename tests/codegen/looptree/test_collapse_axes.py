"""Two axes of an array as one: where all of its elements need fewer quotients so, or some that are only read."""

from __future__ import annotations

from dataclasses import replace

from polyfuse.codegen.looptree.collapse_axes import Joined, with_joined_axes
from polyfuse.codegen.looptree.nodes import Allocate, Block, Element, Kernel, Node, nodes_in, stores_in
from polyfuse.ir.tensor import Tensor
from tests.codegen.looptree.test_verify import element, kernel, loop, store

SHAPES: dict[str, tuple[int | str, ...]] = {"x": (4, 6, 8), "y": (4, 6, 8), "z": ("N", 6, "M")}


def joined(*parts: Node) -> tuple[tuple[Joined, ...], list[str]]:
    """The arrays that are joined, and the elements of the stores then: of each the target, then its reads."""
    arrays = {name: Tensor(name, shape, "float32", "input") for name, shape in SHAPES.items()}
    made: Kernel = replace(kernel(Block(parts)), arrays=arrays)
    done, found = with_joined_axes(made)
    elements: list[Element] = [e for s in stores_in(done.body) for e in (s.target, *s.reads)]
    return found, [str(e) for e in elements]


def test_an_array_that_is_read_has_two_axes_as_one() -> None:
    found, elements = joined(loop("c", "48", store("y[0, 0, 0]", "x[1, c // 8, c % 8]")))
    assert found == (Joined("x_rows", "x", 1),)
    assert elements == ["y[0, 0, 0]", "x_rows[1, c]"]


def test_three_axes_are_one() -> None:
    element = "x[c // 48, c // 8 - 6 * (c // 48), c - 8 * (c // 8)]"
    found, elements = joined(loop("c", "192", store("y[0, 0, 0]", element)))
    assert found == (Joined("x_rows", "x", 0), Joined("x_rows_rows", "x_rows", 0))
    assert elements[1] == "x_rows_rows[c]"


def test_elements_that_gain_nothing_stay_where_the_array_is_only_read() -> None:
    both = store("y[0, 0, 0]", "x[1, c // 8, c % 8]"), store("y[0, 0, 1]", "x[c, 1, 2]")
    found, elements = joined(loop("c", "4", Block(both)))
    assert found == (Joined("x_rows", "x", 1),)
    assert [elements[1], elements[3]] == ["x_rows[1, c]", "x[c, 1, 2]"]


def test_an_array_that_is_written_is_joined_for_all_of_its_elements() -> None:
    both = store("y[1, c // 8, c % 8]", "x[0, 0, 0]"), store("y[0, 2, c]", "y[2, c // 8, c // 2 % 8]")
    found, elements = joined(loop("c", "4", Block(both)))
    assert found == (Joined("y_rows", "y", 1),)
    assert [elements[0], *elements[2:]] == [
        "y_rows[1, c]",
        "y_rows[0, c + 16]",
        "y_rows[2, c // 8 * 8 + c // 2 % 8]",
    ]


def test_a_buffer_has_fewer_axes_in_its_kernel() -> None:
    """32c + d over rows of 28: quotient and remainder as isl writes them."""
    written = store("b[e, c + (4 * c + d) // 28, (4 * c + d) % 28]", "x[0, 0, 0]")
    buffer = Allocate("b", (3, 28, 28), "float32", "local")
    done, found = with_joined_axes(
        replace(kernel(Block((buffer, Block((written, store("y[0, 0, 0]", "b[e, 2 * c, d]")))))), arrays={})
    )
    assert found == ()
    assert [str(e) for s in stores_in(done.body) for e in (s.target, *s.reads) if e.array == "b"] == [
        "b[e, 32 * c + d]",
        "b[e, 56 * c + d]",
    ]
    assert [node.shape for node in nodes_in(done.body) if isinstance(node, Allocate)] == [(3, 784)]


def test_a_buffer_whose_elements_say_where_others_lie_stays() -> None:
    written = store("b[c // 8, c % 8]", "x[0, 0, 0]")
    chosen = store("y[0, 0, b[1, c]]", "x[0, 0, 0]")
    buffer = Allocate("b", (6, 8), "int64", "local")
    done, _ = with_joined_axes(replace(kernel(Block((buffer, written, chosen))), arrays={}))
    assert [str(s.target) for s in stores_in(done.body)] == ["b[c // 8, c % 8]", "y[0, 0, b[1, c]]"]
    assert [node.shape for node in nodes_in(done.body) if isinstance(node, Allocate)] == [(6, 8)]


def test_a_buffer_that_is_made_in_two_shapes_stays() -> None:
    written = store("b[c // 8, c % 8]", "x[0, 0, 0]")
    both = [Allocate("b", (rows, 8), "float32", "local") for rows in (4, 6)]
    body = Block((Block((both[0], written)), Block((both[1], written))))
    done, _ = with_joined_axes(replace(kernel(body), arrays={}))
    assert [node.shape for node in nodes_in(done.body) if isinstance(node, Allocate)] == [(4, 8), (6, 8)]
    assert {str(s.target) for s in stores_in(done.body)} == {"b[c // 8, c % 8]"}


def test_an_axis_of_a_size_that_is_not_known_stays() -> None:
    found, elements = joined(loop("c", "4", store("y[0, 0, 0]", "z[1, c // 8, c % 8]")))
    assert found == ()
    assert elements[1] == "z[1, c // 8, c % 8]"


def test_rows_that_data_name_stay() -> None:
    inside = store("y[0, 0, 0]", "x[int64(z[0, 0, 0]), c // 8, c % 8]")
    assert joined(loop("c", "4", inside))[0] == ()


def test_what_is_asked_for_ahead_has_the_name_of_what_is_read() -> None:
    body = loop("c", "48", store("y[0, 0, 0]", "x[1, c // 8, c % 8]"))
    ahead = replace(body, ahead=((element("x[2, c // 8, c % 8]"), False),))
    arrays = {name: Tensor(name, shape, "float32", "input") for name, shape in SHAPES.items()}
    done, _ = with_joined_axes(replace(kernel(ahead), arrays=arrays))
    ((asked, _),) = done.body.ahead  # type: ignore[union-attr]
    assert str(asked) == "x_rows[2, c]"
