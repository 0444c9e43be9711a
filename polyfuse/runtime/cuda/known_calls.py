"""Calls on GPU arrays that were checked before: replay their graph directly.

    (stream, each array's address, shape, strides, dtype, device)  ──known──>  buffers, addresses  ──>  replay
                                                                   ──new────>  matched, checked, then known

An array is what its key says: one that was freed and another in its place are the same memory, of the same shape. What
a key does not say is asked anew: whether the graph is still kept, and whether the constants on the device are those
that the call is to see. Arrays whose values have to be checked in every call (rows of a table) are never known.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

from polyfuse.ir.tensor import Tensor
from polyfuse.runtime.cuda.device_libraries import CuPy, Library, Order, Torch, made
from polyfuse.runtime.cuda.runner import CAPTURED, Buffers, CudaProgram

MOST = 4 * CAPTURED
"""Calls that are known at a time; then all are forgotten, and those that come again are checked again."""


@dataclass(frozen=True)
class KnownCall:
    """A call whose arguments were found right.

    `names` are the arrays by position, inputs first; `addresses` those that were given; `made` the results that are new
    in every call, with their shapes.
    """

    held: Buffers
    sizes: dict[str, int]
    order: Order
    names: tuple[str, ...]
    addresses: tuple[int, ...]
    made: tuple[tuple[Tensor, tuple[int, ...]], ...]


class KnownCalls:
    """The calls that are known of one program with one set of constants. Safe from several threads.

    Calling it gives the result, or NotImplemented for a call that is not known: then nothing has run.
    """

    def __init__(self, program: CudaProgram, inputs: int) -> None:
        self._program, self._inputs = program, inputs
        self._library: Torch | CuPy | None = None
        self._calls: dict[Hashable, KnownCall] = {}
        self._retired = False

    def __call__(self, args: tuple[Any, ...], out: Any) -> Any:
        """Run on inputs in the nest's order, with `out` as an executable's."""
        library = self._library
        if library is None or len(args) != self._inputs:
            return NotImplemented
        results = () if out is None else out if isinstance(out, tuple) else (out,)
        try:
            call = self._calls.get(library.key((*args, *results)))
        except (AttributeError, RuntimeError, TypeError):
            return NotImplemented  # an array of another library: a full call says what it is
        if call is None:
            return NotImplemented
        addresses = call.addresses
        if call.made:
            gpu = self._program.gpu
            results = tuple([made(library, t, shape, args[0], gpu, call.order) for t, shape in call.made])
            addresses = (*addresses, *map(library.address, results))
        if not self._program.again(call.held, self, call.names, addresses, call.sizes, call.order.stream):
            return NotImplemented
        return results if len(results) > 1 else results[0] if results else None

    def repeated(self, args: tuple[Any, ...], out: Any, result: Any) -> Callable[[], bool] | None:
        """A call that has run on some inputs and `out`, and gave a result, to run on these very arrays; None for one
        that is not known.

        What is returned runs it, unless it says that it did not: on another stream, for an array that lies elsewhere
        now, or with constants that are no longer those of then.
        """
        library = self._library
        if library is None:
            return None
        results = result if isinstance(result, tuple) else () if result is None else (result,)
        try:
            call = self._calls.get(library.key((*args, *(() if out is None else results))))
        except (AttributeError, RuntimeError, TypeError):
            return None
        if call is None:
            return None
        arrays, address, current = (*args, *results), library.address, library.current
        addresses = tuple(map(address, arrays))
        program, stream = self._program, call.order.stream

        def again() -> bool:
            same = not self._retired and current() == stream and tuple(map(address, arrays)) == addresses
            return same and program.again(call.held, self, call.names, addresses, call.sizes, stream)

        return again

    def retire(self) -> None:
        """The constants are others from now on: nothing is known any more."""
        self._retired = True
        self._calls.clear()

    def learn(self, library: Library, arrays: tuple[Any, ...], call: KnownCall) -> None:
        """A call was checked and has run: inputs in the nest's order, then the results that were given."""
        if self._retired or not isinstance(library, Torch | CuPy):
            return
        if len(self._calls) >= MOST:
            self._calls.clear()
        self._calls[library.key(arrays)] = call
        self._library = library
