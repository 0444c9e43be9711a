"""An access finds its subscripts once, and they stay behind where it goes to another process."""

from __future__ import annotations

import pickle

import islpy as isl

from polyfuse.ir import Access


def test_subscripts_are_found_once_and_not_pickled() -> None:
    access = Access("x", isl.Map("{ S[i, j] -> x[floor((i + 3)/4), j mod 4] }"))
    subscripts = access.subscripts()
    assert access.subscripts() is subscripts
    again = pickle.loads(pickle.dumps(access))
    assert again.subscripts().is_equal(subscripts)
    assert list(again.__getstate__()) == ["tensor", "map"]
