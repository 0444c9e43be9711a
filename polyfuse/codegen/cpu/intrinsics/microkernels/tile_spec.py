"""The shape of a tile of sums in registers, as a value that all operations on such tiles are given.

    tile_mac(TileSpec(rows=8, columns=32), y=y, y_at=(0, 0), …)

numba knows a spec by its type alone: specs of equal numbers are one type, and nothing of one is left in machine code.
"""

from __future__ import annotations

from dataclasses import dataclass
from inspect import Parameter, Signature, signature
from typing import Any

from numba.core import types
from numba.core.datamodel.models import OpaqueModel
from numba.core.typing.templates import AbstractTemplate, infer_global
from numba.core.typing.templates import signature as typed
from numba.extending import lower_builtin, register_model

AT_LEAST = "at least "
"""The prefix of `cases` where it does not list all of them."""


@dataclass(frozen=True)
class TileSpec:
    """The number of rows and columns of sums a tile has at most; a row of a product is a tile of one.

    last_rows, last_columns: of a tile that may be cut short, how many there are where there are fewer; 0 if that is
    not known.
    cases: of a tile over windows, all that the rows of each step can be, "1:14 0:14 0:14 or 0:14 0:14 0:13", or bounds
    of rows that are there whatever they are, "at least 1:14 0:14 0:13".
    lanes: of a tile of dot products, how many partial sums each is added up in.
    """

    rows: int
    columns: int
    last_rows: int = 0
    last_columns: int = 0
    cases: str = ""
    lanes: int = 0

    def __str__(self) -> str:
        """Its source.

        >>> str(TileSpec(8, 32, last_columns=13))
        'TileSpec(rows=8, columns=32, last_columns=13)'
        """
        shown = [f"rows={self.rows}", f"columns={self.columns}"]
        others = {name: getattr(self, name) for name in ("last_rows", "last_columns", "cases", "lanes")}
        return f"TileSpec({', '.join([*shown, *(f'{name}={value!r}' for name, value in others.items() if value)])})"


class TileSpecType(types.Type):
    """The type of one spec."""

    def __init__(self, spec: TileSpec) -> None:
        self.spec = spec
        super().__init__(str(spec))


register_model(TileSpecType)(OpaqueModel)


@infer_global(TileSpec)
class _TypeOfASpec(AbstractTemplate):
    """Return the numba type of a spec in compiled source, where its numbers and its text are literals."""

    prefer_literal = True

    def generic(self, args: Any, kws: Any) -> Any:
        given = signature(TileSpec).bind(*args, **kws).arguments
        if not all(isinstance(kind, types.Literal) for kind in given.values()):
            return None
        spec = TileSpec(**{name: kind.literal_value for name, kind in given.items()})
        parameters = [Parameter(name, Parameter.POSITIONAL_OR_KEYWORD) for name in given]
        return typed(TileSpecType(spec), *given.values()).replace(pysig=Signature(parameters))


@lower_builtin(TileSpec, types.misc.VarArg(types.Any))
def _spec(context: Any, *_: Any) -> Any:
    return context.get_dummy_value()
