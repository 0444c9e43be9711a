"""The check of external links, without a network."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "docs"))

import links


def test_links_are_found_with_their_pages(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text(
        "See [a](https://a.example/x) and <https://b.example/y>.", encoding="utf-8"
    )
    assert links.links(tmp_path) == {
        "https://a.example/x": ["README.md"],
        "https://b.example/y": ["README.md"],
    }
    assert links.links()


def test_a_link_that_is_gone_is_broken_and_a_refusal_is_not() -> None:
    answers = {"https://a": "200", "https://b": "404", "https://c": "403"}
    broken, said = links.check(answers, answers.__getitem__)
    assert broken == ["https://b"]
    assert said == "links: 3 checked, 1 broken"


def test_without_a_network_nothing_is_broken() -> None:
    broken, said = links.check(["https://a", "https://b"], lambda link: "no answer: refused")
    assert broken == []
    assert said == "links: not checked, as none of 2 servers answers: there is no network here"
