"""`vjp` and `grad` under a limit of memory for what the forward pass keeps."""

from __future__ import annotations

from collections.abc import Callable

from polyfuse.errors import BadArgument, IllegalRewrite
from polyfuse.errors.proving import proving
from polyfuse.ir import Nest
from polyfuse.ir.whole import whole
from polyfuse.machine import Machine
from polyfuse.rewrite.gradient import Reversed
from polyfuse.rewrite.gradient.activity import Names
from polyfuse.rewrite.gradient.checkpoints import Checkpoints
from polyfuse.rewrite.gradient.reverse import Unreached, reverse, reverse_scalar
from polyfuse.strategy.rewrites.kept_values import Kept, kept_bytes, within_memory


@proving("the rewrite vjp")
def vjp(
    nest: Nest,
    wrt: Names = None,
    outputs: Names = None,
    *,
    values: bool = False,
    unreached: Unreached = "zero",
    memory: int | None = None,
    checkpoints: Checkpoints | None = None,
    machine: Machine | str | None = None,
) -> Nest:
    """Return the nest of a vector-Jacobian product: reverse-mode gradients.

    for i: y[i] = x[i] * x[i]    ->    for i: x_grad[i] = y_bar[i] * 2.0 * x[i]

    It is called with the nest's inputs, then a cotangent of each of `outputs`, of its shape and element type, and
    returns the gradients in the order of `wrt`; with `values`, the values of `outputs` first. An inout array is not
    changed: its cotangent is that of its last value, its gradient that of its first.

    Griewank and Walther, Evaluating Derivatives (2008), chapter 3; Hückelheim et al., PerforAD (2019).

    Args:
        nest: The nest.
        wrt: Names of inputs, inouts or constants of floating-point numbers; by default all inputs and inouts of them.
        outputs: Names of outputs or inouts; by default all of floating-point numbers.
        values: True returns the values too.
        unreached: The gradient of a tensor that no derivative connects with the outputs: "zero", or "error".
        memory: The bytes of temporaries that the forward pass may keep for the backward pass; others are computed again
            there (`kept_values` says which, and why). By default all are kept.
        checkpoints: Cut the time loop that keeps the most values in so many segments; "auto" takes the number that
            needs the fewest bytes. Its state is kept where a segment begins, and each segment runs again before its
            adjoint. By default values are kept for all iterations, unless `memory` is less than they need.
        machine: With `memory`: a machine, or the name of a preset, whose model prices both; by default this computer.

    Returns:
        The nest. Its cotangents are named y_bar, its gradients x_grad.

    Raises:
        BadArgument: if a name is unknown, or of integers, or no input or output; for an unreached tensor; or for a
            limit that no choice meets: the message has the least that one does.
        IllegalRewrite: if a value that the gradient needs cannot be kept, or no loop can run in segments.
    """

    def made(checkpoints: Checkpoints | None) -> Reversed:
        return reverse(nest, wrt, outputs, values=values, unreached=unreached, checkpoints=checkpoints)

    return _within(made, memory, checkpoints, machine, "vjp")


@proving("the rewrite grad")
def grad(
    nest: Nest,
    wrt: Names = None,
    *,
    values: bool = False,
    unreached: Unreached = "zero",
    memory: int | None = None,
    checkpoints: Checkpoints | None = None,
    machine: Machine | str | None = None,
) -> Nest:
    """Return the nest of the gradient of a scalar: `vjp` with the cotangent 1.

    Args:
        nest: A nest with one output of one element.
        wrt: As for `vjp`.
        values: True returns the output's value first.
        unreached: As for `vjp`.
        memory: As for `vjp`.
        checkpoints: As for `vjp`.
        machine: As for `vjp`.

    Returns:
        The nest: it is called with the nest's inputs and returns the gradients in the order of `wrt`.

    Raises:
        BadArgument: if the nest has several outputs or more than one element, or as for `vjp`.
        IllegalRewrite: as for `vjp`.
    """

    def made(checkpoints: Checkpoints | None) -> Reversed:
        return reverse_scalar(nest, wrt, values=values, unreached=unreached, checkpoints=checkpoints)

    return _within(made, memory, checkpoints, machine, "grad")


def _within(
    made: Callable[[Checkpoints | None], Reversed],
    memory: int | None,
    checkpoints: Checkpoints | None,
    machine: Machine | str | None,
    call: str,
) -> Nest:
    """The gradients under a limit; checkpoints that nobody asked for are taken where values that would be kept are more
    than the limit, and a time loop with checkpoints meets it.
    """
    if memory is None:
        return made(checkpoints).nest
    _check_memory(call, memory)
    found = made(checkpoints)
    over = not found.nest.params and kept_bytes(found.nest, found.forward) > memory
    if checkpoints is not None or not found.stored or not over:
        return kept_values(found, memory, machine, call).nest
    try:
        return kept_values(made("auto"), memory, machine, call).nest
    except (BadArgument, IllegalRewrite) as error:
        refused = error
    try:
        return kept_values(found, memory, machine, call).nest
    except BadArgument as error:
        raise BadArgument(f"{error}. With checkpoints: {refused}") from refused


def kept_values(
    found: Reversed, memory: int, machine: Machine | str | None = None, call: str = "kept_values"
) -> Kept:
    """Return a nest of gradients that keeps no more than so many bytes, with a remark for each value.

    Args:
        found: What `pf.rewrite.reverse` returned.
        memory: As for `vjp`.
        machine: As for `vjp`.
        call: The function that was called, for errors.

    Returns:
        The nest, how many bytes it keeps, and for each value the prices of storing it and of computing it again.

    Raises:
        BadArgument: if the sizes are symbolic, or no choice is within the limit.
    """
    _check_memory(call, memory)
    model = Machine.preset(machine) if isinstance(machine, str) else machine or Machine.detect()
    return within_memory(call, found.nest, found.forward, memory, model, found.cut)


def _check_memory(call: str, memory: int) -> None:
    if whole(f"{call}: memory", memory) < 0:
        raise BadArgument(f"{call}: memory={memory}, expected a number of bytes")
