"""A call on fixed arrays that can be repeated: checked once, then replayed.

    call = net.capture(x, w, out=y)  ->  one whole call: arguments matched and checked, kernels run
    call()                           ->  the same memory: one graph on a GPU, the compiled entry on a CPU

As a captured graph of torch's it is for arrays whose elements change and that stay where they are. What it still asks
is cheap: whether the stream, the arrays' addresses and the constants are those of before. If not, it is a whole call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Captured:
    """A call that can be repeated on the same arrays, which it keeps alive."""

    def __init__(self, result: Any, whole: Callable[[], Any], again: Callable[[], bool] | None) -> None:
        """`whole` makes the call as any other and gives the result; `again` tries the short way, and says if it did."""
        self.result = result
        """The call's result: the same array each time, several as a tuple, None if there is none."""
        self._whole, self._again = whole, again

    def __call__(self) -> Any:
        """Make the call again."""
        if self._again is not None and self._again():
            return self.result
        return self._whole()
