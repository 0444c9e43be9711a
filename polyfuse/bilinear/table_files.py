"""Load algorithms from files: AlphaTensor's .npz, JSON, and text."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np

from polyfuse.bilinear.algorithm import Algorithm, algorithm
from polyfuse.bilinear.stored import Array, arrays_in
from polyfuse.bilinear.table_text import from_text
from polyfuse.errors import InvalidAlgorithm, quantity


def load(path: str | os.PathLike[str], entry: str | None = None, modulus: int = 0) -> Algorithm:
    """Load an algorithm from a file, and prove it.

    - `.npz`: AlphaTensor's `factorizations_r.npz` and `factorizations_f2.npz`. An entry "m,k,n" holds u (mk x r),
      v (kn x r) and w (nm x r), where w numbers the blocks of the transposed result. Lists of arrays inside such a
      file are pickles: their bytes are parsed, and nothing in them is executed.
    - `.json`: {"shape": [m, k, n], "U": r rows of mk, "V": r rows of kn, "W": mn rows of r, "modulus": 0 or 2}
    - any other file is text in the format of `from_text`.

    Args:
        path: The file.
        entry: The entry of an `.npz` file that holds several, such as "4,4,4".
        modulus: 2 for a table that multiplies modulo 2 only, else 0.

    Returns:
        The proven algorithm.

    Raises:
        InvalidAlgorithm: if the file cannot be read, or its identity is false; the message names the file.
    """
    file = Path(path)
    if not file.is_file():
        raise InvalidAlgorithm(f"there is no file {file}")
    if file.suffix == ".npz":
        return _from_npz(file, entry, modulus)
    if entry is not None:
        raise InvalidAlgorithm(f"{file} holds one algorithm; entry={entry!r} is for .npz files")
    try:
        text = file.read_text()
    except UnicodeDecodeError as error:
        raise InvalidAlgorithm(f"{file} is neither .npz nor text: {error}") from error
    return _from_json(file, text, modulus) if file.suffix == ".json" else from_text(str(file), text, modulus)


def _from_npz(file: Path, entry: str | None, modulus: int) -> Algorithm:
    found = arrays_in(file)
    if entry is None and len(found) == 1:
        (entry,) = found
    if entry not in found:
        given = f"no entry {entry!r}" if entry is not None else f"{len(found)} entries, and entry= names none"
        raise InvalidAlgorithm(f"{file} has {given}; expected one of {', '.join(found)}")
    name = f"{file.name}[{entry}]"
    sizes = entry.split(",")
    if len(sizes) != 3 or not all(size.strip().isdigit() for size in sizes) or len(found[entry]) != 3:
        raise InvalidAlgorithm(
            f"{name}: expected an entry named m,k,n of three tables, found {quantity(len(found[entry]), 'table')}"
        )
    m, k, n = (int(size) for size in sizes)
    u, v, w = found[entry]
    return algorithm(name, (m, k, n), u.T, v.T, _transposed(name, w, m, n), modulus=modulus)


def _transposed(name: str, w: Array, m: int, n: int) -> Array:
    """Rows for the blocks of C instead of those of its transpose: n m x r -> m n x r."""
    if w.ndim != 2 or w.shape[0] != n * m:
        raise InvalidAlgorithm(f"{name}: W has the shape {w.shape}, expected {n * m} rows")
    return np.ascontiguousarray(w.reshape(n, m, -1).transpose(1, 0, 2)).reshape(m * n, -1)


def _from_json(file: Path, text: str, modulus: int) -> Algorithm:
    try:
        data = json.loads(text)
        m, k, n = data["shape"]
        tables = data["U"], data["V"], data["W"]
        found = int(data.get("modulus", 0))
        return algorithm(data.get("name", str(file)), (m, k, n), *tables, modulus=modulus or found)
    except (json.JSONDecodeError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise InvalidAlgorithm(
            f'{file}: expected {{"shape": [m, k, n], "U": …, "V": …, "W": …}}: {type(error).__name__} {error}'
        ) from error
