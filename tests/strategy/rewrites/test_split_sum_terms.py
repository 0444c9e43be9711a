"""Terms of a sum as sums of their own: which sums are asked about, and which are taken apart."""

from __future__ import annotations

from dataclasses import replace

import pytest

from polyfuse.ir import Nest, Tensor, statement
from polyfuse.strategy.rewrites.reductions import split_sum_terms
from tests.support.models import CPU


@pytest.mark.parametrize(
    ("step", "asked"), [("a[i, k] + b[j, k]", 0), ("a[i, k] * b[k, j] + b[i, k] * a[k, j]", 1)]
)
def test_only_sums_of_products_are_made(step: str, asked: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The nest with terms apart has dependences of its own, which cost more than to see that a term is no product."""
    tensors = [Tensor(name, (64, 64), "float64", "input") for name in "ab"]
    domain = "{ S[i, j, k] : 0 <= i < 64 and 0 <= j < 64 and 0 <= k < 64 }"
    every = [*tensors, Tensor("s", (64, 64), "float64", "inout")]
    nest = Nest.of(every, [statement(domain, f"s[i, j] += {step}")])
    made: list[str] = []
    terms = split_sum_terms.terms

    def counted(nest: Nest, statement: str) -> split_sum_terms.Terms:
        made.append(statement)
        return terms(nest, statement)

    monkeypatch.setattr(split_sum_terms, "terms", counted)
    _, remarks = split_sum_terms.with_terms_apart(nest, replace(CPU, units=1))
    assert (len(made), len(remarks)) == (asked, asked)
