"""Algorithms from files: AlphaTensor's layout without pickle, JSON, text, and files that are none."""

from __future__ import annotations

import json
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import polyfuse as pf
from polyfuse.bilinear import Algorithm


def as_alphatensor(x: Algorithm, dtype: str = "<i4") -> np.ndarray:
    """u, v, w as the public files have them: columns of products, and w for the transposed result."""
    u, v, w = (np.array(table, dtype) for table in (x.left, x.right, x.result))
    transposed = w.reshape(x.m, x.n, -1).transpose(1, 0, 2).reshape(x.n * x.m, -1)
    parts = [np.asfortranarray(u.T), np.ascontiguousarray(v.T), transposed]
    if len({part.shape for part in parts}) == 1:
        return np.stack(parts)
    found = np.empty(3, object)
    found[:] = parts
    return found


MIXED = pf.bilinear.kronecker(pf.bilinear.strassen, pf.bilinear.classical(1, 3, 2))


@pytest.mark.parametrize("dtype", ["<i4", "<i8", "<f8", ">i2"])
@pytest.mark.parametrize("x", [pf.bilinear.strassen, pf.bilinear.laderman, MIXED], ids=lambda x: x.name)
def test_the_layout_of_alphatensor(x: Algorithm, dtype: str, tmp_path: Path) -> None:
    key = f"{x.m},{x.k},{x.n}"
    np.savez(tmp_path / "some.npz", **{key: as_alphatensor(x, dtype), "1,1,1": np.ones((3, 1, 1), int)})
    found = pf.bilinear.load(tmp_path / "some.npz", key)
    assert (found.left, found.right, found.result) == (x.left, x.right, x.result)
    with pytest.raises(
        pf.InvalidAlgorithm, match=r"2 entries, and entry= names none; expected one of \d,\d,\d, 1,1,1"
    ):
        pf.bilinear.load(tmp_path / "some.npz")


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_pickles_are_read_and_never_run(protocol: int, tmp_path: Path) -> None:
    ran = tmp_path / "ran"

    class Harmful:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return (open, (str(ran), "w"))

    for name, value in (("harmful", Harmful()), ("list", [1, 2, 3]), ("text", "abc")):
        header = b"{'descr': '|O', 'fortran_order': False, 'shape': (3,), }"
        header += b" " * (117 - len(header)) + b"\n"
        data = (
            b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + pickle.dumps(value, protocol)
        )
        with zipfile.ZipFile(tmp_path / f"{name}.npz", "w") as file:
            file.writestr("2,2,2.npy", data)
        with pytest.raises(pf.InvalidAlgorithm, match=f"{name}.npz, 2,2,2.npy has no readable arrays"):
            pf.bilinear.load(tmp_path / f"{name}.npz")
    assert not ran.exists()


def test_json_and_text(tmp_path: Path) -> None:
    x = pf.bilinear.laderman
    data = {"shape": [3, 3, 3], "U": x.left, "V": x.right, "W": x.result, "name": "mine"}
    (tmp_path / "x.json").write_text(json.dumps(data))
    assert str(pf.bilinear.load(tmp_path / "x.json")) == "mine <3, 3, 3; 23>"
    (tmp_path / "x.txt").write_text(pf.bilinear.to_text(x))
    assert pf.bilinear.load(tmp_path / "x.txt").result == x.result


@given(st.sampled_from([*pf.bilinear.KNOWN.values(), MIXED, pf.bilinear.classical(1, 11, 1)]))
def test_text_is_read_back(x: Algorithm) -> None:
    again = pf.bilinear.from_text("again", pf.bilinear.to_text(x))
    assert (again.left, again.right, again.result) == (x.left, x.right, x.result)


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("x.npz", b"no zip", "x.npz is not an .npz file"),
        ("x.json", b"{", 'expected {"shape"'),
        ("x.json", b'{"shape": [1, 1, 1], "U": [[1]]}', "KeyError 'V'"),
        ("x.json", b'{"shape": [1, 1, 1], "U": [[1]], "V": [[1]], "W": [[2]]}', "occurs 2 times in C"),
        ("x.json", b'{"shape": [1, 1, 1], "U": [["a"]], "V": [[1]], "W": [[2]]}', "ValueError"),
        ("x.txt", b"2 2", "the first line gives the blocks"),
        ("x.txt", b"1 1 1\na11 b11", "line 2: cannot read 'a11 b11'"),
        ("x.txt", b"1 1 1\na12 b11 -> c11", "line 2: there is no block a12 of 1 x 1"),
        ("x.txt", b"1 1 1\na11 b11 -> c11 2 c11", "line 2: cannot read ' 2 c11'"),
        ("x.txt", b"\xff\xfe", "neither .npz nor text"),
        ("none.txt", None, "there is no file"),
    ],
)
def test_files_that_are_none(name: str, content: bytes | None, why: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(pf.InvalidAlgorithm, match=why.replace("{", r"\{")):
        pf.bilinear.load(tmp_path / name)


def test_entries_of_other_shapes(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", **{"2,2,2": np.ones((3, 4, 7), int)[:, :3], "a,b": np.ones((3, 1, 1), int)})
    with pytest.raises(pf.InvalidAlgorithm, match="W has the shape"):
        pf.bilinear.load(tmp_path / "x.npz", "2,2,2")
    with pytest.raises(pf.InvalidAlgorithm, match="expected an entry named m,k,n"):
        pf.bilinear.load(tmp_path / "x.npz", "a,b")
    (tmp_path / "x.txt").write_text("1 1 1\na11 b11 -> c11")
    with pytest.raises(pf.InvalidAlgorithm, match=r"entry='x' is for \.npz files"):
        pf.bilinear.load(tmp_path / "x.txt", "x")
